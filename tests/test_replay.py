"""Replay: a genuine file passes, a forged or stale one is named."""

import json

import pytest

from envsuite import registry
from harness import replay
from harness.cli import cache
from harness.cli.replay import main
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from tests import toys  # noqa: F401


@pytest.fixture
def results(tmp_path):
    config = RunConfig(task=registry.TASKS["HiLo-v0"], model="random", episodes=6, attempts=2, max_turns=3)
    evaluate(config, tmp_path, lambda: make_policy("random"))
    return config.folder(tmp_path) / "results.jsonl"


def test_a_genuine_file_replays_the_same(results):
    verdicts = list(replay.check(results))
    assert len(verdicts) == 12
    assert not any(verdict.difference for verdict in verdicts)


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda one: one.update(success=True, reward=1.0), "success"),
        (lambda one: one["steps"][1].update(observation="Correct!"), "turn 2, observation"),
        (lambda one: one["steps"][0].update(reward=1.0), "turn 1, reward"),
        (lambda one: one.update(first_observation="hello"), "first_observation"),
        (lambda one: one["steps"].append(dict(one["steps"][-1])), "steps: stored 4"),
    ],
)
def test_a_forged_record_is_found_and_the_first_difference_named(results, forge, said, capsys):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    victim = next(one for one in lines if not one["success"])
    forge(victim)
    results.write_text("".join(json.dumps(one) + "\n" for one in lines))
    with pytest.raises(SystemExit) as stop:
        main([str(results)])
    assert stop.value.code == 1
    assert said in capsys.readouterr().err


def test_the_cache_is_listed_and_cleared_by_part(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "one").write_bytes(b"x" * 2**20)
    for words in (["list"], ["clear", "gmes", "-y"], ["clear", "games", "-y"]):
        with pytest.raises(SystemExit) as stop:
            cache.main(words)
        assert stop.value.code == (2 if "gmes" in words else 0)
    out = capsys.readouterr()
    assert "1.0 MB" in out.out
    assert "Did you mean 'games'" in out.err
    assert not (tmp_path / "games").exists()
