"""Wrong refactorings: restructurings that look harmless and change what the code does.

Each is a common step of clean-up work with its common slip: a helper called with exchanged arguments
or without one, a loop that stops at the first exception to its condition, checks in another order,
branches merged, a result stored too long, a default shared by all calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from envsuite.envs.swegym.generated.operators import Edit, Function, SourceText, own_nodes
from envsuite.envs.swegym.larger.source import (
    Change,
    blocks,
    body_of,
    first_line,
    grouped,
    loaded,
    moved,
    parameters,
    span,
    stored,
)

FEWEST, MOST = 3, 25
"""lines of code that move into a helper"""
_SCOPED = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.AsyncFor, ast.AsyncWith)
_COMPREHENSIONS = {ast.ListComp: ("[]", "append"), ast.SetComp: ("set()", "add"), ast.GeneratorExp: ("[]", "append")}
_EMPTY = {"[]", "{}", "set()", "list()", "dict()"}


def changes(source: SourceText, function: Function, top: ast.stmt, owner: ast.ClassDef | None) -> Iterator[Change]:
    """Yields every wrong refactoring of a function; `top` is the module's statement that contains it."""
    if isinstance(function, ast.FunctionDef):
        yield from _extracted_helper(source, function, top, owner)
        yield from _cached_result(source, function, owner)
        yield from _shared_default(source, function)
    for block in blocks(function):
        yield from _reordered_checks(source, block)
        yield from _wider_try(source, block)
        yield from _loop_from_comprehension(source, block)
        yield from _comprehension_from_loop(source, block)
    for node, _ in own_nodes(function):
        if isinstance(node, ast.If):
            yield from _merged_branches(source, node)
            yield from _reordered_arms(source, node)
            yield from _collapsed_nesting(source, node)


class _Extraction(NamedTuple):
    """The end of a function, about to move into a helper."""

    helper: str
    body: str
    place: int
    """where the helper goes, in bytes"""
    span: tuple[int, int]
    indentation: str

    def edits(self, signature: list[str], arguments: list[str]) -> list[Edit]:
        definition = f"def {self.helper}({', '.join(signature)}):\n{self.body.rstrip()}\n\n\n"
        call = f"{self.indentation}return {self.helper}({', '.join(arguments)})\n"
        return [(self.place, self.place, definition), (*self.span, call)]


def _extracted_helper(
    source: SourceText, function: ast.FunctionDef, top: ast.stmt, owner: ast.ClassDef | None
) -> Iterator[Change]:
    body, names = body_of(function), {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    helper = f"_{function.name.strip('_')}_result"
    if helper in names or any(isinstance(node, _SCOPED) for node in ast.walk(function)):
        return
    if any(name in loaded(body) for name in ("super", "__class__", "locals")) or _mangles(function, owner):
        return
    for cut in range(1, len(body)):
        head, tail = body[:cut], body[cut:]
        lines = (tail[-1].end_lineno or 0) - tail[0].lineno + 1
        text = moved(source, tail, 4)
        if not FEWEST <= lines <= MOST or text is None:
            continue
        bound = stored(head)
        ordered = [*parameters(function), *sorted(bound - set(parameters(function)))]
        needed = [name for name in ordered if name in loaded(tail)]
        extraction = _Extraction(
            helper, text, source.starts[first_line(top) - 1], span(source, tail), " " * tail[0].col_offset
        )
        fixed = int(owner is not None and needed[:1] == parameters(function)[:1])
        for left, right in pairwise(range(fixed, len(needed))):
            arguments = list(needed)
            arguments[left], arguments[right] = arguments[right], arguments[left]
            yield "helper_swapped_arguments", tail[0], extraction.edits(needed, arguments)
        for name, default in _plain_defaults(function).items():
            if name in needed:
                remaining = [parameter for parameter in needed if parameter != name]
                yield (
                    "helper_argument_left_out",
                    tail[0],
                    extraction.edits([*remaining, f"{name}={default}"], remaining),
                )


def _mangles(function: ast.FunctionDef, owner: ast.ClassDef | None) -> bool:
    attributes = [node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)]
    return owner is not None and any(name.startswith("__") and not name.endswith("__") for name in attributes)


def _plain_defaults(function: ast.FunctionDef) -> dict[str, str]:
    """Returns the parameters with a constant default, and its text."""
    named = [*function.args.posonlyargs, *function.args.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    ]
    pairs += [*zip(reversed(named), reversed(function.args.defaults), strict=False)]
    return {argument.arg: ast.unparse(value) for argument, value in pairs if isinstance(value, ast.Constant)}


def _cached_result(source: SourceText, function: ast.FunctionDef, owner: ast.ClassDef | None) -> Iterator[Change]:
    """Yields a result stored for ever: on the object, or by the first argument alone."""
    arguments = parameters(function)
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))
    if not returns or any(isinstance(node, _SCOPED) for node in ast.walk(function)) or not arguments:
        return
    if function.args.vararg or function.args.kwarg or function.args.posonlyargs:
        return
    name, indentation = function.name, " " * function.col_offset
    start = source.span(function)[0]
    inner, place = f"_compute_{name.strip('_')}", source.data.index(name.encode(), start)
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    if owner is not None and arguments == ["self"] and decorators <= {"property"}:
        attribute = f"self._cached_{name.strip('_')}"
        lines = [
            f"def {name}(self):",
            f'    if not hasattr(self, "{attribute.partition(".")[2]}"):',
            f"        {attribute} = self.{inner}()",
            f"    return {attribute}",
        ]
        before = ""
    elif owner is None and len(arguments) > 1 and not decorators:
        store, key = f"_{name.strip('_')}_results", arguments[0]
        passed = [f"{arg.arg}={arg.arg}" for arg in function.args.kwonlyargs]
        call = f"{inner}({', '.join([*(arg.arg for arg in function.args.args), *passed])})"
        lines = [
            f"def {name}({ast.unparse(function.args)}):",
            f"    if {key} not in {store}:",
            f"        {store}[{key}] = {call}",
            f"    return {store}[{key}]",
        ]
        before = f"{store} = {{}}\n\n\n"
    else:
        return
    gap = "\n" if owner is not None else "\n\n"
    wrapper = f"\n{indentation}".join(lines) + f"\n{gap}{indentation}"
    yield (
        "cached_result",
        function,
        [(start, start, before + wrapper), (place, place + len(name.encode()), inner)],
    )


def _shared_default(source: SourceText, function: ast.FunctionDef) -> Iterator[Change]:
    """Yields `def f(x=[])` in place of `x=None` and a new list in the body."""
    named = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip([arg.arg for arg in reversed(named)], reversed(function.args.defaults), strict=False))
    for node in body_of(function):
        if not (isinstance(node, ast.If) and not node.orelse and len(node.body) == 1 and source.alone(node)):
            continue
        statement = node.body[0]
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        name, value = statement.targets[0].id, source.text(statement.value)
        default = defaults.get(name)
        if ast.unparse(node.test) == f"{name} is None" and value in _EMPTY and default is not None:
            yield "shared_default", node, [(*source.span(default), value), (*span(source, [node]), "")]


def _reordered_checks(source: SourceText, block: list[Any]) -> Iterator[Change]:
    for first, second in pairwise(block):
        plain = all(isinstance(node, ast.If) and not node.orelse and source.alone(node) for node in (first, second))
        if plain and not source.text(first).startswith("elif"):
            begin, middle = span(source, [first])
            start, end = span(source, [second])
            parts = [source.data[a:b].decode() for a, b in ((start, end), (middle, start), (begin, middle))]
            yield "reordered_checks", first, [(begin, end, "".join(parts))]
            bodies = {ast.dump(first.body[-1]), ast.dump(second.body[-1])}
            if isinstance(first.body[-1], (ast.Return, ast.Raise, ast.Continue)) and len(bodies) == 2:
                test = f"{grouped(source, first.test)} or {grouped(source, second.test)}"
                yield "merged_branches", first, [(*source.span(first.test), test), (middle, end, "")]


def _reordered_arms(source: SourceText, node: ast.If) -> Iterator[Change]:
    arm = _elif(source, node)
    if arm is None or source.lines(node.body[-1])[1] > source.starts[arm.lineno - 1]:
        return
    tests, bodies = (node.test, arm.test), (span(source, node.body), span(source, arm.body))
    if node.body[0].lineno > node.test.end_lineno and arm.body[0].lineno > (arm.test.end_lineno or 0):  # type: ignore[operator]
        first, second = (source.data[start:end].decode() for start, end in bodies)
        edits = [
            (*source.span(tests[0]), source.text(tests[1])),
            (*bodies[0], second),
            (*source.span(tests[1]), source.text(tests[0])),
            (*bodies[1], first),
        ]
        yield "reordered_checks", node, edits


def _merged_branches(source: SourceText, node: ast.If) -> Iterator[Change]:
    arm = _elif(source, node)
    if arm is not None:
        test = f"{grouped(source, node.test)} or {grouped(source, arm.test)}"
        gone = (source.starts[arm.lineno - 1], source.lines(arm.body[-1])[1], "")
        yield "merged_branches", node, [(*source.span(node.test), test), gone]


def _elif(source: SourceText, node: ast.If) -> ast.If | None:
    arm = node.orelse[0] if len(node.orelse) == 1 else None
    return arm if isinstance(arm, ast.If) and source.text(arm).startswith("elif") else None


def _collapsed_nesting(source: SourceText, node: ast.If) -> Iterator[Change]:
    """Yields `if a and b` in place of `if a` around `if b`, where another branch follows."""
    inner = node.body[0]
    if not (node.orelse and len(node.body) == 1 and isinstance(inner, ast.If) and not inner.orelse):
        return
    text = moved(source, inner.body, inner.col_offset)
    if text is not None and inner.body[0].lineno > inner.lineno:
        test = f"{grouped(source, node.test)} and {grouped(source, inner.test)}"
        yield "collapsed_nesting", node, [(*source.span(node.test), test), (*span(source, [inner]), text)]


def _wider_try(source: SourceText, block: list[Any]) -> Iterator[Change]:
    """Yields a `try` that takes in the statement after it."""
    for node, follower in pairwise(block):
        if isinstance(node, ast.Try) and not node.orelse and not node.finalbody:
            text = moved(source, [follower], node.body[0].col_offset)
            if text is not None and node.body[0].lineno > node.lineno:
                place = source.lines(node.body[-1])[1]
                yield "wider_try", node, [(place, place, text), (*span(source, [follower]), "")]


def _loop_from_comprehension(source: SourceText, block: list[Any]) -> Iterator[Change]:
    """Yields a loop that stops where the comprehension skips, or that returns after its first round."""
    for statement in block:
        if not isinstance(statement, (ast.Return, ast.Assign)) or not source.alone(statement):
            continue
        for node in _evaluated(statement):
            if type(node) not in _COMPREHENSIONS or len(node.generators) != 1 or node.generators[0].is_async:
                continue
            empty, method = _COMPREHENSIONS[type(node)]
            loop, indentation = node.generators[0], " " * statement.col_offset
            lines = [f"collected = {empty}", f"for {source.text(loop.target)} in {source.text(loop.iter)}:"]
            if loop.ifs:
                lines += [f"    if not ({source.text(loop.ifs[0])}):", "        break"]
            lines.append(f"    collected.{method}({source.text(node.elt)})")
            text = "".join(f"{indentation}{line}\n" for line in lines)
            begin, end = span(source, [statement])
            start, stop = source.span(node)
            value = "collected"
            if source.data[start - 1 : start] != b"(" and isinstance(node, ast.GeneratorExp):
                value = "(collected)" if source.text(node).startswith("(") else value
            last = (source.data[begin:start] + value.encode() + source.data[stop:end]).decode()
            if loop.ifs and "\n" not in "".join(lines):
                yield "loop_from_comprehension", statement, [(begin, end, text + last)]
            elif isinstance(statement, ast.Return):
                yield "loop_from_comprehension", statement, [(begin, end, text + f"    {last}")]


def _evaluated(statement: ast.stmt) -> Iterator[Any]:
    """Yields the expressions of a statement that are evaluated exactly once and first."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        lazy = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        if not isinstance(node, lazy):
            waiting += ast.iter_child_nodes(node)


def _comprehension_from_loop(source: SourceText, block: list[Any]) -> Iterator[Change]:
    """Yields a comprehension without the loop's condition, or with the opposite one."""
    for start, loop in pairwise(block):
        if not (isinstance(start, ast.Assign) and isinstance(loop, ast.For) and not loop.orelse):
            continue
        if source.text(start.value) not in ("[]", "list()", "{}", "dict()") or len(start.targets) != 1:
            continue
        name, condition, statement = source.text(start.targets[0]), "", loop.body[-1]
        first = loop.body[0]
        if isinstance(first, ast.If) and not first.orelse and len(loop.body) == 1 and len(first.body) == 1:
            statement = first.body[0]
        elif isinstance(first, ast.If) and len(loop.body) == 2 and isinstance(first.body[0], ast.Continue):
            condition = f" if {source.text(first.test)}"
        else:
            continue
        element = _element(source, statement, name)
        if element:
            header = f"for {source.text(loop.target)} in {source.text(loop.iter)}"
            opening, closing = ("{", "}") if ": " in element and "append" not in source.text(statement) else ("[", "]")
            text = f"{' ' * start.col_offset}{name} = {opening}{element} {header}{condition}{closing}\n"
            yield "comprehension_from_loop", loop, [(*span(source, [start, loop]), text)]


def _element(source: SourceText, statement: ast.stmt, name: str) -> str:
    """Returns the element that a statement adds to the collection `name`; '' if it does something else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and len(call.args) == 1 and source.text(call.func) == f"{name}.append":
        return source.text(call.args[0])
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        target = statement.targets[0]
        if source.text(target.value) == name:
            return f"{source.text(target.slice)}: {source.text(statement.value)}"
    return ""
