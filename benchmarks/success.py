"""Prints a Markdown table of success from finished runs: python -m benchmarks.success RUNS GLOB [GLOB ...]

Rows are tasks in the order of the globs. Columns are the players with runs in RUNS (`envsuite-eval -o
RUNS`), with separate columns for runs with `--max-turns`. The numbers come from the runs' records by the
harness's summary, with 95 % intervals; cells without a run say 'not run'.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from envsuite import registry
from envsuite.types import Task
from harness.records import Record
from harness.stats.summary import percent, summarise

COLUMNS = (("random", False), ("expert", False), ("random", True), ("smollm2-135m", True))
"""(model, played with --max-turns)"""

Run = tuple[list[Record], int | None]
"""Records, and the --max-turns they were played with."""


def collect(runs: Path) -> dict[tuple[str, str, bool], Run]:
    """Returns the run with the most records for each (task, model, capped)."""
    best: dict[tuple[str, str, bool], Run] = {}
    for file in sorted(runs.rglob("results.jsonl")):
        task, model = file.parent.parent.name.split("--", 1)
        cap = json.loads((file.parent / "config.json").read_text())["max_turns"]
        records = [json.loads(line) for line in file.read_text().splitlines()]
        key = task, model, cap is not None
        if key not in best or len(records) > len(best[key][0]):
            best[key] = records, cap
    return best


def row(task: Task, runs: dict[tuple[str, str, bool], Run]) -> str:
    cells = [task.id]
    for model, capped in COLUMNS:
        records, cap = runs.get((task.id, model, capped), ([], None))
        if not records:
            cells.append("not run")
            continue
        numbers = summarise(records)
        broken = f", {numbers['broken']} broken" if numbers["broken"] else ""
        most = f" of {cap}" if cap else ""
        cells.append(f"{percent(numbers['success'])}{broken}; {numbers['turns']:.1f}{most} turns")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("globs", nargs="+")
    options = parser.parse_args()
    runs = collect(options.runs)
    heads = ["task", *(f"{model}, capped" if capped else model for model, capped in COLUMNS)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    listed = {task.id: task for glob in options.globs for task in registry.tasks(glob)}
    for task in listed.values():
        print(row(task, runs))


if __name__ == "__main__":
    main()
