"""Mining of real bugs: hunks, delta debugging, issue texts, and a pair of tiny releases mined in full."""

import io
import json
import random
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.envs.swegym.makers import issue, mining, verification
from envsuite.envs.swegym.makers.hunks import FileHunk, apply, split
from envsuite.envs.swegym.makers.reduction import OutOfBudget, minimise
from envsuite.envs.swegym.makers.releases import check_licence, obtain
from envsuite.envs.swegym.mined import tasks as library
from envsuite.envs.swegym.planted.issues import Check
from envsuite.envs.swegym.planted.tasks import Symptom
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import repos, setups
from envsuite.errors import DataError, UsageError
from harness.cli import envs
from harness.mining import command
from tests.envs import little

OLD = """\
def scale(values, factor):
    return [value * factor for value in values]


def label(name):
    return "<" + name + ">"


def _spread(values):
    return max(values) - min(values) + 1


def describe(values):
    if not values:
        return "nothing"
    return f"spread {_spread(values)}"
"""
NEW = OLD.replace('"<" + name + ">"', 'f"<{name}>"').replace("min(values) + 1", "min(values)")
TESTS = """\
from datetime import date, timedelta

import pytest
from tiny import describe, label, scale


@pytest.mark.parametrize("day", [date.today() + timedelta(days) for days in (-1, 0, 1)], ids=str)
def test_day(day):
    assert label(day.isoformat())


def test_label():
    assert label("a") == "<a>"


def test_scale():
    assert scale([1, 2], 3) == [3, 6]
"""
NEW_TESTS = TESTS + "\n\ndef test_describe():\n    assert describe([1, 4]) == 'spread 3'\n"


def write_sdist(folder, version, code, tests, path="tests/test_tiny.py"):
    metadata = f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\nLicense: MIT\n"
    files = {"PKG-INFO": metadata, "tiny.py": code, path: tests}
    with tarfile.open(folder / f"tiny-{version}.tar.gz", "w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(f"tiny-{version}/{path}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """The folder, plan and journal of three tiny releases, the last of which only changes a comment."""
    folder = tmp_path_factory.mktemp("archives")
    write_sdist(folder, "1.0", OLD, TESTS)
    write_sdist(folder, "1.1", NEW, NEW_TESTS)
    write_sdist(folder, "1.2", NEW + "# the end\n", NEW_TESTS + "\n# the end\n")
    for version in ("1.0", "1.1"):
        little.environment(verification.setup_of(obtain(folder / f"tiny-{version}.tar.gz")))
    plan = mining.MiningPlan(["tiny"], archives=folder)
    output = tmp_path_factory.mktemp("mined")
    return output, plan, mining.mine(plan, output)


def test_a_real_bug_becomes_a_record_with_the_fewest_hunks(mined):
    _, _, journal = mined
    (record,) = mining.records(journal.results)
    changed = [line for line in record["patch"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-    return max(values) - min(values) + 1", "+    return max(values) - min(values)"]
    assert record["FAIL_TO_PASS"] == ["tests/test_tiny.py::test_describe"]
    assert record["PASS_TO_PASS"] == ["tests/test_tiny.py::test_label", "tests/test_tiny.py::test_scale"]
    assert record["repo"] == "pypi/tiny"
    assert record["licence"] == "MIT"
    assert (record["files"], record["lines"], record["hunks"]) == (1, 2, 1)


def test_the_issue_states_got_and_expected_and_does_not_name_the_function(mined):
    (record,) = mining.records(mined[2].results)
    text = record["problem_statement"]
    assert "Got: `'spread 4'`\nExpected: `'spread 3'`" in text
    assert "_spread" not in text
    assert "_spread" in record["hints_text"]


def test_a_pair_without_a_repaired_test_has_a_line_with_the_reason(mined):
    results = {(result.old, result.new): result for result in mined[2].results}
    assert results["1.1", "1.2"].reason == "no test that fails on the old code passes on the new one"
    assert results["1.0", "1.1"].repaired == 1
    (row,) = mining.yields(mined[2].results)
    assert (row["pairs"], row["candidates"], row["kept"], row["licence"]) == (2, 1, 1, "MIT")


def test_mining_resumes_from_complete_lines_of_its_journal(mined):
    output, plan, journal = mined
    complete = journal.path.read_bytes()
    journal.path.write_bytes(complete + complete[:40])  # a process killed in the middle of a line
    again = mining.mine(plan, output)
    assert journal.path.read_bytes() == complete
    assert [result.seconds for result in again.results] == [result.seconds for result in journal.results]


def test_the_command_continues_a_folder_and_writes_the_yield(mined, capsys):
    output, plan, _ = mined
    with pytest.raises(SystemExit) as ended:
        command.main(["mine", "tiny", "--archives", str(plan.archives), "-o", str(output)])
    assert ended.value.code == 0
    assert "1 instance of 1 package" in capsys.readouterr().out
    table = (output / "yield.md").read_text()
    assert "| tiny | MIT | 2 | 1 | 1 | 1 | no test that fails on the old code passes on the new one 1 |" in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine"], "Name at least one package"),
        (["mine", "-f", "missing.txt"], "missing.txt cannot be read"),
        (["build", "x", "-j", "0"], "--workers must be at least 1, not 0"),
    ],
)
def test_a_wrong_command_ends_with_one_line(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_records_file_is_played_with_the_setups_in_it(mined):
    found = published.find(str(mined[0] / mining.RECORDS))
    ((record, setup),) = found.values()
    assert setup["source"]["req"].endswith("tiny-1.0.tar.gz")
    published.check(record, setup, "bwrap")


def test_a_setup_in_a_record_is_checked(tmp_path):
    row = {**little.record("a__b-1"), "setup": {"source": {"kind": "egg", "req": "x==1"}, "pins": []}}
    (tmp_path / "records.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"setup of a__b-1 in .*field 'source'"):
        published.find(str(tmp_path / "records.jsonl"))


def test_hunks_turn_the_old_files_into_the_new_ones():
    rng = random.Random(0)
    lines = [f"line {number}\n" for number in range(60)]
    for _ in range(50):
        changed = [line for line in lines if rng.random() > 0.1]
        for _ in range(rng.randrange(6)):
            changed.insert(rng.randrange(len(changed) + 1), f"new {rng.random()}\n")
        old = {"a.py": "".join(lines), "removed.py": "x\n", "same.py": "y"}
        new = {"a.py": "".join(changed).rstrip("\n"), "added.py": "z", "same.py": "y"}
        files = {**old, **apply(old, split(old, new))}
        assert {path: text for path, text in files.items() if text is not None} == new


def test_one_hunk_alone_changes_only_its_lines():
    old = {"a.py": "".join(f"{number}\n" for number in range(20))}
    new = {"a.py": old["a.py"].replace("3\n", "three\n", 1).replace("15\n", "fifteen\n")}
    first, second = split(old, new)
    assert apply(old, [second])["a.py"] == old["a.py"].replace("15\n", "fifteen\n")
    assert (first.size, second.size) == (2, 2)


def test_minimise_finds_the_needed_items_within_few_checks():
    rng = random.Random(1)
    for size in (1, 2, 7, 40, 200):
        needed = frozenset(rng.sample(range(size), min(size, rng.randint(1, 3))))
        checks = []

        def holds(subset, needed=needed, checks=checks):
            checks.append(subset)
            return needed <= subset

        assert set(minimise(range(size), holds, 200, group=lambda item: item // 10)) == needed
        assert len(checks) <= 12 + 12 * len(needed) * size.bit_length()
    with pytest.raises(OutOfBudget):
        minimise(range(64), lambda subset: len(subset) > 60, 5)


def test_names_of_changed_functions_come_from_old_and_new_lines():
    code = {"m.py": "class Box:\n    def get(self):\n        return 1\n\n\ndef other():\n    return 2\n"}
    hunk = FileHunk("m.py", 2, 3, ("        return helper()\n", "\n", "def helper():\n", "    return 3\n"))
    assert issue.changed_names(code, [hunk]) == {"Box", "get", "helper"}


def test_an_error_with_a_name_of_its_own_is_said_to_be_raised():
    files = {"tests/test_m.py": "def test_a():\n    value = 1\n    m.f(value)\n"}
    symptom = Symptom("tests/test_m.py::test_a", "m.f(value)", "m.errors.Invalid: no number")
    (check,) = issue.checks(files, list(files), [symptom], set())
    assert check == Check("value = 1\nm.f(value)", "It raises `m.errors.Invalid: no number`.")


CASES = """\
class TestBox(unittest.TestCase):
    def setUp(self):
        self.box = m.Box(3)

    def test_open(self):
        with self.assertRaises(m.Stuck):
            self.box.open()


@pytest.mark.parametrize("text, width", [("a b", 3), ("a", 1)])
def test_width(text, width):
    def check(value):
        assert m.width(value) == width

SAME
    spare = 1
    check(text)
"""


def text_of(test, code, error):
    files = {"test_m.py": CASES.replace("SAME", "    check('same')\n" * 30)}
    symptom = Symptom(f"test_m.py::{test}", code, error)
    return issue.statement("m 1.0", issue.checks(files, list(files), [symptom], set()))


def test_a_check_comes_with_the_set_up_of_its_test_case():
    text = text_of("TestBox::test_open", "with self.assertRaises(m.Stuck):", "AssertionError: Stuck not raised")
    assert text.startswith("m 1.0 does not reject input that it should reject.\n")
    assert "\n    self.box = m.Box(3)\n    with self.assertRaises(m.Stuck):\n        self.box.open()\n" in text
    assert "No error is raised, but one should be." in text


def test_a_check_comes_with_the_helpers_that_it_calls():
    helper = "def _agree(text, width):\n    assert m.width(text) == width\n\n\n"
    files = {"test_m.py": f"{helper}def test_a(text):\n    _agree(text, 3)\n"}
    (check,) = issue.checks(files, list(files), [Symptom("test_m.py::test_a[ab]", "_agree(text, 3)", "E: x")], set())
    assert check.statement == f"# parameters: ab\n{helper.rstrip()}\n\n_agree(text, 3)"


def test_values_that_pytest_only_numbers_come_from_the_decorator():
    decorator = '@pytest.mark.parametrize("text, width", [({"a": 1}, [2]), ({"b": 3}, [4])])\n'
    test = "def test_a(text, width):\n    assert m.width(text) == width\n"
    symptom = Symptom("test_m.py::test_a[text1-width1]", "assert m.width(text) == width", "assert [3] == [4]")
    (check,) = issue.checks({"test_m.py": decorator + test}, ["test_m.py"], [symptom], set())
    assert check.statement == "# text, width = ({'b': 3}, [4])\nassert m.width(text) == width"
    spoken = issue.checks(
        {"test_m.py": decorator + test}, [], [replace(symptom, test="test_m.py::test_a[py3-2]")], set()
    )
    assert spoken[0].statement.startswith("# text, width: py3-2\n")
    computed = decorator.replace("[({", "cases() + [({") + test
    assert not issue.checks({"test_m.py": computed}, ["test_m.py"], [symptom], set())


def test_the_whole_test_specifies_a_function_that_is_missing():
    text = "def test_a():\n    new = m.new\n    assert new(1) == 2\n    assert new(2) == 4\n"
    symptom = Symptom("test_m.py::test_a", "new = m.new", "AttributeError: module 'm' has no attribute 'new'")
    (check,) = issue.checks({"test_m.py": text}, ["test_m.py"], [symptom], set())
    assert check.statement == "new = m.new\nassert new(1) == 2\nassert new(2) == 4"
    long = text + "    assert new(3) == 6\n" * 40
    assert not issue.checks({"test_m.py": long}, ["test_m.py"], [symptom], set())


def test_of_a_long_test_only_the_statements_that_a_check_needs_are_shown():
    text = text_of("test_width[a b-3]", "check(text)", "assert 2 == 3")
    assert (
        "\n    # text, width: a b-3\n    def check(value):\n        assert m.width(value) == width\n\n    check("
        in text
    )
    assert "spare" not in text
    assert "same" not in text


@pytest.mark.parametrize(
    ("error", "finding"),
    [
        ("AssertionError: False is not true", "The condition is not met."),
        ("AssertionError: False is not true : 3 is odd", "The condition is not met: `3 is odd`."),
        ("AssertionError: DeprecationWarning not triggered", "No `DeprecationWarning` is issued, but one should be."),
    ],
)
def test_messages_of_unittest_are_put_into_plain_words(error, finding):
    assert finding in text_of("TestBox::test_open", "self.box.open()", error)


@pytest.mark.parametrize("licence", ["GPL-3.0-or-later", "MPL-2.0", "not stated", "MIT OR GPL-2.0", "LGPL"])
def test_packages_without_a_permissive_licence_are_refused(licence):
    with pytest.raises(DataError, match="not known to be permissive"):
        check_licence(licence, "tiny 1.0")


def test_levels_follow_the_size_of_the_patch():
    assert [library.level_of(*size) for size in ((1, 2), (1, 6), (1, 7), (1, 31), (2, 2))] == [
        "easy",
        "easy",
        "medium",
        "hard",
        "hard",
    ]


# ---- the shipped list ----------------------------------------------------------------------------------------------


def shipped():
    return list(library.mined_tasks().values())


def test_every_shipped_instance_has_a_valid_setup_a_permissive_licence_and_tests():
    assert shipped()
    for task in shipped():
        name = task.record.instance_id
        setup = setups.check_setup(task.setup, name)
        assert setup["source"]["req"] == f"{task.package}=={task.record.version}"
        assert len(setup["source"]["sha256"]) == 64
        check_licence(task.licence, name)
        published.check(task.record, setup, "bwrap")
        assert task.record.fail_to_pass
        assert not set(task.record.fail_to_pass) & set(task.record.pass_to_pass)
        assert len(repos.test_files(task.record.patch)) == task.files
        assert not set(repos.test_files(task.record.patch)) & set(repos.test_files(task.record.test_patch))


def test_every_package_is_named_with_its_licence_in_the_page_of_licences():
    page = (Path(__file__).parents[2] / "docs" / "licences.md").read_text()
    for task in shipped():
        assert f"{task.package} ({task.licence})" in page


def test_no_shipped_patch_is_there_twice_and_no_package_is_in_two_splits():
    patches = [task.record.patch for task in shipped()]
    assert len(set(patches)) == len(patches)
    splits = {(task.package, task.split) for task in shipped()}
    assert len(splits) == len({package for package, _ in splits})


def test_every_shipped_issue_states_a_check_and_hides_the_place_of_the_fix():
    for task in shipped():
        text = task.statement("symptom")
        assert text.startswith(f"{task.package} {task.record.version} does not")
        assert "This check fails:\n\n    " in text, task.record.instance_id
        for got, expected in re.findall(r"^Got: `(.*)`\nExpected: `(.*)`$", text, re.MULTILINE):
            assert got != expected, task.record.instance_id
        assert "The two sides are not equal" not in text, f"{task.record.instance_id}: no values"
        assert "The fix belongs in" not in text
        assert "The fix belongs in" in task.statement("full")
        assert all(test in task.statement("names") for test in task.record.fail_to_pass[:1])
        assert task.statement("nothing").count("\n") == 0


def test_the_levels_of_the_menu_share_the_list_out():
    known = {}
    for level in library.LEVELS:
        task = registry.TASKS[f"SWEGym-mined-{level}-v0"]
        assert len(registry.panel(task)) > 0
        for name in registry.panel(task).games:
            assert known.setdefault(name, task.id) == task.id
    assert set(known) == set(library.mined_tasks())
    with pytest.raises(UsageError, match="no mined tasks of the package 'nosuch'"):
        registry.panel(registry.TASKS["SWEGym-mined-easy-v0"], package=("nosuch",))
    with pytest.raises(UsageError, match="one at a time"):
        registry.panel(registry.TASKS["SWEGym-mined-easy-v0"], tasks="somewhere")


@pytest.mark.parametrize("level", library.LEVELS)
def test_a_preview_needs_the_record_alone(level, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    env = registry.build(f"SWEGym-mined-{level}-v0")
    try:
        name = env.panel.games[0]
        text, info = env.preview(seed=0)
        assert text == info["objective"] == library.mined_tasks()[name].statement(env.settings.statement)
        assert info["labels"]["instance"] == name
        assert not (tmp_path / "swegym").exists()
    finally:
        env.close()


def test_a_card_of_a_mined_task_shows_the_levels_of_mined_tasks(capsys):
    envs._main(["SWEGym-mined-easy-v0", "--card"])
    shown = capsys.readouterr().out
    assert "'mined': 'hard'" in shown and "'bugs'" not in shown
