"""textworld made faster in this process without changing what it works out: the same games, the same commands.

What it does over and over is kept or narrowed: reading its files (`reading`), searching what a rule applies to, and checking
that a state of the quest being made is possible. The comparisons with
`tw-make` and with the raw engine hold that nothing else changes. For processes of our own; the raw engine beside which we are
measured runs without.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from envsuite.envs.textworld.names import mistakable
from envsuite.envs.textworld.reading import read_rules_once, read_words_fast


@functools.cache
def hasten() -> None:
    """Puts the faster ways in place, once in a process."""
    read_rules_once()
    read_words_fast()
    _narrow_the_search()
    _check_what_is_new()
    _walk_on_the_logic()


def _narrow_the_search() -> None:
    """Of the facts a precondition may be, those that disagree with what is bound already go before the rest is sorted.

    textworld sorts all of them, comparing objects in Python, and then meets the disagreement fact by fact.
    """
    from textworld.logic import Signature, State

    orders: dict[Any, Any] = {}

    def order(fact: Any) -> Any:
        """Facts sorted by this are in textworld's own order."""
        found = orders.get(fact)
        if found is None:
            if len(orders) > 100_000:
                orders.clear()
            found = orders[fact] = fact.name, [(variable.name, variable.type) for variable in fact.arguments]
        return found

    def assignments(
        self: Any, rule: Any, mapping: dict[Any, Any], used: set[Any], new_by_depth: list[list[Any]], depth: int
    ) -> Iterator[dict[Any, Any]]:
        new = new_by_depth[depth]
        if depth >= len(rule.preconditions):
            yield from self._all_assignments(new, mapping, used, False)
            return
        wanted = rule.preconditions[depth]
        places = wanted.parameters
        bound = [(place, mapping[name]) for place, name in enumerate(places) if name in mapping]
        types = [self._logic.types.get(name) for name in wanted.signature.types]
        for subtypes in self._logic.types.multi_subtypes(types):
            facts = self.facts_with_signature(Signature(wanted.signature.name, [one.name for one in subtypes]))
            if not facts:
                continue
            agreeing = [fact for fact in facts if all(fact.arguments[place] == known for place, known in bound)]
            for fact in sorted(agreeing, key=order):
                for name, variable in zip(places, fact.arguments):
                    known = mapping.get(name)
                    if known is None:
                        if variable in used:
                            break
                        mapping[name] = variable
                        used.add(variable)
                    elif known != variable:
                        break
                else:
                    yield from self._all_applicable_assignments(rule, mapping, used, new_by_depth, depth + 1)
                for name in new:
                    used.discard(mapping.pop(name, None))

    State._all_applicable_assignments = assignments


def _check_what_is_new() -> None:
    """Of a quest in the making, only the facts just added are held against the constraints ("not in two places").

    The state before was checked (the one a quest is made from once, not for each first action), constraints ask for facts
    and never for their absence, and so a new violation must hold a new fact. textworld checks every state from scratch,
    twice an action.
    """
    from textworld.generator.chaining import _Chainer

    def apply(self: Any, node: Any, action: Any) -> Any:
        state = node.state.copy()
        state.add_facts(action.preconditions)
        if not possible(self, node, state, action.preconditions):
            return None
        state.apply(action)
        if not possible(self, node, state, action.added):
            return None
        earlier = state.copy()
        earlier.apply(action.inverse())
        while node.action:
            earlier.apply(node.action.inverse())
            if earlier == state:
                return None  # a cycle
            node = node.parent
        return state

    def possible(chainer: Any, node: Any, state: Any, added: Any) -> bool:
        if node.parent is None and not starts_well(chainer):
            return False  # and whatever is added to it is no better
        return not any(
            next(iter(state.all_assignments(rule, mapping)), None) is not None
            for fact in added
            for rule, precondition in constraints_on(chainer).get(fact.name, ())
            if (mapping := matched(chainer, precondition, fact)) is not None
        )

    def starts_well(chainer: Any) -> bool:
        checked: Any = chainer.__dict__.get("starts_well")
        if checked is None:
            checked = chainer.__dict__["starts_well"] = bool(chainer.check_state(chainer.state))
        return bool(checked)

    def constraints_on(chainer: Any) -> dict[str, list[tuple[Any, Any]]]:
        """By name of a fact: the constraints it may break, each with the precondition it would meet."""
        found: Any = chainer.__dict__.get("constraints_on")
        if found is None:
            found = chainer.__dict__["constraints_on"] = {}
            for rule in chainer.constraints:
                if any(one.name == "fail" for one in rule.postconditions):
                    for precondition in rule.preconditions:
                        found.setdefault(precondition.name, []).append((rule, precondition))
        return found

    def matched(chainer: Any, precondition: Any, fact: Any) -> dict[Any, Any] | None:
        """What the fact binds the precondition's placeholders to, each to another thing; None where they disagree."""
        mapping: dict[Any, Any] = {}
        types = chainer.options.logic.types
        for name, variable in zip(precondition.parameters, fact.arguments):
            if mapping.setdefault(name, variable) != variable or not types.get(variable.type).is_subtype_of(
                types.get(name.type)
            ):
                return None
        return mapping if len(set(mapping.values())) == len(mapping) else None

    _Chainer.apply = apply


def _walk_on_the_logic() -> None:
    """The challenges note which actions their solution is made of. textworld compiles the game for that, which takes as
    long as all the rest, and plays it; the logic of the game knows as well.

    Not so where a name could be taken for another ("locker", "iron locker"): what the interpreter makes of such a
    command is its own affair.
    """
    from textworld.generator.game import Game, GameProgression
    from textworld.generator.inform7 import Inform7Game
    from textworld.generator.maker import GameMaker

    compile_and_play = GameMaker.set_walkthrough

    def set_walkthrough(self: Any, commands: list[str]) -> None:
        self._working_game = self.build()
        game = Game.deserialize(json.loads(json.dumps(self._working_game.serialize())))
        inform7, progression = Inform7Game(game), GameProgression(game, track_quests=True)
        noted = {event: event.copy() for quest in self.quests for event in quest.win_events}
        events = [event for quest in progression.quest_progressions for event in quest.win_events]
        actions: list[Any] = []
        for number, command in enumerate(commands, 1):
            if progression.done:
                raise ValueError("Game has ended before finishing playing all commands.")
            valid = progression.valid_actions
            meant = dict(zip(inform7.gen_commands_from_actions(valid), valid)).get(command)
            before = [event.triggered for event in events]
            if meant is not None:
                if mistakable([one.name for one in meant.variables], progression.state.facts, game.infos):
                    compile_and_play(self, commands)
                    return
                # Several actions may share a command: the interpreter's trace is read as the one that asks for most.
                told = game.kb.inform7_events[meant.name].format(**inform7._get_name_mapping(meant))
                meant = inform7.detect_action(told, valid)
                progression.update(meant)
            actions.append(meant if meant is not None else (actions or [None])[-1])
            for was_triggered, event in zip(before, events):
                if event.triggered and not was_triggered:
                    noted[event.event].actions = list(actions)
                    noted[event.event].commands = commands[:number]
        for event, with_actions in noted.items():
            event.actions = with_actions.actions
            event.commands = with_actions.commands

    GameMaker.set_walkthrough = set_walkthrough
