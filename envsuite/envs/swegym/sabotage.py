"""Tests that are made to fail: what a judge runs once more to see whether they can.

A test of which it is known where it stands is changed such that it must fail whatever honest code answers: where it has a
comparison that is always reached, by comparing with something else made of the same value, otherwise by a failing
statement at its beginning. Which, with what words and of what type, is drawn anew for each run, so that no fixed sign
tells it. In place of a test that is not found in its file, where the file is known, stands one that is added.

The names of tests are those of their runner: pytest ids, Django's `name (module.Class)` or a docstring's first line,
SymPy's bare names, mypy's data-driven cases.
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
    """of the tests that were asked for: those that were made to fail or stood in for"""


def failing_statement(dice: random.Random) -> str:
    """A statement that fails in a way a test might."""
    one, other = dice.sample(range(1000), 2)
    words = " ".join(dice.sample(_WORDS, dice.randint(2, 4)))
    return dice.choice(
        (
            f"assert {one} == {other}",
            f"assert {one} == {other}, {words!r}",
            f"assert {words!r} == {dice.choice(_WORDS)!r}",
            f"assert not {words!r}",
            f"raise {dice.choice(_ERRORS)}({words!r})",
            f"raise {dice.choice(_ERRORS)}('{one} != {other}')",
        )
    )


def in_python(
    text: str, tests: Iterable[str], path: str, style: str, dice: random.Random, added: bool = True
) -> Sabotage:
    """Of a Python file. `style`: pytest, django or sympy; `added`: a test may stand in for those that are not found."""
    asked = list(dict.fromkeys(tests))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Sabotage(text, set(), set())
    wanted: dict[str, list[str]] = {}
    for test in asked:
        wanted.setdefault(_key(test, style), []).append(test)
    found: set[str] = set()
    splices: list[tuple[int, int, bytes]] = []
    starts = _line_starts(text)
    for names, function in functions(tree):
        mine = {test for key in _keys(names, function, style) for test in wanted.get(key, ())}
        if mine:
            splices.append(_splice(function, text, starts, dice))
            found |= mine
    data = text.encode()
    for start, end, new in sorted(splices, reverse=True):
        data = data[:start] + new + data[end:]
    expected = set(found)
    if added and len(found) < len(asked):
        stand_in, name = _stand_in(path, style, dice)
        data += stand_in.encode()
        expected.add(name)
        found = set(asked)
    return Sabotage(data.decode(), expected, found)


def in_cases(text: str, tests: Iterable[str], dice: random.Random) -> Sabotage:
    """Of a file of mypy's data-driven cases: a line that no expected output knows of goes into each."""
    found = set()
    for test in tests:
        head = re.compile(rf"^(\[case {re.escape(test.rpartition('::')[2])}(?:-\w+)*\][^\n]*\n)", re.MULTILINE)
        line = f"{dice.choice(_WORDS)}_{dice.randrange(10**6)}: int = ''\n"
        text, count = head.subn(lambda match, line=line: match[1] + line, text)  # type: ignore[misc]
        if count:
            found.add(test)
    return Sabotage(text, set(found), found)


def paths(test: str, style: str, patched: Sequence[str]) -> list[str]:
    """The files that may hold a test, likeliest first. `patched`: the files of the test patch."""
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
    """Whether what must fail did. `status`: that of `name` itself; Django adds the class to the name of a stand-in."""
    found = [status] if status else [one for test, one in statuses.items() if test.startswith(f"{name} (")]
    return bool(found) and all(one in ("FAILED", "ERROR") for one in found)


def functions(
    node: ast.AST, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of modules and classes, with the names that lead to them."""
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
    function: ast.FunctionDef | ast.AsyncFunctionDef, text: str, starts: list[int], dice: random.Random
) -> tuple[int, int, bytes]:
    """(first byte, byte after the last, what goes there): what makes the function fail."""
    compared = _compared(function)
    if compared is not None:
        first = starts[compared.lineno - 1] + compared.col_offset
        last = starts[(compared.end_lineno or 0) - 1] + (compared.end_col_offset or 0)
        old, word = text.encode()[first:last].decode(), dice.choice(_WORDS)
        forms = (f"[{old}]", f"(({old}), ({old}))", f"{{{word!r}: ({old})}}", f"(({old}), {word!r})")
        return first, last, dice.choice(forms).encode()
    body = function.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    statement = body[1] if docstring else body[0]
    number = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", []))])
    start = starts[number - 1]
    place = start + statement.col_offset
    before = text.encode()[start:place].decode()
    failing = failing_statement(dice)
    if before.strip():  # a body on the line of its head
        return place, place, f"{failing}; ".encode()
    return place, place, f"{failing}\n{before}".encode()


def _compared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """The right side of a comparison of the function that is always reached, and that fails if it is changed."""
    for statement in function.body:
        if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
            if [type(one) for one in statement.test.ops] == [ast.Eq]:
                return statement.test.comparators[0]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = statement.value
            equal = isinstance(called.func, ast.Attribute) and called.func.attr in ("assertEqual", "assertEquals")
            if equal and len(called.args) >= 2 and not any(isinstance(one, ast.Starred) for one in called.args[:2]):
                return called.args[1]
        elif not isinstance(
            statement,
            (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assert),
        ):
            return None  # a loop, a with, a return: what comes later may not be reached
    return None


def _stand_in(path: str, style: str, dice: random.Random) -> tuple[str, str]:
    """A test to add to a file, and the name under which it must fail."""
    name = f"test_{'_'.join(dice.sample(_WORDS, 2))}_{dice.randrange(10**4)}"
    statement = failing_statement(dice)
    if style == "django":
        inside = (
            f"class {name.title().replace('_', '')}(unittest.TestCase):\n    def {name}(self):\n        {statement}\n"
        )
        return f"\n\nimport unittest\n\n\n{inside}", name
    return f"\n\ndef {name}():\n    {statement}\n", name if style == "sympy" else f"{path}::{name}"


def _line_starts(text: str) -> list[int]:
    """The byte at which each line begins, as Python's own grammar counts lines."""
    starts = [0]
    for match in re.finditer(rb"\r\n|\r|\n", text.encode()):
        starts.append(match.end())
    return starts
