"""Game logic behind the environment: published tasks, and goals under the fixed rules."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from envsuite.envs.virtualhome.offers import OfferList
from envsuite.envs.virtualhome.rules.engine import WALK, HomeAction, HomeEngine, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.fixed_tasks import fixed_task
from envsuite.envs.virtualhome.rules.goals import GoalTracker, HouseholdGoal
from envsuite.envs.virtualhome.rules.home import Home
from envsuite.envs.virtualhome.rules.planner import HouseholdPlanner
from envsuite.envs.virtualhome.rules.published import published
from envsuite.envs.virtualhome.rules.solutions import solutions
from envsuite.envs.virtualhome.text import (
    REFUSED,
    CommandParser,
    Narrator,
    command,
    done,
    paragraph,
    published_objective,
)
from envsuite.types import Outcome

MAX_CACHED_STATES = 300  # states of a home whose text is cached


class PublishedGame:
    """Published task with all its quirks; its text states the published facts and no reasons of refusals."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task = published(name)
        self.objective = published_objective(self.task)
        self.labels = {"task_type": name, "mode": "published"}
        self._grammar = CommandParser(self.home)
        self._actions = {command(self.home, action): action for action in self.task.actions}
        self._commands = list(self._actions)
        self._legal = frozenset(self.task.actions)
        self._views: dict[tuple[int, ...], tuple[str, tuple[str, ...], bool]] = {}
        self.begin()

    @property
    def engine(self) -> HomeEngine:
        return self.task.engine

    @property
    def home(self) -> Home:
        return self.task.home

    def begin(self) -> str:
        """Restores the initial state and returns its text."""
        self.state = self.engine.start
        self.reached = 0
        return self._look()

    def act(self, text: str) -> Outcome:
        """Executes one command. The dense reward pays each subgoal once and the remainder at success, 1 in total."""
        action = self._actions.get(text)
        if action is None:
            action = self._grammar.parse(text)
        error = "UNKNOWN"
        if action in self._legal:
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
        view = self._views.get(vector)
        if view is None:
            offers = tuple(self._commands[i] for i in task.offers(vector))
            view = paragraph(task, task.facts(vector)), offers, task.success(vector)
            self._views[vector] = view
        text, self._offers, self._success = view
        return text

    def admissible(self) -> list[str]:
        """Returns the commands that the papers offer now, in their order."""
        return list(self._offers)

    def plan(self) -> tuple[int | None, str | None]:
        """Returns (fewest commands to the goal, next command); None where there is none."""
        remaining, index = solutions(self.name).get(self.state, (None, -1))
        return remaining, self._commands[index] if index >= 0 else None

    def save(self) -> Any:
        """Returns the state for `load`."""
        return self.state, self.reached

    def load(self, saved: Any) -> None:
        """Restores a saved state."""
        self.state, self.reached = saved
        self._look()


class FixedGame:
    """Goal in a home under the fixed rules; `sight` is 'home', 'room' or 'spot'."""

    def __init__(
        self, home: Home, goal: HouseholdGoal, sight: str = "room", labels: dict[str, str] | None = None
    ) -> None:
        self.home, self.goal = home, goal
        self.objective = goal.text
        self.labels = {"task_type": goal.name, "mode": "fixed", **(labels or {})}
        self.engine = FixedEngine(home, nearsighted=sight == "spot")
        self.tracker = GoalTracker(self.engine, goal)
        self._narrator = Narrator(self.engine, everywhere=sight == "home")
        self._offers_in = OfferList(self.engine)
        self._views: dict[HomeState, tuple[str, dict[str, HomeAction], int]] = {}
        self._reports: dict[HomeAction, str] = {}
        # A walk changes nothing but the room, so most goals are not checked after it.
        self._room_matters = any(condition.kind == "room" for stage in goal.stages for condition in stage)
        self.begin()

    @cached_property
    def _grammar(self) -> CommandParser:
        return CommandParser(self.home)

    @cached_property
    def planner(self) -> HouseholdPlanner:
        """Returns the exact planner, built on first use."""
        return HouseholdPlanner(self.engine, self.tracker)

    def begin(self) -> str:
        """Restores the initial state and returns its text."""
        self.state = self.engine.start
        self.stage, self.reached = self.tracker.start(self.state)
        return self._look()

    def _look(self) -> str:
        """Returns the text of the current state and updates the offered commands."""
        state = self.state
        view = self._views.get(state)
        if view is None:
            if len(self._views) >= MAX_CACHED_STATES:
                self._views.clear()
            loose = self.engine.loose(state)
            view = self._narrator(state, loose), self._offers_in(state, loose), self.engine.seen(state, loose)
            self._views[state] = view
        text, self._offers, self._seen = view
        return text

    def _report(self, action: HomeAction) -> str:
        """Returns the sentence that reports a successful action."""
        report = self._reports.get(action)
        if report is None:
            report = self._reports[action] = done(self.home, action)
        return report

    def act(self, text: str) -> Outcome:
        """Executes one command and describes its effect. The dense reward pays each milestone once, 1 in total."""
        action = self._offers.get(text) or self._grammar.parse(text)
        error = "UNKNOWN"
        if action is not None:
            self.state, error = self.engine.apply(self.state, action, self._seen)
        if error or action is None:
            return Outcome(f"{REFUSED[error]} {self._look()}", valid=False)
        if action.verb == WALK and not self._room_matters:
            return Outcome(f"{self._report(action)} {self._look()}", progression=self._share)
        before, stage = self.reached.bit_count(), self.stage
        self.stage, self.reached = self.tracker.follow(self.state, self.stage, self.reached)
        parts = len(self.tracker.marks)
        last = len(self.goal.stages)
        success = self.stage == last
        now = parts if success else self.reached.bit_count()
        sentences = [self._report(action)]
        if success:
            sentences.append("The task is done.")
        elif self.stage > stage:
            sentences.append(f"Part {self.stage} of {last} is done.")
        sentences.append(self._look())
        return Outcome(" ".join(sentences), (now - before) / parts, success, success, True, now / parts)

    @property
    def _share(self) -> float:
        """Returns the share of the milestones that have been reached."""
        return self.reached.bit_count() / len(self.tracker.marks)

    def admissible(self) -> list[str]:
        """Returns every command that would be accepted now."""
        return list(self._offers)

    def plan(self) -> tuple[int | None, str | None]:
        """Returns (fewest commands to the goal, next command); None where there is none."""
        remaining, action = self.planner.next(self.state, self.stage)
        return remaining, command(self.home, action) if action else None

    def save(self) -> Any:
        """Returns the state for `load`."""
        return self.state, self.stage, self.reached

    def load(self, saved: Any) -> None:
        """Restores a saved state."""
        self.state, self.stage, self.reached = saved
        self._look()


def fixed_game(name: str, sight: str) -> FixedGame:
    """Returns the game of a published task with the corrected rules of `fixed_tasks`."""
    home, goal = fixed_task(name)
    return FixedGame(home, goal, sight)
