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

from envsuite.envs.alfworld.engine import NOTHING_HAPPENS
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.types import RewardMode

Step = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class AlfworldVectorEnv(SyncVectorEnv):
    """`num_envs` games at once; `settings` are those of AlfworldEnv, the same for all.

    Each sub-environment (`envs[i]`) is whole: its expert, labels, get_state and the rest can be asked between steps.
    `autoreset_mode` is Gymnasium's: a finished game is reset by the next step (default), the same, or the caller.
    """

    envs: list[AlfworldEnv]  # type: ignore[assignment]
    _env_obs: list[str]  # type: ignore[assignment]

    def __init__(
        self, num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
    ) -> None:
        first = AlfworldEnv(**settings)
        # What an environment holds before its first reset can be shared, but for the textworld engine.
        another = lambda: copy(first) if first._stock is None else AlfworldEnv(**settings)
        super().__init__([lambda: first, *[another] * (num_envs - 1)], copy=False, autoreset_mode=autoreset_mode)
        self._last = first.settings.max_steps - 1
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

    def step(self, actions: Sequence[str]) -> Step:
        """Does `actions[i]` in game i; a game that is over is reset instead, and its action ignored (NEXT_STEP)."""
        n, last, dense = self.num_envs, self._last, self._dense
        over = self._over(actions)
        texts = self._env_obs
        rewards, terminated, truncated = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        valid, dead = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
        listed: list[list[str]] = []
        files: list[str] = []
        progression: list[float] = []
        booked: list[tuple[int, dict[str, Any]]] = []  # games whose info is more than a running game's
        for i, (env, command) in enumerate(zip(self.envs, actions)):
            engine = env._quick
            if engine is None or over[i]:
                if over[i]:
                    texts[i], info = env.reset()
                else:
                    texts[i], rewards[i], terminated[i], truncated[i], info = env.step(command)
                booked.append((i, info))
                listed.append([])
                progression.append(0.0)
                files.append("")
                continue
            env._said.append(command)
            feedback = engine.act(command)
            subgoals, turn = env._subgoals, env.turn
            assert subgoals is not None
            if engine.won or turn >= last:
                texts[i], rewards[i], terminated[i], truncated[i], info = env.settle(env._outcome(feedback))
                booked.append((i, info))
            else:
                env.turn = turn = turn + 1
                texts[i] = feedback if env._plain else env._shown(feedback, turn)
                if engine.deeds != subgoals.deeds or (subgoals.searching and subgoals.word in feedback):
                    gained = subgoals.note(engine, feedback)
                    if gained:
                        env.progression = subgoals.value
                        if dense:
                            rewards[i] = gained
                if feedback == NOTHING_HAPPENS:
                    valid[i] = False
                if engine.held >= 0 and engine.dead_end:
                    dead[i] = True
            listed.append(engine.view[0])
            progression.append(subgoals.value)
            files.append(env._source.file)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for k, (i, info) in enumerate(booked):
                if terminated[i] or truncated[i]:
                    infos = self._add_info(infos, {"final_obs": texts[i], "final_info": info}, i)
                    texts[i], info = self.envs[i].reset()
                    booked[k] = i, info
        columns = {
            "is_action_valid": valid,
            "admissible_commands": np.fromiter(listed, dtype=object, count=n),
            "progression": np.array(progression),
            "extra.gamefile": np.fromiter(files, dtype=object, count=n),
            "dead_end": dead,
        } | ({key: column.copy() for key, column in self._running.items()} if booked else self._running)
        for i, info in booked:
            infos = self._add_info(infos, {key: value for key, value in info.items() if key not in columns}, i)
            for key, column in columns.items():
                column[i] = info[key]
        for key, column in columns.items():
            infos[key], infos[f"_{key}"] = column, self._all
        self._terminations, self._truncations = terminated, truncated
        self._autoreset_envs = terminated | truncated
        return tuple(texts), rewards, terminated.copy(), truncated.copy(), infos

    def _over(self, actions: Sequence[str]) -> list[bool]:
        """Which games this step resets. Raises what Gymnasium does for commands, or a moment, that will not do."""
        if len(actions) != self.num_envs:
            raise gym.error.InvalidAction(f"{self.num_envs} games take {self.num_envs} commands, not {len(actions)}.")
        over: list[bool] = self._autoreset_envs.tolist()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            over = [False] * self.num_envs
        elif self.autoreset_mode is AutoresetMode.DISABLED and True in over:
            raise gym.error.ResetNeeded(f"Game {over.index(True)} is over: reset() with a reset_mask before step().")
        if not all(isinstance(command, str) or reset for command, reset in zip(actions, over)):
            odd = next(command for command in actions if not isinstance(command, str))
            raise gym.error.InvalidAction(f"A command is a string, not {type(odd).__name__}.")
        return over
