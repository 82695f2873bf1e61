"""Mutation operators: small bugs candidates in the syntax tree and spliced into the text, so that a diff
has one or two lines.

Source: the operators of SWE-smith (Yang et al., 2025) and of mutation testing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from envsuite.envs.swegym.planted.tasks import Edit, PlantedBug

Function = ast.FunctionDef | ast.AsyncFunctionDef

_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_OTHER_SIGN: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "//", ast.Div: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_OTHER_ERROR = {
    "ValueError": "TypeError", "TypeError": "ValueError", "KeyError": "IndexError", "IndexError": "KeyError",
    "AttributeError": "KeyError", "NotImplementedError": "ValueError", "StopIteration": "IndexError",
}  # fmt: skip
_CONTAINER_UPDATES = {
    "clear", "pop", "popitem", "discard", "remove", "invalidate", "update", "setdefault", "move_to_end",
}  # fmt: skip
_INTROSPECTION = {"isinstance", "issubclass", "getattr", "hasattr", "setattr"}


class SourceText:
    """A file's text, its syntax tree, and the byte position of each node."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.tree = ast.parse(text)
        blocks = [getattr(node, name, None) for node in ast.walk(self.tree) for name in ("body", "orelse", "finalbody")]
        self.lonely = {block[0] for block in blocks if isinstance(block, list) and len(block) == 1}
        self.starts = [0]
        for line in self.data.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: Any) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def between(self, left: Any, right: Any) -> tuple[int, int, str]:
        start, end = self.span(left)[1], self.span(right)[0]
        return start, end, self.data[start:end].decode()

    def lines(self, node: Any) -> tuple[int, int]:
        """Returns the byte range of a statement's complete lines, line ends included."""
        return self.starts[node.lineno - 1], min(self.starts[node.end_lineno], len(self.data))

    def alone(self, node: Any) -> bool:
        """Returns True if the statement's lines contain nothing else."""
        start, end = self.span(node)
        first, last = self.lines(node)
        return not self.data[first:start].strip() and not self.data[end:last].split(b"#")[0].strip()


def bugs(path: str, text: str) -> list[PlantedBug]:
    """Returns every change that the operators can make in the functions of a file, in text order; []
    if it is not Python.

    A few changes are not valid Python: the caller must check.
    """
    try:
        source = SourceText(text)
    except (SyntaxError, ValueError):
        return []
    candidates = set()
    for function, name in functions(source.tree, ""):
        for node, statement in own_nodes(function):
            for operator, make in OPERATORS.items():
                for edits in make(source, node, statement):
                    candidates.add(PlantedBug(path, operator, name, node.lineno, tuple(edits)))
        for edits, node in _defaults(source, function):
            candidates.add(PlantedBug(path, "wrong_default", name, node.lineno, tuple(edits)))
    return sorted(candidates, key=lambda bug: (bug.line, bug.operator, bug.edits))


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, prefix + child.name
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def own_nodes(function: Function) -> Iterator[tuple[Any, bool]]:
    """Yields the nodes of the body, without inner functions and the docstring, and whether each is a
    statement.
    """
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    waiting: list[Any] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*Function.__args__, ast.ClassDef, ast.JoinedStr, ast.Global, ast.Nonlocal)):  # type: ignore[attr-defined]
            continue
        if hasattr(node, "lineno"):
            yield node, isinstance(node, ast.stmt)
        waiting += reversed(list(ast.iter_child_nodes(node)))


# ---- operators: (source, node, is a statement) -> possible edits --------------------------------------------------

EditChoices = Iterator[list[Edit]]


def _comparison(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        start, end, text = source.between(node.left, node.comparators[0])
        if not set("()\n#") & set(text):
            yield [(start, end, f" {_OPPOSITE[type(node.ops[0])]} ")]


def _off_by_one(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1000:
        yield [(*source.span(node), str(node.value + 1))]


def _wrong_constant(source: SourceText, node: Any, statement: bool) -> EditChoices:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield [(*source.span(node), repr(not node.value))]
    elif isinstance(node.value, str) and 0 < len(node.value) <= 12 and source.text(node)[0] in "'\"":
        word, quote = node.value, source.text(node)[0]
        wrong = word.swapcase() if word.swapcase() != word else word[:-1]
        if quote not in wrong and "\\" not in source.text(node) and wrong.isprintable():
            yield [(*source.span(node), quote + wrong + quote)]


def _and_or(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.BoolOp):
        word, opposite = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        gaps = [source.between(left, right) for left, right in pairwise(node.values)]
        if all(text.strip() == word for _, _, text in gaps):
            yield [(start, end, text.replace(word, opposite)) for start, end, text in gaps]


def _missing_condition(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        for remaining in node.values:
            yield [(*source.span(node), source.text(remaining))]


def _arithmetic(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.BinOp) and type(node.op) in _OTHER_SIGN and not isinstance(node.left, ast.Constant):
        start, end, text = source.between(node.left, node.right)
        if not set("()\n#") & set(text):
            yield [(start, end, f" {_OTHER_SIGN[type(node.op)]} ")]
    if isinstance(node, ast.AugAssign) and type(node.op) in (ast.Add, ast.Sub):
        start, end, text = source.between(node.target, node.value)
        yield [(start, end, text.replace("+=", "-=") if "+=" in text else text.replace("-=", "+="))]


def _inverted_condition(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield [(*source.span(node), source.text(node.operand))]
    if isinstance(node, (ast.If, ast.While)) and isinstance(node.test, (ast.Name, ast.Call, ast.Attribute)):
        yield [(*source.span(node.test), "not " + source.text(node.test))]


def _removed(source: SourceText, node: Any) -> EditChoices:
    """Yields the removal of a statement, replaced by `pass` if its block would be empty."""
    if source.alone(node):
        yield [(*source.span(node), "pass") if node in source.lonely else (*source.lines(node), "")]


def _dropped_guard(source: SourceText, node: Any, _: bool) -> EditChoices:
    short = isinstance(node, ast.If) and not node.orelse and len(node.body) <= 2
    if short and isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)):
        yield from _removed(source, node)


def _removed_statement(source: SourceText, node: Any, statement: bool) -> EditChoices:
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        if not _updates_container(node):
            yield from _removed(source, node)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        yield from _removed(source, node)


def _stale_cache(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.Delete) or _updates_container(node):
        yield from _removed(source, node)


def _updates_container(node: Any) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _CONTAINER_UPDATES


def _missing_case(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        arm = node.orelse[0]
        head = source.data[: source.span(arm)[0]]
        if head.endswith(b"el") or source.text(arm).startswith("elif"):  # an elif, not an if inside an else
            start = source.starts[arm.lineno - 1]
            end = source.lines(arm.body[-1])[1]
            yield [(start, end, "")]
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        yield from _fewer(source, node.comparators[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        yield from _fewer(source, node.args[-1])


def _fewer(source: SourceText, node: Any) -> EditChoices:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and len(node.elts) >= 2:
        start = source.span(node.elts[-2])[1]
        yield [(start, source.span(node.elts[-1])[1], "," if len(node.elts) == 2 else "")]


def _swapped_arguments(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(x, ast.Starred) for x in node.args):
        if isinstance(node.func, ast.Name) and node.func.id in _INTROSPECTION:
            return
        first, second = node.args[:2]
        if source.text(first) != source.text(second):
            yield [(*source.span(first), source.text(second)), (*source.span(second), source.text(first))]


def _swapped_branches(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.IfExp):
        yield [(*source.span(node.body), source.text(node.orelse)), (*source.span(node.orelse), source.text(node.body))]


def _wrong_exception(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
        yield [(*source.span(node.exc.func), _OTHER_ERROR.get(node.exc.func.id, "RuntimeError"))]
    if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id in _OTHER_ERROR:
        yield [(*source.span(node.type), _OTHER_ERROR[node.type.id])]


def _early_exit(source: SourceText, node: Any, _: bool) -> EditChoices:
    if isinstance(node, (ast.Break, ast.Continue)):
        yield [(*source.span(node), "continue" if isinstance(node, ast.Break) else "break")]


def _defaults(source: SourceText, function: Function) -> Iterator[tuple[list[Edit], Any]]:
    arguments = function.args
    for node in [*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)]:
        if isinstance(node, ast.Constant) and type(node.value) in (bool, int):
            value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
            yield [(*source.span(node), repr(value))], node


OPERATORS: dict[str, Callable[[SourceText, Any, bool], EditChoices]] = {
    "comparison": _comparison,
    "off_by_one": _off_by_one,
    "wrong_constant": _wrong_constant,
    "and_or": _and_or,
    "missing_condition": _missing_condition,
    "arithmetic": _arithmetic,
    "inverted_condition": _inverted_condition,
    "dropped_guard": _dropped_guard,
    "removed_statement": _removed_statement,
    "stale_cache": _stale_cache,
    "missing_case": _missing_case,
    "swapped_arguments": _swapped_arguments,
    "swapped_branches": _swapped_branches,
    "wrong_exception": _wrong_exception,
    "early_exit": _early_exit,
}
"""`wrong_default` is the sixteenth: it changes a function's signature, not its body"""
