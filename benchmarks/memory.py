"""Memory over a long run, of the head and of a cluster's workers: resident megabytes by episodes done.

    python -m benchmarks.memory [--episodes 20000] [--markdown benchmarks/memory.md]

Runs the full evaluation (journal, timing, results) with the expert and a native engine, in this process
and on a local Ray cluster with two workers. Of each record only the position of its line stays in
memory; its texts are in the file.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from envsuite import registry
from harness import evaluate as evaluation
from harness.evaluate import Execution, RunConfig, open_slots
from harness.policies import make_policy

TASK = "VirtualHome-food_preparation-v0"


def resident(pid: int) -> float:
    """Returns the resident memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def played(executor: str, episodes: int) -> str:
    """Plays one run; returns its memory as a Markdown table."""
    seeds = min(episodes, 1000)
    config = RunConfig(registry.TASKS[TASK], "expert", episodes=seeds, attempts=episodes // seeds)
    pids, seen = [os.getpid()], list[tuple[int, list[float]]]()
    count, began = 0, time.monotonic()

    def opened(*arguments: Any) -> Any:
        slots = open_slots(*arguments)
        if executor == "ray":
            pids.extend(slots.ray.get([worker.actor.pid.remote() for worker in slots._workers]))  # type: ignore[attr-defined]
        return slots

    def ended(record: Any, run: Any) -> None:
        nonlocal count
        count += 1
        if count == 1000 or count % (episodes // 10) == 0:
            gc.collect()
            seen.append((count, [resident(pid) for pid in pids]))
            print(f"{executor}: {count:,} episodes: {seen[-1][1]} MB, {time.monotonic() - began:.0f} s", flush=True)

    how = Execution(max_concurrent=64, num_workers=2 if executor == "ray" else -1, executor=executor)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(evaluation, "open_slots", opened):
        evaluation.evaluate(config, Path(folder), lambda: make_policy("expert"), how, ended)
        size = (next(Path(folder).glob("**/results.jsonl"))).stat().st_size
    names = ["this process", *(f"worker {number}" for number in range(1, len(pids)))]
    rows = [f"| episodes ended | {' | '.join(names)} |", "|--:|" + "--:|" * len(names)]
    rows += [f"| {number:,} | {' | '.join(f'{size_mb:.1f}' for size_mb in sizes)} |" for number, sizes in seen]
    rows.append(f"| results written | {resident(os.getpid()):.1f} |" + " |" * (len(names) - 1))
    (first, low), (last, high) = seen[0], seen[-1]
    each = " and ".join(
        f"{1000 * (after - before) / (last - first):.2f}" for before, after in zip(low, high, strict=True)
    )
    return "\n".join(rows) + f"\n\nThat is {each} kB an episode kept, of {size / episodes / 1000:.1f} kB written."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves on a busy machine
    text = f"Resident MB, {TASK}, expert.\n\n" + "\n\n".join(
        f"## {title}\n\n{played(executor, args.episodes)}"
        for title, executor in (("In this process", "local"), ("On Ray, two workers, 64 slots", "ray"))
    )
    print(text)
    if args.markdown:
        args.markdown.write_text(f"# Memory over a long run\n\n`python -m benchmarks.memory`. {text}\n")


if __name__ == "__main__":
    main()
