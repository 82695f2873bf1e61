"""Several runs of one recipe side by side: settings x seeds, one process, one file of records.

    python -m baselines.studies.run food-preparation --vary algorithm=poad,ntpo,twosome --seeds 10
    python -m baselines.studies.run leaderboards/training/*        # what the plans of these folders still lack

A run that is in the records is not run again, so that the command goes on where it was stopped. With `--minutes` no run is
begun after so long: what is missing then is written by `baselines.studies.curves` as not run.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines import recipe as recipes
from envsuite.errors import UsageError
from harness import cli
from harness.suites.training_studies import append, plan_of, read

if TYPE_CHECKING:
    from baselines.collection.env_cache import EnvCache

Train = Callable[..., dict[str, Any]]

KEPT = ("update", "env_steps", "reward", "success", "turns", "kl", "entropy", "explained_variance", "skipped")
"""of a training line, what curves and their reading need"""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m baselines.studies.run", description=(__doc__ or "").splitlines()[0])
    found.add_argument(
        "recipe", nargs="+", help="a TOML file, or the name of one in baselines/recipes; or folders with plans"
    )
    found.add_argument("--vary", metavar="KEY=A,B", help="the setting that is compared, and its values")
    found.add_argument("--title", default="", help="of the page")
    found.add_argument("--seeds", type=int, help="seeds 0 to N - 1 of each (5)")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs")
    found.add_argument("-o", "--output-dir", type=Path, default=None, help="default: leaderboards/training/RECIPE")
    found.add_argument("--minutes", type=float, default=0.0, help="begin no run after so long; 0: no limit")
    found.add_argument("--max-concurrent", type=int, default=64, help="so many episodes are played at once (64)")
    found.add_argument(
        "--keep", type=Path, default=None, metavar="DIR", help="leave the models here too, as DIR/STUDY-VALUE-SEED"
    )
    found.add_argument("--module", action="append", default=[])
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "the same command")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    if args.vary is None:
        plans = [(Path(word), plan_of(Path(word))) for word in args.recipe if Path(word, "plan.json").exists()]
        if not plans:
            raise UsageError("Say what is compared, --vary KEY=A,B, or name folders that hold a plan.json.")
        if args.set or args.seeds or args.title or args.output_dir:
            raise UsageError("A plan says what is set and how many seeds: change plan.json, or say --vary.")
    else:
        key, equals, values = args.vary.partition("=")
        if not equals or not values or len(args.recipe) > 1:
            raise UsageError(f"--vary takes KEY=A,B and one recipe, not {args.vary!r} and {' '.join(args.recipe)}.")
        path = recipes.find(args.recipe[0])
        folder = args.output_dir or Path("leaderboards/training") / path.stem
        plan = {"title": args.title, "recipe": args.recipe[0], "vary": key, "variants": values.split(","),
                "seeds": args.seeds or 5, "set": recipes.settings(args.set)}  # fmt: skip
        plans = [(folder, plan)]
    for _, plan in plans:  # a fault is said before anything is run
        for value in plan["variants"]:
            recipes.load(recipes.find(plan["recipe"]), {**plan["set"], plan["vary"]: value})
    until = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    from baselines.collection.env_cache import EnvCache

    environments = EnvCache()
    try:
        for folder, plan in plans:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plan.json").write_text(json.dumps(plan, indent=2) + "\n")
            one = functools.partial(one_run, environments=environments, max_concurrent=args.max_concurrent)
            if not run(folder, plan, until, one, args.keep):
                print(f"{args.minutes:g} minutes are over: the rest was not run")
                break
    finally:
        environments.close()
    return 0


def run(folder: Path, plan: dict[str, Any], until: float, train: Train, keep: Path | None = None) -> bool:
    """Runs what the plan still lacks, beginning nothing after `until` (time.monotonic); whether all was run.

    `train`: `one_run`, told where environments live; `keep`: a folder for the trained models, which are else thrown away.
    """
    records, key = folder / "runs.jsonl", plan["vary"]
    have = {(one["variant"], one["seed"]) for one in read(records)}
    for seed in range(plan["seeds"]):  # seed by seed, so that what there is when time is up is comparable
        for value in plan["variants"]:
            if (value, seed) in have:
                continue
            if time.monotonic() > until:
                return False
            model = keep / f"{folder.name}-{value}-{seed}" if keep else None
            found = train(recipes.find(plan["recipe"]), {**plan["set"], key: value, "seed": str(seed)}, value, model)
            append(records, found)
            won = found["updates"][-1]["success"]
            print(f"{key} = {value}  seed {seed}: success {won:.2f} after {found['cpu_seconds']:.0f} s", flush=True)
    return True


def one_run(
    path: Path,
    overrides: dict[str, str],
    variant: str,
    model: Path | None = None,
    *,
    environments: EnvCache,
    max_concurrent: int,
) -> dict[str, Any]:
    """Trains once in a folder that is thrown away, but for its `model`; returns what is kept of it."""
    import torch

    from baselines.train import Run
    from harness.evaluate import Execution

    recipe = recipes.load(path, overrides)
    work = Path(tempfile.mkdtemp(prefix="study."))
    began, cpu = time.monotonic(), time.process_time()
    try:
        execution = Execution(max_concurrent=max_concurrent)
        Run(recipe, work / "run", execution=execution, environments=environments).train()
        lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
        if model:
            shutil.copytree(work / "run" / "model", model, dirs_exist_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    steps, updates = 0, []
    for line in lines:
        if line["kind"] == "update":
            steps += line["env_steps"]
            if "success" in line:  # a batch of so many turns may hold no end
                updates.append({name: line[name] for name in KEPT if name in line} | {"env_steps": steps})
    if not updates:
        raise UsageError(f"{path.stem}: no update held the end of an episode, so there is no success: raise `turns`.")
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


if __name__ == "__main__":
    main()
