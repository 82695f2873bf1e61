"""Adapter of any task to tinker-cookbook's reinforcement learning: `Env`, `EnvGroupBuilder` and `RLDataset`.

    from harness.interop.tinker import dataset_builder
    train.Config(dataset_builder=dataset_builder("BabyAI-goto-v0", MODEL, RENDERER, batches=50), ...)

A group plays one game. Each prompt is rendered by tinker-cookbook from the conversation so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from envsuite.errors import UsageError
from harness.interop.chat_game import ChatGame, open_row, rows


class TinkerGame:
    """Game in the interface of `tinker_cookbook.rl.types.Env`: prompts and replies are tokens."""

    def __init__(self, game: ChatGame, seed: int, attempt: int, renderer: Any) -> None:
        self._game, self._seed, self._attempt, self._renderer = game, seed, attempt, renderer
        self._chat: list[Any] = []

    async def initial_observation(self) -> tuple[Any, Any]:
        """Starts the game; returns the tokens of its first prompt and what ends a reply. Raises EngineFailure."""
        self._chat = await asyncio.to_thread(self._game.begin, self._seed, self._attempt)
        return self._prompt(), self._renderer.get_stop_sequences()

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        """Carries out a reply. Raises EngineFailure, so that tinker-cookbook's strategies retry or drop the episode."""
        from tinker_cookbook.rl.types import StepResult

        return StepResult(**await self.play(action, extra))

    async def play(self, action: list[int], extra: dict[str, Any] | None) -> dict[str, Any]:
        """Carries out a reply; returns the fields of a `StepResult`. A reply that was cut off costs a turn."""
        game = self._game
        cut_off = (extra or {}).get("stop_reason") == "length"
        reward = await asyncio.to_thread(game.reply, self._text(action), "length" if cut_off else "stop")
        self._chat.append(self._renderer.parse_response(action)[0])
        metrics = {}
        if game.done:
            metrics = {**game.metrics(), f"stop/{game.run.stop_reason}": 1.0}
        else:
            self._chat.append(game.messages[-1])
        return {
            "reward": reward,
            "episode_done": game.done,
            "next_observation": self._prompt(),
            "next_stop_condition": self._renderer.get_stop_sequences(),
            "metrics": metrics,
        }

    def close(self) -> None:
        self._game.close()

    def _prompt(self) -> Any:
        return self._renderer.build_generation_prompt(self._chat)

    def _text(self, action: list[int]) -> str:
        """Returns the text of a reply without what ended it."""
        stops = self._renderer.get_stop_sequences()
        ids = action[:-1] if action and action[-1] in stops else action
        text = str(self._renderer.tokenizer.decode(ids, skip_special_tokens=True))
        for stop in stops:
            text = text.removesuffix(stop) if isinstance(stop, str) else text
        return text


@dataclass
class TinkerGroup:
    """Attempts at one game, in the interface of `EnvGroupBuilder`; it can be pickled before its environments open."""

    game: str
    """column `game` of a row of `harness.interop.chat_game.rows`"""
    size: int
    renderer: Any
    tag: str = "envsuite"
    _games: list[TinkerGame] = field(default_factory=list)

    async def make_envs(self) -> Sequence[TinkerGame]:
        for attempt in range(self.size):
            game, seed = open_row("tinker", self.game)
            self._games.append(TinkerGame(game, seed, attempt, self.renderer))
        return self._games[-self.size :]

    async def compute_group_rewards(
        self, trajectory_group: Any, env_group: Any
    ) -> list[tuple[float, dict[str, float]]]:
        """Returns no additional reward: that of an episode is the sum of its turns' rewards."""
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """Closes the environments."""
        while self._games:
            await asyncio.to_thread(self._games.pop().close)

    def logging_tags(self) -> list[str]:
        return [self.tag]


@dataclass
class TinkerDataset:
    """Batches of groups, in the interface of `RLDataset`."""

    games: list[dict[str, Any]]
    batch_size: int
    group_size: int
    renderer: Any

    def get_batch(self, index: int) -> list[TinkerGroup]:
        rows_of_batch = self.games[index * self.batch_size : (index + 1) * self.batch_size]
        return [TinkerGroup(row["game"], self.group_size, self.renderer, row["data_source"]) for row in rows_of_batch]

    def __len__(self) -> int:
        return len(self.games) // self.batch_size


def dataset_builder(
    env: str,
    model: str,
    renderer: str,
    batches: int,
    batch_size: int = 16,
    group_size: int = 8,
    split: str = "train",
    test_games: int = 0,
    **flags: Any,
) -> Any:
    """Returns the `dataset_builder` of a training run; `flags` are settings of `chat_game.FLAGS`.

    `model` names the tokenizer. With `test_games`, the games of the split `test` are played in evaluations. Raises
    UsageError, BadKnob.
    """
    import chz
    from tinker_cookbook import renderers
    from tinker_cookbook.rl import types
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    for name, number in (("batches", batches), ("batch_size", batch_size), ("group_size", group_size)):
        if number < 1:
            raise UsageError(f"{name} must be at least 1, not {number}.")
    types.Env.register(TinkerGame)
    types.EnvGroupBuilder.register(TinkerGroup)
    types.RLDataset.register(TinkerDataset)
    games = rows(env, split, batches * batch_size, **flags)
    test = rows(env, "test", test_games, **flags) if test_games else []

    @chz.chz
    class TinkerDatasetBuilder(types.RLDatasetBuilder):
        env: str
        model: str
        renderer: str
        batch_size: int
        group_size: int

        async def __call__(self) -> tuple[Any, Any]:
            made = renderers.get_renderer(self.renderer, tokenizer=get_tokenizer(self.model))
            train = TinkerDataset(games, self.batch_size, self.group_size, made)
            return train, TinkerDataset(test, len(test), 1, made) if test else None

    return TinkerDatasetBuilder(env=env, model=model, renderer=renderer, batch_size=batch_size, group_size=group_size)
