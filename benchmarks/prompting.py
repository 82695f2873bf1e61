"""The bundled model under six prompting variants, and under score mode: success, progression and valid commands.

    python -m benchmarks.prompting [-n 10] [-o runs/prompting]

Every row is an `envsuite-eval` run with the flags it shows; an interrupted run resumes. The table shows
the effect of the prompt on a 135M model, not the ability of the model: most successes are zero, and
mainly the share of valid commands changes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.stats.summary import number, percent

TASKS = ("ALFWorld-generated-v0", "TextWorld-w2-o3-q4-v0", "BabyAI-goto-v0")
COMMON = "--history 3 --max-tokens 32 --max-turns 12 --baselines none --resume --json"
VARIANTS = {
    "thinking, <action>": "--thinking on",
    "<action>": "--thinking off",
    "bare line": "--thinking off --action-grammar bare",
    "ReAct": "--action-grammar react",
    "JSON tool call": "--thinking off --action-grammar tool",
    "bare line, commands not shown": "--thinking off --action-grammar bare --admissible none",
    "score mode": "--thinking off --action-grammar bare --action-mode score",
}


def measure(task: str, flags: str, episodes: int, folder: Path) -> dict[str, Any]:
    """Returns the summary that `envsuite-eval` prints for one cell."""
    command = [sys.executable, "-m", "harness.cli.eval", "-m", "smollm2-135m", "-e", task, "-n", str(episodes)]
    done = subprocess.run(
        [*command, "-o", str(folder), *COMMON.split(), *flags.split()], stdout=subprocess.PIPE, text=True, check=True
    )
    (run,) = json.loads(done.stdout)
    summary: dict[str, Any] = run["rows"]["smollm2-135m"]
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--episodes", type=int, default=10)
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/prompting"))
    args = parser.parse_args()
    print(f"Common flags: `-m smollm2-135m -n {args.episodes} {COMMON}`.\n")
    print("| task | variant | flags | success % [95 %] | progression [95 %] | valid % | format | invalid | length |")
    print("|---|---|---|---|---|--:|--:|--:|--:|")
    for task in TASKS:
        for name, flags in VARIANTS.items():
            summary = measure(task, flags, args.episodes, args.output_dir)
            shares = [100 * share for share in (summary["valid_share"], *summary["faults"].values())]
            cells = [task, name, f"`{flags}`", percent(summary["success"]), number(summary["progression"])]
            print("| " + " | ".join([*cells, *(f"{share:.0f}" for share in shares)]) + " |", flush=True)


if __name__ == "__main__":
    main()
