"""Conditions on the state of a home, and goals whose choices are fixed: sequences of stages of conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.homes.rules import HomeRules


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
class GroundedGoal:
    """Goal without choices: a sequence of stages, whose conditions must hold at the same time."""

    text: str
    stages: tuple[Stage, ...]

    @property
    def keys(self) -> frozenset[str]:
        """Returns the keys of everything that the goal mentions."""
        conditions = [c for stage in self.stages for c in stage]
        return frozenset(key for c in conditions for key in ((c.x,) if c.kind == "mark" else (c.x, c.y)) if key)


Test = Callable[[HomeState], bool]


def test_of(rules: HomeRules, condition: Condition) -> Test:
    """Returns the condition as a test of states, which `rules` keeps."""
    test = rules.tests.get(condition)
    if test is None:
        test = rules.tests[condition] = _test(rules, condition)
    return test


def _test(rules: HomeRules, condition: Condition) -> Test:
    home = rules.home
    kind, x = condition.kind, home.bit[condition.x]
    y = home.bit.get(condition.y, 0)
    if kind == "mark":
        mark = rules.mark(x, condition.y)
        return lambda s: s.marks & mark > 0
    if kind in _OF_OBJECTS:
        return _OF_OBJECTS[kind](rules.index(x), x, y)
    if kind == "bare":
        bits = home.movable_bits
        return lambda s: all(
            bit == y or not (on | inside) & x for bit, on, inside in zip(bits, s.on, s.inside, strict=True)
        )
    return _OF_PLACES[kind](x)


_OF_OBJECTS: dict[str, Callable[[int, int, int], Test]] = {
    "on": lambda i, x, y: lambda s: s.on[i] & y > 0,
    "in": lambda i, x, y: lambda s: s.inside[i] & y > 0,
    "served": lambda i, x, y: lambda s: s.on[i] & y > 0 or s.right == x or s.left == x,
    "held": lambda i, x, y: lambda s: s.right == x or s.left == x,
    "absent": lambda i, x, y: lambda s: not (s.on[i] | s.inside[i]) & y,
}
_OF_PLACES: dict[str, Callable[[int], Test]] = {
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
