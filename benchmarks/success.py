"""A markdown table of success from finished runs: python -m benchmarks.success RUNS GLOB [GLOB ...]

Rows are tasks, in the order of the globs; columns the models whose runs lie under RUNS (`envsuite-eval -o RUNS`). Numbers
are read from the runs' records with the harness's own summary: Wilson 95 % intervals; 'not run' where nothing was played.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from envsuite import registry
from envsuite.types import Task
from harness.records import Record
from harness.summary import percent, summarise

MODELS = ("random", "expert", "smollm2-135m")


def collect(runs: Path) -> dict[tuple[str, str], list[Record]]:
    """(task, model): its records, of the run with the most of them."""
    found: dict[tuple[str, str], list[Record]] = {}
    for file in sorted(runs.rglob("results.jsonl")):
        task, model = file.parent.parent.name.split("--", 1)
        records = [json.loads(line) for line in file.read_text().splitlines()]
        if len(records) > len(found.get((task, model), [])):
            found[task, model] = records
    return found


def row(task: Task, found: dict[tuple[str, str], list[Record]]) -> str:
    cells = [task.id]
    for model in MODELS:
        records = found.get((task.id, model))
        if not records:
            cells.append("not run")
            continue
        numbers = summarise(records)
        broken = f", {numbers['broken']} broken" if numbers["broken"] else ""
        cells.append(f"{percent(numbers['success'])}{broken}; {numbers['turns']:.1f} turns")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("globs", nargs="+")
    options = parser.parse_args()
    found = collect(options.runs)
    print(f"| task | {' | '.join(MODELS)} |\n|{'---|' * (len(MODELS) + 1)}")
    listed = {task.id: task for glob in options.globs for task in registry.tasks(glob)}
    for task in listed.values():
        print(row(task, found))


if __name__ == "__main__":
    main()
