"""Faults of the sandbox, and archives without a version, while packages are mined."""

import pytest

from envsuite.envs.swegym.mined import miner
from envsuite.envs.swegym.mined.releases import archives_of
from envsuite.errors import EngineFailure
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


def test_archives_without_a_version_are_skipped(archives):
    (archives / "tiny-latest.tar.gz").write_bytes(b"")
    assert [path.name for path in archives_of("tiny", archives, 9)] == ["tiny-1.0.tar.gz", "tiny-1.1.tar.gz"]
