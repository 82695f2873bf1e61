"""Faults of the sandbox and archives without a version while packages are mined, and setups of strangers."""

import json
from threading import Event

import pytest

from envsuite.envs.swegym.makers import mining, verification
from envsuite.envs.swegym.makers.releases import archives_of, obtain
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import setups
from envsuite.errors import DataError, EngineFailure
from harness.mining import command
from tests.envs import little
from tests.envs.test_swegym_mining import NEW, NEW_TESTS, OLD, TESTS, write_sdist


@pytest.fixture
def archives(tmp_path):
    write_sdist(tmp_path, "1.0", OLD, TESTS)
    write_sdist(tmp_path, "1.1", NEW, NEW_TESTS)
    return tmp_path


def test_a_pair_on_which_the_sandbox_fails_is_not_recorded(archives, tmp_path, monkeypatch):
    def fail(candidate, driver):
        raise EngineFailure("the sandbox ended")

    def one_candidate(search):
        yield object()

    monkeypatch.setattr(mining, "verify", fail)
    monkeypatch.setattr(mining.Search, "candidates", one_candidate)
    shown = []
    journal = mining.mine(mining.MiningPlan(["tiny"], archives=archives), tmp_path / "mined", shown.append)
    assert [(result.old, result.new, result.reason) for result in shown] == [("1.0", "1.1", "the sandbox ended")]
    assert not journal.results
    assert not mining.MiningJournal(tmp_path / "mined").done


def test_a_pair_that_is_interrupted_is_not_recorded(archives, tmp_path, monkeypatch):
    def interrupted(search, driver, most, result):
        stops[0].set()
        raise DataError("a program that the signal ended too")

    stops = []
    monkeypatch.setattr(mining, "Event", lambda: stops.append(Event()) or stops[0])
    monkeypatch.setattr(mining, "_mine_pair", interrupted)
    journal = mining.mine(mining.MiningPlan(["tiny"], archives=archives), tmp_path / "mined")
    assert not journal.results


def test_a_package_of_which_three_pairs_time_out_has_a_row_with_that_reason(tmp_path):
    for number in range(4):
        slow = TESTS.replace("def test_label", f"import time\n\ntime.sleep(9)  # {number}\n\n\ndef test_label")
        write_sdist(tmp_path, f"1.{number}", OLD + f"# {number}\n", slow)
    plan = mining.MiningPlan(["tiny"], archives=tmp_path, suite_seconds=0.2)
    journal = mining.mine(plan, tmp_path / "mined")
    reasons = [result.reason for result in journal.results]
    assert reasons == [*["the suite takes more than 0.2 s"] * 3, "given up after 3 pairs of which no test runs"]
    (row,) = mining.yields(journal.results)
    assert (row["package"], row["kept"]) == ("tiny", 0)


def test_a_reason_names_its_cause_and_a_package_of_which_no_test_runs_is_given_up(tmp_path):
    for number in range(6):
        tests = TESTS.replace("from tiny", f"import nosuch{number}\nfrom tiny")
        write_sdist(tmp_path, f"1.{number}", OLD + f"# {number}\n", tests)
    journal = mining.mine(mining.MiningPlan(["tiny"], archives=tmp_path), tmp_path / "mined")
    reasons = [result.reason for result in journal.results]
    assert reasons[0] == "the new tests do not run: ModuleNotFoundError: No module named 'nosuch5'"
    assert len(reasons) == mining.HOPELESS + 1
    assert reasons[-1] == "given up after 3 pairs of which no test runs"


def test_a_reason_advises_no_flag_of_another_command(tmp_path):
    for version, code in (("1.0", OLD), ("1.1", NEW)):
        write_sdist(tmp_path, version, code, TESTS, path="examples/sample.py")
    journal = mining.mine(mining.MiningPlan(["tiny"], archives=tmp_path), tmp_path / "mined")
    assert [result.reason for result in journal.results] == ["The source archive of tiny contains no tests"]


def test_an_interrupted_command_says_what_it_keeps(monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(mining, "mine", interrupted)
    with pytest.raises(SystemExit) as ended:
        command.main(["mine", "tiny"])
    assert ended.value.code == 130
    words = "stopped: finished pairs of releases and packages are kept, and the same command continues from there"
    assert capsys.readouterr().err.strip() == words


def test_archives_without_a_version_are_skipped(archives):
    (archives / "tiny-latest.tar.gz").write_bytes(b"")
    assert [path.name for path in archives_of("tiny", archives, 9)] == ["tiny-1.0.tar.gz", "tiny-1.1.tar.gz"]


@pytest.mark.parametrize(
    ("requirement", "pin"),
    [
        ("calc==1", "calc @ https://example.org/calc.tar.gz"),
        ("calc==1", "https://example.org/calc.whl"),
        ("calc==1", "./calc"),
        ("https://example.org/calc.tar.gz", "pytest"),
        ("/nowhere/calc.tar.gz", "pytest"),
        ("calc==1\n--index-url=x", "pytest"),
    ],
)
def test_a_setup_in_a_record_names_packages_of_the_index_alone(tmp_path, requirement, pin):
    setup = {"source": {"kind": "sdist", "req": requirement}, "pins": ["pytest>=8,<10", "coverage[toml]==7.1", pin]}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "setup": setup}))
    with pytest.raises(DataError, match=r"setup of a__b-1 in .*is not NAME or NAME==VERSION"):
        published.find(str(tmp_path / "records.jsonl"))


def test_a_setup_in_a_record_with_names_is_accepted(tmp_path):
    setup = {"source": {"kind": "sdist", "req": "calc==1"}, "pins": ["pytest>=8,<10", "coverage[toml]==7.1", "x"]}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "setup": setup}))
    ((_, found),) = published.find(str(tmp_path / "records.jsonl")).values()
    assert found == setup


def test_the_first_game_says_that_it_installs_and_the_next_one_is_silent(archives, capsys):
    setup = verification.setup_of(obtain(archives / "tiny-1.0.tar.gz"))
    little.environment(setup)
    setups.prepare(setup)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"swegym: pip installs {setup['source']['req']} and its test tools for their first game")
    setups.prepare(setup)
    assert capsys.readouterr().err == ""


def test_tests_named_after_the_day_are_not_listed(archives, tmp_path):
    dated = """

import pytest
from datetime import date, timedelta


@pytest.mark.parametrize("day", [date(1999, 1, 2), date.today()], ids=str)
def test_day(day):
    assert label(str(day)) == f"<{day}>"
"""
    write_sdist(archives, "1.0", OLD, TESTS + dated)
    write_sdist(archives, "1.1", NEW, NEW_TESTS + dated)
    little.environment(verification.setup_of(obtain(archives / "tiny-1.0.tar.gz")))
    journal = mining.mine(mining.MiningPlan(["tiny"], archives=archives), tmp_path / "mined")
    (record,) = mining.records(journal.results)
    names = {test.rpartition("::")[2] for test in record["PASS_TO_PASS"]}
    assert names == {"test_label", "test_scale", "test_day[1999-01-02]"}
