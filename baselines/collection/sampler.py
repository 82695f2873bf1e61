"""Which games are played: by each update, for the demonstrations, and to measure.

Games and dice are addressed by the number of the update (or of the lane), never drawn from a stream that a kill would cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from baselines.recipe import Recipe
from envsuite import registry
from envsuite.errors import MissingData
from envsuite.types import Task, knobs_json
from harness.evaluate import RunConfig
from harness.types import Episode


class Games:
    """The games of a recipe's tasks. `rung` is the last of its tasks that is played (`advance_at` makes them a ladder)."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.configs = [self._config(task) for pattern in recipe.tasks for task in registry.tasks(pattern)]

    def _config(self, task: Task) -> RunConfig:
        knobs = registry.overrides(task, dict(self.recipe.knobs))
        return RunConfig(task, self.recipe.algorithm, knobs, reward_mode=self.recipe.reward_mode)

    def drawn(self, update: int, rung: int) -> list[Episode]:
        """The episodes of an update: groups of one game each, every attempt with dice of its own."""
        recipe = self.recipe
        size = int(getattr(recipe.config, "group_size", 1))
        rng = np.random.default_rng([recipe.seed, update])
        found = []
        for group in range(recipe.episodes // size):
            config = self.configs[int(rng.integers(rung + 1))]
            seeds = self._seeds(config)
            seed = seeds[int(rng.integers(len(seeds)))]
            first = (update * recipe.episodes) + group * size
            found += [Episode(config.task, knobs_json(config.knobs), seed, first + k) for k in range(size)]
        return found

    def following(self, lane: int, number: int, rung: int) -> Episode:
        """The `number`-th game of a lane."""
        rng = np.random.default_rng([self.recipe.seed, lane, number])
        config = self.configs[int(rng.integers(rung + 1))]
        seeds = self._seeds(config)
        attempt = number * self.recipe.episodes + lane
        return Episode(config.task, knobs_json(config.knobs), seeds[int(rng.integers(len(seeds)))], attempt)

    def shown(self, episodes: int) -> list[tuple[RunConfig, list[Episode]]]:
        """At least so many games for the expert to show, alike from each task: the first that are trained on."""
        return [(config, _games(config, self._seeds(config)[: self._share(episodes)])) for config in self.configs]

    def measured(self) -> list[tuple[RunConfig, list[Episode]]]:
        """What each measurement plays, alike from each task."""
        share = self._share(self.recipe.eval_episodes)
        return [(config, _games(config, span[:share])) for config, span, _ in map(self._held_out, self.configs)]

    @property
    def held_out(self) -> bool:
        """Whether all that is measured on are games that are not trained on."""
        return all(apart for *_, apart in map(self._held_out, self.configs))

    def _share(self, episodes: int) -> int:
        return -(-episodes // len(self.configs))

    def _seeds(self, config: RunConfig) -> Sequence[int]:
        panel = config.panel
        splits = config.task.splits
        span: Sequence[int] = range(len(panel)) if panel else splits.get("train", next(iter(splits.values())))
        return span[: self.recipe.train_seeds] if self.recipe.train_seeds else span

    def _held_out(self, config: RunConfig) -> tuple[RunConfig, Sequence[int], bool]:
        """The games a task is measured on, and whether none of them is trained on.

        Of a panel: another split's, the last one named that is on this machine; else those beyond `train_seeds`; else there
        are none but its own.
        """
        if not config.panel:
            return config, config.task.splits[registry.default_split(config.task)], True
        for name in reversed([name for name in config.task.split_ids.values() if name != config.task.id]):
            other = self._config(registry.TASKS[name])
            with contextlib.suppress(MissingData):
                if other.panel:
                    return other, range(len(other.panel)), True
        beyond = range(len(config.panel))[self.recipe.train_seeds :] if self.recipe.train_seeds else range(0)
        return (config, beyond, True) if beyond else (config, self._seeds(config), False)


def _games(config: RunConfig, seeds: Sequence[int]) -> list[Episode]:
    return [Episode(config.task, knobs_json(config.knobs), seed) for seed in seeds]
