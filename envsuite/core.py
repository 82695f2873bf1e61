"""TextEnv: Gymnasium's contract on one side, `_reset` and `_act` on the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from envsuite.errors import BadKnob, UsageError, did_you_mean
from envsuite.spaces import Prose
from envsuite.types import Knob, Outcome, RewardMode, StopReason

MAX_STEPS = Knob("max_steps", 50, "commands until the episode is truncated", low=1)

SHAPING_DEAD_END = -2.0
"""The potential of a state from which the task can no longer be solved; the start has -1, an end 0."""


class TextEnv(gym.Env[str, str], ABC):
    """A Gymnasium environment whose observations and actions are text.

    Subclasses write `knobs`, `instructions`, `_reset(seed)` and `_act(command)`; where they can, also
    `admissible()`, `expert()`, `idle()`, `remaining()`, `labels()` and `metrics()`. Every string is a legal action: what cannot
    be understood costs a turn and is answered in words.

    `info` of reset and step holds `success`, `is_action_valid`, `admissible_commands`, `progression`, `stop_reason`,
    `primitive_steps` (what the last command took, for a discount of gamma**k), on reset `objective` and `labels`, and at
    the end `metrics`.
    """

    knobs: ClassVar[tuple[Knob, ...]] = ()
    """the family's settings; `max_steps` is always there and may be redeclared with another default"""
    levels: ClassVar[dict[str, dict[str, Any]]] = {}
    """knob settings of the ladder: easy, medium, hard"""
    experts: ClassVar[tuple[str, ...]] = ("",)
    """the kinds `expert(kind)` knows; '' is the upper bound of the tables; () where there is none"""
    isolate: ClassVar[bool] = False
    """the engine is slow or must not share a process: the rollout gives it worker processes"""
    instructions: str = ""
    """what a policy is told once: the rules, and how commands look"""
    objective: str = ""
    """what this episode asks for, in words"""
    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        reward_mode: RewardMode | str = RewardMode.SPARSE,
        shaping_gamma: float = 0.99,
        render_mode: str | None = None,
        **knobs: Any,
    ) -> None:
        """`shaping_gamma` must equal the trainer's discount, else `shaped` changes the optimal policy."""
        try:
            self.reward_mode = RewardMode(reward_mode)
        except ValueError:
            raise UsageError(f"Reward mode {reward_mode!r} is not one of {', '.join(RewardMode)}.") from None
        if self.reward_mode is RewardMode.SHAPED and type(self).remaining is TextEnv.remaining:
            raise UsageError(
                f"{type(self).__name__} has no exact expert, so no shaped reward here: use sparse or dense."
            )
        self.shaping_gamma = shaping_gamma
        self.render_mode = render_mode
        self.settings = SimpleNamespace(**check_knobs(type(self), knobs))
        self.observation_space, self.action_space = Prose(), Prose()
        self.episode_seed, self.attempt, self.turn = 0, 0, 0
        self.success, self.progression = False, 0.0
        self.primitive_steps = 1  # a macro-command sets this to the primitive steps it took
        self._over = True
        self._initial_remaining: int | None = None
        self._potential = 0.0

    # ---- Gymnasium's side -------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode that `seed` names (a random one for None).

        `options={"attempt": k}` tells repeated tries at one seed apart where the dynamics hold chance.
        """
        super().reset(seed=seed)
        self.episode_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self.attempt = int((options or {}).get("attempt", 0))
        self.turn, self.success, self.progression, self.primitive_steps = 0, False, 0.0, 1
        self._over = True  # a reset that raises leaves no episode to step, not even the one before
        text = self._reset(self.episode_seed)
        if self.reward_mode is RewardMode.SHAPED:
            self._initial_remaining = self.remaining()
            self._potential = self._phi()
        self._over = False
        info = self._info(True, None)
        info["objective"] = self.objective
        info["labels"] = self.labels()
        return text, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Does what `action` says. Raises ResetNeeded after the end of an episode."""
        if self._over:
            raise gym.error.ResetNeeded("The episode is over: call reset() before step().")
        if not isinstance(action, str):
            raise gym.error.InvalidAction(f"A command is a string, not {type(action).__name__}.")
        return self.settle(self._act(action))

    def settle(self, outcome: Outcome) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Books an outcome of `_act` and returns what `step` does. Only vector environments of the family call it."""
        self.turn += 1
        self.success = outcome.success
        if outcome.progression is not None:
            self.progression = outcome.progression
        if outcome.success:
            self.progression = 1.0
        terminated, truncated, reason = outcome.done, outcome.truncated, outcome.stop_reason
        if terminated:
            truncated = False
            reason = StopReason.SOLVED if outcome.success else reason or StopReason.FAILED
        elif truncated or self.turn >= self.settings.max_steps:
            truncated, reason = True, reason or StopReason.MAX_STEPS
        self._over = terminated or truncated
        return outcome.text, self._reward(outcome, terminated), terminated, truncated, self._info(outcome.valid, reason)

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
        return info

    def _reward(self, outcome: Outcome, terminated: bool) -> float:
        if self.reward_mode is RewardMode.DENSE:
            return float(outcome.reward)
        reward = float(outcome.success)
        if self.reward_mode is RewardMode.SHAPED:
            before, self._potential = self._potential, 0.0 if terminated else self._phi()
            reward += self.shaping_gamma**self.primitive_steps * self._potential - before
        return reward

    def _phi(self) -> float:
        """-1 at the start, 0 where nothing remains, in proportion between; `SHAPING_DEAD_END` where all is lost."""
        remaining = self.remaining()
        if remaining is None:
            return SHAPING_DEAD_END
        return -remaining / max(1, self._initial_remaining or 1)

    # ---- the author's side ------------------------------------------------------------------------------------------

    @abstractmethod
    def _reset(self, seed: int) -> str:
        """Starts the episode `seed` names, sets `objective`, and returns the first observation.

        All chance comes from `seed` (say `np.random.default_rng(seed)`) and, in the dynamics, from `die()`.
        """

    @abstractmethod
    def _act(self, command: str) -> Outcome:
        """Does what the player asked; any string may come."""

    def admissible(self) -> list[str]:
        """The commands that make sense now; empty where they are unlimited."""
        return []

    def expert(self, kind: str = "") -> str | None:
        """The expert's next command from the present state; None where it knows none."""
        return None

    def idle(self) -> str:
        """The next command of a player who changes nothing: the expert wins every game, he none."""
        return ""

    def remaining(self) -> int | None:
        """Commands the exact expert still needs (None: the task is lost). Defining it makes `shaped` available."""
        raise NotImplementedError

    def random_command(self, rng: np.random.Generator) -> str:
        """What a random player says: an admissible command, or where these are unlimited whatever the family defines."""
        commands = self.admissible()
        return commands[int(rng.integers(len(commands)))] if commands else self.action_space.sample()

    def labels(self) -> dict[str, str]:
        """What tells this episode from others of the task, for breakdowns: `instance`, `task_type`, `dialect`, ..."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Named numbers of the finished episode beside reward and success, e.g. the return as a paper prints it."""
        return {}

    def extra_info(self) -> dict[str, Any]:
        """Further keys for `info`, in the field's spelling (`won`, `score`, `extra.gamefile`, ...)."""
        return {}

    @classmethod
    def needs_process(cls, settings: dict[str, Any]) -> bool:
        """Whether an environment of these settings is given a worker process of its own by the rollout."""
        return cls.isolate

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        """What else than a processor a cluster's node must offer, by the cluster's names: {"docker": 0.001}."""
        return {}

    @classmethod
    def facts(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """What the difficulty card of a task with these knobs tells beside what playing it shows."""
        return {}

    def get_state(self) -> Any:
        """A value that `set_state` brings back, for search and branching; equal values mean equal states."""
        raise UsageError(f"{type(self).__name__} cannot save its state: replay the commands from reset instead.")

    def set_state(self, state: Any) -> None:
        """Goes back to a state of `get_state`."""
        raise UsageError(f"{type(self).__name__} cannot restore a state: replay the commands from reset instead.")

    def snapshot(self) -> Any:
        """The whole episode as it stands, for `restore`: undo, search, branching into a group."""
        own = (self.episode_seed, self.attempt, self.turn, self.success, self.progression, self._over, self._potential)
        return own, self._initial_remaining, self.get_state()

    def restore(self, snapshot: Any) -> None:
        """Goes back to a `snapshot` of this environment."""
        own, self._initial_remaining, state = snapshot
        self.episode_seed, self.attempt, self.turn, self.success, self.progression, self._over, self._potential = own
        self.set_state(state)

    def die(self) -> np.random.Generator:
        """Fresh dice for this turn of this attempt, the same however the run was cut."""
        return np.random.default_rng([self.episode_seed, self.attempt, self.turn])


def declared_knobs(env_class: type[TextEnv]) -> dict[str, Knob]:
    """All knobs of an environment by name, `max_steps` included."""
    return {knob.name: knob for knob in (MAX_STEPS, *env_class.knobs)}


def check_knobs(env_class: type[TextEnv], given: dict[str, Any]) -> dict[str, Any]:
    """The full settings: every declared knob with its given or default value. Raises BadKnob."""
    declared = declared_knobs(env_class)
    for name in given:
        if name not in declared:
            hint = did_you_mean(name, declared) or f" It has {', '.join(declared)}."
            raise BadKnob(f"{env_class.__name__} has no knob {name!r}.{hint}")
    return {name: knob.check(given[name]) if name in given else knob.default for name, knob in declared.items()}
