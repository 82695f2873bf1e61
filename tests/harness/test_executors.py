"""Executors under pressure: full pipes, silent workers, and reuse after an unfinished rollout."""

import threading

import pytest

from envsuite import registry
from harness import records
from harness.policies import make_policy
from harness.rollout.executors import LocalExecutor, ProcessExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, episode
from harness.waiting import Outbox
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


class Late:
    """An asynchronous policy whose replies arrive after a pause; `asked` counts calls of `collect`."""

    name, advice_kind, deterministic = "late", "", True

    def __init__(self, pause):
        self.pause, self.asked, self.outbox = pause, 0, Outbox()

    def submit(self, ticket, prompt):
        reply = Reply("0", commands=("0",))
        threading.Timer(self.pause, self.outbox.put, [self.outbox.expect(), ticket, reply]).start()

    def collect(self, timeout=0.0):
        self.asked += 1
        return self.outbox.take(timeout)

    def cancel(self):
        self.outbox.cancel()

    def sources(self):
        return (self.outbox.wakeup,)


def test_a_rollout_sleeps_until_an_environment_or_a_reply_is_ready():
    """A loop that looks every 10 ms would ask more than a hundred times."""
    policy = Late(0.3)
    executor = ProcessExecutor(2, 1)
    try:
        runs = list(rollout(policy, episodes("Slow-v0", 2, delay=0.2), executor, max_turns=2))
    finally:
        executor.close()
    assert [len(run.turns) for run in runs] == [2, 2]
    assert policy.asked <= 30


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
