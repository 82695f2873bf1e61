"""Game of two agents in one home: who is where, what each may do and sees, and which errands are done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from envsuite.envs.virtualhome.engine import WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.homes.conditions import test_of
from envsuite.envs.virtualhome.homes.rules import HomeRules
from envsuite.envs.virtualhome.homes.text import LOOK_ACTION, REFUSED, HomeCommandParser, Narrator, offers, phrase
from envsuite.envs.virtualhome.pair.generator import SharedHome
from envsuite.envs.virtualhome.text import listing

_OWN = 7  # fields of a HomeState that belong to one agent: room to facing; the others are the home's
NOT_YOURS = "You have no key to that room."
MILESTONES = 4
"""equal shares of an errand: carried by the other agent, laid down in the shared room, carried by its owner, done"""


class CommandResult(NamedTuple):
    """Text and validity of a command."""

    text: str
    valid: bool


class SharedGame:
    """Game in a drawn home; agents are numbered from 0."""

    def __init__(self, drawn: SharedHome, nearsighted: bool) -> None:
        self.drawn, self.home = drawn, drawn.home
        self.rules = HomeRules(drawn.home, nearsighted)
        self._tests = [[test_of(self.rules, c) for c in errand.conditions] for errand in drawn.errands]
        self._items = [drawn.home.bit[errand.item] for errand in drawn.errands]
        self._narrator = Narrator(self.rules)
        self._parser = HomeCommandParser(self.home)
        self.shared = drawn.home.bit[drawn.shared]
        rooms = [sum(drawn.home.bit[room] for room in mine) | self.shared for mine in drawn.rooms]
        self._foreign = [[bit for bit in drawn.home.room_bits if not bit & mine] for mine in rooms]
        self._locked = [{phrase(self.home, HomeAction(WALK, bit)) for bit in bits} for bits in self._foreign]
        start = self.rules.start
        self._own: list[tuple[Any, ...]] = []
        for name in drawn.starts:
            self._own.append((drawn.home.bit[name], *start[1:_OWN]))
        self._home: tuple[Any, ...] = start[_OWN:]
        self.done = [False] * len(drawn.errands)
        self.reached = [0] * len(drawn.errands)
        """milestones of each errand that were reached, as bits"""

    def state(self, agent: int) -> HomeState:
        """Returns the home with one agent in it."""
        return HomeState(*self._own[agent], *self._home)

    def offers(self, agent: int) -> list[str]:
        """Returns the commands that an agent can give now."""
        locked = self._locked[agent]
        return [command for command in offers(self.rules, self.state(agent)) if command not in locked]

    def phrase(self, action: HomeAction) -> str:
        """Returns the command for an action."""
        return phrase(self.home, action)

    def describe(self, agent: int) -> str:
        """Returns all that an agent sees."""
        return self._narrator.everything(self.state(agent)) + self._company(agent)

    def _company(self, agent: int) -> str:
        partner = 1 - agent
        return f" Agent {partner + 1} is here." if self._own[partner][0] == self._own[agent][0] else ""

    def note(self, agent: int) -> str:
        """Returns the reminder of an agent's rooms and of what is left on its list."""
        left = [errand.text for i, errand in self.errands(agent) if not self.done[i]]
        mine = listing(f"the {room}" for room in self.drawn.rooms[agent])
        todo = "; ".join(left) if left else "all done"
        return f"Your list: {todo}. Your rooms: {mine}. Shared room: the {self.drawn.shared}."

    def errands(self, agent: int) -> Iterator[tuple[int, Any]]:
        """Yields number and errand for all on an agent's list."""
        return ((i, errand) for i, errand in enumerate(self.drawn.errands) if errand.owner == agent)

    def act(self, agent: int, text: str) -> CommandResult:
        """Executes an agent's command and returns what it sees of it."""
        action = self._parser.parse(text)
        if action is None:
            return CommandResult(REFUSED["UNKNOWN"], False)
        if action == LOOK_ACTION:
            return CommandResult(self.describe(agent), True)
        if action.verb == WALK and action.x in self._foreign[agent]:
            return CommandResult(NOT_YOURS, False)
        after, error = self.rules.apply(self.state(agent), action)
        if error:
            return CommandResult(REFUSED[error], False)
        self._own[agent], self._home = after[:_OWN], after[_OWN:]
        text = self._narrator.news(after, action)
        if action.verb == WALK and action.x & self.home.room_mask:
            text += self._company(agent)
        return CommandResult(text + "".join(self._count(agent, after)), True)

    def _count(self, agent: int, s: HomeState) -> Iterator[str]:
        """Notes the milestones that a state has reached. Yields a sentence for each errand that it completes."""
        for i, errand in enumerate(self.drawn.errands):
            if self.done[i]:
                continue
            item = self._items[i]
            if item in (s.right, s.left):
                self.reached[i] |= 4 if agent == errand.owner else 1
            elif self.reached[i] & 1 and s.inside[self.rules.index(item)] & self.shared:
                self.reached[i] |= 0 if self._held_by(1 - agent, item) else 2
            if all(test(s) for test in self._tests[i]):
                self.done[i], self.reached[i] = True, 7
                yield f" Done: {errand.text}."

    def _held_by(self, agent: int, item: int) -> bool:
        return item in self._own[agent][2:4]

    @property
    def progress(self) -> float:
        """Returns the share of the dense reward that is earned."""
        earned = sum(bits.bit_count() + done for bits, done in zip(self.reached, self.done, strict=True))
        return earned / (MILESTONES * len(self.done))

    def save(self) -> Any:
        """Returns the state for `load`; equal values mean equal states."""
        return tuple(self._own), self._home, tuple(self.done), tuple(self.reached)

    def load(self, saved: Any) -> None:
        """Restores a saved state."""
        own, self._home, done, reached = saved
        self._own, self.done, self.reached = list(own), list(done), list(reached)
