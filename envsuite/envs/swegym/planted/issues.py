"""Issue texts of planted bugs: the failed check, what it got and what it expects, with whole values.

Details, from most to least: `full` (the failing tests, and the check of each), `names` (which tests
fail), `symptom` (one or two failed checks, without naming a test), `nothing`.

The statement of the check comes from the syntax tree of the test file. The operand that holds the
call is what the package returned; a literal, or a name like `expected`, is what the test wants. If
neither rule decides, the text names the two sides of the comparison and calls neither wrong.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.planted.tasks import PlantedTask, Symptom

DETAILS = ("full", "names", "symptom", "nothing")
LISTED = 10
_STATEMENT = 1500
"""characters of a statement; of a longer one only its first line is shown"""
_MESSAGE = 300
"""characters of an error's message; of a longer one only its type is shown"""
_LINES = 20
"""lines of a test that is longer"""
_ADDRESS = re.compile(r" at 0x\.\.\.")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Exit|Warning|Interrupt|Iteration)\b(?!.*\bassert )")
_SPOKEN = re.compile(r"^(?!\w+\d+(-\w+\d+)*$).*\w", re.DOTALL)
"""parameters that pytest did not merely number"""
_WANTED = re.compile(r"expect|want|desired|correct|target|answer", re.IGNORECASE)


FALSE = "The check is false."


@dataclass(frozen=True)
class Check:
    """Explanation of one failed check."""

    statement: str
    finding: str
    got: str = ""
    expected: str = ""
    """both '' unless the check is a comparison whose sides can be told apart"""
    sides: tuple[str, str] | None = field(default=None, compare=False)
    """values of the left and the right side of a comparison"""

    def text(self) -> str:
        parts = [textwrap.indent(self.statement, "    ")] if self.statement else []
        return "\n\n".join([*parts, self.finding])


def write(task: PlantedTask, detail: str, visible: bool) -> str:
    """Returns the issue's text. `visible`: the failing tests are in the repository."""
    parts = [f"Something in {task.package.title} does not work as it should any more."]
    if detail in ("full", "names"):
        parts.append(listed(task.fail_to_pass))
    if detail == "symptom":
        parts += ["This fails:\n\n" + check.text() for check in chosen(task)]
    if detail == "full":
        parts += [f"{symptom.test}:\n\n{explain(task, symptom).text()}" for symptom in task.symptoms]
    if not visible and detail in ("full", "names"):
        parts.append("These tests are not in your copy of the repository.")
    parts.append("Repair the package itself so that it behaves again, and break nothing that works.")
    return "\n\n".join(parts)


def chosen(task: PlantedTask) -> list[Check]:
    """Returns up to two checks; checks that name a function with a bug come last."""
    checks = list(dict.fromkeys(explain(task, symptom) for symptom in task.symptoms))
    names = {bug.function.rpartition(".")[2] for bug in task.bugs}
    quoted = [check for check in checks if check.statement] or checks
    return sorted(quoted, key=lambda check: any(re.search(rf"\b{name}\b", check.statement) for name in names))[:2]


def listed(tests: tuple[str, ...]) -> str:
    """Returns a list of failing tests, shortened."""
    more = f"\n... and {len(tests) - LISTED} more" if len(tests) > LISTED else ""
    return "These tests fail:\n" + "\n".join(f"- {test}" for test in tests[:LISTED]) + more


def explain(task: PlantedTask, symptom: Symptom) -> Check:
    """Explains the failure of one test."""
    files = packages.tree(task.package)
    tests = [file for file in files if file.endswith(".py") and not packages.is_code(task.package, file)]
    return explain_failure(files, tests, symptom)


def explain_failure(
    files: Mapping[str, str], tests: Sequence[str], symptom: Symptom, complete: bool = False, line: int = 0
) -> Check:
    """Explains the failure of one test in the tree `files`; `tests` are its Python files that are not code.

    `complete`: pytest did not shorten the values; `line`: number of the symptom's line of code, if it is known.
    """
    statement, node = statement_of(files, tests, symptom, line)
    case = symptom.test.partition("[")[2].removesuffix("]")
    if statement and case and _SPOKEN.search(case):
        statement = f"# parameters: {case}\n{statement}"
    error = _ADDRESS.sub("", symptom.error.strip())
    first = error.splitlines()[0] if error else ""
    first = first.removeprefix("AssertionError: ")
    if "DID NOT RAISE" in first or re.fullmatch(r"\S+ not raised.*", first):
        return Check(statement, "No error is raised, and one is due.")
    if first != "AssertionError" and _RAISED.match(first):
        quotable = "..." not in first and len(first) <= _MESSAGE
        return Check(statement, f"It raises `{first if quotable else first.partition(':')[0]}`.")
    return _compared(statement, node, first, complete)


def _compared(statement: str, node: ast.stmt | None, first: str, complete: bool = False) -> Check:
    """Explains a comparison that is false."""
    operands = operands_of(node)
    values = _values(first)
    if operands is None or values is None:
        quotable = first not in ("", "assert False", "AssertionError") and "..." not in first and len(first) <= _MESSAGE
        return Check(statement, f"The check is false: `{first.removeprefix('assert ')}`." if quotable else FALSE)
    left, right = values
    if not complete and "..." in left + right:  # pytest shortened them
        return Check(statement, "The two sides are not equal.")
    if left == right:
        return Check(statement, f"Both sides print as `{left}`, and they are not equal.")
    side = got_side(*operands)
    if not side:
        return Check(statement, f"Left side: `{left}`\nRight side: `{right}`", sides=values)
    got, expected = (left, right) if side == "left" else (right, left)
    return Check(statement, f"Got: `{got}`\nExpected: `{expected}`", got, expected, values)


def got_side(left: ast.expr, right: ast.expr) -> str:
    """Returns which operand is the package's answer: 'left', 'right', or '' if that is unclear."""
    sides = {"left": left, "right": right}
    for is_answer in (_calls, lambda node: not is_literal(node), lambda node: not is_wanted(node)):
        matching = [name for name, node in sides.items() if is_answer(node)]
        if len(matching) == 1:
            return matching[0]
    return ""


def _calls(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def is_literal(node: ast.expr) -> bool:
    """Returns True if an expression is a value written out."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def is_wanted(node: ast.expr) -> bool:
    """Returns True if an expression is a name like `expected`."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and bool(_WANTED.search(ast.unparse(node)))


def operands_of(node: ast.stmt | None) -> tuple[ast.expr, ast.expr] | None:
    """Returns the sides of `assert a == b` or `self.assertEqual(a, b)`; None for anything else."""
    test = node.test if isinstance(node, ast.Assert) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return test.left, test.comparators[0]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and len(node.value.args) >= 2:
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr == "assertEqual":
            return node.value.args[0], node.value.args[1]
    return None


def _values(first: str) -> tuple[str, str] | None:
    """Splits pytest's or unittest's first line into the values of the two sides; None if it is unclear."""
    text, mark = (first[7:], " == ") if first.startswith("assert ") else (first, " != ")
    pieces = text.split(mark)
    splits = [(mark.join(pieces[:cut]), mark.join(pieces[cut:])) for cut in range(1, len(pieces))]
    balanced = [split for split in splits if all(_balanced(side) for side in split)]
    if len(balanced) != 1:
        return None
    left, right = balanced[0]
    return (left[1:-1] if left.startswith("(") and left.endswith(")") and _calls_text(left) else left), right


def _calls_text(text: str) -> bool:
    """Returns True if the brackets around a text are pytest's, which keep an expression together."""
    return _balanced(text[1:-1]) and " + " in text


def _balanced(text: str) -> bool:
    """Returns True if brackets and quotes of a printed value are complete."""
    depth, quote, skip = 0, "", False
    for letter in text:
        if skip:
            skip = False
        elif quote:
            skip = letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
            if depth < 0:
                return False
    return depth == 0 and not quote


class _Source(NamedTuple):
    """A test file: its lines, test functions and statements."""

    lines: list[str]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    statements: list[ast.stmt]


@lru_cache(maxsize=256)
def _parsed(text: str) -> _Source:
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        nodes = []
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return _Source(text.splitlines(), functions, [node for node in nodes if isinstance(node, ast.stmt)])


def statement_of(
    files: Mapping[str, str], tests: Sequence[str], symptom: Symptom, line: int = 0
) -> tuple[str, ast.stmt | None]:
    """Returns source and syntax tree of the statement that starts with the symptom's line of code.

    Without such a line, for example if a test of a base class failed, the source is the test's body.
    """
    path, _, name = symptom.test.partition("::")
    test = re.sub(r"\[.*", "", name, flags=re.DOTALL).rpartition("::")[2] or name
    for file in dict.fromkeys([path, *tests] if path in files else tests):
        lines, functions, statements = _parsed(files[file])
        own = [node for node in functions if node.name == test]
        if not symptom.code:
            if own:
                return _body(lines, own[0]), None
            continue
        starting = [node for node in statements if lines[node.lineno - 1].strip().startswith(symptom.code)]
        inside = [node for node in starting if any(_contains(function, node) for function in own)]
        if starting:
            at_line = [node for node in starting if node.lineno <= line <= (node.end_lineno or 0)]
            node = (at_line[-1:] or inside or starting)[0]
            return _source(lines, node, symptom.code), node
    return symptom.code, None


def _contains(function: ast.stmt, node: ast.stmt) -> bool:
    return function.lineno <= node.lineno <= (function.end_lineno or 0)


def _body(lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the source of a test without its head and its docstring."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    text = textwrap.dedent("\n".join(lines[body[0].lineno - 1 : body[-1].end_lineno])) if body else ""
    return text if len(text) <= _STATEMENT else "\n".join(text.splitlines()[:_LINES])


def _source(lines: list[str], node: ast.stmt, code: str) -> str:
    text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    compound = isinstance(node, (ast.For, ast.While, ast.If, ast.Try, ast.FunctionDef, ast.ClassDef))
    return code if compound or len(text) > _STATEMENT else text
