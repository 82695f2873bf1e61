"""Continuous batching: rows join and leave at any step, and no reply depends on the others."""

import random

import pytest
import torch

from harness.lm import resident
from harness.lm.decode import Job, LockStep, Settings, decode
from harness.lm.resident import ResidentBatch
from harness.policies.hf import HFPolicy
from harness.types import Prompt
from tests.lm.tiny import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
MODEL = tiny_model(len(TOKENIZER)).double()  # with float32, rounding differs by up to 5e-5
SETTINGS = Settings(temperature=1.0, end_ids=frozenset({2}))


def text_of(ids):
    return TOKENIZER.decode(ids)


def random_jobs(count, seed, longest=200):
    """Jobs with prompts and replies of very different length; some prompts share a beginning."""
    generator = random.Random(seed)
    beginning = [generator.randrange(3, 400) for _ in range(20)]
    jobs = []
    for number in range(count):
        tokens = [generator.randrange(3, 400) for _ in range(generator.choice([1, 7, 40, longest]))]
        prompt = beginning + tokens if number % 2 else tokens
        jobs.append(Job(prompt, generator.choice([1, 3, 30, longest]), seed=number))
    return jobs


def expected(jobs):
    """Results of plain decoding, one job at a time, with the model's own cache."""
    copies = [Job(list(job.prompt), job.room, job.seed) for job in jobs]
    for job in copies:
        decode(MODEL, [job], SETTINGS, text_of)
    return copies


SMALL = [(seed, keep, 8, 60) for seed in (0, 1) for keep in (True, False)]
LARGE = [pytest.param(seed, keep, 12, 200, marks=pytest.mark.slow) for seed in range(4) for keep in (True, False)]


@pytest.mark.parametrize(("seed", "keep", "count", "longest"), [*SMALL, *LARGE])
def test_rows_that_join_and_leave_at_any_step_get_the_replies_of_plain_decoding(
    seed, keep, count, longest, monkeypatch
):
    monkeypatch.setattr(resident, "CHUNK", {"cpu": 16})
    monkeypatch.setattr(resident, "SPARE_COLUMNS", 8)
    jobs = random_jobs(count, seed, longest)
    batch = ResidentBatch(MODEL, SETTINGS, text_of, keep)
    batch.max_rows = 5
    arrivals = random.Random(seed)
    waiting, finished = list(jobs), []
    while waiting or batch.busy:
        while waiting and arrivals.random() < 0.3:
            batch.add(waiting.pop(0))
        finished += batch.step()
    assert sorted(map(id, finished)) == sorted(map(id, jobs))
    for job, alone in zip(jobs, expected(jobs), strict=True):
        assert (job.ids, job.finish_reason) == (alone.ids, alone.finish_reason)
        assert job.logprobs == pytest.approx(alone.logprobs, abs=1e-6)
        assert (job.result_prefix is not None) is keep
        if keep:
            assert job.result_prefix.ids == job.prompt + job.ids[:-1]


def test_the_prefix_of_a_finished_row_continues_its_conversation():
    (job,) = random_jobs(1, seed=3)
    batch = ResidentBatch(MODEL, SETTINGS, text_of)
    batch.add(job)
    while batch.busy:
        batch.step()
    following = Job([*job.prompt, *job.ids, 5, 6, 7], 20, seed=9)
    (alone,) = expected([following])
    following.prefix, following.reusable = job.result_prefix, len(job.result_prefix.ids)
    batch.add(following)
    while batch.busy:
        batch.step()
    assert following.reused == len(job.result_prefix.ids)
    assert following.ids == alone.ids
    assert following.logprobs == pytest.approx(alone.logprobs, abs=1e-6)


def test_a_long_prompt_is_read_in_chunks_while_other_rows_continue(monkeypatch):
    monkeypatch.setattr(resident, "CHUNK", {"cpu": 16})
    short, long = Job([5, 6, 7], 40, seed=1), Job([8] * 160, 5, seed=2)
    batch = ResidentBatch(MODEL, Settings(temperature=1.0), text_of)
    batch.add(short)
    batch.step()
    batch.add(long)
    before = len(short.ids)
    while not long.ids:
        batch.step()
    assert len(short.ids) - before >= 160 // 16


def test_a_short_reply_is_returned_before_a_long_one_and_later_prompts_join():
    policy = HFPolicy.of(MODEL, TOKENIZER, max_tokens=60, temperature=1.0, stop=["e"])
    messages = [{"role": "user", "content": "look"}]
    lengths = {seed: policy.act([Prompt(messages, seed=seed)])[0].output_tokens for seed in range(12)}
    slow, *_, quick = sorted(lengths, key=lengths.get, reverse=True)
    assert lengths[slow] > lengths[quick] + 3
    policy.submit(0, Prompt(messages, seed=slow))
    policy.submit(1, Prompt(messages, seed=quick))
    assert [ticket for ticket, _ in policy.collect(None)] == [1]
    policy.submit(2, Prompt(messages, seed=quick))
    assert [ticket for ticket, _ in policy.collect(None)] == [2 if 2 * lengths[quick] < lengths[slow] else 0]
    policy.cancel()
    assert policy.collect(None) == []


def test_lock_step_decoding_gives_the_same_replies():
    jobs = random_jobs(6, seed=1, longest=60)
    alone = expected(jobs)
    decoder = LockStep(MODEL, SETTINGS, text_of)
    for job in jobs:
        decoder.add(job)
    assert len(decoder.step()) == 6
    assert [job.ids for job in jobs] == [job.ids for job in alone]
    assert torch.tensor([sum(job.logprobs) for job in jobs]) == pytest.approx(
        torch.tensor([sum(job.logprobs) for job in alone]), abs=1e-3
    )


def test_a_new_conversation_reuses_the_beginning_of_the_latest_prompt():
    generator = random.Random(5)
    first, second = ([generator.randrange(3, 400) for _ in range(60)] for _ in range(2))
    batch = ResidentBatch(MODEL, SETTINGS, text_of)
    reused = []
    for prompt in (first, second, [*second[:50], 7, 8, 9], [*first[:50], 7, 8, 9]):
        job = Job(prompt, room=1, seed=3)
        batch.add(job)
        assert batch.step() == [job] and not batch.busy
        reused.append(job.reused)
    assert reused == [0, 0, 50, 0]
