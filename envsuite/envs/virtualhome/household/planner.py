"""Planner for ordered goals: the shortest of the plans for every way to fix the goal's choices.

A preference is fixed to its better option, so a plan is the shortest one that earns the full dense reward. Where the
search for the whole goal would visit more than `BUDGET` states, the plan is a shortest one part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from envsuite.envs.virtualhome.household.goals import Alternatives, OrderedGoal, OrderedTracker, Part, ground
from envsuite.envs.virtualhome.rules.engine import CLOSE, WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.goals import Condition, HouseholdGoal, predicate
from envsuite.envs.virtualhome.rules.lower_bound import NEVER
from envsuite.envs.virtualhome.rules.planner import HouseholdPlanner, ReducedSearch, SearchTooLong

BUDGET = 2000
"""most states of a search for several parts"""
Track = Callable[[FixedEngine], OrderedTracker]


class OrderedSearch(ReducedSearch):
    """Search that leaves out commands that no shortest plan needs.

    It does not enter rooms where nothing matters, and closes only what must be closed or works when closed.
    """

    def __init__(self, engine: FixedEngine, goal: HouseholdGoal, keys: frozenset[str], track: Track) -> None:
        super().__init__(engine, goal, keys, track)
        home = self.engine.home
        conditions = [c for stage in goal.stages for c in stage]
        self._rooms = sum({home.bit[c.x] for c in conditions if c.kind == "room"})
        for room in home.room_bits:
            if home.fixed_in[room]:
                self._rooms |= room
        self._closing = sum({home.bit[c.x] for c in conditions if c.kind == "closed"}) | sum(home.process)

    def _moves(self, s: HomeState) -> list[HomeAction]:
        skipped = self.engine.home.room_mask & ~self._rooms
        return [
            action
            for action in super()._moves(s)
            if not (action.verb == WALK and action.x & skipped) and (action.verb != CLOSE or action.x & self._closing)
        ]


class OrderedPlanner(HouseholdPlanner):
    """Shortest plans to one ordered goal in one home."""

    def __init__(self, engine: FixedEngine, tracker: OrderedTracker) -> None:
        super().__init__(engine, tracker)
        self.goal: OrderedGoal = tracker.goal
        self._searches: dict[tuple[int, int, int, frozenset[str]], OrderedSearch] = {}

    def _plan(self, s: HomeState, stage: int) -> list[HomeAction]:
        last = self.tracker.last
        try:
            return self._shortest(s, stage, last, BUDGET) if stage < last else []
        except SearchTooLong:
            plan: list[HomeAction] = []
            for part in range(stage, last):
                for action in self._shortest(s, part, part + 1, NEVER):
                    plan.append(action)
                    after, _ = self.engine.apply(s, action)
                    s, _ = self.tracker.step(s, after, part)
            return plan

    def _shortest(self, s: HomeState, first: int, last: int, budget: int) -> list[HomeAction]:
        """Returns a shortest plan for the parts from `first` to before `last`. Raises SearchTooLong."""
        earlier: tuple[Part, ...] = ((),) * first
        goal = replace(self.goal, parts=(*earlier, *self.goal.parts[first:last]))
        extra = self._also_relevant(s, goal)
        searches = []
        for number, grounded in enumerate(ground(goal)):
            key = first, last, number, self._relevant(s, grounded) | extra
            if key not in self._searches:
                self._searches[key] = OrderedSearch(
                    self.engine, grounded, key[3], lambda engine: OrderedTracker(engine, goal)
                )
            search = self._searches[key]
            searches.append((search.bound_at(s, first), number, search))
        best: list[HomeAction] | None = None
        for bound, _, search in sorted(searches, key=lambda row: row[:2]):
            limit = NEVER if best is None else len(best)
            if bound < limit:
                best = search.plan_below(s, first, limit, budget) or best
                budget -= search.visited
        if best is None:
            raise AssertionError(f"no plan to {goal.text!r}")
        return best

    def _rooms_to_put_down(self, s: HomeState, places: int, doorless: int, goal: HouseholdGoal) -> Iterable[int]:
        home = self.engine.home
        mentioned = sum({home.bit[key] for key in goal.keys if key in home.rooms})
        rooms = s.room | mentioned | sum({home.room_of[bit] for bit in home.bits(places & ~home.movable)})
        relevant = home.bits(rooms)
        return relevant if any(home.fixed_in[room] & doorless for room in relevant) else home.room_bits

    def _also_relevant(self, s: HomeState, goal: OrderedGoal) -> frozenset[str]:
        """Returns the objects that already meet an option of a choice, and all on or in places to be left bare."""
        home = self.engine.home
        keys: set[str] = set()
        for part in goal.parts:
            for requirement in part:
                if isinstance(requirement, Alternatives):
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
