"""Runs the training runs of a study: settings x seeds of one recipe, in one process, with one file
of records.

    python -m baselines.studies.run food-preparation --vary algorithm=poad,ntpo,twosome --seeds 10
    python -m baselines.studies.run leaderboards/training/*        # the missing runs of these folders' plans

A run that is in the records is not run again, so that the command continues where it was stopped; nor
is one that another process on this machine is running, so that several may share a plan.
With `--minutes` no run begins after that time; `baselines.studies.curves` lists the missing runs as
not run.
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
from envsuite.cache import write_atomically
from envsuite.errors import UsageError
from envsuite.escaping import public_url
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
    parser.add_argument(
        "recipe", nargs="+", help="a TOML file, or the name of a recipe in baselines/recipes; or folders with plans"
    )
    parser.add_argument("--vary", metavar="KEY=A,B", help="the setting to compare, and its values")
    parser.add_argument("--title", default="", help="title of the study's page")
    parser.add_argument("--seeds", type=int, help="number of seeds of each value, from 0 (5)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all runs")
    parser.add_argument("-o", "--output-dir", type=Path, default=None, help="default: leaderboards/training/RECIPE")
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
    plans = _plans(args)
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
            folder.mkdir(parents=True, exist_ok=True)
            if args.vary is not None:
                write_atomically(folder / "plan.json", json.dumps(plan, indent=2) + "\n")
            if not run(folder, plan, deadline, train, args.keep):
                print(f"{args.minutes:g} minutes are over: the remaining runs were not run")
                break
    finally:
        environments.close()
    return 0


def _plans(args: argparse.Namespace) -> list[Plan]:
    """Returns the plans of the named folders, or one made from the arguments. Raises UsageError for
    a mixture."""
    if args.seeds is not None and args.seeds < 1:
        raise UsageError(f"--seeds cannot be {args.seeds}: it is at least 1.")
    if args.vary is None:
        if missing := [word for word in args.recipe if not Path(word).exists()]:
            raise UsageError(f"{missing[0]} is no folder with a plan.json: name folders of studies, or give --vary.")
        plans = [(Path(word), plan_of(Path(word))) for word in args.recipe if Path(word, "plan.json").exists()]
        if not plans:
            raise UsageError("Say what is compared, --vary KEY=A,B, or name folders that hold a plan.json.")
        if args.set or args.seeds or args.title or args.output_dir:
            raise UsageError("A plan states the settings and the number of seeds: change plan.json, or use --vary.")
        return plans
    key, equals, values = args.vary.partition("=")
    if not equals or not values or len(args.recipe) > 1:
        raise UsageError(f"--vary takes KEY=A,B and one recipe, not {args.vary!r} and {' '.join(args.recipe)}.")
    folder = args.output_dir or Path("leaderboards/training") / recipes.find(args.recipe[0]).stem
    if (folder / "plan.json").exists():
        stored = plan_of(folder)
        if (stored["recipe"], stored["vary"]) != (args.recipe[0], key):
            raise UsageError(
                f"{folder} holds the study of {stored['vary']} with {stored['recipe']}: choose another --output-dir."
            )
    plan: dict[str, Any] = {
        "title": args.title,
        "recipe": args.recipe[0],
        "vary": key,
        "variants": values.split(","),
        "seeds": args.seeds or 5,
        "set": recipes.settings(args.set),
    }
    if (folder / "plan.json").exists() and (lost := sorted(stored.keys() - plan.keys())):
        raise UsageError(
            f"The plan in {folder} has {', '.join(lost)}, which --vary would remove: change plan.json and "
            "name the folder."
        )
    for url in (*plan["set"].values(), *plan["variants"]):
        if "://" in url and public_url(url) != url:
            raise UsageError(
                f"A plan is stored, and {public_url(url)!r} is given with a password or query: name the variable that "
                "holds the servers' key, generation.api_key_var."
            )
    return [(folder, plan)]


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
