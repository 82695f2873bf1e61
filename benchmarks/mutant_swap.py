"""Puts a mutant into a process that has imported the code already, which saves importing it for every mutant."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from pathlib import Path

PROJECT = ("envsuite", "harness", "baselines", "tests", "examples")


def functions_of(path: Path) -> list[types.FunctionType]:
    """Returns all functions of this process that were defined in a file."""
    name = str(path)
    return [
        value
        for value in gc.get_objects()
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == name
    ]


def swap(functions: list[types.FunctionType], before: bytes, after: bytes, path: Path) -> int:
    """Gives functions the code of the changed source; returns how many of them changed.

    Functions are paired by qualified name and order, so the change must be inside of functions.
    """
    pairs = dict(zip(_codes(before, path), _codes(after, path), strict=True))
    changed = 0
    for function in functions:
        code = pairs.get(function.__code__)
        if code is not None and code != function.__code__:
            function.__code__ = code
            changed += 1
    return changed


def _codes(source: bytes, path: Path) -> list[types.CodeType]:
    """Returns the code of all named functions of a module, also of nested ones, in a fixed order."""
    return [
        code
        for code in _nested(compile(source, str(path), "exec", dont_inherit=True))
        if not code.co_name.startswith("<")
    ]


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def forget() -> None:
    """Makes the next import of the project read its files again."""
    for name in list(sys.modules):
        if name.partition(".")[0] in PROJECT:
            del sys.modules[name]
