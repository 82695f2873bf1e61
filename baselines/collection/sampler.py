"""The games that a run plays in updates, demonstrations and evaluations.

Games and sampling seeds are addressed by the number of the update (or of the episode stream), never
drawn from a generator whose state a kill would lose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from baselines.recipe import Recipe
from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import MissingData, MissingExtra, UsageError
from envsuite.types import Task, knobs_json
from harness.evaluate import RunConfig
from harness.types import Episode


class EvaluationGames(NamedTuple):
    """The games on which a task is evaluated."""

    config: RunConfig
    seeds: Sequence[int]
    held_out: bool
    """True if none of them is trained on."""


def check_choice(recipe: Recipe) -> None:
    """Raises UsageError if the recipe chooses among commands that one of its tasks does not list.

    Needs no game: `TextEnv.admissible` lists nothing, and such tasks do not replace it.
    """
    if not recipe.acting.scores_commands:
        return
    for task in (task for pattern in recipe.tasks for task in registry.tasks(pattern)):
        with contextlib.suppress(MissingExtra):  # the run itself reports it
            if registry.env_class(task).admissible is TextEnv.admissible:
                raise UsageError(
                    f"acting.choose = {recipe.acting.choose!r} chooses among admissible commands, and {task.id} lists "
                    "none: set acting.choose = 'free'."
                )


class GameSampler:
    """Draws the games of a recipe's tasks. `stage` is the last task played, where the tasks are a
    curriculum, and the only one, where they are a ladder."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.configs = [self._config(task) for pattern in recipe.tasks for task in registry.tasks(pattern)]

    def _config(self, task: Task) -> RunConfig:
        knobs = registry.overrides(task, dict(self.recipe.knobs))
        if (agents := registry.agents(task, knobs)) > 1:
            raise UsageError(
                f"{task.id} with these knobs has a player for each of {agents} agents, and training plays all turns of "
                "an episode with one: set partner = 'policy' or a scripted partner in knobs."
            )
        return RunConfig(task, self.recipe.algorithm, knobs, reward_mode=self.recipe.reward_mode)

    def batch(
        self, update: int, stage: int, factor: int = 1, extra: int = 0, groups: int | None = None
    ) -> list[Episode]:
        """Returns the episodes of an update, or `factor` times as many: groups that play one game each,
        every attempt with its own sampling seed.

        `extra` counts the rollouts of this update before (`collection.resampling`); `groups` is the
        number of groups, by default a whole batch.
        """
        recipe = self.recipe
        size = recipe.config.episodes_per_group
        rollouts = 1 + recipe.config.resampling_rounds
        rng = np.random.default_rng([recipe.seed, update, extra] if extra else [recipe.seed, update])
        episodes = []
        for group in range(factor * recipe.episodes // size if groups is None else groups):
            config, seed = self._draw(rng, stage)
            first = (update * rollouts + extra) * recipe.episodes + group * size
            episodes += [Episode(config.task, knobs_json(config.knobs), seed, first + k) for k in range(size)]
        return episodes

    def stream_episode(self, stream: int, number: int, stage: int) -> Episode:
        """Returns the `number`-th episode of a stream."""
        config, seed = self._draw(np.random.default_rng([self.recipe.seed, stream, number]), stage)
        return Episode(config.task, knobs_json(config.knobs), seed, number * self.recipe.episodes + stream)

    def _draw(self, rng: np.random.Generator, stage: int) -> tuple[RunConfig, int]:
        config = self.configs[stage if self.recipe.success_between else int(rng.integers(stage + 1))]
        seeds = self._training_seeds(config)
        return config, seeds[int(rng.integers(len(seeds)))]

    def demonstrations(self, episodes: int) -> list[tuple[RunConfig, list[Episode]]]:
        """Returns at least that many games for the expert: the same number of each task, from the
        first training seeds."""
        count = self._per_task(episodes)
        return [(config, _episodes(config, self._training_seeds(config)[:count])) for config in self.configs]

    def evaluation(self) -> list[tuple[RunConfig, list[Episode]]]:
        """Returns the games of each evaluation, the same number of each task."""
        count = self._per_task(self.recipe.eval_episodes)
        games = [self._evaluation_games(config) for config in self.configs]
        return [(of_task.config, _episodes(of_task.config, of_task.seeds[:count])) for of_task in games]

    @property
    def held_out(self) -> bool:
        """True if no game of the evaluation is trained on."""
        return all(self._evaluation_games(config).held_out for config in self.configs)

    def _per_task(self, episodes: int) -> int:
        return -(-episodes // len(self.configs))

    def _training_seeds(self, config: RunConfig) -> Sequence[int]:
        panel = config.panel
        splits = config.task.splits
        seeds: Sequence[int] = range(len(panel)) if panel else splits.get("train", next(iter(splits.values())))
        return seeds[: self.recipe.train_seeds] if self.recipe.train_seeds else seeds

    def _evaluation_games(self, config: RunConfig) -> EvaluationGames:
        """Returns the games on which a task is evaluated.

        A task without a panel uses its default split. For a panel it is the last named split whose
        data are installed, else the games beyond `train_seeds`, else the training games themselves.
        """
        if not config.panel:
            return EvaluationGames(config, config.task.splits[registry.default_split(config.task)], True)
        for name in reversed([name for name in config.task.split_ids.values() if name != config.task.id]):
            split = self._config(registry.TASKS[name])
            with contextlib.suppress(MissingData):
                if split.panel:
                    return EvaluationGames(split, range(len(split.panel)), True)
        unused = range(len(config.panel))[self.recipe.train_seeds :] if self.recipe.train_seeds else range(0)
        if unused:
            return EvaluationGames(config, unused, True)
        return EvaluationGames(config, self._training_seeds(config), False)


def _episodes(config: RunConfig, seeds: Sequence[int]) -> list[Episode]:
    return [Episode(config.task, knobs_json(config.knobs), seed) for seed in seeds]
