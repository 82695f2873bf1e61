"""Data types of envsuite: every value that crosses a module boundary below the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, overload

from envsuite.errors import BadKnob, UsageError, did_you_mean


class RewardMode(StrEnum):
    """Reward functions of an episode."""

    SPARSE = "sparse"  # 1 on the turn that solves the task, 0 on every other turn
    DENSE = "dense"  # the environment's own reward, or its paper's, turn by turn
    SHAPED = "shaped"  # sparse + gamma * phi(s') - phi(s), phi from the exact expert (Ng et al., 1999)


class ShapingUnit(StrEnum):
    """Units of time that a learner's discount counts."""

    COMMAND = "command"  # one factor gamma per command
    STEP = "step"  # one factor gamma per primitive step: an SMDP, `smdp = true` in a recipe


@dataclass(frozen=True)
class Shaping:
    """Discount of the learner, which the potential-based reward `shaped` needs to keep the optimal policy."""

    gamma: float = 0.99
    unit: ShapingUnit | str = ShapingUnit.COMMAND

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"shaping_gamma cannot be {self.gamma!r}: a discount is from 0 to 1.")
        if self.unit not in list(ShapingUnit):
            raise UsageError(f"shaping_unit cannot be {self.unit!r}: it is {' or '.join(ShapingUnit)}.")

    def discount(self, primitive_steps: int) -> float:
        """Returns the learner's discount of a command that took `primitive_steps`."""
        return self.gamma**primitive_steps if self.unit == ShapingUnit.STEP else self.gamma

    def keywords(self) -> dict[str, Any]:
        """Returns the arguments of `registry.build` and `registry.make_vec`."""
        return {"shaping_gamma": self.gamma, "shaping_unit": self.unit}


DEFAULT_SHAPING = Shaping()


class StopReason(StrEnum):
    """Reasons for the end of an episode: a closed set."""

    SOLVED = "solved"
    FAILED = "failed"
    MAX_TURNS = "max_turns"  # the rollout's limit on model turns
    MAX_STEPS = "max_steps"  # the environment's own limit
    MAX_TOKENS = "max_tokens"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    CONTEXT = "context"
    BROKEN = "broken"  # a failure of the infrastructure: replayed on resume, never scored, never trained on


class Outcome(NamedTuple):
    """Result of one command, as `TextEnv._act` returns it."""

    text: str
    reward: float = 0.0
    """the dense reward of this turn; other modes ignore it"""
    done: bool = False
    success: bool = False
    """set explicitly, never inferred from `done` or `reward`"""
    valid: bool = True
    """the command was understood and applicable"""
    progression: float | None = None
    """share of the task completed, 0..1; None keeps the previous value"""
    truncated: bool = False
    stop_reason: StopReason | None = None
    """None means solved or failed, according to `success`"""


@dataclass(frozen=True)
class Knob:
    """Named setting of an environment with its range. The type of `default` is the type of the knob.

    A tuple knob holds strings, each from `choices` if that is set, and is written 'a,b' on a
    command line.
    """

    name: str
    default: bool | int | float | str | tuple[str, ...]
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None
    trusted_only: bool | None = None
    """True: replays and reports take the value only from the user's own flags, never from a recorded file, because it
    names a file, builds something, or chooses the sandbox or its limits. None: True for free text, else False."""

    @property
    def needs_trust(self) -> bool:
        """Whether a value from a stranger's file is refused."""
        if self.trusted_only is not None:
            return self.trusted_only
        return self.free_text

    @property
    def free_text(self) -> bool:
        """Whether any text is a value: a path, a name, a list of them."""
        return isinstance(self.default, (str, tuple)) and self.choices is None

    @property
    def range(self) -> str:
        """The accepted values in words."""
        if self.choices is not None:
            kind = "any of " if isinstance(self.default, tuple) else ""
            return kind + "|".join(map(str, self.choices))
        if isinstance(self.default, bool):
            return "true|false"
        if self.low is not None or self.high is not None:
            return f"{'-inf' if self.low is None else self.low}..{'inf' if self.high is None else self.high}"
        return type(self.default).__name__

    def check(self, value: Any) -> Any:
        """Returns `value` (typed, or text from a command line) converted to this knob's type.

        Raises BadKnob.
        """
        try:
            typed = self._typed(value)
        except (TypeError, ValueError) as error:
            raise self._bad(value) from error
        if self.choices is not None:
            for item in typed if isinstance(typed, tuple) else (typed,):
                if item not in self.choices:
                    raise self._bad(value)
        if (self.low is not None and typed < self.low) or (self.high is not None and typed > self.high):
            raise self._bad(value)
        return typed

    def _typed(self, value: Any) -> Any:
        if isinstance(self.default, bool):
            if isinstance(value, bool):
                return value
            words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
            if str(value).lower() not in words:
                raise ValueError(value)
            return words[str(value).lower()]
        if isinstance(self.default, tuple):
            items = value.split(",") if isinstance(value, str) else value
            return tuple(str(item).strip() for item in items if str(item).strip())
        if isinstance(self.default, int):
            if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
                raise ValueError(value)
            return int(value)
        if isinstance(self.default, float):
            number = float(value)
            if number != number:
                raise ValueError(value)
            return number
        if not isinstance(value, str):
            raise ValueError(value)
        return value

    def _bad(self, value: Any) -> BadKnob:
        admitted = self.range if len(self.range) < 300 else f"one of {len(self.choices or ())} names"
        hint = did_you_mean(str(value), map(str, self.choices or ()))
        return BadKnob(f"Knob {self.name!r} cannot be {value!r}: it takes {admitted} (default {self.default!r}).{hint}")


@dataclass(frozen=True)
class Seeds(Sequence[int]):
    """The seeds `start` to `stop` - 1 without `left_out`, which are games that cannot be generated or
    repeat others.
    """

    start: int
    stop: int
    left_out: tuple[int, ...] = ()  # ascending, all from the range

    def __len__(self) -> int:
        return self.stop - self.start - len(self.left_out)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"seed number {index} of {len(self)}")
        seed = self.start + number
        for missing in self.left_out:
            if missing > seed:
                break
            seed += 1
        return seed

    def __iter__(self) -> Iterator[int]:
        missing = set(self.left_out)
        return (seed for seed in range(self.start, self.stop) if seed not in missing)

    def __contains__(self, seed: object) -> bool:
        return seed in range(self.start, self.stop) and seed not in self.left_out


@dataclass(frozen=True)
class Task:
    """An environment with fixed settings: everything needed to build it again.

    `id` is `Name-knobs-vN`; the part before the first '-' names the family.
    """

    id: str
    entry_point: str  # "package.module:Class", imported on first use
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # knob settings that differ from the defaults
    splits: Mapping[str, range | Seeds] = field(
        default_factory=lambda: {"train": range(0, 1_000_000), "test": range(1_000_000, 1_001_000)}
    )  # disjoint seed ranges; evaluation uses the last one by default
    split_ids: Mapping[str, str] = field(default_factory=dict)  # split name -> the task that contains it
    panel: str = ""  # "package.module:function" -> Panel: a finite, hashed list of games, seed = index
    requires: str = ""  # the pip extra that installs the engine, e.g. "textworld"
    level: str = ""  # "easy" | "medium" | "hard" for tasks of the difficulty levels
    blind_share: float = 0.2  # of a level's games that the blind player may win; more only where the docs say why
    summary: str = ""  # one line

    @property
    def family(self) -> str:
        """Lower-case name of the family, e.g. 'alfworld'."""
        return self.id.split("-", 1)[0].lower()


@dataclass(frozen=True)
class Family:
    """Group of tasks under one name, as in `--env alfworld`."""

    name: str
    default: str  # a task id, or "package.module:function" returning (task id, notice)
    summary: str
    requires: str = ""
    paper: str = ""  # the paper or project it reproduces


@dataclass(frozen=True)
class Panel:
    """Finite list of games in a fixed order:

    `-n k` takes the first k, and every record contains the hash.
    """

    name: str
    games: tuple[str, ...]  # names that are the same on every machine
    digest: str  # first 16 hex digits of a SHA-256 over the names and what identifies their content
    expected: int = 0  # size of the official panel; 0 if there is none

    def __len__(self) -> int:
        return len(self.games)


def knobs_json(knobs: Mapping[str, Any]) -> str:
    """Returns the canonical JSON text of a set of knobs, as used in record keys."""
    return json.dumps(dict(knobs), sort_keys=True, separators=(",", ":"))
