"""`TextEnv`, the base class of all environments: Gymnasium's interface on top of `_reset` and `_act`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from envsuite.errors import BadKnob, EngineFailure, UsageError, did_you_mean
from envsuite.spaces import LazilySeededEnv, Prose
from envsuite.tools import ACT, Tool
from envsuite.types import Knob, Outcome, RewardMode, Shaping, ShapingUnit, StopReason

MAX_STEPS = Knob("max_steps", 50, "commands until the episode is truncated", low=1)

TURNS_LEFT = Knob("turns_left", False, "end every observation with the number of turns left")
"""A knob for families that list it; the first observation then states the cap."""

SHAPING_DEAD_END = -2.0
"""Potential of a state from which the task can no longer be solved; the start has -1, the end 0."""


class TextEnv(LazilySeededEnv, ABC):
    """A Gymnasium environment whose observations and actions are text.

    Subclasses define `knobs`, `instructions`, `_reset(seed)` and `_act(command)` and, where possible, also
    `admissible()`, `expert()`, `idle()`, `remaining()`, `labels()`, `metrics()` and `artifacts()`.
    Every string is a legal action: a command that cannot be understood costs a turn and gets a text reply.

    The `info` of reset and step holds `success`, `is_action_valid`, `admissible_commands`,
    `progression`, `stop_reason` and `primitive_steps` (steps the last command took, for a discount
    of gamma**k); after reset also `objective` and `labels`, and at the end of the episode
    `metrics` and, if there are any, `artifacts`.
    """

    knobs: ClassVar[tuple[Knob, ...]] = ()
    """settings of the family; `max_steps` always exists and may be redeclared with another default"""
    levels: ClassVar[dict[str, dict[str, Any]]] = {}
    """knob settings of the difficulty levels easy, medium and hard"""
    experts: ClassVar[tuple[str, ...]] = ("",)
    """kinds that `expert(kind)` accepts; '' is the upper bound in tables; () without an expert"""
    absent_knobs: ClassVar[dict[str, str]] = {}
    """knobs of other versions of the task, with what to do instead; an error message says it"""
    team_knobs: ClassVar[dict[str, Any]] = {}
    """knobs under which every agent of a game has a player of its own; {} for families with one agent"""
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}
    """(smallest, largest) value of `metrics()` by name and, under `dense`, of an episode's dense return, where they are
    known for all knobs; confidence intervals use them"""
    isolate: ClassVar[bool] = False
    """True if the engine is slow or must not share a process: the rollout then uses worker processes"""
    instructions: str = ""
    """text shown to a policy once: the rules and the form of commands"""
    tools: Sequence[Tool] = (ACT,)
    """functions for models that act by tool calls; like `instructions`, a reset may change them"""
    objective: str = ""
    """goal of this episode in words"""
    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        reward_mode: RewardMode | str = RewardMode.SPARSE,
        shaping_gamma: float = 0.99,
        render_mode: str | None = None,
        shaping_unit: ShapingUnit | str = ShapingUnit.COMMAND,
        **knobs: Any,
    ) -> None:
        """Checks the knobs and stores the settings.

        `shaping_gamma` and `shaping_unit` are the discount of the learner and what it counts: one factor gamma per
        command, or one per primitive step. Only `shaped` uses them. With other values than the learner's, `shaped`
        changes the optimal policy and can be farmed.
        """
        try:
            self.reward_mode = RewardMode(reward_mode)
        except ValueError:
            raise UsageError(f"Reward mode {reward_mode!r} is not one of {', '.join(RewardMode)}.") from None
        if self.reward_mode is RewardMode.SHAPED and type(self).remaining is TextEnv.remaining:
            raise UsageError(f"{type(self).__name__} has no exact expert and so no shaped reward: use sparse or dense.")
        self.shaping = Shaping(shaping_gamma, shaping_unit)
        self.render_mode = render_mode
        self.settings = SimpleNamespace(**check_knobs(type(self), knobs))
        self._made_with = {**vars(self.settings), "reward_mode": str(self.reward_mode)}  # a reset may change settings
        self.observation_space, self.action_space = Prose(), Prose()
        self.episode_seed, self.attempt, self.turn = 0, 0, 0
        self.success, self.progression = False, 0.0
        self.primitive_steps = 1  # a macro-command sets this to the number of primitive steps it took
        self._shows_turns = hasattr(self.settings, TURNS_LEFT.name)
        self._over = True
        self._initial_remaining: int | None = None
        self._potential = 0.0
        self._script: Sequence[str] | None = None  # of the blind player in this episode

    # ---- Gymnasium's interface ------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of `seed` (a random one for None).

        `options={"attempt": k}` distinguishes repeated attempts at one seed if the dynamics are
        stochastic.
        """
        super().reset(seed=seed)
        self.episode_seed = self._take_seed() if seed is None else seed
        self.attempt = int((options or {}).get("attempt", 0))
        self.turn, self.success, self.progression, self.primitive_steps = 0, False, 0.0, 1
        self._over = True  # a reset that raises leaves no episode to step
        self._script = None
        text = self._reset(self.episode_seed)
        if self.reward_mode is RewardMode.SHAPED:
            self._initial_remaining = self.remaining()
            self._potential = self._phi()
        self._over = False
        info = self._info(True, None)
        info["objective"] = self.objective
        info["labels"] = self.labels()
        return self._with_turns_left(text), info

    def preview(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Returns the first observation of `seed`, and an `info` with the objective, the commands and the labels.

        Families whose reset is expensive override it. The episode is not for playing: call `reset` for that.
        """
        return self.reset(seed=seed, options={"attempt": 0})

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Runs the command `action`. Raises ResetNeeded after the end of an episode."""
        text, reward, terminated, truncated, valid, reason = self.advance(action)
        return text, reward, terminated, truncated, self._info(valid, reason)

    def advance(self, action: str) -> tuple[str, float, bool, bool, bool, StopReason | None]:
        """Runs a command. Returns (text, reward, terminated, truncated, valid, reason): no info, unlike `step`.

        `TextVectorEnv` uses it. Raises ResetNeeded after the end of an episode, InvalidAction for a command that is no
        string, and EngineFailure if the engine fails or the reward or progression is not finite.
        """
        if self._over:
            raise gym.error.ResetNeeded("The episode is over: call reset() before step().")
        if not isinstance(action, str):
            raise gym.error.InvalidAction(f"A command is a string, not {type(action).__name__}.")
        return self._count(self._act(action))

    def _count(self, outcome: Outcome) -> tuple[str, float, bool, bool, bool, StopReason | None]:
        """Counts a turn. Raises EngineFailure in every reward mode if the reward or progression is not finite."""
        text, reward, terminated, success, valid, progression, truncated, reason = outcome
        if not math.isfinite(reward):
            raise EngineFailure(f"the environment's reward is {reward}, not a finite number")
        if progression is not None and not math.isfinite(progression):
            raise EngineFailure(f"the environment's progression is {progression}, not a finite number")
        self.turn += 1
        self.success = success
        if success:
            self.progression = 1.0
        elif progression is not None:
            self.progression = progression
        if terminated:
            truncated = False
            reason = StopReason.SOLVED if success else reason or StopReason.FAILED
        elif truncated or self.turn >= self.settings.max_steps:
            truncated, reason = True, reason or StopReason.MAX_STEPS
        self._over = terminated or truncated
        if self._shows_turns:
            text = self._with_turns_left(text)
        return text, self._reward(outcome, terminated), terminated, truncated, valid, reason

    def _with_turns_left(self, text: str) -> str:
        """Appends the number of turns left to an observation, if the knob TURNS_LEFT is set and the game goes on."""
        if not self._shows_turns or self._over or not getattr(self.settings, TURNS_LEFT.name):
            return text
        return f"{text}\nTurns left: {self.settings.max_steps - self.turn}."

    def _info(self, valid: bool, reason: StopReason | None) -> dict[str, Any]:
        info = {
            "success": self.success,
            "is_action_valid": valid,
            "admissible_commands": self.admissible(),
            "progression": self.progression,
            "stop_reason": reason,
            "primitive_steps": self.primitive_steps,
        }
        info.update(self.extra_info())
        if self._over:
            info["metrics"] = self.metrics()
            if artifacts := self.artifacts():
                info["artifacts"] = artifacts
        return info

    def _reward(self, outcome: Outcome, terminated: bool) -> float:
        if self.reward_mode is RewardMode.DENSE:
            return float(outcome.reward)
        reward = float(outcome.success)
        if self.reward_mode is RewardMode.SHAPED:
            before, self._potential = self._potential, 0.0 if terminated else self._phi()
            reward += self.shaping.discount(self.primitive_steps) * self._potential - before
        return reward

    def _phi(self) -> float:
        """Returns the potential of the present state.

        It is -1 at the start, 0 when nothing remains, linear between, and `SHAPING_DEAD_END` if the task is lost.
        """
        remaining = self.remaining()
        if remaining is None:
            return SHAPING_DEAD_END
        return -remaining / max(1, self._initial_remaining or 1)

    # ---- for subclasses -------------------------------------------------------------------------------------------

    @abstractmethod
    def _reset(self, seed: int) -> str:
        """Starts the episode of `seed`, sets `objective`, and returns the first observation.

        All randomness comes from `seed` (e.g. `np.random.default_rng(seed)`) and, in the dynamics, from `die()`.
        """

    @abstractmethod
    def _act(self, command: str) -> Outcome:
        """Runs one command of the player, which may be any string."""

    def admissible(self) -> list[str]:
        """Returns the commands that make sense now; empty if they are unlimited."""
        return []

    def expert(self, kind: str = "") -> str | None:
        """Returns the expert's next command in the present state; None if it knows none."""
        return None

    def blind_script(self) -> Sequence[str]:
        """Returns the commands of the blind player: the best known script that reads only `objective`.

        Where every episode starts alike, the script may use that start. Empty: the family has no blind player.
        """
        return ()

    def blind(self) -> str | None:
        """Returns the blind player's next command; the script repeats until the episode ends. None without a script."""
        if self._script is None:
            self._script = self.blind_script()
        return self._script[self.turn % len(self._script)] if self._script else None

    def idle(self) -> str:
        """Returns a command that changes nothing. A player who only sends it must lose every game."""
        return ""

    def remaining(self) -> int | None:
        """Returns how many commands the exact expert still needs (None: the task is lost).

        Defining it enables `shaped`.
        """
        raise NotImplementedError

    def random_command(self, rng: np.random.Generator) -> str:
        """Returns a random player's command: an admissible one, or a sample of the action space without a list."""
        commands = self.admissible()
        return commands[int(rng.integers(len(commands)))] if commands else self.action_space.sample()

    def labels(self) -> dict[str, str]:
        """Returns labels of this episode for breakdowns: `instance`, `task_type`, `dialect`, ..."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Returns named numbers of the finished episode besides reward and success, e.g. a paper's own return."""
        return {}

    def artifacts(self) -> dict[str, Any]:
        """Returns work products of the finished episode for its record, as JSON values, e.g. a patch."""
        return {}

    def extra_info(self) -> dict[str, Any]:
        """Returns further keys for `info`, spelled as elsewhere in the field: `won`, `score`, `extra.gamefile`, ..."""
        return {}

    def play_help(self) -> str:
        """Returns advice for a person who plays by hand; no model reads it."""
        return ""

    def typed_command(self, line: str) -> str:
        """Returns the command that a person means who types `line`."""
        return line

    def play_result(self) -> str:
        """Returns a sentence about the finished episode for a person who played it; no model reads it."""
        return ""

    @classmethod
    def needs_process(cls, settings: dict[str, Any]) -> bool:
        """Returns True if the rollout must run an environment with these settings in a worker process of its own."""
        return cls.isolate

    @classmethod
    def agents(cls, settings: dict[str, Any]) -> int:
        """Returns the number of agents with players of their own.

        With more than one, `info["agent"]` is the number, from 1, of the agent that acts next, and each agent reads
        only the observations of its own turns.
        """
        return 1

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        """Returns what a cluster node must provide besides a processor, by resource name: `{"docker": 0.001}`."""
        return {}

    @classmethod
    def levels_of(cls, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Returns the knob settings of the levels among which a task with these knobs is one."""
        return cls.levels

    @classmethod
    def facts(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns entries of the difficulty card of a task with these knobs, beyond those measured by playing."""
        return {}

    def get_state(self) -> Any:
        """Returns a value for `set_state`, for search and branching; equal values mean equal states."""
        raise UsageError(f"{type(self).__name__} cannot save its state: replay the commands from reset instead.")

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        raise UsageError(f"{type(self).__name__} cannot restore a state: replay the commands from reset instead.")

    def snapshot(self) -> Any:
        """Returns the complete state of the episode for `restore`: undo, search, branching into a group."""
        own = (self.episode_seed, self.attempt, self.turn, self.success, self.progression, self._over, self._potential)
        return self._snapshot_key(), own, self._initial_remaining, self.get_state()

    def restore(self, snapshot: Any) -> None:
        """Restores a `snapshot` of this environment, or of another one of the same class and settings.

        Raises UsageError for a snapshot of other settings.
        """
        (name, settings), own, initial_remaining, state = snapshot
        here, expected = self._snapshot_key()
        if name != here:
            raise UsageError(f"The snapshot is of {name}, not of {here}: restore it in such an environment.")
        if changed := [knob for knob, value in expected.items() if settings.get(knob) != value]:
            raise UsageError(
                f"The snapshot is of other settings ({', '.join(changed)}): make an environment with these."
            )
        self._initial_remaining = initial_remaining  # from here on, as a refused snapshot changes nothing
        self.episode_seed, self.attempt, self.turn, self.success, self.progression, self._over, self._potential = own
        self.set_state(state)

    def _snapshot_key(self) -> tuple[str, dict[str, Any]]:
        """Returns the class and the settings that a snapshot belongs to."""
        return type(self).__name__, self._made_with

    def die(self) -> np.random.Generator:
        """Returns the random generator of this turn and attempt; an interrupted and continued run has the same."""
        return np.random.default_rng([self.episode_seed, self.attempt, self.turn])


def expert_script(env: TextEnv) -> list[str]:
    """Returns the expert's commands from the start of the current episode of `env`, played in a second environment.

    It is a blind player's script in tasks where every episode starts alike.
    """
    twin = type(env)(**vars(env.settings))
    try:
        twin.reset(seed=env.episode_seed)
        commands: list[str] = []
        over = False
        while not over and (command := twin.expert()) is not None:
            commands.append(command)
            _, _, terminated, truncated, _ = twin.step(command)
            over = terminated or truncated
        return commands
    finally:
        twin.close()


def declared_knobs(env_class: type[TextEnv]) -> dict[str, Knob]:
    """Returns all knobs of an environment by name, `max_steps` included."""
    return {knob.name: knob for knob in (MAX_STEPS, *env_class.knobs)}


def check_knobs(env_class: type[TextEnv], knobs: dict[str, Any], task: str = "") -> dict[str, Any]:
    """Returns the complete settings: every declared knob with its value in `knobs` or its default.

    Raises BadKnob, which names the id of the `task`, or without it the class.
    """
    declared = declared_knobs(env_class)
    for name in knobs:
        if name not in declared:
            absent = env_class.absent_knobs.get(name)
            hint = f" {absent}" if absent else did_you_mean(name, declared) or f" It has {', '.join(declared)}."
            raise BadKnob(f"{task or env_class.__name__} has no knob {name!r}.{hint}")
    return {name: knob.check(knobs[name]) if name in knobs else knob.default for name, knob in declared.items()}
