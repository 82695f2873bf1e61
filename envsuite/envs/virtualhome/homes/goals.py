"""Ordered goals: parts with conditions, counts, negations and preferences.

A goal is a sequence of parts. **A part counts at the first command, after the part before it has counted, that makes
its conditions hold together when they did not hold before that command.** What was done too early does not count:
a part whose conditions already hold when its turn comes must be undone and done again, and what appliances did to its
objects before its turn is forgotten. At most one part counts per command.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.homes.conditions import Condition, GroundedGoal, Stage, Test, milestones, test_of
from envsuite.envs.virtualhome.homes.rules import HomeRules


@dataclass(frozen=True)
class Alternatives:
    """Requires that `count` of the `options` hold, each a conjunction; `ranked`: the first option is worth more."""

    count: int
    options: tuple[Stage, ...]
    ranked: bool = False


Requirement = Condition | Alternatives
Part = tuple[Requirement, ...]
QUIET = ("closed", "absent", "bare")  # conditions that often hold from the start earn nothing by themselves
SECOND_CHOICE = 0.5
"""share of a part's dense reward that the second of two preferences earns"""


@dataclass(frozen=True)
class OrderedGoal:
    """Goal of an episode: its text and its parts, with the class of each."""

    text: str
    parts: tuple[Part, ...]
    classes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Returns the goal classes joined with '+'."""
        return "+".join(self.classes)


def conditions(part: Part) -> Iterator[Condition]:
    """Yields every condition of a part, including all options of its choices."""
    for requirement in part:
        if isinstance(requirement, Alternatives):
            for option in requirement.options:
                yield from option
        else:
            yield requirement


def groundings(part: Part) -> list[Stage]:
    """Returns every way to fix the choices of a part; a preference is fixed to the better option."""
    ways = [
        [(requirement,)]
        if isinstance(requirement, Condition)
        else [requirement.options[0]]
        if requirement.ranked
        else [sum(chosen, ()) for chosen in combinations(requirement.options, requirement.count)]
        for requirement in part
    ]
    return [sum(chosen, ()) for chosen in product(*ways)]


def ground(goal: OrderedGoal, first: int = 0) -> list[GroundedGoal]:
    """Returns every way to fix the choices of the parts from `first` on; earlier parts are empty."""
    done: tuple[Stage, ...] = ((),) * first
    ways = product(*(groundings(part) for part in goal.parts[first:]))
    return [GroundedGoal(goal.text, (*done, *chosen)) for chosen in ways]


class GoalTracker:
    """Counts the parts of one goal in order; also returns the share of the dense reward that is earned."""

    def __init__(self, rules: HomeRules, goal: OrderedGoal) -> None:
        self.rules, self.goal = rules, goal
        self._requirements = [[self._test(requirement) for requirement in part] for part in goal.parts]
        self._tests_of_milestones: dict[int, list[Test]] = {}  # part -> tests, made when its turn comes
        self._better = [self._preference(part) for part in goal.parts]
        bit = rules.home.bit
        marks = [
            sum({rules.mark(bit[c.x], c.y) for c in conditions(part) if c.kind == "mark" and c.x in bit})
            for part in goal.parts
        ]
        self._forgotten = [~mask for mask in marks[1:]] + [-1]

    def _milestones(self, part: int) -> list[Test]:
        tests = self._tests_of_milestones.get(part)
        if tests is None:
            tests = self._tests_of_milestones[part] = self._milestone_tests(self.goal.parts[part])
        return tests

    @property
    def last(self) -> int:
        """Returns the number of parts."""
        return len(self._requirements)

    def step(self, before: HomeState, after: HomeState, part: int) -> tuple[HomeState, int]:
        """Returns the state after a command, and the part whose turn it is then (the number of parts: all done)."""
        if part < len(self._requirements) and self.holds(after, part) and not self.holds(before, part):
            if after.marks:
                after = after._replace(marks=after.marks & self._forgotten[part])
            return after, part + 1
        return after, part

    def holds(self, s: HomeState, part: int) -> bool:
        """Returns True if all conditions of a part hold."""
        return all(test(s) for test in self._requirements[part])

    def better(self, s: HomeState, part: int) -> bool | None:
        """Returns True if the better option of a part's preference holds; None without a preference."""
        test = self._better[part]
        return None if test is None else test(s)

    def reached(self, s: HomeState, part: int, reached: int) -> int:
        """Returns the bit mask of the part's milestones that were reached by now; each is reached once."""
        for i, test in enumerate(self._milestones(part)):
            if not reached >> i & 1 and test(s):
                reached |= 1 << i
        return reached

    def share(self, part: int, reached: int) -> float:
        """Returns the share of a part's dense reward that its milestones earn; the last of them ends the part."""
        return reached.bit_count() / (len(self._milestones(part)) + 1)

    def _option(self, option: Stage) -> Test:
        tests = [test_of(self.rules, c) for c in option]
        if len(tests) == 1:
            return tests[0]
        return lambda s: all(test(s) for test in tests)

    def _test(self, requirement: Requirement) -> Test:
        bit = self.rules.home.bit
        if isinstance(requirement, Condition):
            return test_of(self.rules, requirement)
        # A planner's home may lack objects that its plan leaves alone.
        options = [self._option(option) for option in requirement.options if all(c.x in bit for c in option)]
        count = requirement.count
        if count == 1:
            return lambda s: any(test(s) for test in options)
        return lambda s: sum(test(s) for test in options) >= count

    def _preference(self, part: Part) -> Test | None:
        for requirement in part:
            if isinstance(requirement, Alternatives) and requirement.ranked:
                known = all(c.x in self.rules.home.bit for c in requirement.options[0])
                return self._option(requirement.options[0]) if known else None
        return None

    def _milestone_tests(self, part: Part) -> list[Test]:
        """Returns the milestones: objects in a hand, in their appliance, treated, in place; switches and seats."""
        home = self.rules.home
        tests: list[Test] = []
        for requirement in part:
            if isinstance(requirement, Condition):
                tests += [test_of(self.rules, c) for c in milestones(home, (requirement,)) if c.kind not in QUIET]
                continue
            options = [option for option in requirement.options if all(c.x in home.bit for c in option)]
            steps = [
                [test_of(self.rules, c) for c in dict.fromkeys(m for c in option for m in milestones(home, (c,)))]
                for option in options
            ]
            for number in range(1, requirement.count + 1):
                for level in range(max(map(len, steps), default=0)):
                    tests.append(_count_at_least(number, [tests_of[level:] for tests_of in steps]))
        return tests


def _count_at_least(number: int, alternatives: list[list[Test]]) -> Test:
    """Returns a test for `number` options that have reached one of their last milestones."""
    return lambda s: sum(any(test(s) for test in tests) for tests in alternatives) >= number
