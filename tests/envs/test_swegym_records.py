"""Records, logs and grading: the facts of SWE-Gym and SWE-bench."""

import json
import subprocess
import sys

import pytest

from envsuite.envs.swegym.judge import grading
from envsuite.envs.swegym.published import logs, records, repos
from envsuite.errors import DataError
from tests.envs import little

PLAIN = {
    "instance_id": "owner__name-1",
    "repo": "getmoto/moto",
    "base_commit": "0" * 40,
    "version": "5.0",
    "problem_statement": "It is broken.",
    "patch": "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
    "test_patch": "diff --git a/tests/t.py b/tests/t.py\n",
    "FAIL_TO_PASS": ["tests/t.py::test_a"],
    "PASS_TO_PASS": [],
}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_the_shared_records_are_read_and_each_has_a_test_command_and_a_parser(shared):
    results = records.load(shared / "data" / "swe" / "records.jsonl")
    assert len(results) == 28
    for record in results:
        row = repos.repo_of(record)
        assert row.parser in logs.PARSERS
        files = repos.test_files(record.test_patch)
        assert files
        assert repos.directives(record)
        assert record.extra["dataset"] in ("SWE-Gym", "SWE-bench")
        assert records.parse(record.plain(), "again") == record
    by_id = {record.instance_id: record for record in results}
    moto = by_id["getmoto__moto-7365"]
    assert (
        repos.test_command(moto, repos.repo_of(moto))
        == "pytest -n0 -rA tests/test_dynamodb/test_dynamodb_update_expressions.py"
    )
    assert repos.image_name(moto) == "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7365:latest"
    assert (
        repos.image_name(by_id["astropy__astropy-12907"])
        == "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest"
    )
    django = by_id["django__django-10973"]
    assert django.pass_to_pass == ()
    assert repos.test_command(django, repos.repo_of(django)).endswith("--parallel 1 dbshell.test_postgresql")


def test_lists_of_tests_may_be_json_text_and_unknown_fields_are_kept(tmp_path):
    row = {
        **PLAIN,
        "FAIL_TO_PASS": json.dumps(["a", "b"]),
        "PASS_TO_PASS": "[]",
        "difficulty": "<15 min",
        "version": 5.0,
    }
    (record,) = records.load(write(tmp_path / "r.jsonl", row))
    assert (record.fail_to_pass, record.pass_to_pass, record.version) == (("a", "b"), (), "5.0")
    assert record.hints_text == record.environment_setup_commit == ""
    assert record.extra == {"difficulty": "<15 min"}
    assert record.plain()["difficulty"] == "<15 min"


def test_the_command_of_mypy_depends_on_its_version():
    row = {
        **PLAIN,
        "repo": "python/mypy",
        "test_patch": "diff --git a/t.test b/t.test\n+[case testOne]\n+[case testTwo]\n",
    }
    for version, command in (
        ("0.820", "pytest -n0 -rA -k"),
        ("1.6", "pytest -n0 -rA -k"),
        ("1.7", "pytest -rA -k"),
        ("1.11", "pytest -rA -k"),
        ("", "pytest -rA -k"),
    ):
        record = records.parse({**row, "version": version}, "here")
        assert repos.test_command(record, repos.repo_of(record)) == f'{command} "testOne or testTwo"'


def test_parquet_and_json_hold_the_same_records(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the swegym extra is not installed")
    import pyarrow

    parquet.write_table(pyarrow.Table.from_pylist([PLAIN, {**PLAIN, "instance_id": "o__n-2"}]), tmp_path / "r.parquet")
    (tmp_path / "r.json").write_text(json.dumps([PLAIN, {**PLAIN, "instance_id": "o__n-2"}]))
    lines = write(tmp_path / "r.jsonl", PLAIN, "", {**PLAIN, "instance_id": "o__n-2"})
    assert records.load(tmp_path / "r.parquet") == records.load(tmp_path / "r.json") == records.load(lines)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: a record is a JSON object, not a list"),
        ({**PLAIN, "patch": None}, "line 2: field 'patch' is missing"),
        ({**PLAIN, "patch": " "}, "line 2: field 'patch' is empty"),
        ({**PLAIN, "repo": 3}, "line 2: field 'repo' is a int, not text"),
        ({**PLAIN, "repo": "moto"}, "line 2: field 'repo' is 'moto', not owner/name"),
        ({**PLAIN, "FAIL_TO_PASS": "test_a"}, "line 2: field 'FAIL_TO_PASS' is text but not a JSON list"),
        ({**PLAIN, "FAIL_TO_PASS": []}, "line 2: field 'FAIL_TO_PASS' names no test"),
        ({**PLAIN, "PASS_TO_PASS": [1]}, "line 2: field 'PASS_TO_PASS' is a list, not a list of test names"),
        ({key: PLAIN[key] for key in PLAIN if key != "PASS_TO_PASS"}, "field 'PASS_TO_PASS' is missing"),
        (PLAIN, "instance_id 'owner__name-1' occurs twice"),
    ],
)
def test_a_malformed_record_is_named_by_line_and_field(tmp_path, row, message):
    with pytest.raises(DataError) as caught:
        records.load(write(tmp_path / "r.jsonl", PLAIN, row))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none_is_refused_in_a_line(tmp_path):
    (tmp_path / "r.parquet").write_text("no")
    for name, word in (
        ("r.parquet", "not a Parquet file"),
        ("r.csv", "does not exist"),
        ("none.jsonl", "does not exist"),
    ):
        with pytest.raises(DataError, match=word):
            records.load(tmp_path / name)


# ---- logs -----------------------------------------------------------------------------------------------------------

LOG = """\
collected 5 items
PASSED tests/t.py::test_a
PASSED tests/t.py::test_b[with a space]
FAILED tests/t.py::test_c - AssertionError: no - really
ERROR tests/t.py::test_d
XFAIL tests/t.py::test_e
SKIPPED [1] tests/t.py:3: why
PASSED
"""


def test_names_are_cut_where_the_data_sets_cut_them():
    results = logs.pytest(LOG)
    assert results["tests/t.py::test_b[with"] == "PASSED"
    assert results["tests/t.py::test_c"] == "FAILED"
    assert "PASSED" not in results
    assert len(results) == 5  # a line that counts skips names no test


def test_the_other_forms_are_read():
    assert logs.pytest_options("PASSED t.py::test_p[/a/b/c.txt]") == {"t.py::test_p[/c.txt]": "PASSED"}
    assert logs.pytest_plain("\x1b[32mPASSED\x1b[0m t.py::test_p") == {"t.py::test_p": "PASSED"}
    assert logs.pytest_plain("t.py::test_p PASSED") == {"t.py::test_p": "PASSED"}
    assert logs.pytest_progress("t.py::test_p PASSED     [ 50%]") == {"t.py::test_p": "PASSED"}
    assert logs.sympy("test_one ok\ntest_two F\ntest_three E") == {
        "test_one": "PASSED",
        "test_two": "FAILED",
        "test_three": "ERROR",
    }
    log = "test_a (x.Y) ... ok\ntest_b (x.Y) ... FAIL\ntest_c (x.Y) ... skipped 'no'\ntest_d (x.Y) ... noise\nok\n"
    assert logs.django(log) == {
        "test_a (x.Y)": "PASSED",
        "test_b (x.Y)": "FAILED",
        "test_c (x.Y)": "SKIPPED",
        "test_d (x.Y)": "PASSED",
    }


def test_a_test_with_a_failing_subtest_has_failed_in_a_real_log(tmp_path):
    """pytest 9 also reports such a test of unittest as passed."""
    (tmp_path / "test_a.py").write_text(
        "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        for i in (1, 2):\n"
        "            with self.subTest(path='a b.py', i=i):\n                assert i == 1\n\n"
        "    def test_b(self):\n        with self.subTest(i=1):\n            pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-c", "/dev/null", "test_a.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert logs.PARSERS["pytest_subtests"](done.stdout) == {
        "test_a.py::TestA::test_a": "FAILED",
        "test_a.py::TestA::test_b": "PASSED",
    }


def test_a_real_pytest_log_is_read(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n@pytest.mark.xfail\ndef test_c(): assert 0\n"
        "@pytest.fixture\ndef f(): raise ValueError\ndef test_d(f): pass\n@pytest.mark.skip\ndef test_e(): pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir=.",
        "test_it.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    results = logs.pytest(done.stdout)
    expected = {"test_a": "PASSED", "test_b": "FAILED", "test_c": "XFAIL", "test_d": "ERROR"}
    assert {name: results[f"test_it.py::{name}"] for name in expected} == expected


# ---- grading --------------------------------------------------------------------------------------------------------


def graded(statuses, fail=("f1", "f2"), keep=("p1", "p2")):
    return grading.grade(statuses, fail, keep)


def test_resolved_needs_every_test_and_a_test_that_is_not_reported_fails():
    full = dict.fromkeys(("f1", "f2", "p1", "p2"), "PASSED")
    assert graded(full).resolved
    assert graded({**full, "f2": "XFAIL"}).resolved
    for test, status in (("f1", "SKIPPED"), ("f1", "FAILED"), ("p1", "ERROR")):
        assert not graded({**full, test: status}).resolved
    assert not graded({name: full[name] for name in ("f1", "p1", "p2")}).resolved
    assert not grading.grade({}, (), ()).resolved


def test_each_way_of_paying_pays_what_it_says():
    half = {"f1": "PASSED", "p1": "PASSED", "p2": "PASSED"}
    assert (graded(half).f2p_gated, graded(half).pass_ratio, graded(half).status) == (0.5, 0.75, "RESOLVED_PARTIAL")
    broken = {"f1": "PASSED", "f2": "PASSED", "p1": "PASSED"}
    assert (graded(broken).f2p_gated, graded(broken).pass_ratio, graded(broken).status) == (0.0, 0.75, "RESOLVED_NO")
    assert grading.refused("timeout", ("f1",), ("p1",)).pass_ratio == 0.0


def test_a_change_that_does_nothing_is_paid_nearly_one_by_pass_ratio():
    keep = tuple(f"p{number}" for number in range(99))
    report = grading.grade(dict.fromkeys(keep, "PASSED"), ("f1",), keep)
    assert report.pass_ratio == 0.99
    assert report.f2p_gated == 0.0


def test_a_log_without_markers_results_or_with_a_contradicting_exit_code_counts_nothing():
    complete = f"{grading.START}\nPASSED f1\nPASSED p1\n{grading.END}\n"
    assert grading.grade_log(complete, "pytest", ["f1"], ["p1"], 0).resolved
    for log, code, fault in (
        ("PASSED f1\nPASSED p1", 0, "no_log"),
        (f"{grading.START}\nPASSED f1\nPASSED p1\n", 0, "no_log"),
        (f"{grading.START}\n{grading.END}", 0, "no_log"),
        (complete, 1, "exit_code"),
    ):
        report = grading.grade_log(log, "pytest", ["f1"], ["p1"], code)
        assert (report.resolved, report.fault) == (False, fault)


ROW = little.record("a__b-1")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"test_cmd": "pytest -rA", "log_parser": "parse_log_pytest"}, ("pytest -rA", "pytest")),
        (
            {"test_cmd": ["cd x", "pytest -rA"], "log_parser": "parse_log_pytest_v2"},
            ("cd x && pytest -rA", "pytest_progress"),
        ),
        (json.dumps({"test_cmd": "pytest -q -rA"}), ("pytest -q -rA", "pytest")),
    ],
)
def test_a_row_of_swe_rebench_has_its_own_command_and_parser(settings, expected):
    record = records.parse({**ROW, "repo": "some/thing", "install_config": settings, "docker_image": "x/y"}, "x")
    row = repos.row_of(record, {})
    assert (row.command, row.parser) == expected
    assert repos.test_command(record, row) == f"{expected[0]} tests/test_calc.py"
    assert repos.image_name(record) == "x/y"
    assert repos.row_of(record, {"test_cmd": "tox"}).command == "tox"


def test_a_command_that_cannot_be_read_is_none():
    assert repos.stated_command({"install_config": "[" * 100_000}) is None
