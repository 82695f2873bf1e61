"""Findings of failed checks with whole values: what a check gives, and what it expects.

`traced` reads pytest's explanation of a failure. `explain` adds to `issues.explain_failure`: values that a
helper of the test compares, results of calls in a condition, messages that a pattern does not match, and
assertions of the package itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envsuite.envs.swegym.makers.generator import symptom_of, symptoms_of
from envsuite.envs.swegym.planted import issues
from envsuite.envs.swegym.planted.issues import FALSE, Check
from envsuite.envs.swegym.planted.tasks import Symptom

CHARACTERS = 40_000
"""characters of an error"""
LONGEST = 500
"""characters of a value; of longer ones the part around the first difference is shown"""
_BEFORE, _AFTER = 60, 240
"""characters shown before and after the first difference"""
_CALL = 300
"""characters of a call in a finding"""
_FRAME = re.compile(r"(?P<path>\S+):(?P<line>\d+): in (?P<function>\S+)")
_DIFFER = re.compile(r"(AssertionError: )?(?:Lists|Tuples|Sequences|Sets) differ: ")
_CONDITION = re.compile(r"(?:AssertionError: )?assert (?:not )?(?P<value>.+)")
_PATTERN = re.compile(r"Expected regex: (?P<pattern>.+)\nActual message: (?P<message>.+)")


@dataclass(frozen=True)
class TracedSymptom(Symptom):
    """Error of a failing test, and where it was raised."""

    inner: str = ""
    """innermost line of the traceback in the test's own file: in a helper, if the test calls one"""
    raised_in: str = ""
    """file in which the error was raised"""
    line: int = 0
    """number of the line `code`; 0 if it is not known"""
    inner_line: int = 0


def traced(tests: Sequence[str], failures: Mapping[str, str]) -> tuple[TracedSymptom, ...]:
    """Returns the errors of up to three failing tests. `failures`: pytest's explanations with whole values."""
    chosen = [symptom.test for symptom in symptoms_of(tests, dict(failures))]
    return tuple(_traced(test, failures.get(test, "")) for test in chosen)


def _traced(test: str, failure: str) -> TracedSymptom:
    symptom = symptom_of(test, failure, CHARACTERS)
    lines = [*failure.splitlines(), ""]
    frames = [(lines[number + 1], match) for number, line in enumerate(lines) if (match := _FRAME.match(line))]
    own = [(code, match) for code, match in frames if match["path"] == test.partition("::")[0] and code[:4] == "    "]
    outer = next(((code, match) for code, match in own if match["function"].startswith("test")), None)
    return TracedSymptom(
        test,
        outer[0].strip()[:200] if outer else symptom.code,
        symptom.error,
        inner=symptom.code,
        raised_in=frames[-1][1]["path"] if frames else "",
        line=int(outer[1]["line"]) if outer else 0,
        inner_line=int(own[-1][1]["line"]) if own else 0,
    )


def explain(files: Mapping[str, str], tests: Sequence[str], symptom: Symptom) -> Check:
    """Explains the failure of one test in the tree `files`; `tests` are its Python files that are not code."""
    symptom = replace(symptom, error=_DIFFER.sub(r"\1", symptom.error, count=1))
    if not isinstance(symptom, TracedSymptom):
        return issues.explain_failure(files, tests, symptom, complete=True)
    check = _explained(files, tests, symptom)
    first = symptom.error.partition("\n")[0]
    if symptom.raised_in in files and symptom.raised_in not in tests and first.startswith("AssertionError"):
        return replace(check, finding=f"It raises `{first if len(first) <= _CALL else 'AssertionError'}`.")
    inner = replace(symptom, code=symptom.inner, line=symptom.inner_line)
    if not check.got and symptom.inner != symptom.code:
        compared = _explained(files, tests, inner)
        check = replace(compared, statement=check.statement) if compared.sides else check
    if check.got:
        got, expected = shortened(check.got, check.expected)
        return replace(check, finding=f"Got: `{got}`\nExpected: `{expected}`")
    if check.sides:
        left, right = shortened(*check.sides)
        return replace(check, finding=f"Left side: `{left}`\nRight side: `{right}`")
    if match := _PATTERN.search(symptom.error):
        got, expected = _text(match["message"]), _text(match["pattern"])
        return replace(check, finding=f"The error has another message.\nGot: `{got}`\nExpected pattern: `{expected}`")
    if check.finding.startswith(FALSE[:-1]) and (result := _result(symptom.error)):
        return replace(check, finding=result)
    return check


def _explained(files: Mapping[str, str], tests: Sequence[str], symptom: TracedSymptom) -> Check:
    """Explains a failure as planted tasks do; of two operands none is called the answer unless the test
    writes the other one out, or names it like `expected`: the expected value may be made by a call, too.
    """
    check = issues.explain_failure(files, tests, symptom, complete=True, line=symptom.line)
    operands = issues.operands_of(issues.statement_of(files, tests, symptom, symptom.line)[1])
    if not check.got or operands is None or any(map(_is_written_out, operands)):
        return check
    return replace(check, got="", expected="")


def _is_written_out(operand: ast.expr) -> bool:
    """Returns True if an expression reads no name, or is a name like `expected`."""
    return issues.is_wanted(operand) or not any(isinstance(node, ast.Name) for node in ast.walk(operand))


def shortened(got: str, expected: str) -> tuple[str, str]:
    """Returns two values; of long ones only the part around their first difference, with `[...]` for the rest."""
    if max(len(got), len(expected)) <= LONGEST:
        return got, expected
    pairs = enumerate(zip(got, expected, strict=False))
    first = next((number for number, (a, b) in pairs if a != b), min(len(got), len(expected)))
    start, end = max(0, first - _BEFORE), first + _AFTER

    def around(value: str) -> str:
        before, after = "[...]" * (start > 0), "[...]" * (len(value) > end)
        return f"{before}{value[start:end]}{after}"

    return around(got), around(expected)


def _text(printed: str) -> str:
    """Returns the text of a printed string, shortened if it is long."""
    try:
        value = str(ast.literal_eval(printed))
    except (ValueError, SyntaxError):
        value = printed
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}[...]"


def _result(error: str) -> str:
    """Returns which call in a condition gave which result; '' if pytest does not tell."""
    first, *more = error.splitlines()
    condition = _CONDITION.fullmatch(first)
    if condition is None:
        return ""
    value = condition["value"]
    for line in more:
        text = re.sub(r"^\+\s+where ", "", line)
        if text != line and text.startswith(f"{value} = "):
            call = text.removeprefix(f"{value} = ")
            return f"`{call}` is `{value}`." if len(call) + len(value) <= _CALL else ""
    return ""
