"""Generated tasks: bugs planted by the syntax tree, verified by running the tests, shipped as a list."""

import ast
import gzip
import json
import re

import pytest

from envsuite.envs.swegym import generator, operators, packages, statement, suite, tasks
from envsuite.errors import DataError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

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
    found = [operators.apply(CODE, bug.edits) for bug in operators.bugs(CODE) if bug.operator == name]
    assert any(WANTED[name] in text for text in found), found
    for text in found:
        ast.parse(text)
        assert '"""More words, 1 < 2."""' in text
        changed = sum(line not in CODE.split("\n") for line in text.split("\n"))
        assert changed <= 2


def test_the_operators_are_all_tried_and_text_beyond_ascii_keeps_its_places():
    assert set(WANTED) == {*operators.OPERATORS, "wrong_default"}
    text = 'def f(x):\n    s = "übergrößen"; return x < 1  # ñ\n'
    assert 'def f(x):\n    s = "übergrößen"; return x <= 1  # ñ\n' in [
        operators.apply(text, b.edits) for b in operators.bugs(text)
    ]
    assert operators.bugs("def (") == []


@pytest.mark.parametrize("name", packages.PACKAGES)
def test_the_sources_are_the_published_archives_with_their_licences(name):
    files = packages.tree(name)
    assert any("LICENSE" in path.upper() for path in files)
    assert packages.lines_of_code(name) > 100
    code = [path for path in files if packages.is_code(packages.package(name), path)]
    assert code and not any("test" in path.rpartition("/")[2] for path in code)


def test_the_shipped_tasks_are_what_they_say():
    found = tasks.manifest()
    assert len({task.instance_id for task in found}) == len(found)
    assert tasks.MANIFEST.stat().st_size < 2_000_000
    for task in found:
        tests = {*task.fail_to_pass, *task.pass_to_pass}
        assert task.fail_to_pass and task.pass_to_pass
        assert len(task.fail_to_pass) <= generator.SHARE * len(tests)
        assert 1 <= len(task.bugs) <= 3
        sound = packages.tree(task.package)
        assert {path for path in sound if sound[path] != task.files[path]} == set(task.paths)
        assert all(packages.is_code(packages.package(task.package), path) for path in task.paths)
        for path in task.paths:
            ast.parse(task.files[path])


def test_an_issue_tells_what_was_asked_for_and_never_where_the_bug_is():
    for task in tasks.manifest():
        told = {detail: statement.write(task, detail, visible=True) for detail in statement.DETAILS}
        assert task.fail_to_pass[0] in told["full"] and task.fail_to_pass[0] in told["names"]
        assert not any(test in told["symptom"] for test in task.fail_to_pass)
        assert len(told["nothing"]) < len(told["symptom"])
        for words in told.values():
            assert not any(re.search(rf"(?<![\w/]){re.escape(path)}:\d", words) for path in task.paths)
            assert not any(re.search(rf"line {bug.line}\b", words) for bug in task.bugs)


def test_a_list_that_was_changed_is_refused_by_line(tmp_path):
    lines = gzip.decompress(tasks.MANIFEST.read_bytes()).decode().splitlines()
    place = next(number for number, line in enumerate(lines) if '"bugs"' in line)
    row = json.loads(lines[place])
    row["bugs"][0][4][0][2] += " "
    lines[place] = json.dumps(row)
    path = tmp_path / "list.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(DataError, match=f"line {place + 1}: not a task"):
        tasks.manifest(path)


@pytest.fixture(scope="module")
def pool():
    made = Pool(suite.SPEC, drivers.choose("auto", (*drivers.SAFE, "process")), 1)
    yield made
    made.close()


def test_a_bug_is_verified_and_what_is_none_is_rejected(pool):
    base = generator.baseline(pool, "uritemplate")
    assert len(base.tests) == 58
    known = {tasks.digest(task.bugs): task for task in tasks.manifest() if task.package == "uritemplate"}
    candidates = {generator.name_of(candidate): candidate for candidate in generator.candidates(base, 1, 0)}
    name = next(digest for digest in candidates if digest in known)
    task = generator.verify(
        pool, base, candidates[name], whole=True
    )  # all tests, where the list was made by those that reach it
    assert (task.fail_to_pass, task.pass_to_pass) == (known[name].fail_to_pass, known[name].pass_to_pass)
    assert task.symptoms == known[name].symptoms
    path = "uritemplate/template.py"
    text = packages.tree("uritemplate")[path]

    def planted(edits):
        return [(path, operators.Bug("mine", "f", 1, 1, edits))]

    for edits, reason in (
        (((0, 0, "# a comment\n"),), "survives"),
        (((0, 0, "def (\n"),), "no Python"),
        (((0, 0, ""),), "no change"),
        (((0, 0, "raise ImportError\n"),), "breaks everything"),
    ):
        with pytest.raises(generator.Rejected, match=reason):
            generator.verify(pool, base, planted(edits))
    assert text == packages.tree("uritemplate")[path]


@pytest.mark.slow
def test_the_shipped_tasks_fail_and_are_mended_as_listed(pool):
    """A sample over the whole list, every test run, both ways."""
    found = tasks.manifest()
    for task in found[:: max(1, len(found) // 40)]:
        chosen = packages.package(task.package)
        run = suite.run(pool, chosen, task.files)
        assert {test for test in task.fail_to_pass if run.statuses.get(test) != "PASSED"} == set(task.fail_to_pass)
        assert not [test for test in task.pass_to_pass if run.statuses.get(test) != "PASSED"], task.instance_id
        mended = {**task.files, **{path: packages.tree(task.package)[path] for path in task.paths}}
        assert mended == packages.tree(task.package)


@pytest.mark.slow
def test_every_bug_of_a_compound_is_needed(pool):
    found = [task for task in tasks.manifest() if len(task.bugs) > 1]
    for task in found[:: max(1, len(found) // 10)]:
        for left_out in task.bugs:
            files = tasks.plant(packages.tree(task.package), [bug for bug in task.bugs if bug is not left_out])
            run = suite.run(pool, packages.package(task.package), files, task.fail_to_pass)
            failing = [test for test in task.fail_to_pass if run.statuses.get(test) != "PASSED"]
            assert 0 < len(failing) < len(task.fail_to_pass), (task.instance_id, left_out.operator)
