"""Injects every kind of fault into real runs and counts its effect on the results.

    python -m benchmarks.faults [--markdown benchmarks/faults.md]

Runs the tests that kill workers, nodes and heads, fill a disk, change the clock and make servers
misbehave. Each test compares the episodes of an undisturbed run with the run with the fault; this script
collects the comparisons.
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
        verdicts = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    rows = [
        "| what happened | episodes | lost | counted twice | with another record | broken | same bytes |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for verdict in verdicts:
        same = "yes" if verdict["bytes"] else "NO"
        numbers = " | ".join(str(verdict[name]) for name in ("episodes", "lost", "twice", "otherwise", "broken"))
        rows.append(f"| {verdict['fault']} | {numbers} | {same} |")
    total = {
        name: sum(verdict[name] for verdict in verdicts)
        for name in ("episodes", "lost", "twice", "otherwise", "broken")
    }
    rows.append(
        f"| **{len(verdicts)} faults** | {' | '.join(map(str, total.values()))} | "
        f"{sum(verdict['bytes'] for verdict in verdicts)} of {len(verdicts)} |"
    )
    outcome = done.stdout.strip().splitlines()[-1].partition(" in ")[0].strip("= ")
    rows.append(
        f"\n{outcome}; {(time.monotonic() - began) / 60:.0f} min, "
        f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
    )
    print("\n".join(rows))
    if args.markdown:
        args.markdown.write_text(
            "# Faults\n\n`python -m benchmarks.faults` (`make fault-proof`): each fault was injected into a real run, "
            'and the results\nare compared with an undisturbed run. The column "with another record" counts episodes '
            "with a different score.\n\n" + "\n".join(rows) + "\n"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
