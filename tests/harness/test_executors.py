"""Executors under pressure: full pipes, silent workers, and reuse after an unfinished rollout."""

import pytest

from envsuite import registry
from envsuite.types import knobs_json
from harness import records
from harness.policies import make_policy
from harness.rollout.executors import LocalExecutor, ProcessExecutor
from harness.rollout.loop import rollout
from harness.rollout.vector import VectorExecutor
from harness.types import episode
from tests import toys  # noqa: F401  registers the toys

MEGABYTE = "x" * 2**20


def episodes(name, count, **knobs):
    return [episode(registry.TASKS[name], seed, **knobs) for seed in range(count)]


def test_requests_to_a_worker_that_does_not_read_do_not_block_the_rollout():
    """Sends several times what a pipe holds while the worker hangs in its first request."""
    executor = ProcessExecutor(4, 1)
    try:
        for slot, game in enumerate(episodes("Faulty-v0", 4, how="hang")):
            executor.start(slot, game)
        answers = 0
        while answers < 4:
            answers += len(executor.poll())
        for slot in range(4):  # the engine of seed 0 hangs
            executor.step(slot, (MEGABYTE,), 0)
        assert executor.poll(wait=False) == []
    finally:
        executor.close()


def test_answers_that_fill_the_pipe_do_not_block_the_rollout():
    """The worker waits for the parent to read, while the parent sends more than a pipe holds."""
    executor = ProcessExecutor(300, 1)
    try:
        for _ in range(2):
            for slot, game in enumerate(episodes("HiLo-v0", 300)):
                executor.start(slot, game)
        for slot in range(300):
            executor.step(slot, (MEGABYTE[:4000],), 0)
        count = 0
        while count < 900:
            count += len(executor.poll())
    finally:
        executor.close()


def play(executor, todo):
    found = (records.record(run, "random", "sparse") for run in rollout(make_policy("random"), todo, executor))
    return sorted(found, key=records.key_of)


def check_reuse(executor, unfinished, todo, expected):
    try:
        for ended in range(3):
            runs = rollout(make_policy("random"), unfinished, executor)
            for _ in range(ended):
                next(runs)
            if not ended:
                executor.start(0, unfinished[0])  # a request that nobody waits for
                executor.cancel()
            runs.close()
            assert play(executor, todo) == expected
    finally:
        executor.close()


@pytest.mark.parametrize("executor", [LocalExecutor, lambda *args, **how: ProcessExecutor(*args, 2, **how)])
def test_an_executor_gives_no_stale_answer_after_an_unfinished_rollout(executor):
    todo = episodes("HiLo-v0", 12)
    expected = play(LocalExecutor(1, advice_kind="random"), todo)
    check_reuse(executor(5, advice_kind="random"), episodes("HiLo-v0", 30, size=64)[12:], todo, expected)


def test_a_vector_executor_gives_no_stale_answer_after_an_unfinished_rollout():
    pytest.importorskip("alfworld", reason="the package alfworld is not installed")
    task = registry.TASKS["ALFWorld-generated-v0"]
    knobs = registry.overrides(task, {"receptacles": 8, "objects": 8, "max_steps": 6})
    todo = [episode(task, seed, **knobs) for seed in range(6)]
    expected = play(LocalExecutor(1, advice_kind="random"), todo)
    check_reuse(VectorExecutor(3, task, knobs_json(knobs), advice_kind="random"), todo[::-1], todo, expected)


def test_the_dropped_request_of_a_worker_that_dies_is_not_reported():
    executor = ProcessExecutor(2, 1, advice_kind="expert")
    try:
        faulty, sound = episodes("Faulty-v0", 2, how="exit")
        executor.start(0, faulty)
        assert not executor.poll()[0][1].error
        executor.step(0, ("1",), 0)
        executor.cancel()
        executor.start(1, sound)
        ((slot, answer),) = executor.poll()
        assert slot == 1 and answer.lost == "bystander"
    finally:
        executor.close()
