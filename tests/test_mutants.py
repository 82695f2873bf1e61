"""The mutator of `make mutants`: what it changes, what it leaves alone, and how a change reaches loaded code."""

import ast
import builtins
import importlib.util

from benchmarks import mutant_swap
from benchmarks.mutant_map import PROBE, probed
from benchmarks.mutant_operators import chosen, drawn, mutants_of
from benchmarks.mutants import Covering, in_child, rows, table

SOURCE = '''
"""A module with 1 number and a < b."""
LIMIT = 5


def clipped(value: int = 3, *, low: "1 < 2" = 0) -> int:
    """Returns 4."""
    if value < low or not value:
        raise ValueError(f"{value + 1} is below {low - 1}")
    total = max(value, -low)
    total += 1
    print("é", total)
    return total if value is not None else LIMIT
'''


def changed(mutant) -> str:
    data = SOURCE.encode()
    return (data[: mutant.start] + mutant.text.encode() + data[mutant.end :]).decode()


def test_operators_constants_conditions_and_calls_are_changed_one_at_a_time():
    mutants = mutants_of("m.py", SOURCE)
    changes = {(mutant.line, mutant.before, mutant.text) for mutant in mutants}
    assert {
        (3, "5", "6"), (6, "3", "4"), (6, "0", "1"), (8, "<", "<="), (8, "or", "and"), (8, "not ", " "),
        (8, "value < low or not value", "(not (value < low or not value))"), (10, "max", "min"), (10, "-", ""),
        (11, "+", "-"), (11, "1", "2"), (12, 'print("é", total)', "pass"), (13, "is not", "is"),
        (13, "value is not None", "(not (value is not None))"),
    } == changes  # fmt: skip
    assert [mutant.in_function for mutant in mutants] == [mutant.line > 6 for mutant in mutants]
    for mutant in mutants:
        ast.parse(changed(mutant))
        assert changed(mutant) != SOURCE
        assert sum(a != b for a, b in zip(SOURCE.splitlines(), changed(mutant).splitlines(), strict=True)) == 1


def test_real_modules_have_mutants_in_named_lines_only():
    every = chosen(["harness/rollout/loop.py"], "")
    line = every[len(every) // 2].line
    assert chosen([f"harness/rollout/loop.py:{line}"], "") == [mutant for mutant in every if mutant.line == line]
    assert len({mutant.name for mutant in every}) == len(every) > 50


def test_a_change_reaches_functions_that_are_loaded_already(tmp_path):
    path = tmp_path / "loaded.py"
    before = (
        b"def outer(n):\n    def inner():\n        return n + 1\n    return inner() * 2\n\n\ndef other(): return 1\n"
    )
    path.write_bytes(before)
    spec = importlib.util.spec_from_file_location("loaded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outer = module.outer
    functions = mutant_swap.functions_of(path)
    assert mutant_swap.swap(functions, before, before.replace(b"n + 1", b"n - 1"), path) == 1
    assert (outer(5), module.other()) == (8, 1)


def test_a_change_that_cannot_be_swapped_is_imported_anew(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")

    def refuse():
        raise ValueError("requires a code object with 1 free vars, not 0")

    assert in_child(tmp_path, ["test_one.py"], 60, prepare=refuse) == "passed"


def test_a_line_gets_the_tests_that_cover_it_shortest_first(tmp_path):
    covered = '{"seconds": {"t::a": 2.0, "t::b": 1.0}, "lines": {"m.py": {"8": ["t::a", "t::b"], "9": ["t::a"]}}}'
    (tmp_path / "map.json").write_text(covered)
    covering = Covering(tmp_path)
    by_line = {mutant.line: covering.tests(mutant) for mutant in mutants_of("m.py", SOURCE)}
    assert by_line[8] == ["t::b", "t::a"] and by_line[11] == []
    assert by_line[3] == ["t::b", "t::a"]  # a constant of the module: every test of the module


def test_equivalent_mutants_are_counted_apart(tmp_path):
    journal = tmp_path / "journal.jsonl"
    journal.write_text(
        '{"name": "a:1:1: < -> <=", "area": "lm", "verdict": "survived"}\n'
        '{"name": "a:1:1: < -> <=", "area": "lm", "verdict": "killed"}\n'
        '{"name": "b:1:1: < -> <=", "area": "lm", "verdict": "survived", "equivalent": "never equal"}\n'
        '{"name": "c:1:1: < -> <=", "area": "lm", "verdict": "not covered"}\n'
        '{"name": "d:1:1: < -> <=", "area": "lm", "verdict": "survived", "killed_by": "test_d"}\n'
        '{"name": "e:1:1: < -> <=", "area": "lm", "verdict": "survived"}\n'
    )
    assert len(rows(journal)) == 5
    assert "| lm | 5 | 1 | 1 | 1 | 2 | 25 % | 50 % |" in table(journal)


def test_every_mutant_of_a_function_has_a_probe_that_its_tests_reach(monkeypatch):
    source = '''"""d"""
from __future__ import annotations


def f(a):
    """x"""
    try:
        b = [n for n in a
             if n > 1]
    except TypeError:
        b = -1
    if b == -1:
        return 0
    elif len(b) > 2:
        return 1
    return lambda c: (
        c + 2
    )
'''
    lines = {mutant.line for mutant in mutants_of("m.py", source) if mutant.in_function}
    assert lines == {9, 11, 12, 13, 14, 15, 17}
    hits: list[str] = []
    names: dict = {}
    exec(probed(source, "m.py", lines, everywhere=True), names)
    names["f"](3)  # without a recorder
    monkeypatch.setattr(builtins, PROBE, hits.append, raising=False)
    for value, reached in ((3, {0, 9, 11, 12, 13}), ([2, 2, 2], {0, 9, 12, 14, 15}), ([0], {0, 9, 12, 14, 17})):
        hits.clear()
        names["f"](value)
        assert set(hits) == {f"m.py:{line}" for line in reached}
    assert names["f"].__doc__ == "x"


def test_a_draw_is_random_among_all_modules_of_an_area():
    sample = drawn("lm", 12, seed=1)
    assert sample == drawn("lm", 20, seed=1)[:12] != drawn("lm", 12, seed=2)
    assert len({mutant.path for mutant in sample}) > 3 and {mutant.area for mutant in sample} == {"lm"}
    assert "harness/lm/" not in {mutant.path[:11] for mutant in drawn("harness", 12, seed=1)}
