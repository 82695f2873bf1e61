"""Scripted agents of a home for two: the expert, who asks, fetches and answers, and the script of the blind player."""

from __future__ import annotations

import re
from typing import Any

from envsuite.envs.virtualhome.engine import CLOSE, GRAB, OPEN, PUTBACK, PUTIN, STANDUP, WALK, HomeAction
from envsuite.envs.virtualhome.homes.players.searching_expert import ANYWHERE
from envsuite.envs.virtualhome.homes.text import LOOK
from envsuite.envs.virtualhome.homes.vocabulary import (
    catalog,
    category,
    furniture_spec,
    noun_of,
    rooms_for,
    usual_places,
    vocabulary,
)
from envsuite.envs.virtualhome.pair.game import SharedGame

_GUESSES, _PROBES = 2, 2  # names tried for a thing by the blind player, and places where it is sought


class ErrandExpert:
    """One agent that knows its own half of the home and its own list, and of the other's list what it was told.

    A searching expert knows the furniture of its rooms, but not which things are where: it looks first where people
    keep them. Both ask for the things on their list by their nouns, fetch things whose nouns they were asked for, and
    tell where they have laid them. They go for a thing in the shared room once they were told that it is there.
    """

    def __init__(self, game: SharedGame, agent: int, told_all: bool) -> None:
        """`told_all`: both agents have one player, which knows both lists."""
        self.game, self.agent, self.told_all = game, agent, told_all
        self.asked = False
        self._heard: list[str] = []
        self._known: set[int] = set()  # objects that the agent has seen
        self._inspected: set[int] = set()  # furniture whose contents it has seen

    def hear(self, message: str) -> None:
        """Remembers a message of the other agent."""
        if message:
            self._heard.append(message.lower())

    def save(self) -> Any:
        """Returns the state for `load`."""
        return self.asked, tuple(self._heard), frozenset(self._known), frozenset(self._inspected)

    def load(self, saved: Any) -> None:
        """Restores a saved state."""
        self.asked, heard, known, inspected = saved
        self._heard, self._known, self._inspected = list(heard), set(known), set(inspected)

    def look(self) -> None:
        """Remembers what the agent sees now."""
        rules, home, s = self.game.rules, self.game.home, self.game.state(self.agent)
        self._known.update(home.bits(rules.visible(s) & home.movable))
        for piece in home.bits(home.fixed_in[s.room] & (home.surface | home.container)):
            if not piece & home.door & ~s.open and (not rules.nearsighted or home.root[piece] == s.near):
                self._inspected.add(piece)

    def next(self, searching: bool = False) -> tuple[str, str]:
        """Returns the next command, and a message to the other agent or ""."""
        command, message = self._job(searching)
        if not self.asked and not self.told_all:
            nouns = ", ".join(noun_of(errand.item) for _, errand in self.game.errands(self.agent))
            message = f"Please bring to the {self.game.drawn.shared}: {nouns}." if nouns else ""
        return command, message

    def _job(self, searching: bool) -> tuple[str, str]:
        game, agent = self.game, self.agent
        home, s = game.home, game.state(agent)
        if s.sitting:
            return game.phrase(HomeAction(STANDUP)), ""
        mine = {errand.item: errand for i, errand in game.errands(agent) if not game.done[i]}
        own = [home.bit[room] for room in game.drawn.rooms[agent]]
        held = [(home.names[bit.bit_length() - 1], bit) for bit in (s.right, s.left) if bit]
        if len(held) > 1:  # doors need a free hand
            return self._lay_down(next((bit for key, bit in held if key not in mine), s.left))
        for key, bit in held:
            return (self._use(home.bit[mine[key].place], bit), "") if key in mine else self._lay_down(bit)
        for item, errand in mine.items():
            place = home.bit[errand.place]
            if (s.on[self._index(item)] | s.inside[self._index(item)]) & place:  # there, but the door is still open
                return self._at(place, HomeAction(CLOSE, place)), ""
        for item in mine:
            near = self._room_of(item) in own or (self._room_of(item) == game.shared and self._knows_of(item))
            if near and self._loose(item):
                return self._fetch(item, searching), ""
        for item in self._requests():
            if self._room_of(item) != game.shared and self._loose(item):
                return self._fetch(item, searching), ""
        if s.room != game.shared:
            return game.phrase(HomeAction(WALK, game.shared)), ""
        return LOOK, ""

    def _index(self, item: str) -> int:
        return self.game.rules.index(self.game.home.bit[item])

    def _room_of(self, item: str) -> int:
        home = self.game.home
        return self.game.state(self.agent).inside[self._index(item)] & home.room_mask

    def _loose(self, item: str) -> bool:
        """Returns True if nobody holds an object."""
        home, s = self.game.home, self.game.state(self.agent)
        i = self._index(item)
        return bool(s.on[i] | s.inside[i] & ~home.room_mask)

    def _mentioned(self, item: str, place: str = "") -> bool:
        """Returns True if a message names an object by its noun and, if it is given, a place."""
        noun = re.compile(rf"\b{re.escape(noun_of(item).lower())}\b")
        return any(place in message and noun.search(message) for message in self._heard)

    def _knows_of(self, item: str) -> bool:
        """Returns True if the agent knows that a thing on its list is in the shared room: it was told, or sees it."""
        bit = self.game.home.bit[item]
        return (
            self.told_all or self._mentioned(item) or bool(self.game.rules.visible(self.game.state(self.agent)) & bit)
        )

    def _requests(self) -> list[str]:
        """Returns the objects of the agent's rooms that the other one has mentioned, or needs if all is known."""
        game = self.game
        if self.told_all:
            return [errand.item for i, errand in game.errands(1 - self.agent) if not game.done[i]]
        mine = [game.home.bit[room] for room in game.drawn.rooms[self.agent]]
        own = {errand.item for _, errand in game.errands(self.agent)}
        return [
            key
            for key in game.home.movable_keys
            if key not in own and self._room_of(key) in mine and self._mentioned(key)
        ]

    def _fetch(self, item: str, searching: bool) -> str:
        """Returns the next command on the way to take an object, or to find it."""
        home, s = self.game.home, self.game.state(self.agent)
        bit, i = home.bit[item], self._index(item)
        place = s.on[i] or s.inside[i] & ~home.room_mask
        is_told = self._mentioned(item, home.nouns[place].lower())
        if searching and bit not in self._known and not is_told and (spot := self._unseen_spot(item)):
            return self._at(spot, HomeAction(OPEN, spot))
        if place & home.door & ~s.open:
            return self._at(place, HomeAction(OPEN, place))
        return self._at(place, HomeAction(GRAB, bit))

    def _unseen_spot(self, item: str) -> int:
        """Returns the furniture with the highest chance per command to hold an object; 0 if all has been seen.

        It is in the agent's rooms, or in the shared room if the object was laid down there.
        """
        home, s = self.game.home, self.game.state(self.agent)
        usual, best = usual_places(category(noun_of(item))), (0.0, 0)
        own = [home.bit[room] for room in self.game.drawn.rooms[self.agent]]
        for room in own if self._room_of(item) in own else [self.game.shared]:
            for piece in home.bits(home.fixed_in[room] & home.target & (home.surface | home.container)):
                if piece not in self._inspected:
                    shut = bool(piece & home.door & ~s.open)
                    cost = 1 + (room != s.room) + shut - (home.root[piece] == s.near)
                    weight = usual.get(home.names[piece.bit_length() - 1], ANYWHERE) / max(cost, 1)
                    best = max(best, (weight, piece))
        return best[1]

    def _lay_down(self, held: int) -> tuple[str, str]:
        """Returns the next command on the way to lay an object down in the shared room, and the message about it."""
        home = self.game.home
        pieces = home.fixed_in[self.game.shared] & home.target
        place = next(bit for bit in home.bits(pieces) if bit & home.surface or bit & home.container & ~home.door)
        command = self._use(place, held)
        if not command.startswith("put "):
            return command, ""
        return command, f"The {home.nouns[held]} is {'in' if place & home.container else 'on'} the {home.nouns[place]}."

    def _use(self, place: int, held: int) -> str:
        """Returns the next command on the way to put a held object on or in a piece of furniture."""
        home, s = self.game.home, self.game.state(self.agent)
        if place & home.door & ~s.open:
            return self._at(place, HomeAction(OPEN, place))
        return self._at(place, HomeAction(PUTIN if place & home.container else PUTBACK, held, place))

    def _at(self, place: int, action: HomeAction) -> str:
        """Returns the action's command, or the walk towards the furniture where it is possible."""
        home, s = self.game.home, self.game.state(self.agent)
        room = home.room_of[place]
        if room != s.room:
            action = HomeAction(WALK, room)
        elif home.root[place] != s.near:
            action = HomeAction(WALK, place)
        return self.game.phrase(action)


# ---- the blind player ------------------------------------------------------------------------------------------------


def blind_commands(game: SharedGame) -> list[list[str]]:
    """Returns a script for each agent that reads both lists and the names of the rooms, and sees nothing.

    For each errand, the agent that can do so tries some names at some places where people keep such things, lays what
    it has down in the shared room, and the other one continues from there. An idle agent waits.
    """
    scripts: list[list[str]] = [[], []]
    shared = game.drawn.shared
    tables = [key for key in catalog()["things"] if shared in rooms_for(key) and _takes(key)]
    table = max(tables, key=lambda key: furniture_spec(key).get("chance", 1.0), default=shared)
    for errand in game.drawn.errands:
        noun, fetcher = noun_of(errand.item), 1 - errand.owner
        names = [f"{modifier} {noun}" for modifier in vocabulary()["modifiers"][category(noun)]][:_GUESSES]
        usual = usual_places(category(noun))
        spots = [(room, key) for key in usual for room in rooms_for(key) if room in game.drawn.rooms[fetcher]]
        fetch: list[str] = []
        for room, key in spots[:_PROBES]:
            opening = [f"open {key}"] if furniture_spec(key).get("door") else []
            fetch += [f"go to {room}", f"go to {key}", *opening, *(f"take {name}" for name in names)]
        fetch += [f"go to {shared}", f"go to {table}", *_puts(names, table)]
        last = [f"go to {shared}", f"go to {table}", *(f"take {name}" for name in names)]
        own = [room for room in rooms_for(errand.place) if room in game.drawn.rooms[errand.owner]]
        door = bool(furniture_spec(errand.place).get("door"))
        last += [f"go to {own[0]}", f"go to {errand.place}", *([f"open {errand.place}"] if door else [])]
        last += [*_puts(names, errand.place), *([f"close {errand.place}"] if door else [])]
        for agent, commands in ((fetcher, fetch), (errand.owner, last)):
            scripts[agent] += commands
            scripts[1 - agent] += [LOOK] * len(commands)
    return scripts


def _takes(key: str) -> bool:
    spec = furniture_spec(key)
    return (
        "for" not in catalog()["things"][key]
        and not spec.get("door")
        and bool(spec.get("surface") or spec.get("container"))
    )


def _puts(names: list[str], place: str) -> list[str]:
    where = "in" if furniture_spec(place).get("container") else "on"
    return [f"put {name} {where} {place}" for name in names]
