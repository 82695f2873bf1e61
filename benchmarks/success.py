"""A markdown table of success from finished runs: python -m benchmarks.success RUNS GLOB [GLOB ...]

Rows are tasks, in the order of the globs; columns the players whose runs lie under RUNS (`envsuite-eval -o RUNS`), those with
`--max-turns` apart from those that play to each game's own end. Numbers are read from the runs' records with the harness's own
summary: Wilson 95 % intervals; 'not run' where nothing was played.
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
"""(model, whether with --max-turns)"""

Run = tuple[list[Record], int | None]
"""records, and the --max-turns they were played with"""


def collect(runs: Path) -> dict[tuple[str, str, bool], Run]:
    """(task, model, whether capped): its run, the one with the most records."""
    found: dict[tuple[str, str, bool], Run] = {}
    for file in sorted(runs.rglob("results.jsonl")):
        task, model = file.parent.parent.name.split("--", 1)
        cap = json.loads((file.parent / "config.json").read_text())["max_turns"]
        records = [json.loads(line) for line in file.read_text().splitlines()]
        key = task, model, cap is not None
        if key not in found or len(records) > len(found[key][0]):
            found[key] = records, cap
    return found


def row(task: Task, found: dict[tuple[str, str, bool], Run]) -> str:
    cells = [task.id]
    for model, capped in COLUMNS:
        records, cap = found.get((task.id, model, capped), ([], None))
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
    found = collect(options.runs)
    heads = ["task", *(f"{model}, capped" if capped else model for model, capped in COLUMNS)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    listed = {task.id: task for glob in options.globs for task in registry.tasks(glob)}
    for task in listed.values():
        print(row(task, found))


if __name__ == "__main__":
    main()
