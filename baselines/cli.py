"""The command envsuite-train, which trains a model by a recipe."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from envsuite.errors import MissingExtra
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.execution import Execution
from harness.settings import add_flags, named, read

if TYPE_CHECKING:
    from baselines.recipe import Recipe


def parser() -> argparse.ArgumentParser:
    """Returns the command line of envsuite-train."""
    parser = cli.CliParser(
        prog="envsuite-train",
        description="Train a language model on registered tasks, in this process or, with backend=tinker, on Tinker's "
        "service. envsuite-eval --model evaluates the model it writes.",
    )
    parser.add_argument("recipe", help="a TOML file, or the name of a recipe in baselines/recipes")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, such as config.gamma=0.9; may be repeated",
    )
    parser.add_argument("-o", "--output-dir", type=Path, default=None, help="default: runs/train/RECIPE")
    parser.add_argument("--resume", action="store_true", help="continue the run in the output directory")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the recipe and estimate its memory (under a launcher: per process) without training",
    )
    parser.add_argument("--max-concurrent", type=int, default=64, help="episodes played at once (default: 64)")
    add_flags(parser, Execution, ("executor", "ray_address"))
    add_common(parser, "module", "verbose")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits."""
    cli.run(_main, argv, "--resume")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise MissingExtra(
                f"Training needs the package {name!r}, which is not installed: pip install 'envsuite[train]'"
            )
    from baselines import recipe as recipes
    from baselines.networks import tinker_settings

    cli.import_modules(args.module)
    path = recipes.find(args.recipe)
    recipe = recipes.load(path, recipes.settings(args.set))
    folder = args.output_dir or Path("runs/train") / path.stem
    if recipe.backend == "tinker" and not args.dry_run:
        tinker_settings.check_access()
    if args.dry_run:
        _dry_run(recipe, folder)
        return 0
    from baselines.distributed import collectives
    from baselines.logging.progress import TrainProgress
    from baselines.train import TrainingRun

    execution = read(Execution, named(args, Execution))
    began = time.monotonic()
    collectives.join()
    prints = collectives.first()
    try:
        with TrainProgress(cli.console(), path.stem, None if recipe.budget else recipe.updates) as progress:
            run = TrainingRun(recipe, folder, args.resume, progress, execution)
            success = run.train()
    finally:
        collectives.leave()
    if prints:
        games = "held-out games" if run.collector.sampler.held_out else "games it trained on"
        seconds = time.monotonic() - began
        print(f"{folder / 'model'}: success {100 * success:.1f} % on {games} after {seconds:.0f} s")
    return 0


def _dry_run(recipe: Recipe, folder: Path) -> None:
    """Prints what the run would do, and its memory."""
    from baselines.collection.sampler import check_choice
    from baselines.networks import tinker_settings
    from envsuite import registry

    check_choice(recipe)
    names = [task.id for pattern in recipe.tasks for task in registry.tasks(pattern)]
    header = f"{recipe.algorithm} on {', '.join(names)}: {_plan(recipe)} -> {folder}"
    if recipe.backend == "tinker":
        print(f"{header}\nmemory: Tinker's service holds the model {recipe.model.name}; nothing is loaded here")
        for error in tinker_settings.missing_access():
            print(f"missing here: {error}")
        return
    first = os.environ.get("RANK", "0") == "0"
    if first:
        print(header, flush=True)  # the imports below take seconds
    from baselines import memory

    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by a launcher
    per_process = f" in each of {processes} processes" if processes > 1 else ""
    parts = memory.estimate(recipe, processes=processes)
    if first:
        if recipe.trains_policy:
            print(f"acting.choose = {recipe.acting.choose}: {_CHOICES[recipe.acting.choose]}")
        print(f"memory with {recipe.model.name}{per_process}:\n{memory.table(parts)}")
        if recipe.fsdp and not per_process:
            print(
                "fsdp = true shards the model over several processes: estimate under their launcher "
                "(torchrun ... --dry-run)."
            )


_CHOICES = {
    "free": "text, token by token from the whole vocabulary",
    "admissible": "commands, by the likelihoods of the admissible ones",
    "trie": "commands, each token normalised over those that continue an admissible command",
}


def _plan(recipe: Recipe) -> str:
    """Describes the amount of training."""
    games = recipe.sft.file or f"{recipe.sft.episodes} expert games"
    tuning = f"{recipe.sft.train.epochs} epochs of {games}" if recipe.sft.any else ""
    if not recipe.trains_policy:
        return tuning
    batch = f"{recipe.turns} turns of {recipe.episodes} streams" if recipe.turns else f"{recipe.episodes} episodes"
    updates = (
        f"updates of {batch}, {recipe.budget} units in all" if recipe.budget else f"{recipe.updates} updates of {batch}"
    )
    return f"{tuning}, then {updates}" if tuning else updates


if __name__ == "__main__":
    main()
