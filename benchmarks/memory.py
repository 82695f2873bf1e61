"""Memory of the head over a long run: resident megabytes as episodes end.

    python -m benchmarks.memory [--episodes 20000] [--markdown benchmarks/memory.md]

The command's own path (journal, timing, results) with an instant policy and a native engine. What a record leaves in memory
is its numbers; the texts of its turns are in the file.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from envsuite import registry
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy

TASK = "VirtualHome-food_preparation-v0"


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    seeds = min(args.episodes, 1000)
    config = RunConfig(registry.TASKS[TASK], "expert", episodes=seeds, attempts=args.episodes // seeds)
    seen: list[tuple[int, float]] = []
    count, began = 0, time.monotonic()

    def ended(record: Any, run: Any) -> None:
        nonlocal count
        count += 1
        if count == 100 or count % (args.episodes // 10) == 0:
            gc.collect()
            seen.append((count, resident()))
            print(f"{count:,} episodes: {seen[-1][1]:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        evaluate(config, Path(folder), lambda: make_policy("expert"), Execution(max_concurrent=64), ended)
        size = (next(Path(folder).glob("**/results.jsonl"))).stat().st_size
    after = resident()
    (first, low), (last, high) = seen[0], seen[-1]
    rows = [
        "| episodes ended | resident MB |",
        "|--:|--:|",
        *(f"| {number:,} | {megabytes:.1f} |" for number, megabytes in seen),
    ]
    rows.append(f"| results written | {after:.1f} |")
    each = 1000 * (high - low) / (last - first)
    text = (
        "\n".join(rows)
        + f"\n\nThat is {each:.2f} kB an episode kept, of {size / args.episodes / 1000:.1f} kB written.\n"
    )
    print(text)
    if args.markdown:
        args.markdown.write_text(
            f"# Memory over a long run\n\n`python -m benchmarks.memory`: {TASK}, expert, 64 slots.\n\n{text}"
        )


if __name__ == "__main__":
    main()
