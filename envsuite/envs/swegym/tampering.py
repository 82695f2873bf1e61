"""What a submission may hold, and the proof that its passes are real.

A submission is the agent's changes to plain files, laid over a fresh copy of the repository in a fresh sandbox. Nothing of
the agent's own sandbox goes with it: no process, no cache, no environment, no installed package. Of the changes, those to
the tests and to what configures or extends the test runner are left out.

Code under test runs in the process that judges it, and could reach for the judge. Against that, in this order:

- Of generated tasks, whose packages have no business with it, code that newly names the test runner or the interpreter's
  innards, or runs text as code, is refused outright. Comments and docstrings may say what they like.
- The runner of generated tasks looks after each test, before it is reported, whether pytest, `unittest`, the built-in
  functions and the clocks are still what they were before the code was imported (`runner.Seal`).
- A submission that seems to mend something is run once more with every test that passed *sabotaged* (`sabotage`), and
  each must fail then. Code that makes chosen tests, or all, come out as passed is found out by that, and so are values
  that equal everything and results that were printed rather than earned.

Not closed: code that tells the very failure it is to hide by the values in it, and passes on every other, can hide it
where nothing but sabotage looks: in published records always, in generated tasks once it gets by the names and the seal.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import token
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from envsuite.envs.swegym import sabotage

MACHINERY = {
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py",
    "sitecustomize.py", "usercustomize.py", ".coveragerc", "pytest.toml", ".pytest.toml",
}  # fmt: skip
"""files that configure the runner or the interpreter"""
SUFFIXES = (".pth", ".pyc", ".pyo", ".so", ".egg-link", ".zip", ".egg")
_SHADOWED = {"pytest", "_pytest", "pluggy", "py", "iniconfig", "packaging", "pygments", "xdist", "execnet"}


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


_MODULES = {
    "pytest", "_pytest", "pluggy", "unittest", "gc", "ctypes", "builtins", "importlib", "marshal", "runpy", "code", "codeop", "timeit",
    "doctest", "pdb", "bdb", "atexit",
}  # fmt: skip
_BUILTINS = {"exec", "eval", "compile", "__import__", "__builtins__"}
_NAMES = {
    "_exit", "kill", "_getframe", "_current_frames", "settrace", "setprofile", "f_back", "f_locals", "f_globals", "f_builtins",
    "tb_frame", "currentframe", "__builtins__", "__globals__", "__subclasses__", "__code__", "CodeType", "FunctionType", "excepthook",
    "addaudithook", "setitimer",
}  # fmt: skip
_IN_WORDS = re.compile(
    r"_?pytest[\w.]*|PYTEST\w*|pluggy[\w.]*|unittest[\w.]*|TMPDIR|builtins|" + "|".join(sorted(_BUILTINS | _NAMES))
)


def reaches(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Names of the test runner or the interpreter's innards that a file of `after` has and that of `before` has not."""
    found: set[str] = set()
    for path, text in after.items():
        if text != before.get(path) and path.endswith(".py"):
            found |= _reached(text) - _reached(before.get(path, ""))
    return found


def _reached(text: str) -> set[str]:
    """What a file's code names of that: imports, names, attributes, and strings that are such a name and nothing else."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # no code: nothing of it will run
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            found |= {root.partition(".")[0] for root in roots if not getattr(node, "level", 0)} & _MODULES
            found |= {one.name for one in node.names} & _NAMES
        elif isinstance(node, ast.Name):
            found |= {node.id} & (_BUILTINS | _NAMES)
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & _NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IN_WORDS.fullmatch(node.value):
            found.add(node.value)
    return found


def expects_failure(before: Mapping[str, bytes], after: Mapping[str, bytes | None]) -> bool:
    """Whether Python code of `after` newly names pytest's xfail, under which a failure counts as a pass."""

    def named(content: bytes | None) -> bool:
        try:
            tokens = list(tokenize.tokenize(io.BytesIO(content or b"").readline))
        except (tokenize.TokenError, SyntaxError, ValueError):
            return b"xfail" in (content or b"")
        return any(token.type in _CODE and "xfail" in token.string.lower() for token in tokens)

    return any(
        path.endswith(".py") and named(content) and not named(before.get(path)) for path, content in after.items()
    )


_CODE = {token.NAME, token.STRING}


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


def without(text: str, tests: Iterable[str]) -> str | None:
    """A test file's text without the functions of `tests`, as they are held out of an agent's copy; None where one of them
    is no function of the file's text (made by a class factory, say)."""
    wanted = {tuple(test.split("[")[0].split("::")[1:]) for test in tests}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    lines = text.splitlines(keepends=True)
    for names, function in sorted(sabotage.functions(tree), key=lambda item: -item[1].lineno):
        if names in wanted:
            first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
            keep = (
                [" " * function.col_offset + "pass\n"] if function.col_offset else []
            )  # a class must not become empty
            lines[first - 1 : function.end_lineno] = keep
    missing = wanted - {names for names, _ in sabotage.functions(tree)}
    return None if missing else "".join(lines)
