"""Exact planner for ordered goals: the shortest of the plans for every way to fix the goal's choices.

A preference is fixed to its better option, so a plan is the shortest one that earns the full dense reward.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from envsuite.envs.virtualhome.household.goals import Choice, OrderedGoal, OrderedTracker, ground
from envsuite.envs.virtualhome.rules.engine import HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.goals import Condition, HouseholdGoal, Stage, predicate
from envsuite.envs.virtualhome.rules.lower_bound import NEVER
from envsuite.envs.virtualhome.rules.planner import HouseholdPlanner, _Reduced


class OrderedPlanner(HouseholdPlanner):
    """Shortest plans to one ordered goal in one home."""

    def __init__(self, engine: FixedEngine, tracker: OrderedTracker) -> None:
        super().__init__(engine, tracker)
        self.goal: OrderedGoal = tracker.goal
        self._grounded: dict[int, list[HouseholdGoal]] = {}
        self._searches: dict[tuple[int, int, frozenset[str]], _Reduced] = {}

    def _plan(self, s: HomeState, stage: int) -> list[HomeAction]:
        if stage == self.tracker.last:
            return []
        if stage not in self._grounded:
            self._grounded[stage] = ground(self.goal, stage)
        extra = self._also_relevant(s, stage)
        searches = []
        for number, goal in enumerate(self._grounded[stage]):
            key = stage, number, self._relevant(s, goal) | extra
            if key not in self._searches:
                self._searches[key] = _Reduced(self.engine, goal, key[2], partial(self._track, stage))
            search = self._searches[key]
            searches.append((search.bound_at(s, stage), number, search))
        best: list[HomeAction] | None = None
        for bound, _, search in sorted(searches, key=lambda row: row[:2]):
            limit = NEVER if best is None else len(best)
            if bound < limit:
                best = search.plan_below(s, stage, limit) or best
        if best is None:
            raise AssertionError(f"no plan to {self.goal.text!r}")
        return best

    def _track(self, stage: int, engine: FixedEngine) -> OrderedTracker:
        """Returns a tracker of the parts from `stage` on; the things of earlier parts may be missing."""
        earlier: tuple[Stage, ...] = ((),) * stage
        return OrderedTracker(engine, replace(self.goal, parts=(*earlier, *self.goal.parts[stage:])))

    def _also_relevant(self, s: HomeState, stage: int) -> frozenset[str]:
        """Returns the objects that already meet an option of a choice, and all on or in places to be left bare."""
        home = self.engine.home
        keys: set[str] = set()
        for part in self.goal.parts[stage:]:
            for requirement in part:
                if isinstance(requirement, Choice):
                    for option in requirement.options:
                        if all(predicate(self.engine, c)(s) for c in option if c.kind in ("on", "in", "held", "mark")):
                            keys.update(c.x for c in option)
                elif requirement.kind == "bare":
                    keys.update(self._objects_at(s, requirement))
        return frozenset(keys & home.things.keys())

    def _objects_at(self, s: HomeState, condition: Condition) -> list[str]:
        home = self.engine.home
        place = home.bit[condition.x]
        bits = zip(home.movable_bits, s.on, s.inside, strict=True)
        return [home.names[bit.bit_length() - 1] for bit, on, inside in bits if (on | inside) & place]
