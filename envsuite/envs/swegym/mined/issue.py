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
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from envsuite.envs.swegym.generated.issues import LISTED, Check, explain_failure
from envsuite.envs.swegym.generated.tasks import Symptom
from envsuite.envs.swegym.mined.hunks import FileHunk, split_lines

SHOWN = 2
"""checks that a text shows"""
SETUP, SETUP_LINES = 1200, 25
"""characters and lines of the statements up to a check"""
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

    Of many statements, only those are taken that bind or call names which the check needs. The `setUp` of a test
    case comes first if the check uses `self`. A check stays as it is if its test is not found, or if these
    statements are long.
    """
    path, _, name = symptom.test.partition("::")
    test = re.sub(r"\[.*", "", name, flags=re.DOTALL).rpartition("::")[2]
    text = files.get(path, "")
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return check
    lines = text.splitlines()
    for owner, function in _tests(nodes, test):
        before: list[ast.stmt] = []
        for node in function.body:
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                before.append(node)
            inside = lines[node.lineno - 1 : node.end_lineno]
            if symptom.code and any(line.strip().startswith(symptom.code) for line in inside):
                statements = [*_set_up(owner, before), *before]
                source = _source(lines, statements)
                if not _fits(source):
                    source = _source(lines, _needed(statements))
                if _fits(source):
                    return replace(check, statement="\n".join([*_parameters(function, check), source]))
    return check


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _tests(nodes: Sequence[ast.AST], name: str) -> Iterator[tuple[ast.ClassDef | None, _Function]]:
    """Yields the test functions of a name, each with its class."""
    owners = {id(part): node for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    for node in nodes:
        if isinstance(node, _Function) and node.name == name:
            yield owners.get(id(node)), node


def _set_up(owner: ast.ClassDef | None, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements of a test case's `setUp` if `statements` use an attribute that it sets."""
    parts = owner.body if owner else []
    methods = [node for node in parts if isinstance(node, ast.FunctionDef) and node.name in ("setUp", "setup_method")]
    body = [node for method in methods for node in method.body]
    assigned = {
        node.attr for part in body for node in ast.walk(part)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }  # fmt: skip
    used = {node.attr for part in statements for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    return body if assigned & used else []


def _needed(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the last statement, and those before it that bind, or call a method of, a name that it needs."""
    *before, last = statements
    chosen, names = [last], _names(last)
    for node in reversed(before):
        bound = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        bound |= {part.name for part in ast.walk(node) if isinstance(part, (*_DEFINITIONS, ast.alias))}
        call = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id != "self":
            bound.add(call.value.id)
        if bound & names:
            chosen.append(node)
            names |= _names(node)
    return chosen[::-1]


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _source(lines: Sequence[str], statements: Sequence[ast.stmt]) -> str:
    """Returns the source of statements; successive ones with the comments and empty lines between them."""
    blocks: list[list[int]] = []
    previous: ast.stmt | None = None
    for node in statements:
        first, last = node.lineno, node.end_lineno or node.lineno
        for decorator in getattr(node, "decorator_list", ()):
            first = min(first, decorator.lineno)
        between = lines[blocks[-1][1] : first - 1] if previous is not None else ["x"]
        if first > (blocks[-1][1] if blocks else 0) and all(
            not line.strip() or line.strip()[0] == "#" for line in between
        ):
            blocks[-1][1] = last
        else:
            blocks.append([first, last])
        previous = node
    return "\n".join(textwrap.dedent("\n".join(lines[first - 1 : last])) for first, last in blocks)


def _fits(source: str) -> bool:
    return len(source) <= SETUP and len(source.splitlines()) <= SETUP_LINES


def _parameters(function: _Function, check: Check) -> list[str]:
    """Returns the comment with the case's parameters, with their names if one decorator gives them."""
    comment = [line for line in check.statement.splitlines()[:1] if line.startswith("# parameters: ")]
    given = [
        node.args[0].value
        for node in function.decorator_list
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize") and node.args
        and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    ]  # fmt: skip
    if len(given) == 1 and len(function.decorator_list) == 1:
        return [line.replace("# parameters: ", f"# {given[0]}: ", 1) for line in comment]
    return comment


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
    note = re.sub(r"https?://\S+|\bwww\.\S+", " ", note)
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
