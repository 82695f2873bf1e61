"""Goals: conditions on a state, all of which must hold at once, in stages that must come one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from envsuite.envs.virtualhome.engine import State
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.mended import Mended


class Condition(NamedTuple):
    """One fact that is to hold, by the keys of things: `on x y`, `in x y`, `open x`, `closed x`, `running x`, `off x`,
    `mark x process`, `seated x`, `held x`, `room x`, `served x y` (in a hand or on y)."""

    kind: str
    x: str
    y: str = ""


Stage = tuple[Condition, ...]


@dataclass(frozen=True)
class Goal:
    """What an episode asks for."""

    text: str
    stages: tuple[Stage, ...]
    name: str = ""
    """its class, e.g. 'heat_and_serve'"""

    @property
    def keys(self) -> frozenset[str]:
        """Everything it speaks of."""
        conditions = [c for stage in self.stages for c in stage]
        return frozenset(key for c in conditions for key in ((c.x,) if c.kind == "mark" else (c.x, c.y)) if key)


Test = Callable[[State], bool]


def test(engine: Mended, condition: Condition) -> Test:
    """The condition as a function of a state of `engine`."""
    home = engine.home
    kind, x = condition.kind, home.bit[condition.x]
    y = home.bit.get(condition.y, 0)
    if kind in ("on", "in", "served", "held", "mark"):
        i = engine.index(x)
        mark = engine.mark(x, condition.y) if kind == "mark" else 0
        tests: dict[str, Test] = {
            "on": lambda s: s.on[i] & y > 0,
            "in": lambda s: s.inside[i] & y > 0,
            "served": lambda s: s.on[i] & y > 0 or s.right == x or s.left == x,
            "held": lambda s: s.right == x or s.left == x,
            "mark": lambda s: s.marks & mark > 0,
        }
        return tests[kind]
    tests = {
        "open": lambda s: s.open & x > 0,
        "closed": lambda s: not s.open & x,
        "running": lambda s: s.power & x > 0,
        "off": lambda s: not s.power & x,
        "seated": lambda s: s.sitting and s.seat & x > 0,
        "room": lambda s: s.room == x,
    }
    return tests[kind]


def milestones(home: Home, stage: Stage) -> list[Condition]:
    """What there is to be reached on the way through a stage, its own conditions included; each is paid once."""
    found: list[Condition] = []
    for c in stage:
        if c.kind in ("on", "in", "mark"):
            found.append(Condition("held", c.x))
        if c.kind == "mark":
            device = next(key for key, thing in home.things.items() if thing.process == c.y)
            found.append(Condition("on" if home.things[device].surface else "in", c.x, device))
        if c.kind != "closed" or len(stage) == 1:  # beside other conditions a shut door is no achievement
            found.append(c)
    return list(dict.fromkeys(found))


class Tracker:
    """Follows one goal through the states of an episode. `stage` and `reached` only ever grow."""

    def __init__(self, engine: Mended, goal: Goal) -> None:
        self.goal = goal
        self.stages = [[test(engine, c) for c in stage] for stage in goal.stages]
        self.marks = [
            (k, test(engine, c)) for k, stage in enumerate(goal.stages) for c in milestones(engine.home, stage)
        ]

    def start(self, s: State) -> tuple[int, int]:
        """(stage, reached) at the start; `reached` is a mask of the milestones."""
        return self.advance(s, 0), self._reached(s, 0, 0)

    def advance(self, s: State, stage: int) -> int:
        """The stage after arriving in `s`; `len(stages)` when all is done."""
        while stage < len(self.stages) and all(holds(s) for holds in self.stages[stage]):
            stage += 1
        return stage

    def follow(self, s: State, stage: int, reached: int) -> tuple[int, int]:
        """The same pair after arriving in `s`."""
        after = self.advance(s, stage)
        reached = self._reached(s, stage, reached)
        return after, reached if after == stage else self._reached(s, after, reached)

    def _reached(self, s: State, stage: int, reached: int) -> int:
        for i, (k, holds) in enumerate(self.marks):
            if not reached >> i & 1 and (k < stage or (k == stage and holds(s))):
                reached |= 1 << i
        return reached
