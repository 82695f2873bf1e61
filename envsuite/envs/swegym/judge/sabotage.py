"""Sabotaged tests: copies of tests that must fail, which a judge runs to see whether they can.

A test whose location is known is changed such that it must fail for any honest code: one of its
comparisons that are always reached compares with a different value made from the same expression, a
`pytest.raises` expects another exception, or it begins with a failing statement. Which of them,
its words and its type are drawn at random for each run, so that no fixed sign reveals it. If a test
is not found in a known file, a stand-in test is added instead. A test whose original failure is
known also gets a copy that fails with that exception and message, which code that hides a failure by
its message hides, too.

Test names have the form of their runner: pytest ids, Django's `name (module.Class)` or a docstring's
first line, SymPy's bare names, mypy's data-driven cases.
"""

from __future__ import annotations

import ast
import builtins
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

_WORDS = ("value", "result", "items", "expected", "length", "key", "state", "index", "name", "output", "order", "type")
_ERRORS = ("AssertionError", "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "RuntimeError")

SAMPLE = 10
"""tests that already passed and are sabotaged in each grading, at least"""
SHARE = 0.1
"""share of such tests that is sabotaged, if that is more"""


def sample(fixed: Sequence[str], passed_before: Sequence[str], rng: random.Random) -> list[str]:
    """Returns the tests to sabotage: all of `fixed`, and a tenth of `passed_before`, at least ten."""
    count = min(len(passed_before), max(SAMPLE, round(SHARE * len(passed_before))))
    return [*fixed, *rng.sample(passed_before, count)]


class Sabotage(NamedTuple):
    """A file's text with tests that must fail."""

    text: str
    expected: set[str]
    """names that must be reported as failed"""
    covered: set[str]
    """requested tests that were made to fail or have a stand-in"""


class SabotagedFile(NamedTuple):
    """A file's text in which functions of its tests must fail; no function is added or removed."""

    text: str
    functions: list[tuple[int, int, str]]
    """(first line in the original, first line in `text`, name), decorators included"""
    covered: set[str]
    """requested tests that were made to fail"""


class Failure(NamedTuple):
    """Exception with which a test failed before the change."""

    error: str
    """name of the exception"""
    message: str


def failing_statement(rng: random.Random) -> str:
    """Returns a statement that fails the way a test might."""
    first, second = rng.sample(range(1000), 2)
    words = " ".join(rng.sample(_WORDS, rng.randint(2, 4)))
    return rng.choice(
        (
            f"assert {first} == {second}",
            f"assert {first} == {second}, {words!r}",
            f"assert {words!r} == {rng.choice(_WORDS)!r}",
            f"assert not {words!r}",
            f"raise {rng.choice(_ERRORS)}({words!r})",
            f"raise {rng.choice(_ERRORS)}('{first} != {second}')",
        )
    )


def statement(test: str, rng: random.Random, failures: Mapping[str, Failure] | None = None) -> str:
    """Returns a statement with which a test fails: one that is drawn, or, with `failures`, as it did before."""
    return _raising(failures[test]) if failures else failing_statement(rng)


def in_python(
    text: str,
    tests: Iterable[str],
    path: str,
    style: str,
    rng: random.Random,
    added: bool = True,
    failures: Mapping[str, Failure] | None = None,
) -> Sabotage:
    """Sabotages tests of a Python file.

    `style`: pytest, django or sympy; `added`: a stand-in may be added for missing tests; `failures`:
    how tests failed before the change, where known.
    """
    requested = list(dict.fromkeys(tests))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Sabotage(text, set(), set())
    by_key: dict[str, list[str]] = {}
    for test in requested:
        by_key.setdefault(_key(test, style), []).append(test)
    located: set[str] = set()
    splices: list[tuple[int, int, bytes]] = []
    starts = _line_starts(text)
    for names, function in functions(tree):
        matching = {test for key in _keys(names, function, style) for test in by_key.get(key, ())}
        if matching:
            splices.append(_splice(function, text, starts, rng))
            located |= matching
    data = text.encode()
    for start, end, new in sorted(splices, reverse=True):
        data = data[:start] + new + data[end:]
    expected = set(located)
    for failure in sorted({failures[test] for test in located if test in failures} if failures else ()):
        copy, name = _stand_in(path, style, rng, _raising(failure))
        data += copy.encode()
        expected.add(name)
    if added and len(located) < len(requested):
        stand_in, name = _stand_in(path, style, rng, failing_statement(rng))
        data += stand_in.encode()
        expected.add(name)
        located = set(requested)
    return Sabotage(data.decode(), expected, located)


def in_functions(
    text: str, tests: Iterable[str], rng: random.Random, failures: Mapping[str, Failure] | None = None
) -> SabotagedFile:
    """Sabotages pytest's tests of a file, in place. Leaves other functions at the top level out, as empty lines.

    With `failures` each test fails as it did before the change; tests that it does not name stay as they are.
    """
    by_key: dict[str, list[str]] = {}
    for test in tests:
        if failures is None or test in failures:
            by_key.setdefault(_key(test, "pytest"), []).append(test)
    splices: list[tuple[int, int, bytes]] = []
    chosen: list[tuple[int, str]] = []
    covered: set[str] = set()
    starts = _line_starts(text)
    for names, function in functions_of(text):
        matching = [test for key in _keys(names, function, "pytest") for test in by_key.get(key, ())]
        if matching:
            statement = _raising(failures[matching[0]]) if failures else ""
            splices.append(_splice(function, text, starts, rng, statement))
            chosen.append((_first_line(function), function.name))
            covered.update(matching)
    data = text.encode()
    touched = {start for start, _, _ in splices}
    for start, end in _top_functions(text, starts):
        if not any(start <= place < end for place in touched):
            splices.append((start, end, b"\n" * data[start:end].count(b"\n")))
    added = []  # (line of the edit, lines that it adds)
    for start, end, new in sorted(splices, reverse=True):
        added.append((data[:start].count(b"\n"), new.count(b"\n") - data[start:end].count(b"\n")))
        data = data[:start] + new + data[end:]
    lines = [(first, first + sum(count for line, count in added if line < first - 1), name) for first, name in chosen]
    return SabotagedFile(data.decode(), lines, covered)


def _top_functions(text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    """Yields (first byte, byte after the last) of each function at the top level, from its line's beginning."""
    for names, function in functions_of(text):
        if len(names) == 1 and not function.col_offset:
            yield starts[_first_line(function) - 1], _range(function, starts)[1]


def located(text: str, tests: Iterable[str]) -> set[str]:
    """Returns the pytest ids whose functions are in a file's text."""
    names = {"::".join(names) for names, _ in functions_of(text)}
    return {test for test in tests if _key(test, "pytest") in names}


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the line at which a function's code begins, with its decorators."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def in_cases(text: str, tests: Iterable[str], rng: random.Random) -> Sabotage:
    """Sabotages cases of mypy's data-driven tests: inserts a line that no expected output contains
    into each.
    """
    changed = set()
    for test in tests:
        head = re.compile(rf"^(\[case {re.escape(test.rpartition('::')[2])}(?:-\w+)*\][^\n]*\n)", re.MULTILINE)
        line = f"{rng.choice(_WORDS)}_{rng.randrange(10**6)}: int = ''\n"
        text, count = head.subn(lambda match, line=line: match[1] + line, text)  # type: ignore[misc]
        if count:
            changed.add(test)
    return Sabotage(text, set(changed), changed)


def paths(test: str, style: str, patched: Sequence[str]) -> list[str]:
    """Returns the files that may hold a test, likeliest first.

    `patched`: the files of the test patch.
    """
    if style == "sympy":
        return [path for path in patched if path.endswith(".py")]
    if style == "django":
        dotted = re.search(r" \(([\w.]+)\)$", test)
        if dotted is None:
            return [path for path in patched if path.endswith(".py")]
        parts = dotted[1].split(".")
        stems = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        return [f"{root}{stem}.py" for stem in stems for root in ("tests/", "")]
    cases = [path for path in patched if path.endswith(".test")]
    path = test.partition("::")[0]
    return ([*cases, path] if style == "mypy" else [path]) if path.endswith(".py") else cases


def failed(name: str, statuses: Mapping[str, str], status: str) -> bool:
    """Returns True if the test `name` failed.

    `status`: its own status; Django appends the class to a stand-in's name.
    """
    reported = [status] if status else [value for test, value in statuses.items() if test.startswith(f"{name} (")]
    return bool(reported) and all(value in ("FAILED", "ERROR") for value in reported)


def functions(
    node: ast.AST, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yields all functions and methods below `node`, each with its qualified name as a tuple."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (*above, child.name), child
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, (*above, child.name))
        elif not isinstance(child, ast.expr):
            yield from functions(child, above)


@lru_cache(maxsize=32)
def functions_of(text: str) -> tuple[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef], ...]:
    """Returns all functions of a file's text, none if it cannot be parsed; do not change them."""
    try:
        return tuple(functions(ast.parse(text)))
    except (SyntaxError, ValueError):
        return ()


def _key(test: str, style: str) -> str:
    if style == "sympy":
        return test
    if style == "django":
        named = re.fullmatch(r"(\w+) \(([\w.]+)\)", test)
        if named is None:
            return test  # a docstring
        parts = [part for part in named[2].split(".") if part != named[1]]
        return f"{parts[-1]}::{named[1]}" if parts else test
    return test.split("[")[0].partition("::")[2]


def _keys(names: tuple[str, ...], function: ast.FunctionDef | ast.AsyncFunctionDef, style: str) -> set[str]:
    if style == "sympy":
        return {names[-1]} if len(names) == 1 else set()
    if style == "django":
        docstring = (ast.get_docstring(function) or "").strip().split("\n")[0]
        return {"::".join(names[-2:]), docstring} - {""}
    return {"::".join(names)}


def _splice(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    text: str,
    starts: list[int],
    rng: random.Random,
    statement: str = "",
) -> tuple[int, int, bytes]:
    """Returns (first byte, byte after the last, replacement) of the edit that makes the function fail.

    `statement`: the statement to fail with, at the beginning; otherwise the edit is drawn.
    """
    equalities, exceptions = ([], []) if statement else _always_reached(function)
    # Values that equal everything are found only by a changed comparison, so one is always changed if there is one.
    if equalities:
        first, last = _range(rng.choice(equalities), starts)
        old, word = text.encode()[first:last].decode(), rng.choice(_WORDS)
        forms = (f"[{old}]", f"(({old}), ({old}))", f"{{{word!r}: ({old})}}", f"(({old}), {word!r})")
        return first, last, rng.choice(forms).encode()
    if exceptions and rng.random() < 0.5:
        return (*_range(rng.choice(exceptions), starts), b"BufferError")
    body = function.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    first_node = body[1] if docstring else body[0]
    number = min([first_node.lineno, *(decorator.lineno for decorator in getattr(first_node, "decorator_list", []))])
    start = starts[number - 1]
    place = start + first_node.col_offset
    before = text.encode()[start:place].decode()
    failing = statement or failing_statement(rng)
    if before.strip():  # the body is on the line of the header
        return place, place, f"{failing}; ".encode()
    return place, place, f"{failing}\n{before}".encode()


_PLAIN = (ast.Assert, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
"""statements after which the next one is always reached"""


def _range(node: ast.expr | ast.stmt, starts: list[int]) -> tuple[int, int]:
    """Returns the first byte of an expression and the byte after its last."""
    return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _always_reached(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[list[ast.expr], list[ast.expr]]:
    """Returns the right sides of comparisons, and the exceptions of `raises`, that are always reached and that fail
    if changed.
    """
    equalities: list[ast.expr] = []
    exceptions: list[ast.expr] = []
    for statement in function.body:
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
            if [type(item) for item in statement.test.ops] == [ast.Eq]:
                equalities.append(statement.test.comparators[0])
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = statement.value
            equal = isinstance(called.func, ast.Attribute) and called.func.attr in ("assertEqual", "assertEquals")
            if equal and len(called.args) >= 2 and not any(isinstance(item, ast.Starred) for item in called.args[:2]):
                equalities.append(called.args[1])
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            expected = [_expected_exception(item.context_expr) for item in statement.items]
            if len(expected) != 1 or expected[0] is None:
                break  # the body may return, or swallow a failure
            exceptions.append(expected[0])
        elif not isinstance(
            statement,
            (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assert),
        ):
            break  # after a loop or a return, later statements may not be reached
    return equalities, exceptions


def _expected_exception(call: ast.expr) -> ast.expr | None:
    """Returns the exception that `pytest.raises(...)` or `self.assertRaises(...)` expects, or None."""
    if not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return call.args[0] if name in ("raises", "assertRaises", "assertRaisesRegex") else None


def _raising(failure: Failure) -> str:
    """Returns a statement that fails like `failure`; an exception that is not built in becomes an AssertionError."""
    kind = getattr(builtins, failure.error, None)
    known = isinstance(kind, type) and issubclass(kind, Exception)
    return f"raise {failure.error if known else 'AssertionError'}({failure.message!r})"


def _stand_in(path: str, style: str, rng: random.Random, statement: str) -> tuple[str, str]:
    """Returns a test that consists of `statement`, and the name under which it must fail."""
    name = f"test_{'_'.join(rng.sample(_WORDS, 2))}_{rng.randrange(10**4)}"
    if style == "django":
        inside = (
            f"class {name.title().replace('_', '')}(unittest.TestCase):\n    def {name}(self):\n        {statement}\n"
        )
        return f"\n\nimport unittest\n\n\n{inside}", name
    return f"\n\ndef {name}():\n    {statement}\n", name if style == "sympy" else f"{path}::{name}"


def _line_starts(text: str) -> list[int]:
    """Returns the byte at which each line begins, counting lines as Python's grammar does."""
    starts = [0]
    for match in re.finditer(rb"\r\n|\r|\n", text.encode()):
        starts.append(match.end())
    return starts
