"""One episode's worth of rules behind the environment: the published tasks, and goals in mended homes."""

from __future__ import annotations

from typing import Any

from envsuite.envs.virtualhome.atlas import atlas
from envsuite.envs.virtualhome.engine import Action, Engine, State
from envsuite.envs.virtualhome.fixed import mended
from envsuite.envs.virtualhome.goals import Goal, Tracker
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.mended import Mended
from envsuite.envs.virtualhome.planner import Planner
from envsuite.envs.virtualhome.published import published
from envsuite.envs.virtualhome.text import (
    REFUSED,
    Grammar,
    Narrator,
    command,
    done,
    paragraph,
    published_objective,
)
from envsuite.types import Outcome

REMEMBERED = 300  # states of a home whose text is kept


class PublishedGame:
    """A paper's task, quirks included. The text tells the published facts and nothing of what was refused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task = published(name)
        self.objective = published_objective(self.task)
        self.labels = {"task_type": name, "mode": "published"}
        self._grammar = Grammar(self.home)
        self._actions = {command(self.home, action): action for action in self.task.actions}
        self._spelled = list(self._actions)
        self._known = frozenset(self.task.actions)
        self._shown: dict[tuple[int, ...], tuple[str, tuple[str, ...], bool]] = {}
        self.begin()

    @property
    def engine(self) -> Engine:
        return self.task.engine

    @property
    def home(self) -> Home:
        return self.task.home

    def begin(self) -> str:
        """Back to the start; the first paragraph."""
        self.state = self.engine.start
        self.reached = 0
        return self._look()

    def act(self, said: str) -> Outcome:
        """Carries one command out. Dense pays each subgoal once, and the rest at success: 1 in all."""
        action = self._actions.get(said)
        if action is None:
            action = self._grammar.parse(said)
        error = "UNKNOWN"
        if action in self._known:
            assert action is not None
            self.state, error = self.engine.apply(self.state, action, self._seen)
        before = self.reached
        text = self._look()
        goals = self.task.subgoals(self.state)
        for i, holds in enumerate(goals):
            self.reached |= holds << i
        parts = len(goals) + 1
        share = self.reached.bit_count() / parts
        reward = 1.0 - before.bit_count() / parts if self._success else (self.reached ^ before).bit_count() / parts
        return Outcome(text, reward, self._success, self._success, not error, share)

    def _look(self) -> str:
        task = self.task
        self._seen = self.engine.visible(self.state)
        vector = task.vector(self.state, self._seen)
        shown = self._shown.get(vector)
        if shown is None:
            offers = tuple(self._spelled[i] for i in task.offers(vector))
            shown = paragraph(task, task.facts(vector)), offers, task.success(vector)
            self._shown[vector] = shown
        text, self._offers, self._success = shown
        return text

    def admissible(self) -> list[str]:
        """What the papers offer now, in their order; every action of the task is carried out, offered or not."""
        return list(self._offers)

    def plan(self) -> tuple[int | None, str | None]:
        """(commands left at the least, the next one)."""
        left, index = atlas(self.name).get(self.state, (None, -1))
        return left, self._spelled[index] if index >= 0 else None

    def save(self) -> Any:
        """The state, for `load`."""
        return self.state, self.reached

    def load(self, saved: Any) -> None:
        """Back to a saved state."""
        self.state, self.reached = saved
        self._look()


class MendedGame:
    """A goal in a home under the mended rules. `sight`: 'home', 'room' or 'spot'."""

    def __init__(self, home: Home, goal: Goal, sight: str = "room", labels: dict[str, str] | None = None) -> None:
        self.home, self.goal = home, goal
        self.objective = goal.text
        self.labels = {"task_type": goal.name, "mode": "fixed", **(labels or {})}
        self.engine = Mended(home, nearsighted=sight == "spot")
        self.tracker = Tracker(self.engine, goal)
        self.planner = Planner(self.engine, self.tracker)
        self._narrator = Narrator(self.engine, everywhere=sight == "home")
        self._grammar = Grammar(home)
        self._shown: dict[State, tuple[str, dict[str, Action], int]] = {}
        self._spelled: dict[Action, str] = {}
        self.begin()

    def begin(self) -> str:
        """Back to the start; what is seen first."""
        self.state = self.engine.start
        self.stage, self.reached = self.tracker.start(self.state)
        return self._look()

    def _look(self) -> str:
        """Tells the state, and finds what is offered in it."""
        shown = self._shown.get(self.state)
        if shown is None:
            if len(self._shown) >= REMEMBERED:
                self._shown.clear()
            seen = self.engine.visible(self.state)
            offers = {self._spell(action): action for action in self.engine.commands(self.state, seen)}
            shown = self._shown[self.state] = self._narrator(self.state, seen), offers, seen
        text, self._offers, self._seen = shown
        return text

    def _spell(self, action: Action) -> str:
        spelled = self._spelled.get(action)
        if spelled is None:
            spelled = self._spelled[action] = command(self.home, action)
        return spelled

    def act(self, said: str) -> Outcome:
        """Carries one command out and tells what came of it. Dense pays each milestone once: 1 in all."""
        action = self._offers.get(said) or self._grammar.parse(said)
        error = "UNKNOWN"
        if action is not None:
            self.state, error = self.engine.apply(self.state, action, self._seen)
        if error or action is None:
            return Outcome(f"{REFUSED[error]} {self._look()}", valid=False)
        before, stage = self.reached.bit_count(), self.stage
        self.stage, self.reached = self.tracker.follow(self.state, self.stage, self.reached)
        parts = len(self.tracker.marks)
        last = len(self.goal.stages)
        success = self.stage == last
        now = parts if success else self.reached.bit_count()
        told = [done(self.home, action)]
        if success:
            told.append("The task is done.")
        elif self.stage > stage:
            told.append(f"Part {self.stage} of {last} is done.")
        told.append(self._look())
        return Outcome(" ".join(told), (now - before) / parts, success, success, True, now / parts)

    def admissible(self) -> list[str]:
        """Every command that would be carried out now."""
        return list(self._offers)

    def plan(self) -> tuple[int | None, str | None]:
        """(commands left at the least, the next one)."""
        left, action = self.planner.next(self.state, self.stage)
        return left, command(self.home, action) if action else None

    def save(self) -> Any:
        """The state, for `load`."""
        return self.state, self.stage, self.reached

    def load(self, saved: Any) -> None:
        """Back to a saved state."""
        self.state, self.stage, self.reached = saved
        self._look()


def fixed_game(name: str, sight: str) -> MendedGame:
    """One of the papers' tasks, mended."""
    home, goal = mended(name)
    return MendedGame(home, goal, sight)
