"""Mutants of a module: one operator, constant, condition or call changed at a time. See `benchmarks.mutants`."""

from __future__ import annotations

import ast
import itertools
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("envsuite", "harness", "baselines")
AREAS = {
    "envsuite/sandbox": "sandbox",
    "envsuite/envs": "engines",
    "harness/lm": "lm",
    "harness/policies": "policies",
    "harness": "harness",
    "baselines": "baselines",
    "envsuite": "core",
}
"""the first matching folder names a mutant's row of the table"""
SWAPS: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*", ast.And: "or", ast.Or: "and", ast.BitOr: "&", ast.BitAnd: "|",
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "len"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the characters from `start` to `end` become `text`."""

    path: str
    line: int
    column: int
    start: int
    end: int
    text: str
    before: str
    in_function: bool
    """False for a line that runs when its module is imported"""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.before} -> {self.text or 'nothing'}"

    @property
    def area(self) -> str:
        return next(area for folder, area in AREAS.items() if self.path.startswith(folder))

    def applied(self, source: bytes) -> bytes:
        """Returns the module's source with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def compiles(self, source: bytes) -> bool:
        try:
            ast.parse(self.applied(source))
        except SyntaxError:
            return False
        return True


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Returns every mutant of a module that still compiles; strings, annotations and messages stay as they are."""
    return [mutant for mutant in candidates_of(path, source) if mutant.compiles(source.encode())]


def candidates_of(path: str, source: str) -> list[Mutant]:
    """Returns the mutants of a module, of which a few may not compile: checking each takes a while."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    made: dict[tuple[int, int, str], Mutant] = {}

    def add(line: int, start: int, end: int, text: str) -> None:
        before = data[start:end].decode()
        made[start, end, text] = Mutant(path, line, start - starts[line - 1], start, end, text, before, line in bodies)

    def place(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> None:
        """Replaces the operator between two operands; brackets and spaces around it stay."""
        start, end = place(left)[1], place(right)[0]
        gap = data[start:end].decode()
        word = gap.strip(" ()\n\\\t")
        if type(operator) in SWAPS and word and "#" not in gap:
            offset = gap.index(word)
            line = left.end_lineno or left.lineno
            add(line, start + offset, start + offset + len(word.encode()), SWAPS[type(operator)])

    tree = ast.parse(source)
    bodies = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }
    for node in _code(tree):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                between(left, right, operator)
        elif isinstance(node, ast.BinOp):
            between(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                between(left, right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            add(node.lineno, place(node)[0], place(node.operand)[0], "" if isinstance(node.op, ast.USub) else " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            add(node.lineno, *place(node), str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            add(node.lineno, *place(node), str(node.value + 1))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            add(node.lineno, *place(node.func), CALLS[node.func.id])
        elif isinstance(node, ast.IfExp | ast.If):
            test = place(node.test)
            add(node.test.lineno, *test, f"(not ({data[slice(*test)].decode()}))")
        elif isinstance(node, ast.Continue):
            add(node.lineno, *place(node), "break")
        elif isinstance(node, ast.Break):
            add(node.lineno, *place(node), "continue")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            add(node.lineno, *place(node), "pass")
        elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
            start, end = place(node.target)[1], place(node.value)[0]
            offset = data[start:end].decode().index("=") - 1
            add(node.lineno, start + offset, start + offset + 1, SWAPS[type(node.op)])
    return sorted(made.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that decide what the code does: no annotations, no messages of errors, no decorators."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or (name == "exc" and isinstance(tree, ast.Raise)):
            continue
        if isinstance(tree, ast.If) and name == "test" and "TYPE_CHECKING" in ast.unparse(tree.test):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Assert):
                yield child
                yield from _code(child)


def chosen(words: Sequence[str], changed: str) -> list[Mutant]:
    """Returns the mutants of PATH, PATH:LINE, PATH:FIRST-LAST or a folder, and of lines changed since a revision."""
    lines: dict[str, set[int] | None] = {}
    for word in words:
        name, _, part = word.partition(":")
        first, _, last = part.partition("-")
        for path in sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]:
            lines[str(path.relative_to(ROOT))] = set(range(int(first), int(last or first) + 1)) if part else None
    if changed:
        for path, numbers in _changed(changed).items():
            lines[path] = numbers
    mutants = []
    for path, numbers in lines.items():
        mutants += [
            mutant
            for mutant in mutants_of(path, (ROOT / path).read_text())
            if numbers is None or mutant.line in numbers
        ]
    return mutants


def drawn(area: str, count: int, seed: int) -> list[Mutant]:
    """Draws mutants at random among all modules of an area."""
    folders = [ROOT / folder for folder, name in AREAS.items() if name == area]
    paths = sorted({str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.py")})
    mutants = [mutant for path in paths for mutant in candidates_of(path, (ROOT / path).read_text())]
    mutants = [mutant for mutant in mutants if mutant.area == area]
    random.Random(seed).shuffle(mutants)
    valid = (mutant for mutant in mutants if mutant.compiles((ROOT / mutant.path).read_bytes()))
    return list(itertools.islice(valid, count))


def _changed(revision: str) -> dict[str, set[int]]:
    """Returns the lines of the packages that differ from a revision."""
    command = ["git", "diff", "-U0", revision, "--", *PACKAGES]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines: dict[str, set[int]] = {}
    path = ""
    for line in output.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("@@") and path.endswith(".py"):
            first, _, count = line.split("+")[1].split(" ")[0].partition(",")
            lines.setdefault(path, set()).update(range(int(first), int(first) + int(count or 1)))
    return lines
