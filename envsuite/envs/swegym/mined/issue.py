"""Issue texts of mined instances, in our own words: what fails, what it gives and what is expected.

The text is written from the failing tests (`issues.explain_failure`) and from facts of the new
release's changelog: whether the authors call the change a fix, an addition or a change of
behaviour, and the technical terms of the entry. No sentence of the changelog is copied
(`copied_words` finds such copies), and no function or class that the patch changes is named unless the
check itself calls it. `hints` names all of these; only the most detailed statement shows it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from envsuite.envs.swegym.generated.issues import LISTED, Check, explain_failure
from envsuite.envs.swegym.generated.tasks import Symptom
from envsuite.envs.swegym.mined.excerpt import excerpt_of, parameters_of
from envsuite.envs.swegym.mined.hunks import FileHunk, split_lines

SHOWN = 2
"""checks that a text shows"""
COPY = 7
"""consecutive words that count as a copy"""
_TERMS = 6
_KINDS = {
    "fix": "a bug fix",
    "add": "an addition",
    "change": "a change of behaviour",
}
_NO_WARNING = re.compile(r"It raises `(?:AssertionError: )?(\w+) not triggered.*`\.", re.DOTALL)
_CONDITION = re.compile(r"The check is false: `(?:False is not true|True is not false)`\.")
_MISSING = re.compile(r"has no attribute|unexpected keyword|cannot import|positional argument|is not defined")
"""errors of tests for functions and parameters that the old release does not have"""
_MISSING_ERROR = "No error is raised, and one is due."
_WORDS = {
    "fix": r"fix\w*|bug\w*|correct\w*|regression|crash\w*|handle[sd]?|properly|wrong\w*|no longer|resolve\w*",
    "add": r"add\w*|new|support\w*|introduc\w*|implement\w*|allow\w*|enable\w*|feature",
    "change": r"chang\w*|deprecat\w*|remov\w*|renam\w*|drop\w*|instead|default\w*|switch\w*",
}
_RAISED = re.compile(r"The check is false: `(\w+(?:\.\w+)*\.[A-Z]\w*(?:: .*)?)`\.", re.DOTALL)
_TERM = re.compile(r"``?([^`\n]{2,40})``?|\b([A-Za-z]\w*(?:[._]\w+)+|[a-z]+[A-Z]\w+|[A-Z]{2,}[0-9]*)\b")


def changed_names(old: Mapping[str, str], hunks: Iterable[FileHunk]) -> set[str]:
    """Returns the names of the functions and classes in whose code the old lines of `hunks` are, and of
    those that the hunks add.
    """
    names: set[str] = set()
    for hunk in hunks:
        names |= set(re.findall(r"^\s*(?:async def|def|class)\s+(\w+)", "".join(hunk.lines), re.MULTILINE))
        try:
            tree = ast.parse(old.get(hunk.path, ""))
        except (SyntaxError, ValueError):
            continue
        first, last = hunk.start + 1, max(hunk.end, hunk.start + 1)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if node.lineno <= last and first <= (node.end_lineno or node.lineno):
                names.add(node.name)
    return {name for name in names if not name.startswith("__")}


def checks(files: Mapping[str, str], tests: Sequence[str], symptoms: Sequence[Symptom], names: set[str]) -> list[Check]:
    """Returns the checks that a text shows: complete ones, and first those that name no changed function."""
    explained = list(
        dict.fromkeys(with_setup(files, symptom, explain_failure(files, tests, symptom)) for symptom in symptoms)
    )
    complete = [_with_raised(check) for check in explained if check.statement]

    def named(check: Check) -> int:
        return len(names & set(re.findall(r"\w+", check.statement)))

    return sorted(complete, key=lambda check: (named(check), len(check.statement) > 600))[:SHOWN]


def _with_raised(check: Check) -> Check:
    """Returns a check with a finding in plain words: errors with names of their own, and unittest's messages."""
    finding = check.finding
    if raised := _RAISED.fullmatch(finding):
        finding = f"It raises `{raised[1]}`."
    elif warning := _NO_WARNING.fullmatch(finding):
        finding = f"No `{warning[1]}` is issued, but one should be."
    elif _CONDITION.fullmatch(finding):
        finding = "The condition does not hold."
    elif finding == _MISSING_ERROR:
        finding = "No error is raised, but one should be."
    return replace(check, finding=finding)


def with_setup(files: Mapping[str, str], symptom: Symptom, check: Check) -> Check:
    """Returns a check with the statements of its test that come before it, because the agent has no such test.

    Of a test that fails for a missing function or parameter, all statements are shown: they are its specification.
    A check stays as it is if its test is not found, or if these statements are long. Its statement becomes '' if
    the values of the test's parameters or the specification are not known.
    """
    text = files.get(symptom.test.partition("::")[0], "")
    parameters = parameters_of(text, symptom.test)
    if parameters is None:
        return replace(check, statement="")
    missing = _MISSING.search(symptom.error)
    excerpt = excerpt_of(text, symptom.test, symptom.code, whole=bool(missing))
    if missing and not excerpt:
        return replace(check, statement="")
    return replace(check, statement="\n".join(filter(None, [parameters, excerpt]))) if excerpt else check


def relevant_note(notes: Sequence[str], names: set[str], tests: Sequence[str], paths: Iterable[str]) -> str:
    """Returns the entry of the changelog that shares most words with the patch and the tests; '' if none does."""
    words = {word.lower() for name in names for word in _parts(name)}
    for test in tests:
        words |= {word.lower() for word in _parts(test.partition("::")[2].partition("[")[0])}
    for path in paths:
        words |= {word.lower() for word in _parts(path.rpartition("/")[2].removesuffix(".py"))}
    words -= {"test", "tests", "py", "the", "with", "and", "for", "of", "in", "to", "is", "a"}
    scored = []
    for number, note in enumerate(notes):
        found = {word.lower() for word in _parts(note)}
        direct = sum(2 for name in names if re.search(rf"\b{re.escape(name)}\b", note))
        scored.append((direct + len(words & found), -number, note))
    best = max(scored, default=(0, 0, ""))
    return best[2] if best[0] >= 2 else ""


def _parts(name: str) -> list[str]:
    return [word for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name) if len(word) > 1]


def kind_of(note: str) -> str:
    """Returns fix, add or change for an entry of a changelog; '' if its words do not say."""
    counts = {kind: len(re.findall(rf"\b(?:{words})\b", note, re.IGNORECASE)) for kind, words in _WORDS.items()}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else ""


def terms_of(note: str, avoid: set[str]) -> list[str]:
    """Returns technical terms of an entry: code, and words that are spelled like code, without names in `avoid`."""
    terms = []
    note = re.sub(r"https?://\S+|\bwww\.\S+|`[^`]*`_+", " ", note)  # addresses, links to authors
    for code, word in _TERM.findall(note):
        term = (code or word).strip()
        if term and not avoid & set(re.findall(r"\w+", term)) and not term.startswith(("http", "#", "@")):
            terms.append(term)
    return list(dict.fromkeys(terms))[:_TERMS]


def statement(title: str, shown: Sequence[Check], note: str, names: set[str]) -> str:
    """Returns the text of an issue."""
    parts = [f"{title} {_summary(shown[0].finding)}"]
    parts += ["This check fails:\n\n" + check.text() for check in shown]
    kind = _KINDS.get(kind_of(note), "")
    terms = terms_of(note, names)
    if kind:
        facts = f"The release notes of the next version list this as {kind}"
        facts += f" and mention {', '.join(f'`{term}`' for term in terms)}." if terms else "."
        parts.append(facts)
    parts.append("Change the package itself so that this works, and break nothing that works now.")
    return "\n\n".join(parts)


def _summary(finding: str) -> str:
    """Returns the end of an issue's first sentence."""
    if finding.startswith("It raises "):
        return "does not work in the following case: it raises an error."
    if finding.startswith("No error "):
        return "does not reject input that it should reject."
    if finding.startswith("Got: "):
        return "does not return the right value in the following case."
    return "does not behave as it should in the following case."


def hints(tests: Sequence[str], paths: Sequence[str], names: set[str]) -> str:
    """Returns the details that only the most detailed statement shows."""
    more = f"\n... and {len(tests) - LISTED} more" if len(tests) > LISTED else ""
    listed = "\n".join(f"- {test}" for test in tests[:LISTED]) + more
    places = ", ".join(f"`{path}`" for path in paths)
    named = f" ({', '.join(sorted(names)[:LISTED])})" if names else ""
    return f"The fix belongs in {places}{named}.\n\nThese tests of the next release fail:\n{listed}"


def copied_words(text: str, changelog: Iterable[str], length: int = COPY) -> str:
    """Returns the first run of `length` words that the prose of a text shares with a changelog; '' if there is none."""
    prose = "\n".join(line for line in split_lines(text) if not line.startswith("    "))
    words = re.findall(r"\w+", re.sub(r"`[^`]*`", " ", prose).lower())
    source = " ".join(re.findall(r"\w+", " ".join(changelog).lower()))
    for start in range(len(words) - length + 1):
        run = " ".join(words[start : start + length])
        if f" {run} " in f" {source} ":
            return run
    return ""
