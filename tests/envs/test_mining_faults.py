"""Faults of the sandbox and archives without a version while packages are mined, and recipes of strangers."""

import json
from threading import Event

import pytest

from envsuite.envs.swegym.mined import miner
from envsuite.envs.swegym.mined.releases import archives_of
from envsuite.envs.swegym.published import problem as published
from envsuite.errors import DataError, EngineFailure
from tests.envs import little
from tests.envs.test_swegym_mining import NEW, NEW_TESTS, NOTES, OLD, TESTS, write_sdist


@pytest.fixture
def archives(tmp_path):
    write_sdist(tmp_path, "1.0", OLD, TESTS, "# Changes\n")
    write_sdist(tmp_path, "1.1", NEW, NEW_TESTS, NOTES)
    return tmp_path


def test_a_pair_on_which_the_sandbox_fails_is_not_recorded(archives, tmp_path, monkeypatch):
    def fail(candidate, driver):
        raise EngineFailure("the sandbox ended")

    def one_candidate(search):
        yield object()

    monkeypatch.setattr(miner, "verify", fail)
    monkeypatch.setattr(miner.Search, "candidates", one_candidate)
    shown = []
    journal = miner.mine(miner.MiningPlan(["tiny"], archives=archives), tmp_path / "mined", shown.append)
    assert [(result.old, result.new, result.reason) for result in shown] == [("1.0", "1.1", "the sandbox ended")]
    assert not journal.results
    assert not miner.MiningJournal(tmp_path / "mined").done


def test_a_pair_that_is_interrupted_is_not_recorded(archives, tmp_path, monkeypatch):
    def interrupted(search, driver, most, result, last_try):
        stops[0].set()
        raise DataError("a program that the signal ended too")

    stops = []
    monkeypatch.setattr(miner.threading, "Event", lambda: stops.append(Event()) or stops[0])
    monkeypatch.setattr(miner, "_mine_pair", interrupted)
    journal = miner.mine(miner.MiningPlan(["tiny"], archives=archives), tmp_path / "mined")
    assert not journal.results


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
def test_a_recipe_in_a_record_names_packages_of_the_index_alone(tmp_path, requirement, pin):
    recipe = {"source": {"kind": "sdist", "req": requirement}, "pins": ["pytest>=8,<10", "coverage[toml]==7.1", pin]}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "recipe": recipe}))
    with pytest.raises(DataError, match=r"recipe of a__b-1 in .*is not NAME or NAME==VERSION"):
        published.find(str(tmp_path / "records.jsonl"))


def test_a_recipe_in_a_record_with_names_is_accepted(tmp_path):
    recipe = {"source": {"kind": "sdist", "req": "calc==1"}, "pins": ["pytest>=8,<10", "coverage[toml]==7.1", "x"]}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "recipe": recipe}))
    ((_, found),) = published.find(str(tmp_path / "records.jsonl")).values()
    assert found == recipe
