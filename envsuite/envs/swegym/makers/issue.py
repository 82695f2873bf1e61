"""Issue texts of mined instances, in our own words: what fails, what it gives and what is expected.

A text is written from the failing tests (`findings.explain`). It names a function or class that the
patch changes only if the check itself calls it. `hints` names all of them, and only the most detailed
statement shows the hints.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from envsuite.envs.swegym.makers.excerpt import excerpt_of, parameters_of
from envsuite.envs.swegym.makers.findings import TracedSymptom, explain
from envsuite.envs.swegym.makers.hunks import FileHunk
from envsuite.envs.swegym.planted.issues import LISTED, Check
from envsuite.envs.swegym.planted.tasks import Symptom

SHOWN = 2
"""checks that a text shows"""
_NO_WARNING = re.compile(r"It raises `(?:AssertionError: )?(\w+) not triggered.*`\.", re.DOTALL)
_CONDITION = re.compile(r"The check is false: `(?:False is not true|True is not false)(?: : (.*))?`\.", re.DOTALL)
_MISSING = re.compile(r"has no attribute|unexpected keyword|cannot import|positional argument|is not defined")
"""errors of tests for functions and parameters that the old release does not have"""
_MISSING_ERROR = "No error is raised, and one is due."
_RAISED = re.compile(r"The check is false: `(\w+(?:\.\w+)*\.[A-Z]\w*(?:: .*)?)`\.", re.DOTALL)


def changed_names(old: Mapping[str, str], hunks: Iterable[FileHunk]) -> set[str]:
    """Returns the names of the functions and classes whose old lines `hunks` change or that `hunks` add."""
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
    """Returns the checks that a text shows. Checks that name no changed function come first."""
    explained = list(dict.fromkeys(with_setup(files, symptom, explain(files, tests, symptom)) for symptom in symptoms))
    complete = [_in_plain_words(check) for check in explained if check.statement]

    def named(check: Check) -> int:
        return len(names & set(re.findall(r"\w+", check.statement)))

    return sorted(complete, key=lambda check: (named(check), len(check.statement) > 600))[:SHOWN]


def _in_plain_words(check: Check) -> Check:
    """Returns a check whose finding explains unittest's messages and errors that a package defines."""
    finding = check.finding
    if raised := _RAISED.fullmatch(finding):
        finding = f"It raises `{raised[1]}`."
    elif warning := _NO_WARNING.fullmatch(finding):
        finding = f"No `{warning[1]}` is issued, but one should be."
    elif condition := _CONDITION.fullmatch(finding):
        finding = f"The condition is not met: `{condition[1]}`." if condition[1] else "The condition is not met."
    elif finding == _MISSING_ERROR:
        finding = "No error is raised, but one should be."
    return replace(check, finding=finding)


def with_setup(files: Mapping[str, str], symptom: Symptom, check: Check) -> Check:
    """Returns a check with the statements of its test that precede it: the agent does not have the test.

    If a function or parameter is missing, the check shows the whole test, which is its specification.
    A check stays as it is if its test is not in `files`, or if the statements are long. Its statement becomes ''
    if the values of the test's parameters or the specification are not known.
    """
    text = files.get(symptom.test.partition("::")[0], "")
    parameters = parameters_of(text, symptom.test)
    if parameters is None:
        return replace(check, statement="")
    missing = _MISSING.search(symptom.error)
    line = symptom.line if isinstance(symptom, TracedSymptom) else 0
    excerpt = excerpt_of(text, symptom.test, symptom.code, entire=bool(missing), number=line)
    if missing and not excerpt:
        return replace(check, statement="")
    return replace(check, statement="\n".join(filter(None, [parameters, excerpt]))) if excerpt else check


def statement(title: str, quoted: Sequence[Check]) -> str:
    """Returns the text of an issue of the release `title` with the checks `quoted`."""
    parts = [f"{title} {_summary(quoted[0].finding)}"]
    parts += ["This check fails:\n\n" + check.text() for check in quoted]
    parts.append("Change the package itself so that this works, and break nothing that works now.")
    return "\n\n".join(parts)


def _summary(finding: str) -> str:
    """Returns the end of an issue's first sentence."""
    if finding.startswith("It raises "):
        return "does not work in the following case: it raises an error."
    if finding.startswith("No error "):
        return "does not reject input that it should reject."
    if finding.startswith("The error has another message."):
        return "does not give the right error message in the following case."
    if finding.startswith(("Got: ", "`")):
        return "does not return the right value in the following case."
    return "does not behave as it should in the following case."


def hints(tests: Sequence[str], paths: Sequence[str], names: set[str]) -> str:
    """Returns the details that only the most detailed statement shows."""
    more = f"\n... and {len(tests) - LISTED} more" if len(tests) > LISTED else ""
    listed = "\n".join(f"- {test}" for test in tests[:LISTED]) + more
    files = ", ".join(f"`{path}`" for path in paths)
    named = f" ({', '.join(sorted(names)[:LISTED])})" if names else ""
    return f"The fix belongs in {files}{named}.\n\nThese tests of the next release fail:\n{listed}"
