"""Measures continuous batching against lock-step batches of the same decoder, with replies of
unequal length.

python -m benchmarks.resident [--model smollm2-135m] [--rows 16] [--jobs 48]

Both sides decode the same jobs, whose reply lengths are lognormal. Lock-step adds `rows` jobs and
waits for all of them before it adds the next ones; the continuous side adds a job whenever a row is
free. They alternate, and the table has the better of the rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import deque

from harness.lm.decode import Job, Settings
from harness.lm.resident import ResidentBatch
from harness.policies.hf import load


def jobs_of(arguments: argparse.Namespace) -> list[Job]:
    """Returns jobs with equal prompts and unequal reply lengths; the same ones in every call."""
    generator = random.Random(0)
    jobs = []
    for number in range(arguments.jobs):
        length = min(
            arguments.longest, max(1, round(arguments.median * generator.lognormvariate(0.0, arguments.sigma)))
        )
        jobs.append(Job([generator.randrange(100, 4000) for _ in range(24)], length, seed=number))
    return jobs


def play(network: object, jobs: list[Job], rows: int, continuous: bool) -> float:
    """Decodes all jobs; returns sampled tokens per second."""
    batch = ResidentBatch(network, Settings(temperature=1.0), lambda ids: "", keep_prefixes=False)
    waiting = deque(jobs)
    in_flight = 0
    began = time.perf_counter()
    while waiting or batch.busy:
        if continuous or not batch.busy:
            while waiting and in_flight < rows:
                batch.add(waiting.popleft())
                in_flight += 1
        in_flight -= len(batch.step())
    return sum(len(job.ids) for job in jobs) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=48)
    parser.add_argument("--median", type=float, default=16.0, help="median reply length in tokens")
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--longest", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    network, _ = load(arguments.model, "auto", "float32")
    best = {False: 0.0, True: 0.0}
    for _ in range(arguments.rounds):
        for continuous in best:
            best[continuous] = max(best[continuous], play(network, jobs_of(arguments), arguments.rows, continuous))
    lengths = [job.room for job in jobs_of(arguments)]
    print(f"{arguments.model}, {arguments.rows} rows, {len(lengths)} replies, {sum(lengths)} tokens")
    print("| lock-step, tokens/s | continuous, tokens/s | ratio |\n|--:|--:|--:|")
    print(f"| {best[False]:.1f} | {best[True]:.1f} | {best[True] / best[False]:.2f} |")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
