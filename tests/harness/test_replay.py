"""Replay: a genuine file passes, a forged or stale one is named."""

import json

import pytest

from envsuite import registry
from harness import records, replay
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
        (lambda one: one["steps"][0].update(fault="invalid"), "turn 1, fault: stored 'invalid', replayed ''"),
        (lambda one: one["faults"].update(format=1), "its turns have {'format': 0"),
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


def cut(one, turns, reason):
    """As the harness leaves an episode that it ends itself."""
    one["steps"] = one["steps"][:turns]
    one.update(num_turns=turns, stop_reason=reason, terminated=False, truncated=True, success=False)
    one.update(reward=0.0, progression=one["progression"] if turns else 0.0)


def test_an_episode_whose_first_prompt_found_no_room_replays_the_same(results):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    losers = [one for one in lines if not one["success"]]
    cut(losers[0], 0, "context")
    results.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert [verdict.difference for verdict in replay.check(results) if verdict.difference] == []


def test_a_reply_that_was_cut_off_replays_as_one_without_a_command(results):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    config = RunConfig(task=registry.TASKS["HiLo-v0"], model="idle", episodes=1, max_turns=2)
    evaluate(config, results.parent / "idle", lambda: make_policy("idle"))
    (one,) = records.read_results(config.folder(results.parent / "idle") / "results.jsonl")
    assert one["faults"] == {"format": 2, "invalid": 0, "length": 0}
    one["steps"][1]["fault"] = "length"
    one["faults"] = {"format": 1, "invalid": 0, "length": 1}
    results.write_text("".join(json.dumps(one) + "\n" for one in [*lines, one]))
    verdicts = list(replay.check(results))
    assert len(verdicts) == 13 and not any(verdict.difference for verdict in verdicts)


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
