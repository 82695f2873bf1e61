"""Goals: sequences of stages, each a set of conditions that must hold at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from envsuite.envs.virtualhome.rules.engine import HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.home import Home


class Condition(NamedTuple):
    """Required fact about things, given by their keys.

    Kinds: `on x y`, `in x y`, `open x`, `closed x`, `running x`, `off x`, `mark x process`, `seated x`, `held x`,
    `room x`, `served x y` (in a hand or on y), `absent x y` (neither on nor in y),
    `bare x y` (nothing on or in x but y).
    """

    kind: str
    x: str
    y: str = ""


Stage = tuple[Condition, ...]


@dataclass(frozen=True)
class HouseholdGoal:
    """Goal of an episode: its text and its stages."""

    text: str
    stages: tuple[Stage, ...]
    name: str = ""
    """goal class, e.g. 'heat_and_serve'"""

    @property
    def keys(self) -> frozenset[str]:
        """Returns the keys of everything that the goal mentions."""
        conditions = [c for stage in self.stages for c in stage]
        return frozenset(key for c in conditions for key in ((c.x,) if c.kind == "mark" else (c.x, c.y)) if key)


Predicate = Callable[[HomeState], bool]


def predicate(engine: FixedEngine, condition: Condition) -> Predicate:
    """Returns the condition as a predicate over states of `engine`, which keeps it."""
    test = engine.predicates.get(condition)
    if test is None:
        test = engine.predicates[condition] = _predicate(engine, condition)
    return test


def _predicate(engine: FixedEngine, condition: Condition) -> Predicate:
    home = engine.home
    kind, x = condition.kind, home.bit[condition.x]
    y = home.bit.get(condition.y, 0)
    if kind == "mark":
        mark = engine.mark(x, condition.y)
        return lambda s: s.marks & mark > 0
    if kind in _OF_OBJECTS:
        return _OF_OBJECTS[kind](engine.index(x), x, y)
    if kind == "bare":
        bits = home.movable_bits
        return lambda s: all(
            bit == y or not (on | inside) & x for bit, on, inside in zip(bits, s.on, s.inside, strict=True)
        )
    return _OF_PLACES[kind](x)


_OF_OBJECTS: dict[str, Callable[[int, int, int], Predicate]] = {
    "on": lambda i, x, y: lambda s: s.on[i] & y > 0,
    "in": lambda i, x, y: lambda s: s.inside[i] & y > 0,
    "served": lambda i, x, y: lambda s: s.on[i] & y > 0 or s.right == x or s.left == x,
    "held": lambda i, x, y: lambda s: s.right == x or s.left == x,
    "absent": lambda i, x, y: lambda s: not (s.on[i] | s.inside[i]) & y,
}
_OF_PLACES: dict[str, Callable[[int], Predicate]] = {
    "open": lambda x: lambda s: s.open & x > 0,
    "closed": lambda x: lambda s: not s.open & x,
    "running": lambda x: lambda s: s.power & x > 0,
    "off": lambda x: lambda s: not s.power & x,
    "seated": lambda x: lambda s: s.sitting and s.seat & x > 0,
    "room": lambda x: lambda s: s.room == x,
}


def milestones(home: Home, stage: Stage) -> list[Condition]:
    """Returns the milestones of a stage, including its own conditions; the dense reward pays each once."""
    conditions: list[Condition] = []
    for c in stage:
        if c.kind in ("on", "in", "mark"):
            conditions.append(Condition("held", c.x))
        if c.kind == "mark":
            device = home.devices[c.y]
            conditions.append(Condition("on" if home.bit[device] & home.surface else "in", c.x, device))
        if c.kind != "closed" or len(stage) == 1:  # a closed door counts only as a condition on its own
            conditions.append(c)
    return list(dict.fromkeys(conditions))


class StageTracker(Protocol):
    """Counts the stages of a goal, command by command."""

    goal: Any

    @property
    def last(self) -> int: ...
    def step(self, before: HomeState, after: HomeState, stage: int) -> tuple[HomeState, int]: ...
    def advance(self, s: HomeState, stage: int) -> int: ...


class GoalTracker:
    """Tracks the progress towards one goal; `stage` and `reached` never decrease."""

    def __init__(self, engine: FixedEngine, goal: HouseholdGoal) -> None:
        self.goal = goal
        self.stages = [[predicate(engine, c) for c in stage] for stage in goal.stages]
        self.marks = [
            (k, predicate(engine, c)) for k, stage in enumerate(goal.stages) for c in milestones(engine.home, stage)
        ]

    @property
    def last(self) -> int:
        """Returns the stage of a complete goal."""
        return len(self.stages)

    def step(self, before: HomeState, after: HomeState, stage: int) -> tuple[HomeState, int]:
        """Returns the state and the stage after a command."""
        return after, self.advance(after, stage)

    def start(self, s: HomeState) -> tuple[int, int]:
        """Returns (stage, reached) for the initial state; `reached` is a bit mask of milestones."""
        return self.advance(s, 0), self._reached(s, 0, 0)

    def advance(self, s: HomeState, stage: int) -> int:
        """Returns the stage after arriving in `s`; `len(stages)` when the goal is complete."""
        while stage < len(self.stages) and all(holds(s) for holds in self.stages[stage]):
            stage += 1
        return stage

    def follow(self, s: HomeState, stage: int, reached: int) -> tuple[int, int]:
        """Returns the updated (stage, reached) after arriving in `s`."""
        next_stage = self.advance(s, stage)
        reached = self._reached(s, stage, reached)
        return next_stage, reached if next_stage == stage else self._reached(s, next_stage, reached)

    def _reached(self, s: HomeState, stage: int, reached: int) -> int:
        for i, (k, holds) in enumerate(self.marks):
            if not reached >> i & 1 and (k < stage or (k == stage and holds(s))):
                reached |= 1 << i
        return reached
