"""What a submission may hold, and the proof that its passes are real.

A submission is the agent's changes to plain files, laid over a fresh copy of the repository in a fresh sandbox. Nothing of
the agent's own sandbox goes with it: no process, no cache, no environment, no installed package. Of the changes, those to
the tests and to what configures or extends the test runner are left out.

Code under test runs in the process that judges it, and could reach for the judge. So a submission that seems to mend
something is run once more with the tests that passed sabotaged: each begins with a failing statement, and each must
fail then. Code that makes chosen tests, or all, come out as passed is found out by that. Of generated tasks, whose packages
have no business with it, code that newly names the test runner or the interpreter's innards is refused outright.

Not closed: code that first looks whether it is being sabotaged, without naming anything that is looked for here.
"""

from __future__ import annotations

import ast
import re
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

MACHINERY = {
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py",
    "sitecustomize.py", "usercustomize.py", ".coveragerc", "pytest.toml", ".pytest.toml",
}  # fmt: skip
"""files that configure the runner or the interpreter"""
SUFFIXES = (".pth", ".pyc", ".pyo", ".so", ".egg-link", ".zip", ".egg")
_SHADOWED = {"pytest", "_pytest", "pluggy", "py", "iniconfig", "packaging", "pygments", "xdist", "execnet"}
SABOTAGE = "raise AssertionError('sabotaged to see whether this test can fail')"


def is_test(path: str) -> bool:
    """Whether `path` is a test by its name, as pytest and the data sets see it."""
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    return bool({"tests", "test", "testing"} & set(parts[:-1])) or (
        name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
    )


def meddles(path: str) -> bool:
    """Whether a change to `path` could reach the runner rather than the code under test."""
    parts = PurePosixPath(path).parts
    top = parts[0].removesuffix(".py") if parts else ""
    shadow = len(parts) <= 2 and (top in _SHADOWED or (len(parts) == 1 and top in sys.stdlib_module_names))
    return parts[-1] in MACHINERY or path.endswith(SUFFIXES) or "__pycache__" in parts or shadow


_REACHING = re.compile(
    r"\b(_?pytest\w*|PYTEST\w*|pluggy|unittest|gc|ctypes|_exit|kill|_getframe|settrace|setprofile|f_back|f_locals|f_globals|"
    r"currentframe|TMPDIR|sabotaged)\b"
)


def reaches(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Names of the test runner or the interpreter's innards that a file of `after` has and that of `before` has not."""
    found: set[str] = set()
    for path, text in after.items():
        if text != before.get(path):
            found |= set(_REACHING.findall(text)) - set(_REACHING.findall(before.get(path, "")))
    return found


def admitted(
    changes: Mapping[str, bytes | None], gold: Iterable[str] = (), protected: Iterable[str] = ()
) -> dict[str, bytes | None]:
    """The changes that are graded: what the gold patch touches itself, and what is neither a test nor machinery."""
    gold, protected = set(gold), set(protected)
    return {
        path: content
        for path, content in changes.items()
        if path not in protected and (path in gold or not (is_test(path) or meddles(path)))
    }


def sabotaged(text: str, tests: Sequence[str]) -> tuple[str, set[str]]:
    """A test file's text in which the functions of `tests` (ids of pytest) fail at once, and the ids that must fail now.

    Where some are no functions of the text, a further test is added, which fails like the others.
    """
    wanted: dict[tuple[str, ...], list[str]] = {}
    for test in tests:
        wanted.setdefault(tuple(test.split("[")[0].split("::")[1:]), []).append(test)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text, set()
    lines, found = text.splitlines(keepends=True), set()
    places = []
    for names, function in _functions(tree, ()):
        if names in wanted:
            body = function.body
            docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
            first = body[1] if docstring else body[0]
            number = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
            places.append((number, first.col_offset))
            found.update(wanted[names])
    for number, column in sorted(places, reverse=True):
        before = lines[number - 1].encode()[:column].decode()
        if before.strip():  # a body on the line of its head
            lines[number - 1] = f"{before}{SABOTAGE}; {lines[number - 1][len(before) :]}"
        else:
            lines.insert(number - 1, f"{before}{SABOTAGE}\n")
    if len(found) < len(set(tests)):
        name = f"test_{secrets.token_hex(6)}"
        lines.append(f"\n\ndef {name}():\n    {SABOTAGE}\n")
        found.add(f"{tests[0].partition('::')[0]}::{name}")
    return "".join(lines), found


def _functions(
    node: ast.AST, above: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (*above, child.name), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*above, child.name))
        elif not isinstance(child, ast.expr):
            yield from _functions(child, above)


def without(text: str, tests: Iterable[str]) -> str | None:
    """A test file's text without the functions of `tests`, as they are held out of an agent's copy; None where one of them
    is no function of the file's text (made by a class factory, say)."""
    wanted = {tuple(test.split("[")[0].split("::")[1:]) for test in tests}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    lines = text.splitlines(keepends=True)
    for names, function in sorted(_functions(tree, ()), key=lambda item: -item[1].lineno):
        if names in wanted:
            first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
            keep = (
                [" " * function.col_offset + "pass\n"] if function.col_offset else []
            )  # a class must not become empty
            lines[first - 1 : function.end_lineno] = keep
    missing = wanted - {names for names, _ in _functions(tree, ())}
    return None if missing else "".join(lines)
