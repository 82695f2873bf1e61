"""Exact shortest plans for generated games, searched on the game's logic.

A state is the set of facts that can change (bits of an int) and the set of quests completed so far
(another int); completed quests stay completed. Actions that cannot help any quest, and actions that
can only be undone again, are in no shortest plan and are removed. The rest is searched
breadth-first, so plans are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from textworld.generator.game import Game
    from textworld.logic import Action, Proposition

    from envsuite.envs.textworld.native.game import NativeGame

STATES = 150_000
"""Number of states searched before giving up, which takes a few seconds."""

CHANGING = frozenset(("at", "in", "on", "open", "closed", "locked", "free", "eaten"))
"""Names of the facts that TextWorld's standard rules change."""


class SearchLimitReached(Exception):
    """The game has more states than the limit."""


class GroundAction(NamedTuple):
    """An action as bit masks over facts."""

    needs: int
    adds: int
    removes: int
    command: str


class QuestBits(NamedTuple):
    """Alternatives that complete a quest, and that fail the game while it is open, as fact bits."""

    wins: tuple[int, ...]
    fails: tuple[int, ...]
    counts: bool  # whether it must be completed to win


PlannerState = tuple[int, int]


class QuestPlanner:
    """Shortest plans for one game from any of its states."""

    def __init__(self, game: Game, limit: int = STATES) -> None:
        self.limit = limit
        initial = frozenset(game.world.state.facts)
        actions = _reachable_actions(game, initial)
        fluents = {fact for action, _ in actions for fact in (*action.added, *action.removed)}
        # Facts that no action changes either always hold or never will.
        self._bits = {fact: 1 << number for number, fact in enumerate(sorted(fluents))}
        self._static = initial - fluents
        self.quests = [
            QuestBits(
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
        self.actions = self._useful([self._ground_action(action, command) for action, command in actions])
        self._plans: dict[PlannerState, tuple[int | None, str | None]] = {}
        self._initial = self._state_bits(initial)

    def _mask(self, facts: Iterable[Proposition]) -> int | None:
        """Returns the bits of the facts that can change; None if one of the other facts does not
        hold.
        """
        bits = 0
        for fact in facts:
            if fact in self._bits:
                bits |= self._bits[fact]
            elif fact not in self._static:
                return None
        return bits

    def _ground_action(self, action: Action, command: str) -> GroundAction:
        needs = self._mask(action.preconditions)
        assert needs is not None, f"{action} was reached without its conditions"
        return GroundAction(needs, self._mask(action.added) or 0, self._mask(action.removed) or 0, command)

    def _useful(self, candidates: list[GroundAction]) -> list[GroundAction]:
        """Returns the actions that a shortest plan can contain."""
        goals = fails = 0
        for quest in self.quests:
            for bits in quest.wins if quest.counts else ():
                goals |= bits
            for bits in quest.fails:
                fails |= bits
        actions = candidates
        while True:
            relevant, before = goals, -1
            while relevant != before:  # backward search from the goals
                before = relevant
                for action in actions:
                    if action.adds & relevant:
                        relevant |= action.needs
            actions = [action for action in actions if action.adds & relevant]
            # Putting down an object that can only be picked up again leads back to the same state. Keeping it
            # in hand is harmless unless a failure condition depends on it.
            remaining = [
                action for action in actions if not self._is_pointless(action, actions, goals, relevant, fails)
            ]
            if len(remaining) == len(actions):
                return actions
            actions = remaining

    @staticmethod
    def _is_pointless(action: GroundAction, actions: list[GroundAction], goals: int, relevant: int, fails: int) -> bool:
        gains = action.adds & relevant
        if gains & goals or action.removes & fails:
            return False
        users = [user for user in actions if user.needs & gains]
        return all(not (user.adds & relevant & ~action.removes) and user is not action for user in users)

    def quests_done(self, facts: Iterable[Proposition], done: int = 0) -> int:
        """Adds the quests that `facts` complete to the set `done`."""
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
        """Returns (length of a shortest plan, its first command).

        (0, None) means won and (None, None) lost. Raises SearchLimitReached.
        """
        start = (self._state_bits(facts), done)
        if start not in self._plans:
            if self._exceeds_limit:
                raise SearchLimitReached
            self._search(start)
        return self._plans[start]

    @cached_property
    def _exceeds_limit(self) -> bool:
        """True if the search from the start state reaches the limit.

        If it does, later states are not searched either, because that would take as long.
        """
        start = (self._initial, self._completed(self._initial, 0))
        try:
            if start not in self._plans:
                self._search(start)
        except SearchLimitReached:
            return True
        return False

    def _search(self, start: PlannerState) -> None:
        """Breadth-first search that stores the whole plan in `_plans`."""
        parents: dict[PlannerState, tuple[PlannerState, str] | None] = {start: None}
        layer = [start]
        goal = start if start[1] & self._all == self._all else None
        while layer and goal is None:
            following = []
            for state in layer:
                here, done = state
                for needs, adds, removes, command in self.actions:
                    if here & needs != needs:
                        continue
                    there = here & ~removes | adds
                    if there == here:
                        continue
                    now = self._completed(there, done)
                    reached = (there, now)
                    if reached in parents or self._failed(there, now):
                        continue
                    parents[reached] = (state, command)
                    if now & self._all == self._all:
                        goal = reached
                        break
                    following.append(reached)
                if goal is not None:
                    break
                if len(parents) > self.limit:
                    raise SearchLimitReached
            layer = following
        if goal is None:
            self._plans[start] = (None, None)
            return
        self._plans[goal] = (0, None)
        state, length = goal, 0
        while (step := parents[state]) is not None:
            state, command = step
            length += 1
            self._plans[state] = (length, command)


def _reachable_actions(game: Game, initial: frozenset[Proposition]) -> list[tuple[Action, str]]:
    """Returns every ground action that can ever apply (ignoring deletions), with its command.

    If several share a command, like the recipes with one to five ingredients, only the one with the
    most preconditions is kept, because the interpreter executes that one.
    """
    from textworld.generator.inform7 import Inform7Game
    from textworld.logic import State as LogicState

    rules = [rule for rule in game.kb.rules.values() if not rule.name.startswith(("examine", "look", "inventory"))]
    constants = game.kb.types.constants_mapping
    facts: set[Proposition] = set(initial)
    state = LogicState(game.kb.logic, initial)
    actions_found: dict[Action, None] = {}
    while True:
        for action in state.all_applicable_actions(rules, constants):
            actions_found[action] = None
        new = {fact for action in actions_found for fact in action.added} - facts
        if not new:
            break
        facts |= new
        state.add_facts(new)
    commands = Inform7Game(game).gen_commands_from_actions(actions_found)
    by_command: dict[str, list[Action]] = {}
    for action, command in zip(actions_found, commands, strict=True):
        by_command.setdefault(command, []).append(action)
    selected = []
    for command, actions in by_command.items():
        if command == "prepare meal":
            actions = [max(actions, key=lambda action: len(action.preconditions))]
        selected += [(action, command) for action in actions]
    return selected


def changing_facts(game: NativeGame) -> list[tuple[str, ...]]:
    """Returns the facts of the native engine's present state that commands can change."""
    facts: list[tuple[str, ...]] = [("at", "P", game.room), *((status, key) for key, status in game.status.items())]
    for key, place in game.place.items():
        kind = game.kind.get(place, "I")
        name = "eaten" if not place else "at" if kind == "r" else "on" if kind == "s" else "in"
        facts.append((name, key, place) if place else (name, key))
    for room, exits in game.exits.items():
        facts += [
            ("free", room, there) for there, door in exits.values() if door is None or game.status[door] == "open"
        ]
    return facts


def all_facts(game: Game, changing: Iterable[tuple[str, ...]]) -> frozenset[Proposition]:
    """Returns the facts of a state: the given ones of the kinds that commands can change, and the game's others."""
    from textworld.logic import Proposition, Variable

    variables = {variable.name: variable for fact in game.world.facts for variable in fact.arguments}
    variables |= {key: Variable(key, key) for key in ("P", "I")}
    facts = {Proposition(name, [variables[key] for key in keys]) for name, *keys in changing}
    return frozenset(facts | {fact for fact in game.world.facts if fact.name not in CHANGING})
