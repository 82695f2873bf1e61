"""Thousands of ALFWorld games in one process, behind Gymnasium's vector interface.

    envs = gymnasium.make_vec("envsuite/ALFWorld-train-v0", num_envs=512)
    texts, infos = envs.reset(seed=0)
    texts, rewards, terminated, truncated, infos = envs.step(["look"] * 512)

It answers what `SyncVectorEnv` over the same environments would, keys and masks of `infos` included, without making a
dictionary per game and turn. What `infos` says of every running game on every turn is one array, shared between turns and
read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite.envs.alfworld.books import BatchState
from envsuite.envs.alfworld.engine import NOTHING_HAPPENS
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.types import RewardMode

Step = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class AlfworldVectorEnv(SyncVectorEnv):
    """`num_envs` games at once; `settings` are those of AlfworldEnv, the same for all.

    Each sub-environment (`envs[i]`) is whole: its expert, labels, get_state and the rest can be asked between steps.
    `autoreset_mode` is Gymnasium's: a finished game is reset by the next step (default), the same, or the caller.
    Beyond Gymnasium's interface, None for a command lets a game sit out a turn: nothing of `infos` is then about it.
    """

    takes_none = True
    envs: list[AlfworldEnv]  # type: ignore[assignment]
    _env_obs: list[str]  # type: ignore[assignment]

    def __init__(
        self, num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
    ) -> None:
        first = AlfworldEnv(**settings)
        books = self._books = BatchState(num_envs)
        # What an environment holds before its first reset can be shared, but for the textworld engine.
        another = lambda: copy(first) if first._stock is None else AlfworldEnv(**settings)
        makers = [lambda seat=seat: (first if seat == 0 else another()).seated(books, seat) for seat in range(num_envs)]
        super().__init__(makers, copy=False, autoreset_mode=autoreset_mode)
        self._last = first.settings.max_steps - 1
        self._plain = first._plain
        self._dense = first.reward_mode is RewardMode.DENSE
        self._all = np.ones(num_envs, dtype=bool)
        self._running: dict[str, np.ndarray] = {  # what the info of a running game says whatever happens
            "success": np.zeros(num_envs, dtype=bool),
            "stop_reason": np.full(num_envs, None, dtype=object),
            "primitive_steps": np.ones(num_envs, dtype=int),
            "won": np.zeros(num_envs, dtype=bool),
            "lost": np.zeros(num_envs, dtype=bool),
            "score": np.zeros(num_envs, dtype=int),
        }
        for shared in (self._all, *self._running.values()):
            shared.flags.writeable = False

    def step(self, actions: Sequence[str | None]) -> Step:
        """Does `actions[i]` in game i; a game that is over is reset instead, and its action ignored (NEXT_STEP)."""
        n, envs, books, texts = self.num_envs, self.envs, self._books, self._env_obs
        over = self._over(actions)
        engines = books.engines
        if True in over or None in actions:
            engines = [
                None if new or command is None else engine for new, command, engine in zip(over, actions, books.engines)
            ]
        sitting: list[int] = []
        rewards, terminated, truncated = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        valid = np.ones(n, dtype=bool)
        booked: dict[int, dict[str, Any]] = {}  # game -> info, where that is more than a running game's
        noted: list[int] = []  # games where something may have been found or done
        listed: list[list[str]] = []
        for i, (engine, command, deeds, word) in enumerate(zip(engines, actions, books.deeds, books.sought)):
            if engine is None or command is None:
                listed.append([])
                if over[i]:
                    texts[i], booked[i] = envs[i].reset()
                elif command is None:
                    sitting.append(i)
                else:
                    texts[i], rewards[i], terminated[i], truncated[i], booked[i] = envs[i].step(command)
                continue
            texts[i] = feedback = engine.act(command)
            listed.append(engine.view[0])
            if engine.deeds != deeds or (word is not None and word in feedback):
                noted.append(i)
            if feedback == NOTHING_HAPPENS:
                valid[i] = False
        if booked or sitting:  # what they were told is booked already, or nothing
            books.turns[:] = [turn + (engine is not None) for turn, engine in zip(books.turns, engines)]
            books.log.append(tuple([None if engine is None else said for said, engine in zip(actions, engines)]))
        else:
            books.turns[:] = [turn + 1 for turn in books.turns]
            books.log.append(tuple(actions))
        ending = {i for i, turn in enumerate(books.turns) if turn > self._last and engines[i] is not None}
        for i in noted:
            env = envs[i]
            engine, subgoals = env._native, env._subgoals
            assert engine is not None and subgoals is not None
            if engine.won:
                ending.add(i)
            elif i not in ending:
                gained = subgoals.note(engine, texts[i])
                if gained:
                    env.progression = books.paid[i]
                    if self._dense:
                        rewards[i] = gained
        if not self._plain:
            for i, env in enumerate(envs):
                if engines[i] is not None and i not in ending:
                    texts[i] = env._shown(texts[i], env.turn)
        for i in ending:
            books.turns[i] -= 1
            outcome = envs[i]._outcome(texts[i])
            texts[i], rewards[i], terminated[i], truncated[i], booked[i] = envs[i].settle(outcome)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for i in booked:
                if terminated[i] or truncated[i]:
                    infos = self._add_info(infos, {"final_obs": texts[i], "final_info": booked[i]}, i)
                    texts[i], booked[i] = envs[i].reset()
        columns = {
            "is_action_valid": valid,
            "admissible_commands": np.fromiter(listed, dtype=object, count=n),
            "progression": np.array(books.paid),
            "extra.gamefile": np.fromiter(books.files, dtype=object, count=n),
            "dead_end": np.array(books.lost),
        } | ({key: column.copy() for key, column in self._running.items()} if booked else self._running)
        for i, info in booked.items():
            infos = self._add_info(infos, {key: value for key, value in info.items() if key not in columns}, i)
            for key, column in columns.items():
                column[i] = info[key]
        playing = self._all
        if sitting:
            playing = playing.copy()
            playing[sitting] = False
        for key, column in columns.items():
            infos[key], infos[f"_{key}"] = column, playing
        self._terminations, self._truncations = terminated, truncated
        self._autoreset_envs = terminated | truncated | (self._autoreset_envs & ~playing)
        return tuple(texts), rewards, terminated.copy(), truncated.copy(), infos

    def _over(self, actions: Sequence[str | None]) -> list[bool]:
        """Which games this step resets. Raises what Gymnasium does for commands, or a moment, that will not do."""
        if len(actions) != self.num_envs:
            raise gym.error.InvalidAction(f"{self.num_envs} games take {self.num_envs} commands, not {len(actions)}.")
        over: list[bool] = self._autoreset_envs.tolist()
        if self.autoreset_mode is AutoresetMode.DISABLED:
            early = next((i for i, command in enumerate(actions) if over[i] and command is not None), None)
            if early is not None:
                raise gym.error.ResetNeeded(f"Game {early} is over: reset() with a reset_mask before step().")
        if self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            over = [False] * self.num_envs
        for command, reset in zip(actions, over) if {*map(type, actions)} != {str} else ():
            if not (reset or command is None or isinstance(command, str)):
                raise gym.error.InvalidAction(f"A command is a string, not {type(command).__name__}.")
        return over
