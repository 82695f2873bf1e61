"""Blocks of statements in a file's text: moved, indented, and their names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envsuite.envs.swegym.generated.operators import Edit, Function, SourceText

Change = tuple[str, ast.AST, list[Edit]]
"""(operator, node whose line names the place, edits)"""

_SCOPES = (
    *Function.__args__,  # type: ignore[attr-defined]
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def owned(tree: ast.Module) -> Iterator[tuple[Function, str, ast.stmt, ast.ClassDef | None]]:
    """Yields each function of the module and of its classes: the function, its qualified name, the
    statement of the module that contains it, and its class.
    """
    for top in tree.body:
        if isinstance(top, Function):
            yield top, top.name, top, None
        elif isinstance(top, ast.ClassDef):
            for node in top.body:
                if isinstance(node, Function):
                    yield node, f"{top.name}.{node.name}", top, top


def blocks(function: Function) -> Iterator[list[Any]]:
    """Yields every block of statements of a function, but not of its inner functions and classes."""
    waiting: list[Any] = [function]
    while waiting:
        node = waiting.pop(0)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block
                waiting += [child for child in block if not isinstance(child, _SCOPES)]
        waiting += [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]


def body_of(function: Function) -> list[ast.stmt]:
    """Returns the statements of a function without its docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def first_line(node: Any) -> int:
    """Returns the number of a definition's first line, decorators included."""
    return int(min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]))


def span(source: SourceText, block: Sequence[Any]) -> tuple[int, int]:
    """Returns the byte range of the complete lines of a block."""
    return source.starts[first_line(block[0]) - 1], source.lines(block[-1])[1]


def moved(source: SourceText, block: Sequence[Any], column: int) -> str | None:
    """Returns the lines of a block indented to `column`; None if that would change a string of several
    lines, or if the lines hold other code.
    """
    if not (source.alone(block[0]) and source.alone(block[-1])):
        return None
    if any(_spans_lines(node) for statement in block for node in ast.walk(statement)):
        return None
    start, end = span(source, block)
    old = block[0].col_offset
    moved_lines = []
    for line in source.data[start:end].decode().splitlines(keepends=True):
        indentation = len(line) - len(line.lstrip(" "))
        moved_lines.append(" " * max(0, indentation - old + column) + line[indentation:] if line.strip() else line)
    return "".join(moved_lines)


def _spans_lines(node: ast.AST) -> bool:
    text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))
    return text and node.lineno != node.end_lineno  # type: ignore[attr-defined]


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the local names that statements bind."""
    names: set[str] = set()
    for node in _same_scope(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
            names.add(node.name or "")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the names that statements read, also in inner functions."""
    walked = (part for node in nodes for part in ast.walk(node))
    return {node.id for node in walked if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}


def _same_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def parameters(function: Function) -> list[str]:
    """Returns the names of a function's parameters in order."""
    listed = function.args
    named = [*listed.posonlyargs, *listed.args, *([listed.vararg] if listed.vararg else []), *listed.kwonlyargs]
    return [argument.arg for argument in (*named, *([listed.kwarg] if listed.kwarg else []))]


def grouped(source: SourceText, test: ast.expr) -> str:
    """Returns a condition's text, in brackets unless it binds more closely than `and`."""
    text = source.text(test)
    plain = isinstance(test, (ast.Name, ast.Call, ast.Attribute, ast.Compare, ast.Subscript, ast.Constant))
    return text if plain and "\n" not in text else f"({text})"
