"""Makes the models that studies begin with, as `starts.toml` describes them."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

from baselines import recipe as recipes
from baselines.studies import tiny_model

STARTS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""For each folder either a tiny model's settings, or the recipe that trains it and its changed settings."""


def make(folder: str, max_concurrent: int) -> None:
    """Makes the model of a folder, after the model that it begins with; does nothing if it exists or is not a start."""
    if folder not in STARTS or Path(folder).exists():
        return
    start = STARTS[folder]
    if "env" in start:
        settings = {"episodes": 30, "seed": 0, **start}
        corpus = itertools.islice(tiny_model.texts([settings["env"]], settings["episodes"]), tiny_model.MOST_TEXTS)
        tiny_model.make(
            Path(folder), corpus, settings["size"], settings["vocabulary"], settings["context"], settings["seed"]
        )
        return
    from baselines.train import TrainingRun
    from harness.evaluate import Execution

    recipe = recipes.load(recipes.find(start["recipe"]), start.get("set"))
    make(recipe.model.name, max_concurrent)
    output = Path(folder).parent
    print(f"{output}: trains the start", flush=True)
    resume = (output / "checkpoint.pt").exists()
    TrainingRun(recipe, output, resume, execution=Execution(max_concurrent=max_concurrent)).train()
