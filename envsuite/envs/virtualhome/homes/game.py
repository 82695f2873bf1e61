"""Game in a drawn home: an ordered goal, what commands do, and what the player is told."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from envsuite.envs.virtualhome.engine import HomeAction, HomeState
from envsuite.envs.virtualhome.homes.builder import DrawnHome
from envsuite.envs.virtualhome.homes.goals import SECOND_CHOICE, GoalTracker
from envsuite.envs.virtualhome.homes.players.planner import Planner
from envsuite.envs.virtualhome.homes.players.searching_expert import SearchingExpert
from envsuite.envs.virtualhome.homes.rules import HomeRules
from envsuite.envs.virtualhome.homes.text import LOOK_ACTION, REFUSED, HomeCommandParser, Narrator, offers, phrase
from envsuite.types import Outcome


class HomeGame:
    """Goal in a drawn home."""

    def __init__(self, drawn: DrawnHome, nearsighted: bool, full_view: bool) -> None:
        """`nearsighted`: loose things are seen from nearby; `full_view`: each text describes the whole room."""
        self.drawn, self.home, self.goal = drawn, drawn.home, drawn.goal
        self.rules = HomeRules(drawn.home, nearsighted)
        self.tracker = GoalTracker(self.rules, drawn.goal)
        self.objective = drawn.goal.text
        self.full_view = full_view
        self._narrator = Narrator(self.rules)
        self._parser = HomeCommandParser(self.home)
        self._restart()

    @cached_property
    def planner(self) -> Planner:
        """Returns the exact planner, built on first use."""
        return Planner(self.rules, self.tracker)

    def begin(self) -> str:
        """Restores the initial state and returns its text."""
        self._restart()
        return self._narrator.everything(self.state)

    def _restart(self) -> None:
        self.state = self.rules.start
        self.part, self.earned = 0, 0.0
        self.preferences: tuple[bool, ...] = ()
        self.reached = self.tracker.reached(self.state, 0, 0)
        self._show()

    def _show(self) -> None:
        """Starts the history and the offers at the present state; the searching expert knows only what it shows."""
        self.history: list[HomeState] = [self.state]
        self._expert: SearchingExpert | None = None
        self._offers = offers(self.rules, self.state)

    @property
    def progress(self) -> float:
        """Returns the share of the dense reward that is earned."""
        if self.part == len(self.goal.parts):
            return self.earned
        return self.earned + self.tracker.share(self.part, self.reached) / len(self.goal.parts)

    def act(self, text: str) -> Outcome:
        """Executes one command and reports what it changed. The dense reward is the change of `progress`."""
        action = self._offers.get(text) or self._parser.parse(text)
        if action is None:
            return Outcome(REFUSED["UNKNOWN"], valid=False)
        if action == LOOK_ACTION:
            return Outcome(self._narrator.everything(self.state))
        after, error = self.rules.apply(self.state, action)
        if error:
            return Outcome(REFUSED[error], valid=False)
        before, part, parts = self.progress, self.part, len(self.goal.parts)
        self._arrive(after)
        sentences = [self._report(action)]
        success = self.part == parts
        if success:
            sentences.append("The task is done.")
        elif self.part > part:
            sentences.append(f"Part {self.part} of {parts} is done.")
        now = self.progress
        return Outcome(" ".join(sentences), now - before, success, success, True, now)

    def _report(self, action: HomeAction) -> str:
        return self._narrator.everything(self.state) if self.full_view else self._narrator.news(self.state, action)

    def _arrive(self, after: HomeState) -> None:
        tracker, part = self.tracker, self.part
        self.reached = tracker.reached(after, part, self.reached)
        better = tracker.better(after, part)
        self.state, self.part = tracker.step(self.state, after, part)
        if self.part > part:
            if better is not None:
                self.preferences = (*self.preferences, better)
            self.earned += (SECOND_CHOICE if better is False else 1.0) / len(self.goal.parts)
            self.reached = 0
            if self.part < len(self.goal.parts):
                self.reached = tracker.reached(self.state, self.part, 0)
        self.history.append(self.state)
        self._offers = offers(self.rules, self.state)

    def admissible(self) -> list[str]:
        """Returns every command that would be accepted now."""
        return list(self._offers)

    def plan(self) -> tuple[int, str | None]:
        """Returns (fewest commands to the goal, with all preferences met, and the next of them)."""
        remaining, action = self.planner.next(self.state, self.part)
        return remaining, phrase(self.home, action) if action else None

    def search(self) -> str | None:
        """Returns the next command of the expert that knows only what this episode has shown."""
        if self.part == len(self.goal.parts):
            return None
        if self._expert is None:
            self._expert = SearchingExpert(self.rules, self.goal)
        action = self._expert.next(self.history, self.part)
        return phrase(self.home, action) if action else None

    def save(self) -> Any:
        """Returns the state for `load`."""
        return self.state, self.part, self.reached, self.earned, self.preferences

    def load(self, saved: Any) -> None:
        """Restores a saved state."""
        self.state, self.part, self.reached, self.earned, self.preferences = saved
        self._show()
