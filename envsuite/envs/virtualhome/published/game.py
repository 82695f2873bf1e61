"""Game of a published task with all its quirks; its text states the published facts and no reasons of refusals."""

from __future__ import annotations

from typing import Any

from envsuite.envs.virtualhome.engine import HomeEngine
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.published.solutions import solutions
from envsuite.envs.virtualhome.published.tasks import published
from envsuite.envs.virtualhome.published.text import paragraph, published_objective
from envsuite.envs.virtualhome.text import CommandParser, command
from envsuite.types import Outcome


class PublishedGame:
    """One of the eight published tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task = published(name)
        self.objective = published_objective(self.task)
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
