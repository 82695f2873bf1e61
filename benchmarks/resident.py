"""Measures continuous batching against two kinds of lock-step, with replies of unequal length.

python -m benchmarks.resident [--model smollm2-135m] [--rows 16] [--jobs 96] [--sigma 1.0 1.5]

All sides decode the same jobs, whose reply lengths are lognormal:

    continuous   a job joins whenever a row is free
    lock-step    `rows` jobs join together; a row leaves at its end, and the next jobs wait for the longest
    generate     transformers' `generate` on batches of `rows`: a row is computed until the longest one ends

Speeds are tokens per second of the process's CPU time with one thread, so that other work on the machine
hardly counts. The table has the best round of each side.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import deque
from typing import Any

import torch
from transformers import StoppingCriteria

from harness.lm.decode import Job, Settings
from harness.lm.resident import ResidentBatch
from harness.policies.hf import load


def jobs_of(arguments: argparse.Namespace, sigma: float) -> list[Job]:
    """Returns jobs with equal prompts and unequal reply lengths; the same ones in every call."""
    generator = random.Random(0)
    jobs = []
    for number in range(arguments.jobs):
        length = min(arguments.longest, max(1, round(arguments.median * generator.lognormvariate(0.0, sigma))))
        jobs.append(Job([generator.randrange(100, 4000) for _ in range(24)], length, seed=number))
    return jobs


SIDES = ("generate", "lock-step", "continuous")


class EachLength(StoppingCriteria):
    """Ends each row at a length of its own."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: object, **options: object) -> torch.Tensor:
        return input_ids.shape[1] >= self._lengths


def generate(network: Any, jobs: list[Job], rows: int) -> float:
    """Decodes all jobs with transformers' `generate`; returns sampled tokens per second of CPU time."""
    began = time.process_time()
    for first in range(0, len(jobs), rows):
        batch = jobs[first : first + rows]
        prompts = torch.tensor([job.prompt for job in batch])
        ends = EachLength([len(job.prompt) + job.room for job in batch])
        network.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            max_new_tokens=max(job.room for job in batch),
            stopping_criteria=[ends],
            eos_token_id=None,
            pad_token_id=0,
        )
    return sum(job.room for job in jobs) / (time.process_time() - began)


def play(network: object, jobs: list[Job], rows: int, continuous: bool) -> float:
    """Decodes all jobs; returns sampled tokens per second of CPU time."""
    batch = ResidentBatch(network, Settings(temperature=1.0), lambda ids: "", keep_prefixes=False)
    waiting = deque(jobs)
    in_flight = 0
    began = time.process_time()
    while waiting or batch.busy:
        if continuous or not batch.busy:
            while waiting and in_flight < rows:
                batch.add(waiting.popleft())
                in_flight += 1
        in_flight -= len(batch.step())
    return sum(len(job.ids) for job in jobs) / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=96)
    parser.add_argument("--median", type=float, default=16.0, help="median reply length in tokens")
    parser.add_argument("--sigma", type=float, nargs="+", default=[1.0, 1.5])
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network, _ = load(arguments.model, "auto", "float32")
    print(f"| sigma | replies | tokens | longest | {' | '.join(arguments.sides)} | load |")
    print("|--:" * (5 + len(arguments.sides)) + "|", flush=True)
    for sigma in arguments.sigma:
        best = dict.fromkeys(arguments.sides, 0.0)
        for _ in range(arguments.rounds):
            for side in best:
                jobs = jobs_of(arguments, sigma)
                if side == "generate":
                    speed = generate(network, jobs, arguments.rows)
                else:
                    speed = play(network, jobs, arguments.rows, side == "continuous")
                best[side] = max(best[side], speed)
        lengths = [job.room for job in jobs_of(arguments, sigma)]
        cells = [f"{sigma:g}", f"{len(lengths)}", f"{sum(lengths):,}", f"{max(lengths)}"]
        cells += [f"{best[side]:.1f}" for side in best]
        cells.append(f"{os.getloadavg()[0]:.1f}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
