"""The batch environment that `AlfredTWEnv.init_env` returns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from envsuite.compat.alfworld.experts import HandcodedExpert, planner_plan
from envsuite.envs.alfworld.engine import AlfworldGame, NativeEngine
from envsuite.errors import UsageError

CACHED_GAMES = 4_096

Infos = dict[str, list[Any]]


class AlfworldBatchEnv:
    """Plays `batch_size` games at once, in the interface of textworld's batch environment.

    Games are played in shuffled order, each once per epoch. A finished game repeats its last result
    until all games are reset together. Results are tuples over games, and infos lists over games:
    `won`, `admissible_commands`, `extra.gamefile` (None except after reset) and, with an expert,
    `extra.expert_plan` (and `policy_commands` for the planner).

    Domain randomization and the handcoded expert draw from Python's global generator, so that
    `random.seed` reproduces them. The stock environment does so only for one game: for more, it
    forks processes, whose generators the operating system seeds. The list `facts`, which the stock
    environment adds for the handcoded expert, does not exist here.
    """

    def __init__(
        self,
        game_files: Sequence[str],
        batch_size: int,
        max_episode_steps: int = 50,
        expert_type: str = "",
        domain_randomization: bool = False,
    ) -> None:
        if not game_files:
            raise UsageError("There are no games to play: `game_files` is empty.")
        self.game_files = game_files
        self.batch_size = batch_size
        self.max_episode_steps = max_episode_steps
        self.expert_type = expert_type
        self.domain_randomization = domain_randomization
        self._slots = [_Slot(self) for _ in range(batch_size)]
        self.seed(1234)

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Restarts the order of games with a seed, and returns it in a list."""
        rng = np.random.RandomState(seed)
        order = list(self.game_files)
        rng.shuffle(order)
        self._order = _epochs(order, rng)
        return [seed]

    def skip(self, nb_games: int = 1) -> None:
        """Skips the next games in the order."""
        for _ in range(nb_games):
            next(self._order)

    def reset(self) -> tuple[tuple[str, ...], Infos]:
        """Starts the next `batch_size` games; returns (observations, infos)."""
        files = [next(self._order) for _ in range(self.batch_size)]
        results = [slot.reset(file) for slot, file in zip(self._slots, files, strict=True)]
        return tuple(text for text, _ in results), _by_key([info for _, info in results])

    def step(self, commands: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...], tuple[bool, ...], Infos]:
        """Executes one command per game; returns (observations, scores, dones, infos)."""
        if isinstance(commands, str) or not isinstance(commands, Sequence) or len(commands) != self.batch_size:
            raise UsageError(f"step() needs a list of {self.batch_size} commands, not {commands!r}.")
        results = [slot.step(command) for slot, command in zip(self._slots, commands, strict=True)]
        texts, scores, dones, infos = zip(*results, strict=True)
        return texts, scores, dones, _by_key(infos)

    def close(self) -> None:
        """Does nothing: there are no processes to end."""


class _Slot:
    """One game of the batch."""

    def __init__(self, batch: AlfworldBatchEnv) -> None:
        self.batch = batch
        self.expert: HandcodedExpert | None = None

    def reset(self, file: str) -> tuple[str, dict[str, Any]]:
        """Loads a game and returns its first observation and info."""
        if self.batch.domain_randomization:
            game = AlfworldGame.load(file, random.shuffle)
        else:
            game = _load(file)
        self.engine = NativeEngine(game)
        self.turn = 0
        self.last: tuple[str, int, bool, dict[str, Any]] | None = None
        plan = ["look"]
        if self.batch.expert_type == "handcoded":
            self.expert = HandcodedExpert()
            plan = self.expert.reset(file, self.engine)
        elif self.batch.expert_type == "planner":
            plan = planner_plan(self.engine)
        return self.engine.opening, self._info(file, plan)

    def step(self, command: str) -> tuple[str, int, bool, dict[str, Any]]:
        """Executes a command; a finished game repeats its last result."""
        if self.last is not None and self.last[2]:
            return self.last
        engine = self.engine
        text = engine.act(command)
        self.turn += 1
        plan = ["look"]
        if self.expert is not None:
            plan = self.expert.plan(engine, text, command)
        elif self.batch.expert_type == "planner":
            plan = planner_plan(engine)
        done = engine.won or self.turn >= self.batch.max_episode_steps
        self.last = text, int(engine.won), done, self._info(None, plan)
        return self.last

    def _info(self, file: str | None, plan: list[str]) -> dict[str, Any]:
        info: dict[str, Any] = {
            "won": self.engine.won,
            "admissible_commands": list(self.engine.admissible()),
            "extra.gamefile": file,
        }
        if self.batch.expert_type:
            info["extra.expert_plan"] = plan
        if self.batch.expert_type == "planner":
            info["policy_commands"] = plan
        return info


def _epochs(order: list[str], rng: np.random.RandomState) -> Iterator[str]:
    """Yields all games in order, then forever in newly shuffled order."""
    while True:
        yield from order
        rng.shuffle(order)


def _by_key(infos: Sequence[dict[str, Any]]) -> Infos:
    return {key: [info[key] for info in infos] for key in infos[0]}


@lru_cache(maxsize=CACHED_GAMES)
def _load(file: str) -> AlfworldGame:
    return AlfworldGame.load(file)
