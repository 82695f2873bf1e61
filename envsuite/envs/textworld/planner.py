"""The shortest way to win a generated game, searched on its logic.

A state is the set of facts that can change (bits of an int) and the set of quests completed so far (another int): a quest
that was completed stays so. Actions that can help no quest are left out, and so are those that could only be undone
again; neither is in any shortest plan. What is left is searched breadth-first, so that the plan is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from textworld.generator.game import Game
    from textworld.logic import Action, Proposition

STATES = 150_000
"""states looked at until a search is given up: a few seconds"""


class TooLarge(Exception):
    """The game has more states than are searched."""


class Move(NamedTuple):
    """A ground action on bits."""

    needs: int
    adds: int
    removes: int
    command: str


class Quest(NamedTuple):
    """What completes a quest, and what fails the game while it is open: alternatives, each a set of fact bits."""

    wins: tuple[int, ...]
    fails: tuple[int, ...]
    counts: bool  # must be completed to win


State = tuple[int, int]


class Planner:
    """Shortest plans for one game from any of its states."""

    def __init__(self, game: Game, limit: int = STATES) -> None:
        self.limit = limit
        initial = frozenset(game.world.state.facts)
        actions = _reachable_actions(game, initial)
        fluents = {fact for action, _ in actions for fact in (*action.added, *action.removed)}
        # A fact that no action touches is either there, and asks nothing, or never will be.
        self._bits = {fact: 1 << number for number, fact in enumerate(sorted(fluents))}
        self._static = initial - fluents
        self.quests = [
            Quest(
                tuple(
                    bits
                    for event in quest.win_events
                    if (bits := self._mask(event.condition.preconditions)) is not None
                ),
                tuple(
                    bits
                    for event in quest.fail_events
                    if (bits := self._mask(event.condition.preconditions)) is not None
                ),
                bool(quest.win_events) and not quest.optional,
            )
            for quest in game.quests
        ]
        self._all = sum(1 << number for number, quest in enumerate(self.quests) if quest.counts)
        self.moves = self._useful([self._move(action, command) for action, command in actions])
        self._plans: dict[State, tuple[int | None, str | None]] = {}
        self._initial = self._state_bits(initial)

    def _mask(self, facts: Iterable[Proposition]) -> int | None:
        """The bits of the facts that can change; None where one of the others does not hold."""
        bits = 0
        for fact in facts:
            if fact in self._bits:
                bits |= self._bits[fact]
            elif fact not in self._static:
                return None
        return bits

    def _move(self, action: Action, command: str) -> Move:
        needs = self._mask(action.preconditions)
        assert needs is not None, f"{action} was reached without its conditions"
        return Move(needs, self._mask(action.added) or 0, self._mask(action.removed) or 0, command)

    def _useful(self, moves: list[Move]) -> list[Move]:
        """The moves a shortest plan can hold."""
        goals = fails = 0
        for quest in self.quests:
            for bits in quest.wins if quest.counts else ():
                goals |= bits
            for bits in quest.fails:
                fails |= bits
        kept = moves
        while True:
            wanted, before = goals, -1
            while wanted != before:  # backwards from the goals
                before = wanted
                for move in kept:
                    if move.adds & wanted:
                        wanted |= move.needs
            kept = [move for move in kept if move.adds & wanted]
            # Dropping what can only be picked up again leads back to where one was, two moves later. Holding on to
            # it does no harm, unless it is what a failure waits for.
            going = [move for move in kept if not self._only_undone(move, kept, goals, wanted, fails)]
            if len(going) == len(kept):
                return kept
            kept = going

    @staticmethod
    def _only_undone(move: Move, moves: list[Move], goals: int, wanted: int, fails: int) -> bool:
        gains = move.adds & wanted
        if gains & goals or move.removes & fails:
            return False
        users = [other for other in moves if other.needs & gains]
        return all(not (other.adds & wanted & ~move.removes) and other is not move for other in users)

    def quests_done(self, facts: Iterable[Proposition], done: int = 0) -> int:
        """`done` and the quests that `facts` complete now."""
        here = self._state_bits(facts)
        return self._completed(here, done)

    def _state_bits(self, facts: Iterable[Proposition]) -> int:
        bits = self._bits
        return sum(bits[fact] for fact in set(facts) if fact in bits)

    def _completed(self, here: int, done: int) -> int:
        for number, quest in enumerate(self.quests):
            if not done >> number & 1 and any(here & bits == bits for bits in quest.wins):
                done |= 1 << number
        return done

    def _failed(self, here: int, done: int) -> bool:
        return any(
            not done >> number & 1 and any(here & bits == bits for bits in quest.fails)
            for number, quest in enumerate(self.quests)
        )

    def plan(self, facts: Iterable[Proposition], done: int) -> tuple[int | None, str | None]:
        """(commands to go, the first of a shortest plan); (0, None) when won, (None, None) when lost. Raises TooLarge."""
        start = (self._state_bits(facts), done)
        if start not in self._plans:
            if self._hopeless:
                raise TooLarge
            self._search(start)
        return self._plans[start]

    @cached_property
    def _hopeless(self) -> bool:
        """Whether the game is too large from its beginning: then no state on the way is searched, which would cost as much."""
        start = (self._initial, self._completed(self._initial, 0))
        try:
            if start not in self._plans:
                self._search(start)
        except TooLarge:
            return True
        return False

    def _search(self, start: State) -> None:
        """Breadth-first; the whole plan found goes into `_plans`, so that who follows it asks for no other."""
        came: dict[State, tuple[State, str] | None] = {start: None}
        layer = [start]
        goal = start if start[1] & self._all == self._all else None
        while layer and goal is None:
            following = []
            for state in layer:
                here, done = state
                for needs, adds, removes, command in self.moves:
                    if here & needs != needs:
                        continue
                    there = here & ~removes | adds
                    if there == here:
                        continue
                    now = self._completed(there, done)
                    reached = (there, now)
                    if reached in came or self._failed(there, now):
                        continue
                    came[reached] = (state, command)
                    if now & self._all == self._all:
                        goal = reached
                        break
                    following.append(reached)
                if goal is not None:
                    break
                if len(came) > self.limit:
                    raise TooLarge
            layer = following
        if goal is None:
            self._plans[start] = (None, None)
            return
        self._plans[goal] = (0, None)
        state, length = goal, 0
        while (step := came[state]) is not None:
            state, command = step
            length += 1
            self._plans[state] = (length, command)


def _reachable_actions(game: Game, initial: frozenset[Proposition]) -> list[tuple[Action, str]]:
    """Every ground action that can ever be taken (deletions ignored), with its command.

    Where several share a command, as the recipes of one to five ingredients do, only the one that asks for most is
    kept: the interpreter does that one.
    """
    from textworld.generator.inform7 import Inform7Game
    from textworld.logic import State as LogicState

    rules = [rule for rule in game.kb.rules.values() if not rule.name.startswith(("examine", "look", "inventory"))]
    constants = game.kb.types.constants_mapping
    facts: set[Proposition] = set(initial)
    state = LogicState(game.kb.logic, initial)
    found: dict[Action, None] = {}
    while True:
        for action in state.all_applicable_actions(rules, constants):
            found[action] = None
        new = {fact for action in found for fact in action.added} - facts
        if not new:
            break
        facts |= new
        state.add_facts(new)
    commands = Inform7Game(game).gen_commands_from_actions(found)
    by_command: dict[str, list[Action]] = {}
    for action, command in zip(found, commands, strict=True):
        by_command.setdefault(command, []).append(action)
    kept = []
    for command, actions in by_command.items():
        if command == "prepare meal":
            actions = [max(actions, key=lambda action: len(action.preconditions))]
        kept += [(action, command) for action in actions]
    return kept
