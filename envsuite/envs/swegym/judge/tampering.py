"""Protection of the judge: the files a submission may contain, and checks that its passes are real.

A submission is the agent's changes to plain files, applied to a fresh copy of the repository in a
fresh sandbox. Nothing else of the agent's sandbox is used: no process, cache, environment or
installed package. Changes to tests and to files that configure or extend the test runner are
dropped.

Code under test runs in the process that judges it, and could manipulate the judge. The defences, in
order:

- Planted tasks use packages with no reason to touch the runner. Code that newly names the test runner or the
  interpreter's internals, or runs text as code, is rejected. Comments and docstrings may contain anything.
- After each test, before it is reported, a plugin checks that pytest, `unittest`, the tests themselves, the built-in
  functions and the clocks are what they were before the code was imported (`seal`). Published records have it where
  pytest runs their tests; Django's and SymPy's own runners do without.
- A submission that seems to fix something is run once more with *sabotaged* tests (`sabotage`), in forks of the same
  pytest (`phases`) or separately: all that it fixed, and a sample of the others, drawn anew for each run. Each must
  then fail. This detects code that makes chosen tests or all
  tests pass, values that equal everything, and printed results.
- Among the sabotaged tests are copies that fail with the original failure's type and message, so that code that hides a
  failure by its message hides these, too.

Not covered: code that evades the names and the seal, recognises the failure it hides by more than its
type and message, and passes on all others. In Django's and SymPy's runners it needs to evade nothing.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import token
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

from envsuite.envs.swegym.judge import sabotage

MACHINERY = {
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py",
    "sitecustomize.py", "usercustomize.py", ".coveragerc", "pytest.toml", ".pytest.toml",
}  # fmt: skip
"""files that configure the runner or the interpreter"""
SUFFIXES = (".pth", ".pyc", ".pyo", ".so", ".egg-link", ".zip", ".egg")
_SHADOWED = {"pytest", "_pytest", "pluggy", "py", "iniconfig", "packaging", "pygments", "xdist", "execnet"}


@cache
def seal() -> str:
    """Returns the text of the plugin that detects changes to the test runner (`seal.py`)."""
    return Path(__file__).with_name("seal.py").read_text()


def is_test(path: str) -> bool:
    """Returns True if `path` is a test by its name, as pytest and the data sets see it."""
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    return bool({"tests", "test", "testing"} & set(parts[:-1])) or (
        name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
    )


def meddles(path: str) -> bool:
    """Returns True if a change to `path` could affect the runner rather than the code under test."""
    parts = PurePosixPath(path).parts
    top = parts[0].removesuffix(".py") if parts else ""
    shadow = len(parts) <= 2 and (top in _SHADOWED or (len(parts) == 1 and top in sys.stdlib_module_names))
    return parts[-1] in MACHINERY or path.endswith(SUFFIXES) or "__pycache__" in parts or shadow


_MODULES = {
    "pytest", "_pytest", "pluggy", "unittest", "gc", "ctypes", "builtins", "importlib", "marshal",
    "runpy", "code", "codeop", "timeit", "doctest", "pdb", "bdb", "atexit",
}  # fmt: skip
_BUILTINS = {"exec", "eval", "compile", "__import__", "__builtins__"}
_NAMES = {
    "_exit", "kill", "_getframe", "_current_frames", "settrace", "setprofile", "f_back", "f_locals",
    "f_globals", "f_builtins", "tb_frame", "currentframe", "__builtins__", "__globals__",
    "__subclasses__", "__code__", "CodeType", "FunctionType", "excepthook", "addaudithook",
    "register_at_fork", "setitimer",
}  # fmt: skip
_IN_WORDS = re.compile(
    r"_?pytest[\w.]*|PYTEST\w*|pluggy[\w.]*|unittest[\w.]*|TMPDIR|builtins|" + "|".join(sorted(_BUILTINS | _NAMES))
)


def reaches(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Returns names of the test runner or of interpreter internals that files of `after` newly
    contain.
    """
    names: set[str] = set()
    for path, text in after.items():
        if text != before.get(path) and path.endswith(".py"):
            names |= _reached(text) - _reached(before.get(path, ""))
    return names


@lru_cache(maxsize=64)
def _reached(text: str) -> frozenset[str]:
    """Returns such names in a file's code: imports, names, attributes, and strings that equal such a
    name.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()  # not code: it cannot run
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            names |= {root.partition(".")[0] for root in roots if not getattr(node, "level", 0)} & _MODULES
            names |= {alias.name for alias in node.names} & _NAMES
        elif isinstance(node, ast.Name):
            names |= {node.id} & (_BUILTINS | _NAMES)
        elif isinstance(node, ast.Attribute):
            names |= {node.attr} & _NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IN_WORDS.fullmatch(node.value):
            names.add(node.value)
    return frozenset(names)


def expects_failure(before: Mapping[str, bytes], after: Mapping[str, bytes | None]) -> bool:
    """Returns True if Python code of `after` newly names pytest's xfail, under which a failure counts
    as a pass.
    """

    def named(content: bytes | None) -> bool:
        if b"xfail" not in (content or b"").lower() and b"coding" not in (content or b"")[:200]:
            return False  # saves reading it
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
    """Returns the changes that are graded: files of the gold patch, and files that are neither tests
    nor machinery.
    """
    gold, protected = set(gold), set(protected)
    return {
        path: content
        for path, content in changes.items()
        if path not in protected and (path in gold or not (is_test(path) or meddles(path)))
    }


def without(text: str, tests: Iterable[str]) -> str | None:
    """Returns a test file's text without the functions of `tests`, which are hidden from the agent;
    None if one of them is not found.
    """
    hidden = {tuple(test.split("[")[0].split("::")[1:]) for test in tests}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    lines = text.splitlines(keepends=True)
    for names, function in sorted(sabotage.functions(tree), key=lambda item: -item[1].lineno):
        if names in hidden:
            first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
            # A class must not become empty.
            replacement = [" " * function.col_offset + "pass\n"] if function.col_offset else []
            lines[first - 1 : function.end_lineno] = replacement
    missing = hidden - {names for names, _ in sabotage.functions(tree)}
    return None if missing else "".join(lines)
