"""Patches that make textworld faster in this process; games and commands stay the same.

They cache the reading of textworld's data files (`parsers`), search quests in another order
(`quest_search`), and compute the walkthrough without compiling the game. Tests compare the results
with `tw-make` and with the unpatched engine. Only our own processes apply them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from envsuite.envs.textworld.engine.ambiguous_names import is_ambiguous
from envsuite.envs.textworld.engine.parsers import read_rules_once, read_words_fast
from envsuite.envs.textworld.engine.quest_search import quest_chains


@functools.cache
def apply_patches() -> None:
    """Applies all patches, once per process."""
    read_rules_once()
    read_words_fast()
    _search_quests_from_the_last()
    _compute_walkthrough_by_logic()


def _search_quests_from_the_last() -> None:
    """Replaces textworld's search for a quest, which checks every action before it takes the last possible one."""
    from textworld.generator import chaining

    get_chains = chaining.get_chains

    @functools.wraps(get_chains)
    def chains(state: Any, options: Any) -> Iterator[Any]:
        covered = quest_chains(state, options)
        return iter(get_chains(state, options)) if covered is None else covered

    chaining.get_chains = chains


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
