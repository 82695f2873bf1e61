"""Checks the capacity simulation against hand-computed sums, and the output of a dry run."""

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("simpy", reason="simpy is not installed")

from envsuite import registry
from harness.capacity.predict import volume
from harness.capacity.profile import load, measure
from harness.capacity.simulate import AHEAD, Cluster, Work, simulate
from harness.cli import eval as evaluating
from harness.evaluate import RunConfig

WORK = Work(reset_s=1.0, turn_s=2.0, lengths=[3, 5, 4] * 8)


def test_one_slot_takes_the_sum_of_all_costs():
    where = Cluster(
        workers=1, slots=1, latency_s=0.5, message_s=0.1, head_turn_s=0.01, head_round_s=0.02, head_message_s=0.04
    )
    rounds = sum(length + 1 for length in WORK.lengths)  # an answer to the reset, and one to each turn
    by_hand = sum(1.0 + length * (2.0 + 0.5) for length in WORK.lengths) + rounds * (0.1 + 0.01 + 0.02 + 0.04)
    result = simulate(WORK, where)
    assert result.seconds == pytest.approx(by_hand)
    assert len(result.ended) == len(WORK.lengths)
    assert result.busy["policy"] == pytest.approx(sum(WORK.lengths) * 0.5 / by_hand)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_an_advice_policy_keeps_workers_busy_with_four_messages_per_episode(workers):
    work = Work(0.0, AHEAD / 10, [40] * 64)
    result = simulate(work, Cluster(workers=workers, slots=workers, replicas=0))
    assert result.seconds == pytest.approx(64 * 40 * AHEAD / 10 / workers)
    dear = simulate(work, Cluster(workers=workers, slots=workers, replicas=0, message_s=1.0))
    assert dear.seconds == pytest.approx(result.seconds + 64 * 4 / workers), "four messages an episode"
    busy = simulate(work, Cluster(workers=workers, slots=workers, replicas=0, head_message_s=1.0))
    assert busy.busy["head"] * busy.seconds == pytest.approx(64 * 4), "the head handles each message"


@pytest.mark.parametrize("batched", [True, False])
def test_no_run_is_faster_than_its_bottleneck(batched):
    for workers, latency, servers in itertools.product((1, 3, 8), (0.1, 2.0), (1, 4)):
        where = Cluster(workers, 12, servers, prompts_per_s=3.0, latency_s=latency, batched=batched)
        result = simulate(WORK, where)
        turns = sum(WORK.lengths)
        assert result.seconds >= (len(WORK.lengths) * 1.0 + turns * 2.0) / workers - 1e-9
        assert result.seconds >= turns / (3.0 * servers) - 1e-9
        assert all(0 <= share <= 1 + 1e-9 for share in result.busy.values())
        assert sorted(result.ended) == result.ended and len(result.ended) == len(WORK.lengths)


@pytest.mark.parametrize(
    ("change", "narrowest"),
    [
        ({"workers": 1}, "environments"),
        ({"latency_s": 60.0}, "policy"),
        ({"head_turn_s": 10.0}, "head"),
        ({"disk_mb_per_s": 1e-3}, "disk"),
    ],
)
def test_the_bottleneck_is_named(change, narrowest):
    where = replace(Cluster(workers=12, slots=12), **change)
    assert simulate(replace(WORK, record_bytes=5e4), where).bottleneck == narrowest


def test_every_family_has_a_profile_and_measure_returns_one():
    head, families = load()
    assert set(families) == set(registry.FAMILIES)
    assert head.turn_s > 0 and all(profile.turn_s > 0 and profile.worker_mb > 10 for profile in families.values())
    task = registry.TASKS["Overcooked-easy-v0"]
    profile = measure(task, seconds=0.2)
    assert profile.task == task.id and min(profile.turns["expert"]) >= 1
    assert 0 < profile.turn_s < 1 and profile.record_bytes > profile.observation_chars


def test_tokens_grow_quadratically_with_turns_and_linearly_with_a_history_window():
    _, families = load()
    profile = replace(families["overcooked"], turns={"random": [100]}, instruction_chars=0.0, observation_chars=40.0)
    config = RunConfig(registry.TASKS["Overcooked-easy-v0"], "some/model", split="train", episodes=2)
    unwindowed = volume(config, profile, "random", 0.0)
    assert unwindowed.read == pytest.approx(2 * 10 * 100 * 101 / 2)
    windowed = replace(config, prompting=replace(config.prompting, history=0))
    assert volume(windowed, profile, "random", 0.0).read == pytest.approx(2 * 10 * 100)
    assert volume(replace(config, max_turns=10), profile, "random", 0.0).turns == 20


def run_eval(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        evaluating.main([*words, "-e", "overcooked", "-n", "50"])
    return ended.value.code, capsys.readouterr()


def test_a_dry_run_on_nodes_predicts_the_time_and_names_the_bottleneck(capsys):
    code, out = run_eval(capsys, "-m", "qwen2.5-3b", "--dry-run", "--nodes", "2", "--tokens-per-second", "500")
    assert code == 0, out.err
    for word in ("cluster   2 nodes", "tokens ", "memory ", "time ", "the policy sets the pace", "Extrapolated"):
        assert word in out.out
    code, out = run_eval(capsys, "-m", "qwen2.5-3b", "--dry-run", "--nodes", "1")
    assert "give --tokens-per-second" in out.out and "Extrapolated" not in out.out


@pytest.mark.parametrize("words", [["--nodes", "2"], ["--dry-run", "--nodes", "-1"]])
def test_nodes_without_dry_run_or_negative_nodes_are_refused(capsys, words):
    code, out = run_eval(capsys, "-m", "random", *words)
    assert code == 2 and out.err.count("\n") == 1 and "--nodes" in out.err
