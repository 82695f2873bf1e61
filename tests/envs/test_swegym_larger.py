"""Larger tasks: lost branches, wrong refactorings, missing features and compounds; the shipped list and its issues."""

import ast
import re

import pytest

from envsuite import registry
from envsuite.envs.swegym.generated import generator, operators, packages, suite, tasks
from envsuite.envs.swegym.larger import branches, build, features, issue, library, refactorings
from envsuite.envs.swegym.larger.source import owned
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool
from tests.envs.test_swegym_issues import faults

CODE = '''\
"""Words."""

__all__ = ["first", "Box"]


def first(items, limit=3, seen=None):
    """Counts."""
    if seen is None:
        seen = []
    if not items:
        return None
    total = limit + len(seen)
    for item in items:
        if item is None:
            total += 1
        elif item == "all":
            total = max(total, item)
        else:
            raise ValueError("bad")
    try:
        note(total)
    except KeyError:
        total = 0
    check(total)
    return [item for item in items if item > total]


def last(a):
    if a:
        b = 1
    else:
        b = 2
    return b


class Box:
    """Holds."""

    @property
    def size(self):
        return len(self.items)

    def names(self, items):
        """Lists names."""
        found = []
        for item in items:
            if item.name:
                found.append(item.name)
        return found
'''
WANTED = {
    "lost_if": '    for item in items:\n        if item == "all":',
    "lost_elif": "total += 1\n        else:",
    "lost_else": "total = max(total, item)\n    try:",
    "lost_condition": "def last(a):\n    b = 1\n    return b",
    "lost_return": "        seen = []\n    total = limit",
    "lost_except": "    note(total)\n    check(total)",
    "helper_swapped_arguments": "return _first_result(limit, items, seen)",
    "helper_argument_left_out": "def _first_result(items, seen, limit=3):",
    "cached_result": '    @property\n    def size(self):\n        if not hasattr(self, "_cached_size"):',
    "shared_default": 'seen=[]):\n    """Counts."""\n    if not items:',
    "reordered_checks": '        if item == "all":\n            total = max(total, item)\n        elif item is None:',
    "merged_branches": 'if item is None or item == "all":\n            total += 1\n        else:',
    "wider_try": "        note(total)\n        check(total)\n    except KeyError:",
    "loop_from_comprehension": "        if not (item > total):\n            break\n        collected.append(item)\n    return collected",
    "comprehension_from_loop": "found = [item.name for item in items]\n        return found",
    "missing_body": "def first(items, limit=3, seen=None):\n    raise NotImplementedError\n",
    "missing_function": '__all__ = ["Box"]\n\n\ndef last',
}


def all_changes(text):
    source = operators.SourceText(text)
    for function, _, top, owner in owned(source.tree):
        yield from branches.changes(source, function)
        yield from refactorings.changes(source, function, top, owner)
        yield from features.changes(source, function, owner)


@pytest.mark.parametrize("operator", WANTED)
def test_every_operator_makes_its_change_and_valid_python(operator):
    results = [operators.apply(CODE, edits) for name, _, edits in all_changes(CODE) if name == operator]
    assert any(WANTED[operator] in text for text in results), "\n\n".join(results)
    for text in results:
        ast.parse(text)


def test_a_condition_around_another_one_is_collapsed_only_where_another_branch_follows():
    text = "def f(a, b):\n    if a:\n        if b:\n            return 1\n    else:\n        return 2\n"
    results = {operators.apply(text, edits) for name, _, edits in all_changes(text) if name == "collapsed_nesting"}
    assert results == {"def f(a, b):\n    if a and b:\n        return 1\n    else:\n        return 2\n"}
    alone = "def f(a, b):\n    if a:\n        if b:\n            return 1\n"
    assert not [name for name, _, _ in all_changes(alone) if name == "collapsed_nesting"]


def test_a_string_of_several_lines_is_not_indented():
    text = 'def f(a):\n    try:\n        a("""x\n        y""")\n    except KeyError:\n        return 1\n'
    assert [name for name, _, _ in all_changes(text) if name == "lost_except"] == []


def test_the_shipped_tasks_are_what_they_say():
    listed = library.larger_tasks()
    assert len(listed) >= 40
    assert library.MANIFEST.stat().st_size < 200_000
    assert not set(listed) & {task.instance_id for task in tasks.manifest()}
    kinds = {(task.package.split, library.kind_of(task.bugs)) for task in listed.values()}
    assert kinds == {(split, kind) for split in ("train", "test") for kind in library.KINDS} - {("test", "feature")}
    for task in listed.values():
        assert task.fail_to_pass and task.pass_to_pass and task.symptoms
        assert len(task.fail_to_pass) <= generator.SHARE * len(task.fail_to_pass + task.pass_to_pass)
        assert task.patch_lines >= 3 or len(task.bugs) > 1
        assert all(packages.is_code(task.package, path) for path in task.paths)
        ast.parse(task.files[task.paths[0]])
        if len(task.bugs) > 1:
            assert len({(bug.path, bug.function) for bug in task.bugs}) == len(task.bugs) <= 4
            assert len(task.symptoms) == len(task.bugs)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "part",
    [pytest.param(slice(None, None, 8), id="sample"), pytest.param(slice(None), id="all", marks=pytest.mark.slow)],
)
def test_no_issue_text_has_a_fault_or_names_a_function_with_a_bug(part):
    for task in list(library.larger_tasks().values())[part]:
        text = issue.write(task, "symptom", False)
        if library.kind_of(task.bugs) == "feature":
            continue
        assert faults(text) == set(), task.instance_id
        for bug in task.bugs:
            name = bug.function.rpartition(".")[2]
            assert not re.search(rf"\b{re.escape(name)}\b", text), (task.instance_id, name)
        assert text.count("This fails:") >= len(task.bugs)
        assert sum(issue.tells(issue.explain(task, symptom)) for symptom in task.symptoms) >= len(task.bugs)
        assert not any(test in text for test in task.fail_to_pass)


def test_the_issue_of_a_missing_feature_states_its_interface_and_checks_in_words_of_its_own():
    for task in library.larger_tasks().values():
        if library.kind_of(task.bugs) == "feature":
            text = issue.write(task, "symptom", True)
            (bug,) = task.bugs
            function, signature = features.interface(packages.tree(task.package)[bug.path], bug.function)
            assert f"`{signature}`" in text and bug.path in text and "This must work:\n\n    " in text
            own = " ".join(line for line in text.splitlines() if not line.startswith((" ", "- ")))
            assert not runs(own) & runs(ast.get_docstring(function) or ""), task.instance_id
            assert "This must work" not in issue.write(task, "nothing", True)


def runs(text, length=7):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[place : place + length]) for place in range(len(words) - length + 1)}


def test_the_judge_tells_the_gold_patch_of_a_compound_from_its_parts():
    known = library.larger_tasks().values()
    task = next(task for task in known if task.package.name == "uritemplate" and len(task.bugs) == 2)
    assert build.judged(task, drivers.choose()) == {
        "gold patch": [True],
        "no change": [False],
        "empty line": [False],
    }
    pool = Pool(suite.spec(task.package.needs), drivers.choose(), 1)
    try:
        base = generator.Baseline(task.package, [*task.fail_to_pass, *task.pass_to_pass], {}, {}, 1.0)
        assert build.partial_fixes(pool, base, [task]) == {task.instance_id: {"partial fix": [False, False]}}
    finally:
        pool.close()


def test_a_missing_feature_is_played_with_its_tests_in_the_copy_and_won_by_the_expert():
    env = registry.build("SWEGym-feature-v0", package=("isodate",))
    try:
        text, info = env.reset(seed=0)
        assert "lacks a feature" in text and info["labels"]["task_type"] == "feature"
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(env.expert())
            over = terminated or truncated
        assert info["success"]
    finally:
        env.close()


def test_a_log_cut_in_a_line_keeps_its_complete_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"digest": "a"}\n{"dig')
    assert build.read_rows(path) == [{"digest": "a"}]
