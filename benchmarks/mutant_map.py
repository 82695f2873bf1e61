"""Maps mutants to the tests that run them: each mutant's statement records that it ran, in a copy of the code.

Tests run at their usual speed, since nothing is traced. Code in child processes is not seen.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.mutant_operators import ROOT, Mutant

PROBE = "_mutant_probe"
IN_MODULE = f"{PROBE} = lambda place: getattr(__import__('builtins'), {PROBE!r}, len)(place)"
"""the line that a probed module starts with; a process without a Recorder measures the length of the place"""


def probed(source: str, path: str, lines: Iterable[int], everywhere: bool) -> str:
    """Returns source whose statements at `lines` call the probe with PATH:LINE first.

    With `everywhere`, each function does so too: a mutant of the module itself concerns all of them.
    """
    tree = ast.parse(source)
    numbers = set(lines)

    def probe(line: int) -> ast.stmt:
        return ast.parse(f"{PROBE}({f'{path}:{line}'!r})").body[0]

    def innermost(node: ast.AST) -> set[int]:
        """Returns the lines of a statement without the lines of the statements inside it."""
        span = set(range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1))
        for _, _, block in blocks(node):
            for child in block:
                span -= set(range(child.lineno, (child.end_lineno or 0) + 1))
        return span

    def visit(node: ast.AST, in_function: bool) -> None:
        for owner, name, block in blocks(node):
            added: list[ast.stmt] = []
            for index, child in enumerate(block):
                docstring = index == 0 and isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
                if in_function and not docstring:
                    added += [probe(line) for line in sorted(innermost(child) & numbers)]
                added.append(child)
                if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    visit(child, in_function)
                    continue
                visit(child, True)
                if everywhere:
                    child.body.insert(1 if ast.get_docstring(child) is not None else 0, probe(0))
            setattr(owner, name, added)

    visit(tree, False)
    start = next((i for i, node in enumerate(tree.body) if not _must_be_first(node, i)), len(tree.body))
    tree.body.insert(start, ast.parse(IN_MODULE).body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def clauses(node: ast.AST) -> list[ast.AST]:
    """Returns a node and its except and case clauses, which hold statements too."""
    return [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]


def blocks(node: ast.AST) -> list[tuple[ast.AST, str, list[ast.stmt]]]:
    """Returns the lists of statements directly in a node, each with the node and the field that hold it."""
    return [
        (clause, name, block)
        for clause in clauses(node)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(clause, name, None), list) and block
    ]


def _must_be_first(node: ast.stmt, index: int) -> bool:
    is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def instrument(copy: Path, mutants: Iterable[Mutant], write: Callable[[Path, bytes], None]) -> None:
    """Puts the probes of mutants into a copy of the code."""
    by_path: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_path[mutant.path].append(mutant)
    for path, group in by_path.items():
        lines = {mutant.line for mutant in group if mutant.in_function}
        everywhere = not all(mutant.in_function for mutant in group)
        write(copy / path, probed((ROOT / path).read_text(), path, lines, everywhere).encode())


class Recorder:
    """A pytest plugin that writes which probes each passing test reaches, and how long it takes.

    It writes one map for each file of tests, when the file's last test has ended.
    """

    def __init__(self, output: Callable[[str], Path]) -> None:
        self.output = output
        self.hits: set[str] = set()
        setattr(builtins, PROBE, self.hits.add)
        self.file = ""
        self._clear()

    def _clear(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[str, list[str]]] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if file != self.file:
            self.write()
            self.file = file
        self.hits.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "setup" and report.passed:
            self.seconds[report.nodeid] = min(report.duration, 1.0)  # shared fixtures are set up once
        elif report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration + self.seconds.get(report.nodeid, 0.0)
            for hit in self.hits:
                path, _, line = hit.rpartition(":")
                self.lines.setdefault(path, {}).setdefault(line, []).append(report.nodeid)
        elif report.when != "teardown":
            self.seconds.pop(report.nodeid, None)

    def pytest_sessionfinish(self) -> None:
        self.write()

    def write(self) -> None:
        if self.file:
            self.output(self.file).write_text(json.dumps({"seconds": self.seconds, "lines": self.lines}))
        self._clear()
