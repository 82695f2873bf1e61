"""Runs on a cluster: budgets, the run lock, and constant memory."""

import gc
import os
import time
from pathlib import Path

import pytest

from envsuite.errors import UsageError
from harness.cluster import connect
from harness.cluster.executors import RayExecutor
from harness.evaluate import Budget, BudgetReached, Execution, evaluate
from harness.policies import make_policy
from harness.records import read_journal
from harness.rollout.loop import rollout
from harness.types import Reply
from tests.cluster.test_ray import SLOW, config, on, results

pytestmark = pytest.mark.timeout(900)  # a cluster may need three attempts to start


class ExpensivePolicy:
    """Policy with a fixed command, token usage and cost per turn."""

    name, advice_kind, deterministic = "dear", "", True

    def act(self, prompts):
        return [
            Reply("", commands=("1",), input_tokens=70, output_tokens=30, cost=0.01, cached_tokens=prompt.turn and 60)
            for prompt in prompts
        ]

    def close(self):
        pass


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(tokens=1500), "--max-tokens-total 1,500"),
        pytest.param(Budget(cost=0.15), "--max-cost 0.15 USD", marks=pytest.mark.slow),
        pytest.param(Budget(seconds=0.05), "--max-time 0.05 s", marks=pytest.mark.slow),
    ],
)
def test_a_budget_ends_a_run_cleanly_and_resume_completes_it(cluster, tmp_path, budget, message):
    cfg = config("Slow-v0", "dear", max_turns=5, knobs=SLOW)  # 12 episodes of 5 turns
    local = results(cfg, tmp_path / "local", ExpensivePolicy, num_workers=0)
    how = Execution(**{**on(cluster), "num_workers": 1}, budget=budget)
    with pytest.raises(BudgetReached, match=rf"{message} is used up after (\d+) of 12 episodes: --resume continues"):
        evaluate(cfg, tmp_path / "ray", ExpensivePolicy, how)
    journal = [record for _, record in read_journal(cfg.folder(tmp_path / "ray") / "journal.jsonl")]
    assert 1 <= len(journal) < 12
    if budget.tokens:
        used = sum(record["input_tokens"] + record["output_tokens"] for record in journal)
        assert used - 500 < budget.tokens <= used, "at the first episode that reaches it"
    assert results(cfg, tmp_path / "ray", ExpensivePolicy, resume=True, **on(cluster)) == local


@pytest.mark.slow
def test_a_second_run_in_the_same_folder_is_refused_while_the_first_runs(cluster, tmp_path, proved):
    cfg, tried = config(), []

    def second(record, run):
        if not tried:
            tried.append(record)
            with pytest.raises(UsageError, match="in use by another process"):
                results(cfg, tmp_path / "ray", resume=True, **on(cluster))

    evaluate(cfg, tmp_path / "ray", lambda: make_policy("random"), Execution(**on(cluster)), second)
    assert tried
    on_ray = (cfg.folder(tmp_path / "ray") / "results.jsonl").read_bytes()
    proved("a second run into the same folder: refused", results(cfg, tmp_path / "local"), on_ray)


def resident(pid):
    """Returns the resident memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
def test_memory_of_head_and_workers_is_flat(cluster):
    ray, sizes = connect.connect(cluster.address), []
    cfg = config(episodes=1000, attempts=4)
    executor = RayExecutor(ray, 16, 2, advice_kind="random")
    pids = [os.getpid(), *ray.get([worker.actor.pid.remote() for worker in executor._workers])]
    try:
        for number, _ in enumerate(rollout(make_policy("random"), cfg.all_episodes(), executor)):
            if number in (1000, 3999):
                gc.collect()
                time.sleep(1.0)  # Ray still frees memory
                sizes.append([resident(pid) for pid in pids])
    finally:
        executor.close()
    grown = [last - first for first, last in zip(*sizes, strict=True)]
    assert max(grown) < 4, f"MB in 3,000 episodes, of the head and two workers: {grown}"
