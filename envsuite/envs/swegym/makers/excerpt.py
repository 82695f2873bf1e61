"""Excerpts of tests: the statements that lead to a failing check, with the helpers and the set-up they need."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

MOST, MOST_LINES = 1200, 25
"""characters and lines of an excerpt"""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def excerpt_of(text: str, name: str, code: str, entire: bool = False, number: int = 0) -> str:
    """Returns the excerpt of the test `name` up to the statement with the line `code`, or of the `entire` test.

    `number`: of that line; 0: the first line that starts with `code`.

    The longest of these that fits: all statements of the test up to there, with the helpers of the module and of the
    test case that they use; all statements without helpers; only the statements that bind or call what the check
    needs. Returns '' if none fits, or if the test is not found.
    """
    test = re.sub(r"\[.*", "", name.partition("::")[2], flags=re.DOTALL).rpartition("::")[2]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    lines = text.splitlines()
    for owner, function in _tests(tree, test):
        statements = _up_to(function, lines, code, number)
        if entire and statements:
            statements += function.body[function.body.index(statements[-1]) + 1 :]
        if not statements:
            continue
        helpers = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr, ast.If))]
        helpers = [node for node in helpers if not _is_test(node)]
        set_up = _set_up(owner, [*_methods(owner, statements), *statements])
        methods = _methods(owner, [*set_up, *statements])
        complete = [*methods, *set_up, *statements]
        choices = [[*_needed(helpers, complete), *complete], complete, [*set_up, *statements]]
        if not entire:
            goal = statements[-1:]
            choices += [[*_needed([*start, *statements[:-1]], goal), *goal] for start in ([*helpers, *set_up], set_up)]
        for chosen in choices:
            source = _source(lines, chosen)
            if len(source) <= MOST and len(source.splitlines()) <= MOST_LINES:
                return source
    return ""


def _tests(tree: ast.Module, name: str) -> Iterator[tuple[ast.ClassDef | None, _Function]]:
    """Yields the test functions of a name, each with its class."""
    for node in ast.walk(tree):
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []
        for inner in body:
            if isinstance(inner, _Function) and inner.name == name:
                yield (node if isinstance(node, ast.ClassDef) else None), inner


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, _DEFINITIONS) and node.name.lower().startswith("test")


def _up_to(function: _Function, lines: Sequence[str], code: str, number: int) -> list[ast.stmt]:
    """Returns the statements of a test up to the one with the line `code`; none if there is no such line."""
    before: list[ast.stmt] = []
    inside_test = function.lineno <= number <= (function.end_lineno or 0)
    for node in function.body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            before.append(node)
        inside = lines[node.lineno - 1 : node.end_lineno]
        reached = not inside_test or number <= (node.end_lineno or 0)
        if reached and code and any(line.strip().startswith(code) for line in inside):
            return before
    return []


def _set_up(owner: ast.ClassDef | None, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements of a test case's `setUp` if `statements` use an attribute that it sets."""
    members = owner.body if owner else []
    methods = [node for node in members if isinstance(node, ast.FunctionDef) and node.name in ("setUp", "setup_method")]
    body = [node for method in methods for node in method.body]
    assigned = {
        node.attr
        for inner in body
        for node in ast.walk(inner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return body if assigned & _attributes(statements) else []


def _methods(owner: ast.ClassDef | None, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the methods of a test case that `statements` call."""
    used = _attributes(statements)
    members = owner.body if owner else []
    return [node for node in members if isinstance(node, _Function) and node.name in used and not _is_test(node)]


def _attributes(statements: Iterable[ast.stmt]) -> set[str]:
    """Returns the attributes of `self` in statements."""
    return {
        node.attr
        for inner in statements
        for node in ast.walk(inner)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def _needed(before: Sequence[ast.stmt], goal: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements in `before` that bind, or call a method of, a name that `goal` needs, directly or not."""
    chosen: list[ast.stmt] = []
    names = set().union(*map(_names, goal))
    for node in reversed(before):
        bound = {node.name} if isinstance(node, _DEFINITIONS) else _bound(node)
        if bound & names:
            chosen.append(node)
            names |= _names(node)
    return chosen[::-1]


def _bound(node: ast.stmt) -> set[str]:
    bound = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    bound |= {inner.name for inner in ast.walk(node) if isinstance(inner, (*_DEFINITIONS, ast.alias))}
    call = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id != "self":
        bound.add(call.value.id)
    return bound


def _names(node: ast.AST) -> set[str]:
    """Returns the names in a statement; a function's parameters may be fixtures, which are functions, too."""
    arguments = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} | arguments


def _source(lines: Sequence[str], statements: Sequence[ast.stmt]) -> str:
    """Returns the source of statements; successive ones with the comments and empty lines between them."""
    blocks: list[list[int]] = []
    texts: list[str] = []
    for node in statements:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        between = lines[blocks[-1][1] : first - 1] if blocks and first > blocks[-1][1] else ["x"]
        if all(not line.strip() or line.strip()[0] == "#" for line in between):
            blocks[-1][1] = last
        else:
            blocks.append([first, last])
            texts.append("")
        text = textwrap.dedent("\n".join(lines[blocks[-1][0] - 1 : last]))
        texts[-1] = f"{text}\n" if isinstance(node, _DEFINITIONS) else text
    return "\n".join(texts)


def parameters_of(text: str, name: str) -> str | None:
    """Returns a comment with the parameters of the case that a test's name ends with; '' if there is none.

    pytest only numbers values without a short form: they are taken from the decorator. None if that is not possible.
    """
    case = name.partition("[")[2].removesuffix("]")
    if not case:
        return ""
    test = name.partition("::")[2].partition("[")[0].rpartition("::")[2]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    _, function = next(_tests(tree, test), (None, None))
    decorators = function.decorator_list if function else []
    calls = [node for node in decorators if isinstance(node, ast.Call) and len(node.args) >= 2]
    names, values = "parameters", []
    if len(calls) == len(decorators) == 1 and ast.unparse(calls[0].func).endswith("parametrize"):
        arguments = calls[0].args
        if isinstance(arguments[0], ast.Constant):
            names = str(arguments[0].value)
        values = arguments[1].elts if isinstance(arguments[1], (ast.List, ast.Tuple)) else []
    words = [] if names == "parameters" else [re.escape(word.strip()) for word in names.split(",")]
    name_pattern = "|".join(words) or r"[^\W\d]\w*?"
    numbered = next(filter(None, (re.fullmatch(rf"(?:{name_pattern})(\d+)", value) for value in case.split("-"))), None)
    if numbered is None:
        return f"# {names}: {case}"
    number = int(numbered[1])
    value = ast.unparse(values[number]) if number < len(values) else ""
    return f"# {names} = {value}" if value and len(value) <= MOST else None
