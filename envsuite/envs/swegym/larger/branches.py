"""Lost branches: an `if`, `elif`, `else` or `except` that is gone, with the code in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envsuite.envs.swegym.generated.operators import Function, SourceText, own_nodes
from envsuite.envs.swegym.larger.source import Change, moved, span


def changes(source: SourceText, function: Function) -> Iterator[Change]:
    """Yields every branch that can be lost in a function."""
    for node, _ in own_nodes(function):
        if isinstance(node, ast.If):
            yield from _lost_if(source, node)
        elif isinstance(node, ast.Try):
            yield from _lost_except(source, node)


def _lost_if(source: SourceText, node: ast.If) -> Iterator[Change]:
    begin, end = span(source, [node])
    elif_itself = source.text(node).startswith("elif")
    if len(node.orelse) == 1 and source.text(node.orelse[0]).startswith("elif"):
        arm = node.orelse[0]
        assert isinstance(arm, ast.If)
        if not elif_itself:
            yield "lost_if", node, [(source.span(node)[0], source.span(arm)[0] + 2, "")]
        yield "lost_elif", arm, [(source.starts[arm.lineno - 1], source.lines(arm.body[-1])[1], "")]
    elif node.orelse:
        after_body = source.lines(node.body[-1])[1]
        yield "lost_else", node, [(after_body, end, "")]
        for block in (node.body, node.orelse):
            text = None if elif_itself else moved(source, block, node.col_offset)
            if text is not None and source.alone(node):
                yield "lost_if" if block is node.orelse else "lost_condition", node, [(begin, end, text)]
    elif not elif_itself and source.alone(node):
        returns = isinstance(node.body[-1], ast.Return)
        replacement = " " * node.col_offset + "pass\n" if node in source.lonely else ""
        yield "lost_return" if returns else "lost_if", node, [(begin, end, replacement)]


def _lost_except(source: SourceText, node: ast.Try) -> Iterator[Change]:
    if len(node.handlers) > 1:
        for handler in node.handlers:
            begin = source.starts[handler.lineno - 1]
            yield "lost_except", handler, [(begin, source.lines(handler.body[-1])[1], "")]
    elif node.handlers and not node.orelse and not node.finalbody:
        text = moved(source, node.body, node.col_offset)
        if text is not None and source.alone(node):
            yield "lost_except", node, [(*span(source, [node]), text)]
