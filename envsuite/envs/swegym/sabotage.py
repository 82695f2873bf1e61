"""Sabotaged tests: copies of tests that must fail, which a judge runs to see whether they can.

A test whose location is known is changed such that it must fail for any honest code: if it has a
comparison that is always reached, by comparing with a different value made from the same
expression, otherwise by a failing statement at its start. The variant, its words and its type are
drawn at random for each run, so that no fixed sign reveals it. If a test is not found in a known
file, a stand-in test is added instead.

Test names have the form of their runner: pytest ids, Django's `name (module.Class)` or a docstring's
first line, SymPy's bare names, mypy's data-driven cases.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_WORDS = ("value", "result", "items", "expected", "length", "key", "state", "index", "name", "output", "order", "type")
_ERRORS = ("AssertionError", "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "RuntimeError")


class Sabotage(NamedTuple):
    """A file's text with tests that must fail."""

    text: str
    expected: set[str]
    """names that must be reported as failed"""
    covered: set[str]
    """requested tests that were made to fail or have a stand-in"""


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


def in_python(
    text: str, tests: Iterable[str], path: str, style: str, rng: random.Random, added: bool = True
) -> Sabotage:
    """Sabotages tests of a Python file.

    `style`: pytest, django or sympy; `added`: a stand-in may be added for missing tests.
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
    if added and len(located) < len(requested):
        stand_in, name = _stand_in(path, style, rng)
        data += stand_in.encode()
        expected.add(name)
        located = set(requested)
    return Sabotage(data.decode(), expected, located)


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
    function: ast.FunctionDef | ast.AsyncFunctionDef, text: str, starts: list[int], rng: random.Random
) -> tuple[int, int, bytes]:
    """Returns (first byte, byte after the last, replacement) of the edit that makes the function fail."""
    compared = _compared(function)
    if compared is not None:
        first = starts[compared.lineno - 1] + compared.col_offset
        last = starts[(compared.end_lineno or 0) - 1] + (compared.end_col_offset or 0)
        old, word = text.encode()[first:last].decode(), rng.choice(_WORDS)
        forms = (f"[{old}]", f"(({old}), ({old}))", f"{{{word!r}: ({old})}}", f"(({old}), {word!r})")
        return first, last, rng.choice(forms).encode()
    body = function.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    statement = body[1] if docstring else body[0]
    number = min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", []))])
    start = starts[number - 1]
    place = start + statement.col_offset
    before = text.encode()[start:place].decode()
    failing = failing_statement(rng)
    if before.strip():  # the body is on the line of the header
        return place, place, f"{failing}; ".encode()
    return place, place, f"{failing}\n{before}".encode()


def _compared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """Returns the right side of a comparison that is always reached and that fails if changed, or
    None.
    """
    for statement in function.body:
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
            if [type(item) for item in statement.test.ops] == [ast.Eq]:
                return statement.test.comparators[0]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = statement.value
            equal = isinstance(called.func, ast.Attribute) and called.func.attr in ("assertEqual", "assertEquals")
            if equal and len(called.args) >= 2 and not any(isinstance(item, ast.Starred) for item in called.args[:2]):
                return called.args[1]
        elif not isinstance(
            statement,
            (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assert),
        ):
            return None  # after a loop, a with or a return, later statements may not be reached
    return None


def _stand_in(path: str, style: str, rng: random.Random) -> tuple[str, str]:
    """Returns a test to add to a file, and the name under which it must fail."""
    name = f"test_{'_'.join(rng.sample(_WORDS, 2))}_{rng.randrange(10**4)}"
    statement = failing_statement(rng)
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
