"""Mining of real bugs: hunks, delta debugging, issue texts, and a pair of tiny releases mined in full."""

import io
import json
import random
import tarfile

import pytest

from envsuite.envs.swegym.generated.issues import Check
from envsuite.envs.swegym.mined import issue, library, miner, verification
from envsuite.envs.swegym.mined.hunks import FileHunk, apply, split
from envsuite.envs.swegym.mined.reduction import OutOfBudget, minimise
from envsuite.envs.swegym.mined.releases import check_licence, obtain
from envsuite.envs.swegym.published import problem as published
from envsuite.errors import DataError
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
from tiny import describe, label, scale


def test_label():
    assert label("a") == "<a>"


def test_scale():
    assert scale([1, 2], 3) == [3, 6]
"""
NEW_TESTS = TESTS + "\n\ndef test_describe():\n    assert describe([1, 4]) == 'spread 3'\n"
NOTES = "# Changes\n\n## 1.1\n\n- Fixed the spread of several values, which was one too large in describe for all of them.\n"


def write_sdist(folder, version, code, tests, notes):
    metadata = f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\nLicense: MIT\n"
    files = {"PKG-INFO": metadata, "tiny.py": code, "tests/test_tiny.py": tests, "CHANGES.md": notes}
    with tarfile.open(folder / f"tiny-{version}.tar.gz", "w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(f"tiny-{version}/{path}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """The folder, plan and journal of three tiny releases, the last of which only changes a comment."""
    folder = tmp_path_factory.mktemp("archives")
    write_sdist(folder, "1.0", OLD, TESTS, "# Changes\n")
    write_sdist(folder, "1.1", NEW, NEW_TESTS, NOTES)
    write_sdist(folder, "1.2", NEW + "# the end\n", NEW_TESTS + "\n# the end\n", NOTES)
    for version in ("1.0", "1.1"):
        little.environment(verification.recipe_of(obtain(folder / f"tiny-{version}.tar.gz")))
    plan = miner.MiningPlan(["tiny"], archives=folder)
    output = tmp_path_factory.mktemp("mined")
    return output, plan, miner.mine(plan, output)


def test_a_real_bug_becomes_a_record_with_the_fewest_hunks(mined):
    _, _, journal = mined
    (record,) = miner.records(journal.results)
    changed = [line for line in record["patch"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-    return max(values) - min(values) + 1", "+    return max(values) - min(values)"]
    assert record["FAIL_TO_PASS"] == ["tests/test_tiny.py::test_describe"]
    assert record["PASS_TO_PASS"] == ["tests/test_tiny.py::test_label", "tests/test_tiny.py::test_scale"]
    assert record["repo"] == "pypi/tiny"
    assert record["licence"] == "MIT"
    assert (record["files"], record["lines"], record["hunks"]) == (1, 2, 1)


def test_the_issue_states_got_and_expected_and_neither_names_the_function_nor_copies_the_changelog(mined):
    (record,) = miner.records(mined[2].results)
    text = record["problem_statement"]
    assert "Got: `'spread 4'`\nExpected: `'spread 3'`" in text
    assert "list a bug fix here" in text
    assert "_spread" not in text
    assert "_spread" in record["hints_text"]
    assert not issue.copied_words(text, [NOTES])


def test_a_pair_without_a_repaired_test_has_a_line_with_the_reason(mined):
    results = {(result.old, result.new): result for result in mined[2].results}
    assert results["1.1", "1.2"].reason == "no test that fails on the old code passes on the new one"
    assert results["1.0", "1.1"].repaired == 1
    assert not any(results["1.0", "1.1"].partial)
    (row,) = miner.yields(mined[2].results)
    assert (row["pairs"], row["candidates"], row["kept"], row["licence"]) == (2, 1, 1, "MIT")


def test_mining_resumes_from_complete_lines_of_its_journal(mined):
    output, plan, journal = mined
    complete = journal.path.read_bytes()
    journal.path.write_bytes(complete + complete[:40])  # a process killed in the middle of a line
    again = miner.mine(plan, output)
    assert journal.path.read_bytes() == complete
    assert [result.seconds for result in again.results] == [result.seconds for result in journal.results]


def test_the_records_file_is_played_with_the_recipes_in_it(mined):
    found = published.find(str(mined[0] / miner.RECORDS))
    ((record, recipe),) = found.values()
    assert recipe["source"]["req"].endswith("tiny-1.0.tar.gz")
    published.check(record, recipe, "bwrap")


def test_a_recipe_in_a_record_is_checked(tmp_path):
    row = {**little.record("a__b-1"), "recipe": {"source": {"kind": "wheel", "req": "x==1"}, "pins": []}}
    (tmp_path / "records.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"recipe of a__b-1 in .*field 'source'"):
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


def test_a_text_with_a_sentence_of_the_changelog_is_noticed():
    note = "The parser now accepts empty lines between two sections of a file."
    check = Check("parse('')", "It raises `ValueError`.")
    text = issue.statement("tiny 1.0", [check], note, set())
    assert not issue.copied_words(text, [note])
    assert issue.copied_words("So the parser now accepts empty lines between parts.", [note]).startswith("the parser")


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
