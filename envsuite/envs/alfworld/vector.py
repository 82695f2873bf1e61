"""Thousands of ALFWorld games in one process, behind Gymnasium's vector interface.

    envs = gymnasium.make_vec("envsuite/ALFWorld-train-v0", num_envs=512)
    texts, infos = envs.reset(seed=0)
    texts, rewards, terminated, truncated, infos = envs.step(["look"] * 512)

Results are the same as with `SyncVectorEnv`, including keys and masks of `infos`, but no dictionary
per game and turn is created. Entries of `infos` that are constant for running games are read-only
arrays shared between turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite.envs.alfworld.batch_state import BatchState
from envsuite.envs.alfworld.engine import NOTHING_HAPPENS, NativeEngine
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.types import RewardMode

Step = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class AlfworldVectorEnv(SyncVectorEnv):
    """`num_envs` games at once, all with the same AlfworldEnv settings.

    Each sub-environment (`envs[i]`) is a complete AlfworldEnv: its expert, labels and get_state can
    be used between steps. `autoreset_mode` is Gymnasium's: a finished game is reset by the next
    step (default), by the same step, or by the caller. As an extension, a command may be None: that
    game skips the turn, and `infos` has no entries for it.
    """

    takes_none = True
    env_class: type[AlfworldEnv] = AlfworldEnv
    envs: list[AlfworldEnv]  # type: ignore[assignment]
    _env_obs: list[str]  # type: ignore[assignment]

    def __init__(
        self, num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
    ) -> None:
        first = self.env_class(**settings)
        batch = self._batch = BatchState(num_envs)

        def make(index: int) -> AlfworldEnv:
            if index == 0:
                env = first
            elif first._stock is None:
                env = copy(first)  # before the first reset, only the textworld engine cannot be shared
            else:
                env = self.env_class(**settings)
            return env.in_batch(batch, index)

        makers = [partial(make, index) for index in range(num_envs)]
        super().__init__(makers, copy=False, autoreset_mode=autoreset_mode)
        self.env_fns = ()  # not used after the start, and functions in it cannot be pickled
        self._last = first.settings.max_steps - 1
        self._plain = first._plain
        self._dense = first.reward_mode is RewardMode.DENSE
        self._all = np.ones(num_envs, dtype=bool)
        self._default_columns: dict[str, np.ndarray] = {  # info entries that are constant for running games
            "success": np.zeros(num_envs, dtype=bool),
            "stop_reason": np.full(num_envs, None, dtype=object),
            "primitive_steps": np.ones(num_envs, dtype=int),
            "won": np.zeros(num_envs, dtype=bool),
            "lost": np.zeros(num_envs, dtype=bool),
            "score": np.zeros(num_envs, dtype=int),
        }
        for shared in (self._all, *self._default_columns.values()):
            shared.flags.writeable = False

    def step(self, actions: Sequence[str | None]) -> Step:
        """Executes `actions[i]` in game i; with NEXT_STEP, finished games are reset instead."""
        n, envs, batch, texts = self.num_envs, self.envs, self._batch, self._env_obs
        resetting = self._games_to_reset(actions)
        engines = batch.engines
        if True in resetting or None in actions:
            engines = [
                None if reset or command is None else engine
                for reset, command, engine in zip(resetting, actions, batch.engines, strict=True)
            ]
        rewards, terminated, truncated = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        valid = np.ones(n, dtype=bool)
        skipped: list[int] = []
        changed: list[int] = []  # games whose subgoals may have changed
        commands: list[list[str]] = []
        full_infos: dict[int, dict[str, Any]] = {}  # game -> info, if it differs from that of a running game
        for i, (engine, command, revision, search_word) in enumerate(
            zip(engines, actions, batch.revision, batch.search_words, strict=True)
        ):
            if engine is None or command is None:
                commands.append([])
                if resetting[i]:
                    texts[i], full_infos[i] = envs[i].reset()
                elif command is None:
                    skipped.append(i)
                else:
                    texts[i], rewards[i], terminated[i], truncated[i], full_infos[i] = envs[i].step(command)
                continue
            texts[i] = feedback = engine.act(command)
            commands.append(engine.view[0])
            if engine.revision != revision or (search_word is not None and search_word in feedback):
                changed.append(i)
            if feedback == NOTHING_HAPPENS:
                valid[i] = False
        self._record_turn(engines, actions, all_stepped=not full_infos and not skipped)
        ending = {i for i, turn in enumerate(batch.turns) if turn > self._last and engines[i] is not None}
        self._update_subgoals(changed, ending, rewards)
        if not self._plain:
            for i, env in enumerate(envs):
                if engines[i] is not None and i not in ending:
                    texts[i] = env._render_observation(texts[i], env.turn)
        for i in ending:
            batch.turns[i] -= 1
            outcome = envs[i]._outcome(texts[i])
            texts[i], rewards[i], terminated[i], truncated[i], full_infos[i] = envs[i].settle(outcome)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for i in full_infos:
                if terminated[i] or truncated[i]:
                    infos = self._add_info(infos, {"final_obs": texts[i], "final_info": full_infos[i]}, i)
                    texts[i], full_infos[i] = envs[i].reset()
        infos, active = self._merge_infos(infos, full_infos, valid, commands, skipped)
        self._terminations, self._truncations = terminated, truncated
        self._autoreset_envs = terminated | truncated | (self._autoreset_envs & ~active)
        return tuple(texts), rewards, terminated.copy(), truncated.copy(), infos

    def _record_turn(
        self, engines: Sequence[NativeEngine | None], actions: Sequence[str | None], all_stepped: bool
    ) -> None:
        """Counts the turn and logs its commands for all games stepped through their engine."""
        batch = self._batch
        if all_stepped:
            batch.turns[:] = [turn + 1 for turn in batch.turns]
            batch.command_log.append(tuple(actions))
            return
        # The other games have updated the batch state themselves, or have skipped the turn.
        batch.turns[:] = [turn + (engine is not None) for turn, engine in zip(batch.turns, engines, strict=True)]
        batch.command_log.append(
            tuple([None if engine is None else command for command, engine in zip(actions, engines, strict=True)])
        )

    def _update_subgoals(self, changed: list[int], ending: set[int], rewards: np.ndarray) -> None:
        """Updates the subgoals of `changed` games and adds won games to `ending`."""
        for i in changed:
            env = self.envs[i]
            engine, subgoals = env._native, env._subgoals
            assert engine is not None and subgoals is not None
            if engine.won:
                ending.add(i)
            elif i not in ending:
                reward = subgoals.update(engine, self._env_obs[i])
                if reward:
                    env.progression = self._batch.dense_rewards[i]
                    if self._dense:
                        rewards[i] = reward

    def _merge_infos(
        self,
        infos: dict[str, Any],
        full_infos: dict[int, dict[str, Any]],
        valid: np.ndarray,
        commands: list[list[str]],
        skipped: list[int],
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Returns the infos of all games, and a mask of the games that did not skip the turn."""
        n, batch = self.num_envs, self._batch
        defaults = self._default_columns
        if full_infos:
            defaults = {key: column.copy() for key, column in defaults.items()}
        columns = {
            "is_action_valid": valid,
            "admissible_commands": np.fromiter(commands, dtype=object, count=n),
            "progression": np.array(batch.dense_rewards),
            "extra.gamefile": np.fromiter(batch.files, dtype=object, count=n),
            "dead_end": np.array(batch.dead_ends),
            **defaults,
        }
        for i, info in full_infos.items():
            infos = self._add_info(infos, {key: value for key, value in info.items() if key not in columns}, i)
            for key, column in columns.items():
                column[i] = info[key]
        active = self._all
        if skipped:
            active = active.copy()
            active[skipped] = False
        for key, column in columns.items():
            infos[key], infos[f"_{key}"] = column, active
        return infos, active

    def _games_to_reset(self, actions: Sequence[str | None]) -> list[bool]:
        """Returns which games this step resets; raises Gymnasium's errors for invalid calls."""
        if isinstance(actions, str):
            raise gym.error.InvalidAction(f"step() needs a list of {self.num_envs} commands, not one string.")
        if len(actions) != self.num_envs:
            raise gym.error.InvalidAction(f"{self.num_envs} games need {self.num_envs} commands, not {len(actions)}.")
        resetting: list[bool] = self._autoreset_envs.tolist()
        if self.autoreset_mode is AutoresetMode.DISABLED:
            early = next((i for i, command in enumerate(actions) if resetting[i] and command is not None), None)
            if early is not None:
                raise gym.error.ResetNeeded(f"Game {early} is over: reset() with a reset_mask before step().")
        if self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            resetting = [False] * self.num_envs
        for command, reset in zip(actions, resetting, strict=True) if {*map(type, actions)} != {str} else ():
            if not (reset or command is None or isinstance(command, str)):
                raise gym.error.InvalidAction(f"A command is a string, not {type(command).__name__}.")
        return resetting
