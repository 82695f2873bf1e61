"""Planted tasks: bugs planted in the syntax tree, verified by running the tests, shipped as a list."""

import ast
import gzip
import json
import re
from itertools import islice

import pytest

from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.judge.suite import SuiteJob
from envsuite.envs.swegym.makers import generator, operators, planting
from envsuite.envs.swegym.planted import issues, packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.errors import DataError
from envsuite.sandbox import drivers

CODE = '''\
"""Words."""


def first(items, limit=3, strict=False):
    """More words, 1 < 2."""
    if not items:
        return None
    total = 0
    for item in items:
        if item is None:
            continue
        if isinstance(item, (int, float)) and item < limit:
            total += item
        elif item == "all":
            cache.clear()
            total = max(total, item)
        else:
            raise ValueError("bad")
    try:
        box.last = total
        note(total)
    except KeyError:
        pass
    return total if strict else total - 1
'''
WANTED = {
    "comparison": "item <= limit",
    "off_by_one": "total = 1",
    "wrong_constant": 'item == "ALL"',
    "and_or": "or item < limit",
    "missing_condition": "        if item < limit:",
    "arithmetic": "total + 1",
    "inverted_condition": "    if items:",
    "dropped_guard": '"""More words, 1 < 2."""\n    total = 0',
    "removed_statement": "box.last = total\n    except",
    "stale_cache": 'elif item == "all":\n            total = max',
    "missing_case": "total += item\n        else:",
    "swapped_arguments": "max(item, total)",
    "swapped_branches": "return total - 1 if strict else total",
    "wrong_exception": 'raise TypeError("bad")',
    "early_exit": "            break",
    "wrong_default": "limit=4",
}


@pytest.mark.parametrize("name", WANTED)
def test_every_operator_plants_its_bug_and_touches_nothing_else(name):
    results = [tasks.apply(CODE, bug.edits) for bug in operators.bugs("a.py", CODE) if bug.operator == name]
    assert any(WANTED[name] in text for text in results), results
    for text in results:
        ast.parse(text)
        assert '"""More words, 1 < 2."""' in text
        changed = sum(line not in CODE.split("\n") for line in text.split("\n"))
        assert changed <= 2


def test_the_operators_are_all_tried_and_text_beyond_ascii_keeps_its_places():
    assert set(WANTED) == {*operators.OPERATORS, "wrong_default"}
    text = 'def f(x):\n    s = "übergrößen"; return x < 1  # ñ\n'
    assert 'def f(x):\n    s = "übergrößen"; return x <= 1  # ñ\n' in [
        tasks.apply(text, bug.edits) for bug in operators.bugs("a.py", text)
    ]
    assert operators.bugs("a.py", "def (") == []


@pytest.mark.parametrize("package", packages.shipped().values(), ids=packages.shipped())
def test_the_sources_are_the_published_archives_with_their_licences(package):
    files = packages.tree(package)
    assert package.shipped
    assert any("LICENSE" in path.upper() for path in files)
    assert packages.lines_of_code(package) > 100
    code = [path for path in files if packages.is_code(package, path)]
    assert code and not any("test" in path.rpartition("/")[2] for path in code)


def test_the_shipped_tasks_are_what_they_say():
    results = tasks.manifest()
    assert len({task.instance_id for task in results}) == len(results)
    assert (packages.SHIPPED / tasks.MANIFEST).stat().st_size < 2_000_000
    for task in results:
        tests = {*task.fail_to_pass, *task.pass_to_pass}
        assert task.fail_to_pass and task.pass_to_pass
        assert len(task.fail_to_pass) <= generator.SHARE * len(tests)
        assert task.symptoms and {symptom.test for symptom in task.symptoms} <= set(task.fail_to_pass)
        assert 1 <= len(task.bugs) <= 3
        sound = packages.tree(task.package)
        assert {path for path in sound if sound[path] != task.files[path]} == set(task.paths)
        assert all(packages.is_code(task.package, path) for path in task.paths)
    for task in results[::20]:
        for path in task.paths:
            ast.parse(task.files[path])
    # Both splits have tasks of every number of bugs, and every package has its share.
    kinds = {(task.package.split, len(task.bugs)) for task in results}
    assert kinds == {(split, bugs) for split in ("train", "test") for bugs in (1, 2, 3)}
    assert {task.package.name for task in results} == set(packages.shipped())


def test_an_issue_tells_what_was_asked_for_and_never_where_the_bug_is():
    for task in tasks.manifest():
        text = {detail: issues.write(task, detail, visible=True) for detail in issues.DETAILS}
        assert task.fail_to_pass[0] in text["full"] and task.fail_to_pass[0] in text["names"]
        assert not any(test in text["symptom"] for test in task.fail_to_pass)
        assert len(text["nothing"]) < len(text["symptom"])
        for words in text.values():
            assert not any(re.search(rf"(?<![\w/]){re.escape(path)}:\d", words) for path in task.paths)
            assert not any(re.search(rf"line {bug.line}\b", words) for bug in task.bugs)


def test_a_list_that_was_changed_is_refused_by_line(tmp_path):
    lines = gzip.decompress((packages.SHIPPED / tasks.MANIFEST).read_bytes()).decode().splitlines()
    place = next(number for number, line in enumerate(lines) if '"bugs"' in line)
    row = json.loads(lines[place])
    row["bugs"][0][4][0][2] += " "
    lines[place] = json.dumps(row)
    packages.describe(tmp_path, packages.shipped().values())
    (tmp_path / tasks.MANIFEST).write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(DataError, match=f"line {place + 1}: not a task"):
        tasks.manifest(tmp_path)


DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))


@pytest.fixture(scope="module")
def pools():
    made = suite.pools(DRIVER, 1)
    yield made
    for pool in made:
        pool.close()


@pytest.fixture(scope="module")
def base(pools):
    return generator.baseline(pools, packages.shipped()["uritemplate"])


def test_a_bug_is_verified_and_what_is_none_is_rejected(pools, base):
    assert len(base.tests) == 58
    known = {tasks.digest(task.bugs): task for task in tasks.manifest() if task.package.name == "uritemplate"}
    listed = next(found for found in generator.singles(base, planting.SEED) if tasks.digest(found) in known)
    for text, reason in {
        "# a comment\n": "survives",
        "def (\n": "no Python",
        "": "no change",
        "raise ImportError\n": "breaks everything",
        "while True: pass\n": "hangs",
        "import time; time.sleep(1000)\n": "hangs",
        "import os; os._exit(0)\n": "crashes",
    }.items():
        bug = tasks.PlantedBug("uritemplate/template.py", "mine", "f", 1, ((0, 0, text),))
        with pytest.raises(generator.Rejected, match=reason):
            generator.verify(pools, base, [bug])
    task, original = generator.verify(pools, base, listed), known[tasks.digest(listed)]
    assert (task.fail_to_pass, task.pass_to_pass) == (original.fail_to_pass, original.pass_to_pass)
    assert task.symptoms == original.symptoms
    assert generator.confirmed(pools[0], base, task)


def test_a_test_that_is_called_differently_from_process_to_process_is_left_out(pools):
    """isodate's test_date takes its parameters from a set with None in it: no seed fixes their order."""
    results = generator.baseline(pools, packages.shipped()["isodate"])
    names = {test.partition("[")[0] for test in results.tests}
    assert "tests/test_time.py::test_parse" in names and "tests/test_date.py::test_parse" not in names
    assert len(results.tests) == 228


@pytest.mark.timeout(900)  # the judge's own limit is 600 s
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("uritemplate", "semver") else pytest.param(name, marks=pytest.mark.slow)
        for name in packages.shipped()
    ],
)
def test_the_judge_accepts_every_published_package(name):
    """Every gold patch restores the published package, so accepting that means every task can be won."""
    results = [task for task in tasks.manifest() if task.package.name == name]
    assert results
    problem = PlantedProblem(results[0], "full", False, DRIVER)
    try:
        report = problem.judge(problem.gold(), 600)
        assert report.resolved, (report.fault, report.fail_to_pass_left, report.pass_to_pass_broken)
        assert len(report.fail_to_pass) + len(report.pass_to_pass) == len(
            results[0].fail_to_pass + results[0].pass_to_pass
        )
    finally:
        problem.close()


def test_compounds_are_of_known_bugs_in_different_functions_and_half_of_them_meet(base):
    single = [task for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1]
    single = single[-planting.COMPOUND_SOURCES :]
    failing = {task.bugs: set(task.fail_to_pass) for task in single}
    for count in (2, 3):
        drawn = list(islice(generator.compounds(base, single, count, "0"), 20))
        assert len(drawn) == 20
        assert drawn == list(islice(generator.compounds(base, single, count, "0"), 20))
        assert drawn != list(islice(generator.compounds(base, single, count, "1"), 20))
        for bugs in drawn:
            assert len({(bug.path, bug.function) for bug in bugs}) == count
            each = [failing[(bug,)] for bug in bugs]
            assert len(set.union(*each)) <= generator.SHARE * len(base.tests)
            assert all(tests - set.union(*(second for second in each if second is not tests)) for tests in each)


@pytest.mark.parametrize(("singles", "count"), [(1, 2), pytest.param(2, 6, marks=pytest.mark.slow)])
def test_a_list_that_was_made_in_pieces_is_the_one_made_at_once(base, tmp_path, monkeypatch, singles, count):
    """With two bugs in the first round the second one makes compounds."""
    monkeypatch.setattr(planting, "ROUND", {1: singles, 2: 1})
    baseline = json.dumps({key: getattr(base, key) for key in ("tests", "lines", "seconds")})

    def made(folder, *rounds):
        folder.mkdir()
        (folder / "uritemplate.baseline.json").write_text(baseline)
        for number in rounds:
            log = planting.build(folder, packages.shipped()["uritemplate"], 1, float("inf"), number)
        return [task.instance_id for task in log.listed(rounds[-1])]

    pieces, at_once = made(tmp_path / "a", 1, 2), made(tmp_path / "b", 2)
    assert pieces == at_once and len(pieces) == count


@pytest.mark.slow
def test_the_shipped_tasks_fail_and_are_mended_as_listed(pools):
    """Checks a sample of the list with every test, broken and repaired."""
    results = tasks.manifest()
    for task in results[:: max(1, len(results) // 40)]:
        run = suite.run(pools[0], SuiteJob(task.package, task.files))
        assert {test for test in task.fail_to_pass if run.statuses.get(test) != "PASSED"} == set(task.fail_to_pass)
        assert not [test for test in task.pass_to_pass if run.statuses.get(test) != "PASSED"], task.instance_id
        mended = {**task.files, **{path: packages.tree(task.package)[path] for path in task.paths}}
        assert mended == packages.tree(task.package)
