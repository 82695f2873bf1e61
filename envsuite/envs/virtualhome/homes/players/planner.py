"""Exact planner: the shortest of the plans for every way to fix a goal's choices.

A preference is fixed to its better option, so a plan is the shortest one that earns the full dense reward. Where the
search for the whole goal would visit more than `BUDGET` states, the plan is a shortest one part by part.
"""

from __future__ import annotations

from dataclasses import replace

from envsuite.envs.virtualhome.engine import HomeAction, HomeState
from envsuite.envs.virtualhome.homes.conditions import Condition, test_of
from envsuite.envs.virtualhome.homes.goals import Alternatives, GoalTracker, OrderedGoal, Part, ground
from envsuite.envs.virtualhome.homes.players.lower_bound import NEVER
from envsuite.envs.virtualhome.homes.players.search import Node, ReducedSearch, SearchTooLong, relevant_keys
from envsuite.envs.virtualhome.homes.rules import HomeRules

BUDGET = 2000
"""most states of a search for several parts"""


class Planner:
    """Shortest plans to one goal in one home; caches every state on a plan."""

    def __init__(self, rules: HomeRules, tracker: GoalTracker) -> None:
        self.rules, self.tracker = rules, tracker
        self._searches: dict[tuple[int, int, int, frozenset[str]], ReducedSearch] = {}
        self._plans: dict[Node, tuple[int, HomeAction | None]] = {}

    def next(self, s: HomeState, part: int) -> tuple[int, HomeAction | None]:
        """Returns the number of commands to the goal and the first of them (None if the goal is reached)."""
        if (s, part) not in self._plans:
            plan = self._plan(s, part)
            now, k = s, part
            for done, action in enumerate(plan):
                self._plans.setdefault((now, k), (len(plan) - done, action))
                after, error = self.rules.apply(now, action)
                assert not error, f"planned {action}, refused as {error}"
                now, k = self.tracker.step(now, after, k)
            self._plans.setdefault((now, k), (0, None))
        return self._plans[s, part]

    def _plan(self, s: HomeState, first: int) -> list[HomeAction]:
        last = self.tracker.last
        try:
            return self._shortest(s, first, last, BUDGET) if first < last else []
        except SearchTooLong:
            plan: list[HomeAction] = []
            for part in range(first, last):
                for action in self._shortest(s, part, part + 1, NEVER):
                    plan.append(action)
                    after, _ = self.rules.apply(s, action)
                    s, _ = self.tracker.step(s, after, part)
            return plan

    def _shortest(self, s: HomeState, first: int, last: int, budget: int) -> list[HomeAction]:
        """Returns a shortest plan for the parts from `first` to before `last`. Raises SearchTooLong."""
        full_goal = self.tracker.goal
        earlier: tuple[Part, ...] = ((),) * first
        goal = replace(full_goal, parts=(*earlier, *full_goal.parts[first:last]))
        extra = self._also_relevant(s, goal)
        searches = []
        for number, grounded in enumerate(ground(goal)):
            key = first, last, number, relevant_keys(self.rules, s, grounded) | extra
            if key not in self._searches:
                self._searches[key] = ReducedSearch(self.rules, goal, grounded, key[3])
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

    def _also_relevant(self, s: HomeState, goal: OrderedGoal) -> frozenset[str]:
        """Returns the objects that already meet an option of a choice, and all on or in places to be left bare."""
        home = self.rules.home
        keys: set[str] = set()
        for part in goal.parts:
            for requirement in part:
                if isinstance(requirement, Alternatives):
                    for option in requirement.options:
                        if all(test_of(self.rules, c)(s) for c in option if c.kind in ("on", "in", "held", "mark")):
                            keys.update(c.x for c in option)
                elif requirement.kind == "bare":
                    keys.update(self._objects_at(s, requirement))
        return frozenset(keys & home.things.keys())

    def _objects_at(self, s: HomeState, condition: Condition) -> list[str]:
        home = self.rules.home
        place = home.bit[condition.x]
        bits = zip(home.movable_bits, s.on, s.inside, strict=True)
        return [home.names[bit.bit_length() - 1] for bit, on, inside in bits if (on | inside) & place]
