"""Runs the training runs that the plans of studies still lack, and makes the models that they begin with.

    python -m baselines.studies.run leaderboards/training/*

A run that is in the records is not run again, so that the command continues where it was stopped; nor
is one that another process on this machine is running, so that several may share a plan.
With `--minutes` no run begins after that time.
"""

from __future__ import annotations

import argparse
import contextlib
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

import filelock

from baselines import recipe as recipes
from baselines.studies import starts
from envsuite.errors import UsageError
from harness import cli
from harness.suites.training_studies import append, cells, lock, plan_of, seeds, stored_runs

if TYPE_CHECKING:
    from baselines.collection.env_cache import EnvCache

Train = Callable[..., dict[str, Any]]
Plan = tuple[Path, dict[str, Any]]
"""A study's folder and the content of its plan.json."""

RECORDED = (
    *("update", "env_steps", "reward", "success", "turns", "kl", "entropy", "explained_variance", "skipped"),
    "policy_steps",
)
"""Numbers of an update that the records keep."""
DIGITS = 6
"""Significant digits that they keep of each."""


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    parser = cli.CliParser(prog="python -m baselines.studies.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", nargs="+", type=Path, help="a folder with a plan.json; folders without are skipped")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no run after this time; 0: no limit")
    parser.add_argument("--max-concurrent", type=int, default=64, help="episodes played at once (64)")
    parser.add_argument(
        "--keep", type=Path, default=None, metavar="DIR", help="keep the models, as DIR/STUDY-VALUE-SEED"
    )
    parser.add_argument("--module", action="append", default=[], help="import this module first")
    parser.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits."""
    cli.run(_main, argv, "the same command")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    plans = _plans(args.study)
    for folder, plan in plans:  # report a fault before anything runs
        stored_runs(folder, plan)
        for cell in cells(plan):
            recipes.load(recipes.find(plan["recipe"]), cell.settings)
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    from baselines.collection.env_cache import EnvCache

    environments = EnvCache()
    train = functools.partial(one_run, environments=environments, max_concurrent=args.max_concurrent)
    try:
        for folder, plan in plans:
            if not run(folder, plan, deadline, train, args.keep):
                print(f"{args.minutes:g} minutes are over: the remaining runs were not run")
                break
    finally:
        environments.close()
    return 0


def _plans(folders: Sequence[Path]) -> list[Plan]:
    """Returns the plans of the named folders. Raises UsageError if one does not exist, or if none has a plan."""
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise UsageError(f"{missing[0]} is no folder with a plan.json.")
    plans = [(folder, plan_of(folder)) for folder in folders if (folder / "plan.json").exists()]
    if not plans:
        raise UsageError("No folder holds a plan.json: copy one from leaderboards/training and change it.")
    return plans


def run(folder: Path, plan: dict[str, Any], deadline: float, train: Train, keep: Path | None = None) -> bool:
    """Runs what the plan still lacks and returns False if the time was over before; begins nothing after
    `deadline` (time.monotonic). Leaves out what other processes are running.

    `train` is `one_run` with its environments; `keep` is a folder for the trained models, which are
    deleted without it.
    """

    def done() -> set[tuple[str, int]]:
        return {(record["variant"], record["seed"]) for record in stored_runs(folder, plan)}

    for seed in seeds(plan):  # seed by seed, so that the runs done by the deadline are comparable
        for cell in cells(plan):
            if (cell.variant, seed) in done():
                continue
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(filelock.Timeout), lock(folder, f"{cell.variant} {seed}").acquire(timeout=0):
                if (cell.variant, seed) in done():  # another process has finished it just now
                    continue
                model = keep / f"{folder.name}-{cell.variant.replace(' ', '-')}-{seed}" if keep else None
                settings = {**cell.settings, "seed": str(seed)}
                record = train(recipes.find(plan["recipe"]), settings, cell.variant, model)
                append(folder / "runs.jsonl", {**record, "settings": cell.settings})
                success, seconds = record["updates"][-1]["success"], record["cpu_seconds"]
                print(f"{cell.variant}  seed {seed}: success {success:.2f} after {seconds:.0f} s", flush=True)
    planned = {(cell.variant, seed) for seed in seeds(plan) for cell in cells(plan)}
    if others := len(planned - done()):
        print(f"{folder}: {others} of {len(planned)} runs are still run by other processes; repeat the command later")
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
    """Trains once in a temporary folder and returns the record; `model` is a folder for the trained
    model."""
    import torch

    from baselines.train import TrainingRun
    from harness.evaluate import Execution

    recipe = recipes.load(path, overrides)
    starts.make(recipe.model.name, max_concurrent)
    work = Path(tempfile.mkdtemp(prefix="study."))
    began, cpu = time.monotonic(), time.process_time()
    try:
        execution = Execution(max_concurrent=max_concurrent)
        TrainingRun(recipe, work / "run", execution=execution, environments=environments).train()
        lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
        if model:
            shutil.copytree(work / "run" / "model", model, dirs_exist_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    evaluations = [
        {name: line[name] for name in ("update", "n", "success")} for line in lines if line["kind"] == "eval"
    ]
    return {
        "variant": variant,
        "seed": recipe.seed,
        "algorithm": recipe.algorithm,
        "task": ", ".join(recipe.tasks),
        "evals": evaluations,
        "updates": _recorded(lines, path.stem),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "wall_seconds": round(time.monotonic() - began, 1),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "host": platform.machine(),
    }


def _recorded(lines: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Returns the updates with their cumulative environment steps; raises UsageError if none held
    the end of an episode."""
    steps, updates = 0, []
    for line in lines:
        if line["kind"] != "update":
            continue
        steps += line["env_steps"]
        if "success" in line:  # a batch of fixed turns may hold no end of an episode
            numbers = {key: _rounded(line[key]) for key in RECORDED if key in line}
            updates.append(numbers | {"env_steps": steps})
    if not updates:
        raise UsageError(f"{name}: no update held the end of an episode, so there is no success: raise `turns`.")
    return updates


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.{DIGITS}g}")


if __name__ == "__main__":
    main()
