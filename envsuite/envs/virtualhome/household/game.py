"""Game of version 1: an ordered goal in a drawn home."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from envsuite.envs.virtualhome.household.draft import DrawnHome
from envsuite.envs.virtualhome.household.goals import SECOND_CHOICE, OrderedTracker, conditions
from envsuite.envs.virtualhome.household.partial import SearchingExpert
from envsuite.envs.virtualhome.household.planner import OrderedPlanner
from envsuite.envs.virtualhome.household.rules import HouseholdEngine
from envsuite.envs.virtualhome.household.text import REASONS, Offers, QuotedCommandParser, ShortNarrator
from envsuite.envs.virtualhome.rules.engine import WALK, HomeAction, HomeState
from envsuite.types import Outcome

_LOOK_WORDS = ("look", "look around")


class HouseholdGame:
    """Goal in a drawn home; `full_view`: every observation describes the whole room."""

    def __init__(self, drawn: DrawnHome, nearsighted: bool, full_view: bool) -> None:
        self.drawn, self.home, self.goal = drawn, drawn.home, drawn.goal
        tracker = drawn.tracker
        if tracker.engine.home is drawn.home:
            self.engine, self.tracker = HouseholdEngine(drawn.home, nearsighted, tracker.engine.start), tracker
        else:  # the home of a game was replaced
            self.engine = HouseholdEngine(drawn.home, nearsighted)
            self.tracker = OrderedTracker(self.engine, drawn.goal)
        self.objective = drawn.goal.text
        self.full_view = full_view
        self._narrator = ShortNarrator(self.engine)
        self._list_offers = Offers(self.engine)
        # Walking changes nothing but the room, so most parts are not checked after it.
        self._room_matters = [any(c.kind == "room" for c in conditions(part)) for part in drawn.goal.parts]
        self._restart()

    @cached_property
    def planner(self) -> OrderedPlanner:
        """Returns the exact planner, built on first use."""
        return OrderedPlanner(self.engine, self.tracker)

    @cached_property
    def _grammar(self) -> QuotedCommandParser:
        return QuotedCommandParser(self.home)

    def begin(self) -> str:
        """Restores the initial state and returns its text."""
        if self._expert or len(self.history) > 1 or self.state is not self.engine.start:
            self._restart()
        return self._narrator.everything(self.state)

    def _restart(self) -> None:
        self.state = self.engine.start
        self.part, self.earned = 0, 0.0
        self.preferences: tuple[bool, ...] = ()
        self.reached = self.tracker.reached(self.state, 0, 0)
        self.history: list[HomeState] = [self.state]
        self._expert: SearchingExpert | None = None
        self._offers = self._list_offers(self.state)

    @property
    def progress(self) -> float:
        """Returns the share of the dense reward that is earned."""
        if self.part == len(self.goal.parts):
            return self.earned
        return self.earned + self.tracker.share(self.part, self.reached) / len(self.goal.parts)

    def act(self, text: str) -> Outcome:
        """Executes one command and reports what it changed. The dense reward is the change of `progress`."""
        action = self._list_offers.action(text) or self._parse(text)
        if action is None:
            return Outcome(REASONS["UNKNOWN"], valid=False)
        if action.verb == "look":
            return Outcome(self._narrator.everything(self.state))
        # What is on offer can be seen, so that only other commands need a look at what is in sight.
        after, error = self.engine.apply(self.state, action, -1 if text in self._offers else None)
        if error:
            return Outcome(REASONS[error], valid=False)
        if action.verb == WALK and not self._room_matters[self.part]:
            self.state = after
            self.history.append(after)
            self._offers = self._list_offers(after)
            text = self._narrator.everything(after) if self.full_view else self._narrator.news(after, action)
            return Outcome(text)
        before, part = self.progress, self.part
        self._arrive(after)
        parts = len(self.goal.parts)
        success = self.part == parts
        report = self._narrator.everything if self.full_view else None
        sentences = [report(self.state) if report else self._narrator.news(self.state, action)]
        if success:
            sentences.append("The task is done.")
        elif self.part > part:
            sentences.append(f"Part {self.part} of {parts} is done.")
        now = self.progress
        return Outcome(" ".join(sentences), now - before, success, success, True, now)

    def _parse(self, text: str) -> HomeAction | None:
        action = self._grammar.parse(text)
        if action is None and text.strip(" .!\"'`").lower() in _LOOK_WORDS:
            return HomeAction("look")
        return action

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
        self._offers = self._list_offers(self.state)

    def admissible(self) -> list[str]:
        """Returns every command that would be accepted now."""
        return list(self._offers)

    def plan(self) -> tuple[int, str | None]:
        """Returns (fewest commands to the goal, with all preferences met, and the next of them)."""
        remaining, action = self.planner.next(self.state, self.part)
        return remaining, self._list_offers.phrase(action) if action else None

    def search(self) -> str | None:
        """Returns the next command of the expert that knows only what this episode has shown."""
        if self.part == len(self.goal.parts):
            return None
        if self._expert is None:
            self._expert = SearchingExpert(self.engine, self.goal)
        action = self._expert.next(self.history, self.part)
        return self._list_offers.phrase(action) if action else None

    def save(self) -> Any:
        """Returns the state for `load`."""
        return self.state, self.part, self.reached, self.earned, self.preferences

    def load(self, saved: Any) -> None:
        """Restores a saved state. The searching expert then knows only what is visible in it."""
        self.state, self.part, self.reached, self.earned, self.preferences = saved
        self.history = [self.state]
        self._expert = None
        self._offers = self._list_offers(self.state)
