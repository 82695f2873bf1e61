"""Every fault a run can meet, brought about for real; what it did to the results, counted.

    python -m benchmarks.faults [--markdown benchmarks/faults.md]

Runs the tests that kill workers, nodes and heads, fill a disk, turn the clock and make servers
misbehave, and gathers what each compared: the episodes of a run left alone with those of the run
that the fault befell.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = ("tests/cluster", "tests/harness/test_evaluate.py", "tests/api/test_eval_on_a_server.py")
CHOSEN = "cluster or killed or server or disk"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "faults.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "--durations", "0", "-k", CHOSEN, *TESTS]
        done = subprocess.run(
            command, env={**os.environ, "ENVSUITE_FAULTS": str(place)}, stdout=subprocess.PIPE, text=True
        )
        print(done.stdout)
        found = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    rows = [
        "| what happened | episodes | lost | counted twice | with another record | broken | same bytes |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for one in found:
        same = "yes" if one["bytes"] else "NO"
        numbers = " | ".join(str(one[name]) for name in ("episodes", "lost", "twice", "otherwise", "broken"))
        rows.append(f"| {one['fault']} | {numbers} | {same} |")
    total = {name: sum(one[name] for one in found) for name in ("episodes", "lost", "twice", "otherwise", "broken")}
    rows.append(
        f"| **{len(found)} faults** | {' | '.join(map(str, total.values()))} | {sum(one['bytes'] for one in found)} of {len(found)} |"
    )
    said = done.stdout.strip().splitlines()[-1].partition(" in ")[0].strip("= ")
    rows.append(
        f"\n{said}; {(time.monotonic() - began) / 60:.0f} min, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
    )
    print("\n".join(rows))
    if args.markdown:
        args.markdown.write_text(
            "# Faults\n\n`python -m benchmarks.faults` (`make fault-proof`): each fault was brought about for real, and the results of the run it befell\n"
            "are compared with those of a run left alone. A record that differs is an episode scored otherwise.\n\n"
            + "\n".join(rows)
            + "\n"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
