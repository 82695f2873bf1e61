"""Patches that make textworld faster in this process; games and commands stay the same.

They cache or narrow repeated work: reading textworld's data files (`fast_parsers`), finding the
objects a rule applies to, checking the states of a quest under construction, and computing the
walkthrough. Tests compare the results with `tw-make` and with the unpatched engine. Only our own
processes apply them; benchmarks run the raw engine unpatched.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from envsuite.envs.textworld.engine.ambiguous_names import is_ambiguous
from envsuite.envs.textworld.engine.fast_parsers import read_rules_once, read_words_fast


@functools.cache
def apply_patches() -> None:
    """Applies all patches, once per process."""
    read_rules_once()
    read_words_fast()
    _filter_assignments_early()
    _check_new_facts_only()
    _compute_walkthrough_by_logic()


def _filter_assignments_early() -> None:
    """Drops facts that contradict the bindings of a precondition before sorting the rest.

    textworld sorts all facts, comparing objects in Python, and then finds the contradictions one by
    one.
    """
    from textworld.logic import Signature, State

    orders: dict[Any, Any] = {}

    def order(fact: Any) -> Any:
        """Returns a sort key that reproduces textworld's order of facts."""
        key = orders.get(fact)
        if key is None:
            if len(orders) > 100_000:
                orders.clear()
            key = orders[fact] = fact.name, [(variable.name, variable.type) for variable in fact.arguments]
        return key

    def assignments(
        self: Any, rule: Any, mapping: dict[Any, Any], used: set[Any], new_by_depth: list[list[Any]], depth: int
    ) -> Iterator[dict[Any, Any]]:
        new = new_by_depth[depth]
        if depth >= len(rule.preconditions):
            yield from self._all_assignments(new, mapping, used, False)
            return
        precondition = rule.preconditions[depth]
        parameters = precondition.parameters
        bound = [(position, mapping[name]) for position, name in enumerate(parameters) if name in mapping]
        types = [self._logic.types.get(name) for name in precondition.signature.types]
        for subtypes in self._logic.types.multi_subtypes(types):
            facts = self.facts_with_signature(
                Signature(precondition.signature.name, [subtype.name for subtype in subtypes])
            )
            if not facts:
                continue
            agreeing = [fact for fact in facts if all(fact.arguments[position] == known for position, known in bound)]
            for fact in sorted(agreeing, key=order):
                for name, variable in zip(parameters, fact.arguments, strict=True):
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


def _check_new_facts_only() -> None:
    """Checks only new facts of a quest under construction against the constraints.

    The previous state has been checked, and constraints only require the presence of facts, so
    every new violation involves a new fact. textworld checks every state from scratch, twice per
    action.
    """
    from textworld.generator.chaining import _Chainer

    def apply(self: Any, node: Any, action: Any) -> Any:
        state = node.state.copy()
        state.add_facts(action.preconditions)
        if not is_possible(self, node, state, action.preconditions):
            return None
        state.apply(action)
        if not is_possible(self, node, state, action.added):
            return None
        earlier = state.copy()
        earlier.apply(action.inverse())
        while node.action:
            earlier.apply(node.action.inverse())
            if earlier == state:
                return None  # a cycle
            node = node.parent
        return state

    def is_possible(chainer: Any, node: Any, state: Any, added: Any) -> bool:
        if node.parent is None and not start_is_valid(chainer):
            return False  # adding facts cannot repair it
        return not any(
            next(iter(state.all_assignments(rule, mapping)), None) is not None
            for fact in added
            for rule, precondition in constraints_by_fact(chainer).get(fact.name, ())
            if (mapping := bind_fact(chainer, precondition, fact)) is not None
        )

    def start_is_valid(chainer: Any) -> bool:
        checked: Any = chainer.__dict__.get("start_is_valid")
        if checked is None:
            checked = chainer.__dict__["start_is_valid"] = bool(chainer.check_state(chainer.state))
        return bool(checked)

    def constraints_by_fact(chainer: Any) -> dict[str, list[tuple[Any, Any]]]:
        """Maps fact names to the constraints they may violate, with the matching precondition."""
        by_name: Any = chainer.__dict__.get("constraints_by_fact")
        if by_name is None:
            by_name = chainer.__dict__["constraints_by_fact"] = {}
            for rule in chainer.constraints:
                if any(fact.name == "fail" for fact in rule.postconditions):
                    for precondition in rule.preconditions:
                        by_name.setdefault(precondition.name, []).append((rule, precondition))
        return by_name

    def bind_fact(chainer: Any, precondition: Any, fact: Any) -> dict[Any, Any] | None:
        """Binds the placeholders of a precondition to distinct objects of a fact; None if
        impossible.
        """
        mapping: dict[Any, Any] = {}
        types = chainer.options.logic.types
        for name, variable in zip(precondition.parameters, fact.arguments, strict=False):
            if mapping.setdefault(name, variable) != variable or not types.get(variable.type).is_subtype_of(
                types.get(name.type)
            ):
                return None
        return mapping if len(set(mapping.values())) == len(mapping) else None

    _Chainer.apply = apply


def _compute_walkthrough_by_logic() -> None:
    """Computes the actions of a challenge's solution from the game logic.

    textworld compiles the game and plays it for that, which takes as long as everything else
    together. If a name could refer to several objects ('locker', 'iron locker'), this falls back to
    textworld's method, because only the interpreter knows how it reads such a command.
    """
    from textworld.generator.game import Game, GameProgression
    from textworld.generator.inform7 import Inform7Game
    from textworld.generator.maker import GameMaker

    compile_and_play = GameMaker.set_walkthrough

    def set_walkthrough(self: Any, commands: list[str]) -> None:
        self._working_game = self.build()
        game = Game.deserialize(json.loads(json.dumps(self._working_game.serialize())))
        inform7, progression = Inform7Game(game), GameProgression(game, track_quests=True)
        recorded = {event: event.copy() for quest in self.quests for event in quest.win_events}
        events = [event for quest in progression.quest_progressions for event in quest.win_events]
        actions: list[Any] = []
        for number, command in enumerate(commands, 1):
            if progression.done:
                raise ValueError("Game has ended before finishing playing all commands.")
            valid = progression.valid_actions
            action = dict(zip(inform7.gen_commands_from_actions(valid), valid, strict=True)).get(command)
            before = [event.triggered for event in events]
            if action is not None:
                if is_ambiguous([variable.name for variable in action.variables], progression.state.facts, game.infos):
                    compile_and_play(self, commands)
                    return
                # Several actions may share a command: the interpreter reports the one with the most preconditions.
                event_text = game.kb.inform7_events[action.name].format(**inform7._get_name_mapping(action))
                action = inform7.detect_action(event_text, valid)
                progression.update(action)
            actions.append(action if action is not None else (actions or [None])[-1])
            for was_triggered, event in zip(before, events, strict=True):
                if event.triggered and not was_triggered:
                    recorded[event.event].actions = list(actions)
                    recorded[event.event].commands = commands[:number]
        for event, with_actions in recorded.items():
            event.actions = with_actions.actions
            event.commands = with_actions.commands

    GameMaker.set_walkthrough = set_walkthrough
