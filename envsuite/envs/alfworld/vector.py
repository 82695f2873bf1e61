"""Thousands of ALFWorld games in one process, behind Gymnasium's vector interface.

    envs = gymnasium.make_vec("envsuite/ALFWorld-train-v0", num_envs=512)
    texts, infos = envs.reset(seed=0)
    texts, rewards, terminated, truncated, infos = envs.step(["look"] * 512)

It answers what `SyncVectorEnv` over the same environments would, keys and masks of `infos` included, without making a
dictionary per game and turn.
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
        self._max_steps = self.envs[0].settings.max_steps
        self._mode = self.envs[0].reward_mode
        self._always: dict[str, np.ndarray] = {
            "success": np.zeros(num_envs, dtype=bool),
            "stop_reason": np.full(num_envs, None, dtype=object),
            "primitive_steps": np.ones(num_envs, dtype=int),
            "won": np.zeros(num_envs, dtype=bool),
            "lost": np.zeros(num_envs, dtype=bool),
            "score": np.zeros(num_envs, dtype=int),
        }

    def step(self, actions: Sequence[str]) -> Step:
        """Does `actions[i]` in game i; a game that is over is reset instead, and its action ignored (NEXT_STEP)."""
        n, envs, same_step = self.num_envs, self.envs, self.autoreset_mode is AutoresetMode.SAME_STEP
        over = [False] * n if same_step else self._autoreset_envs.tolist()
        if len(actions) != n:
            raise gym.error.InvalidAction(f"{n} games take {n} commands, not {len(actions)}.")
        if True in over and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gym.error.ResetNeeded(f"Game {over.index(True)} is over: reset() with a reset_mask before step().")
        last, dense, shaped = self._max_steps - 1, self._mode is RewardMode.DENSE, self._mode is RewardMode.SHAPED
        texts, rewards, terminated, truncated = self._env_obs, [0.0] * n, [False] * n, [False] * n
        valid, progression, dead = [True] * n, [0.0] * n, [False] * n
        listed: list[list[str]] = [[]] * n
        files = [""] * n
        booked: list[tuple[int, dict[str, Any]]] = []  # games whose info is more than a running game's
        for i, command in enumerate(actions):
            env = envs[i]
            if over[i]:
                texts[i], info = env.reset()
                booked.append((i, info))
                continue
            if not isinstance(command, str):
                raise gym.error.InvalidAction(f"A command is a string, not {type(command).__name__}.")
            engine, subgoals = env._native, env._subgoals
            if engine is None or subgoals is None or shaped or env._stock is not None:
                texts[i], rewards[i], terminated[i], truncated[i], info = env.step(command)
                booked.append((i, info))
                continue
            env._said.append(command)
            feedback = engine.act(command)
            if engine.won or env.turn >= last:
                texts[i], rewards[i], terminated[i], truncated[i], info = env.settle(env._outcome(feedback))
                booked.append((i, info))
                continue
            turn = env.turn = env.turn + 1
            gained = subgoals.note(engine, feedback)
            if gained:
                env.progression = subgoals.value
                if dense:
                    rewards[i] = gained
            progression[i] = subgoals.value
            if feedback == NOTHING_HAPPENS:
                valid[i] = False
            if engine.held >= 0:
                dead[i] = engine.dead_end
            listed[i] = engine.admissible()
            files[i] = env._source.file
            texts[i] = feedback if env._plain else env._shown(feedback, turn)
        infos: dict[str, Any] = {}
        starting: dict[int, dict[str, Any]] = {}
        if same_step:
            for i, info in booked:
                if terminated[i] or truncated[i]:
                    infos = self._add_info(infos, {"final_obs": texts[i], "final_info": info}, i)
                    texts[i], starting[i] = envs[i].reset()
        # the info of all games as if each were running; what is otherwise is written over it
        running = {
            "is_action_valid": np.array(valid, dtype=bool),
            "admissible_commands": np.fromiter(listed, dtype=object, count=n),
            "progression": np.array(progression, dtype=np.float64),
            "extra.gamefile": np.fromiter(files, dtype=object, count=n),
            "dead_end": np.array(dead, dtype=bool),
        }
        for key, column in (running | {key: column.copy() for key, column in self._always.items()}).items():
            infos[key], infos[f"_{key}"] = column, np.ones(n, dtype=bool)
        for i, info in booked:
            infos = self._add_info(infos, starting.get(i, info), i)
        self._terminations, self._truncations = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        self._autoreset_envs = self._terminations | self._truncations
        return (
            tuple(texts), np.array(rewards, dtype=np.float64), self._terminations.copy(), self._truncations.copy(), infos,
        )  # fmt: skip
