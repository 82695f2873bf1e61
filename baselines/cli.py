"""envsuite-train: a recipe in, a model out."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import cli

if TYPE_CHECKING:
    from baselines.recipe import Recipe


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-train",
        description="Train a language model on registered tasks. The model it leaves goes into envsuite-eval --model.",
    )
    found.add_argument("recipe", help="a TOML file, or the name of one in baselines/recipes")
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="say config.gamma=0.9; may be repeated"
    )
    found.add_argument("-o", "--output-dir", type=Path, default=None, help="default: runs/train/RECIPE")
    found.add_argument("--resume", action="store_true")
    found.add_argument(
        "--dry-run",
        action="store_true",
        help="check the recipe, estimate memory (under a launcher: of each process), train nothing",
    )
    found.add_argument("--max-concurrent", type=int, default=64, help="so many episodes are played at once (64)")
    cli.add_executor(found)
    found.add_argument(
        "--module", action="append", default=[], help="import this first: it registers environments of yours"
    )
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "--resume")


def _main(argv: Sequence[str] | None) -> int:
    from baselines import recipe as recipes

    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    path = recipes.find(args.recipe)
    recipe = recipes.load(path, recipes.settings(args.set))
    folder = args.output_dir or Path("runs/train") / path.stem
    if args.dry_run:
        from envsuite import registry

        names = [task.id for pattern in recipe.tasks for task in registry.tasks(pattern)]
        header = f"{recipe.algorithm} on {', '.join(names)}: {_plan(recipe)} -> {folder}"
        from baselines import memory

        processes = int(os.environ.get("WORLD_SIZE", "1"))  # under a launcher
        each = f" in each of {processes} processes" if processes > 1 else ""
        parts = memory.estimate(recipe, processes=processes)
        if os.environ.get("RANK", "0") == "0":
            print(f"{header}\nmemory with {recipe.model.name}{each}:\n{memory.table(parts)}")
            if recipe.fsdp and not each:
                print(
                    "fsdp = true cuts the model over several processes: ask as they will be started (torchrun ... --dry-run)."
                )
        return 0
    from baselines.distributed import collectives
    from baselines.logging.progress import TrainProgress
    from baselines.train import Run
    from harness.evaluate import Execution

    execution = Execution(max_concurrent=args.max_concurrent, executor=args.executor, ray_address=args.ray_address)
    began = time.monotonic()
    collectives.join()
    speaks = collectives.first()
    try:
        with TrainProgress(cli.console(), path.stem, None if recipe.budget else recipe.updates) as progress:
            run = Run(recipe, folder, args.resume, progress, execution)
            success = run.train()
    finally:
        collectives.leave()
    if speaks:
        print(
            f"{folder / 'model'}: success {100 * success:.1f} % on {'held-out games' if run.games.held_out else 'games it trained on'} "
            f"after {time.monotonic() - began:.0f} s"
        )
    return 0


def _plan(recipe: Recipe) -> str:
    """What is done how often, in words."""
    games = recipe.sft.file or f"{recipe.sft.episodes} expert games"
    tuning = f"{recipe.sft.train.epochs} epochs of {games}" if recipe.sft.any else ""
    if recipe.algorithm == "sft":
        return tuning
    batch = f"{recipe.turns} turns of {recipe.episodes} lanes" if recipe.turns else f"{recipe.episodes} episodes"
    spent = (
        f"updates of {batch}, {recipe.budget} units in all" if recipe.budget else f"{recipe.updates} updates of {batch}"
    )
    return f"{tuning}, then {spent}" if tuning else spent


if __name__ == "__main__":
    main()
