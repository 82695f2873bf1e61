"""Missing features: a public function or method without its body, or gone with its entry in `__all__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from envsuite.envs.swegym.generated.operators import Edit, Function, SourceText
from envsuite.envs.swegym.larger.source import Change, body_of, first_line, owned, span

LEAST_LINES = 4
"""lines of a body, without the docstring; a shorter function is not a feature"""
_DECORATORS = {"property", "staticmethod", "classmethod"}


def changes(source: SourceText, function: Function, owner: ast.ClassDef | None) -> Iterator[Change]:
    """Yields the two ways in which a function can be missing."""
    body = body_of(function)
    if function.name.startswith("_") or not body or not source.alone(body[-1]):
        return
    if any(ast.unparse(decorator) not in _DECORATORS for decorator in function.decorator_list):
        return
    begin, end = span(source, function.body)
    if (body[-1].end_lineno or 0) - body[0].lineno + 1 < LEAST_LINES or function.body[0].lineno == function.lineno:
        return
    indentation = " " * function.body[0].col_offset
    yield "missing_body", function, [(begin, end, f"{indentation}raise NotImplementedError\n")]
    if owner is None or len(owner.body) > 2:
        exports = [_without(source, node) for node in _exports(source.tree) if node.value == function.name]
        start = source.starts[first_line(function) - 1]
        yield "missing_function", function, [(start, _past_blank_lines(source, end), ""), *exports]


def interface(text: str, name: str) -> tuple[Function, str]:
    """Returns the function called `name` in a file, and its signature as a call. Raises KeyError."""
    for function, qualified, _, owner in owned(ast.parse(text)):
        if qualified == name:
            kinds = {ast.unparse(decorator) for decorator in function.decorator_list}
            if "property" in kinds:
                return function, qualified
            bare = ast.parse(f"def f({ast.unparse(function.args)}): pass").body[0]
            assert isinstance(bare, ast.FunctionDef)
            if owner is not None and "staticmethod" not in kinds and bare.args.args:
                bare.args.args.pop(0)
            return function, f"{qualified}({ast.unparse(bare.args)})"
    raise KeyError(name)


def _exports(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        listed: Any = getattr(node, "value", None)
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            yield from (part for part in getattr(listed, "elts", ()) if isinstance(part, ast.Constant))


def _without(source: SourceText, node: ast.Constant) -> Edit:
    """Returns the removal of an entry of a list, with its comma and the space or line end after it."""
    start, end = source.span(node)
    if source.data[end : end + 1] == b",":
        end += 1
        line_start = source.starts[node.lineno - 1]
        if not source.data[line_start:start].strip() and source.data[end : end + 1] == b"\n":
            return line_start, end + 1, ""
        while source.data[end : end + 1] == b" ":
            end += 1
    return start, end, ""


def _past_blank_lines(source: SourceText, end: int) -> int:
    while source.data[end : end + 1] == b"\n":
        end += 1
    return end
