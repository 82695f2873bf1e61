"""Asynchronous policies: replies of cancelled prompts are dropped, errors end the wait, and nothing is lost."""

import os
import threading

import pytest

from harness import waiting
from harness.types import Prompt, Reply
from harness.waiting import Batched, Forwarding, Outbox, Wakeup


def prompt(text: str) -> Prompt:
    return Prompt([{"role": "user", "content": text}], seed=0)


class Echo:
    """A policy that repeats its prompts and notes how many it got at once."""

    name, advice_kind, deterministic = "echo", "", True

    def __init__(self) -> None:
        self.batches: list[int] = []

    def act(self, prompts):
        self.batches.append(len(prompts))
        return [Reply(str(prompt.messages[-1]["content"])) for prompt in prompts]


class Knowing(Forwarding):
    """Answers prompts that start with 'known' by itself."""

    name, advice_kind, deterministic = "knowing", "", True

    def __init__(self) -> None:
        self.policy = Echo()

    def known(self, prompt):
        text = str(prompt.messages[-1]["content"])
        return Reply("at once") if text.startswith("known") else None


def ready(flag: Wakeup) -> bool:
    return bool(waiting.connection.wait([flag], 0.0))


def test_a_wakeup_is_readable_from_set_to_clear_however_often_it_is_set():
    flag = Wakeup()
    assert not ready(flag)
    flag.set()
    flag.set()
    assert ready(flag)
    flag.clear()
    assert not ready(flag)
    flag.clear()  # a second read would block
    flag.set()
    assert ready(flag)


def test_a_closed_wakeup_frees_its_descriptors_and_ignores_set():
    flag = Wakeup()
    read = flag.fileno()
    flag.close()
    flag.close()
    flag.set()
    assert flag.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_finished_replies_are_taken_once_and_counted():
    outbox = Outbox()
    generations = [outbox.expect() for _ in range(3)]
    assert (generations, outbox.pending) == ([0, 0, 0], 3)
    outbox.put(0, 2, Reply("two"))
    outbox.put(0, 0, Reply("zero"))
    assert [(ticket, reply.text) for ticket, reply in outbox.take(None)] == [(2, "two"), (0, "zero")]
    assert outbox.pending == 1 and not ready(outbox.wakeup)
    assert outbox.take(0.0) == []


def test_a_wait_ends_when_another_thread_finishes_and_at_once_if_nothing_is_pending():
    outbox = Outbox()
    assert outbox.take(None) == []
    outbox.expect()
    assert outbox.take(0.01) == []
    thread = threading.Timer(0.05, outbox.put, (0, 7, Reply("late")))
    thread.start()
    assert [ticket for ticket, _ in outbox.take(None)] == [7]
    thread.join()
    outbox.expect()
    thread = threading.Timer(0.05, outbox.put, (0, 8, Reply("late")))
    thread.start()
    assert [ticket for ticket, _ in outbox.take(1.0)] == [8]
    thread.join()


def test_replies_to_cancelled_prompts_never_arrive():
    outbox = Outbox()
    old = outbox.expect()
    outbox.cancel()
    assert outbox.pending == 0
    new = outbox.expect()
    outbox.put(old, 0, Reply("old"))
    outbox.put(old, 1, ValueError("an old error"))
    outbox.put(new, 0, Reply("new"))
    assert [reply.text for _, reply in outbox.take(None)] == ["new"]
    assert outbox.pending == 0


def test_an_error_is_raised_by_take_and_counted():
    outbox = Outbox()
    outbox.expect()
    outbox.expect()
    outbox.put(0, 0, ValueError("no model"))
    with pytest.raises(ValueError, match="no model"):
        outbox.take(None)
    assert outbox.pending == 1


def test_a_batched_policy_gets_all_submitted_prompts_together():
    policy = Echo()
    batched = waiting.asynchronous(policy)
    assert isinstance(batched, Batched) and batched.collect(None) == [] and batched.sources() == ()
    for ticket in (5, 3):
        batched.submit(ticket, prompt(f"p{ticket}"))
    assert [(ticket, reply.text) for ticket, reply in batched.collect()] == [(5, "p5"), (3, "p3")]
    batched.submit(1, prompt("never"))
    batched.cancel()
    assert batched.collect() == [] and policy.batches == [2]


def test_a_forwarding_policy_answers_what_it_knows_and_forwards_the_rest():
    policy = Knowing()
    assert waiting.asynchronous(policy) is policy
    replies = policy.act([prompt("a"), prompt("known 1"), prompt("b"), prompt("known 2")])
    assert [reply.text for reply in replies] == ["a", "at once", "b", "at once"]
    assert policy.policy.batches == [2]
    policy.submit(0, prompt("known 3"))
    policy.submit(1, prompt("c"))
    policy.cancel()
    assert policy.collect() == []


def test_an_interrupted_batch_cancels_its_prompts():
    class Failing(Knowing):
        cancelled = False

        def collect(self, timeout=0.0):
            raise KeyboardInterrupt

        def cancel(self):
            self.cancelled = True

    policy = Failing()
    with pytest.raises(KeyboardInterrupt):
        waiting.act(policy, [prompt("a")])
    assert policy.cancelled
