"""Several runs of one recipe side by side: settings x seeds, one process, one file of records.

    python -m baselines.study virtualhome-food-preparation --vary algorithm=poad,ntpo,twosome --seeds 10

A run that is in the records is not run again, so that the command goes on where it was stopped. With `--minutes` no run is
begun after so long: what is missing then is written by `baselines.curves` as not run.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baselines import recipe as recipes
from envsuite.errors import UsageError
from harness import cli

KEPT = ("update", "env_steps", "reward", "success", "turns", "kl", "entropy", "explained_variance", "skipped")
"""of a training line, what curves and their reading need"""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m baselines.study", description=(__doc__ or "").splitlines()[0])
    found.add_argument("recipe", help="a TOML file, or the name of one in baselines/recipes")
    found.add_argument("--vary", required=True, metavar="KEY=A,B", help="the setting that is compared, and its values")
    found.add_argument("--seeds", type=int, default=5, help="seeds 0 to N - 1 of each")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs")
    found.add_argument("-o", "--output-dir", type=Path, default=None, help="default: leaderboards/training/RECIPE")
    found.add_argument("--minutes", type=float, default=0.0, help="begin no run after so long; 0: no limit")
    found.add_argument("--module", action="append", default=[])
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    key, equals, values = args.vary.partition("=")
    if not equals or not values:
        raise UsageError(f"--vary takes KEY=A,B, not {args.vary!r}.")
    path = recipes.find(args.recipe)
    fixed = recipes.settings(args.set)
    variants = values.split(",")
    folder = args.output_dir or Path("leaderboards/training") / path.stem
    for value in variants:  # a fault is said before anything is run
        recipes.load(path, {**fixed, key: value})
    folder.mkdir(parents=True, exist_ok=True)
    records = folder / "runs.jsonl"
    have = {(one["variant"], one["seed"]) for one in read(records)}
    plan = {"recipe": path.stem, "vary": key, "variants": variants, "seeds": args.seeds, "set": fixed}
    (folder / "plan.json").write_text(json.dumps(plan, indent=2) + "\n")
    began = time.monotonic()
    for seed in range(args.seeds):  # seed by seed, so that what there is when time is up is comparable
        for value in variants:
            if (value, seed) in have:
                continue
            if args.minutes and time.monotonic() - began > 60 * args.minutes:
                print(f"{args.minutes:g} minutes are over: the rest was not run")
                return 0
            found = one_run(path, {**fixed, key: value, "seed": str(seed)}, value)
            with records.open("a") as file:
                file.write(json.dumps(found) + "\n")
            last = found["updates"][-1]
            print(
                f"{key} = {value}  seed {seed}: success {last['success']:.2f} after {found['cpu_seconds']:.0f} s",
                flush=True,
            )
    return 0


def one_run(path: Path, overrides: dict[str, str], variant: str) -> dict[str, Any]:
    """Trains once in a folder that is thrown away; returns what is kept of it."""
    import torch

    from baselines.train import Run

    recipe = recipes.load(path, overrides)
    work = Path(tempfile.mkdtemp(prefix="study."))
    began, cpu = time.monotonic(), time.process_time()
    try:
        Run(recipe, work / "run").train()
        lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    steps, updates = 0, []
    for line in lines:
        if line["kind"] == "update":
            steps += line["env_steps"]
            updates.append({name: line[name] for name in KEPT if name in line} | {"env_steps": steps})
    return {
        "variant": variant,
        "seed": recipe.seed,
        "algorithm": recipe.algorithm,
        "task": ", ".join(recipe.tasks),
        "evals": [
            {name: line[name] for name in ("update", "n", "success")} for line in lines if line["kind"] == "eval"
        ],
        "updates": updates,
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "wall_seconds": round(time.monotonic() - began, 1),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "host": platform.machine(),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a study; a last line that a crash cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


if __name__ == "__main__":
    main()
