"""Draws the home of two agents from a seed: rooms of each, objects, and the list of each.

Every thing on an agent's list starts in the other agent's rooms and belongs in a piece of furniture in the agent's own
rooms. One room is shared. Home and sentences belong to the split of the seed, as in homes for one agent.
"""

from __future__ import annotations

from typing import NamedTuple

from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.homes.builder import EpisodeBuilder
from envsuite.envs.virtualhome.homes.classes import DrawSettings
from envsuite.envs.virtualhome.homes.conditions import Condition
from envsuite.envs.virtualhome.homes.layouts import HOMES, Dice, Places, layout
from envsuite.envs.virtualhome.homes.structure import split_of, split_of_seed
from envsuite.envs.virtualhome.homes.vocabulary import goal_class, sensible_places, sort_of
from envsuite.errors import UsageError

AGENTS = 2
MAX_DRAWS = 600
_TRIES = 30  # objects tried for one entry of a list


class ListEntry(NamedTuple):
    """Entry of an agent's list: a thing from the other agent's rooms, and where it belongs."""

    owner: int
    """agent, from 0, with this entry on its list"""
    item: str
    place: str
    conditions: tuple[Condition, ...]
    text: str


class SharedHome(NamedTuple):
    """Home of two agents; `rooms` are each agent's own ones."""

    home: Home
    plan: int
    shared: str
    rooms: tuple[tuple[str, ...], ...]
    starts: tuple[str, ...]
    errands: tuple[ListEntry, ...]


def draw_shared_home(seed: int, settings: DrawSettings) -> SharedHome:
    """Draws the home of a seed; `settings.goal_length` errands. Raises UsageError if no home fits the settings."""
    dice, split = Dice(seed), split_of_seed(seed)
    for _ in range(MAX_DRAWS):
        plan = dice.below(HOMES)
        while layout(plan, settings.rooms, settings.split).split != split:
            plan = dice.below(HOMES)
        drawn = _ErrandBuilder(dice, settings, plan, split).draw()
        if drawn:
            return drawn
    raise UsageError(
        f"No home of {settings.rooms} rooms and {settings.objects} objects has {settings.goal_length} errands: "
        "use more rooms, more objects or fewer errands."
    )


class _ErrandBuilder(EpisodeBuilder):
    """Draws the rooms, objects and lists of an episode for two agents in one home."""

    def draw(self) -> SharedHome | None:
        """Returns the episode, or None if this home does not fit."""
        dice, things = self.dice, self.layout.things
        stations = [key for kind in ("put", "store") for key in self.layout.kinds.get(kind, ())]
        rooms = dice.shuffled(self.layout.rooms)
        open_rooms = {things[key].room for key in self.layout.kinds.get("put", ())}
        shared = next((room for room in rooms if room in open_rooms), None)
        if shared is None:
            return None
        private = [room for room in rooms if room != shared]
        own = tuple(tuple(private[agent::AGENTS]) for agent in range(AGENTS))
        places = [[key for key in stations if things[key].room in mine] for mine in own]
        first = dice.below(AGENTS)
        errands = []
        for number in range(self.settings.goal_length):
            owner = (first + number) % AGENTS
            errand = self._errand(owner, places[1 - owner], places[owner])
            if errand is None:
                return None
            errands.append(errand)
        objects: dict[str, Thing] = {}
        for item in sorted(self.items):
            thing = self._place(item, avoid=set())
            assert thing is not None, "an errand's thing has a place"
            objects[item] = thing
        if not self._add_other_items(objects):
            return None
        starts = tuple(dice.pick(mine) for mine in own)
        home = self.layout.home.furnished(dict(sorted(objects.items())), starts[0])
        return SharedHome(home, self.plan, shared, own, starts, tuple(errands))

    def _errand(self, owner: int, sources: list[str], targets: list[str]) -> ListEntry | None:
        """Draws a thing that people keep at one of `sources`, and a sensible place for it among `targets`."""
        for _ in range(_TRIES):
            before = dict(self.items)
            item = self._new_item("*")
            if item is None:
                return None
            usual = self.layout.usual[sort_of(item)]
            froms = {key: usual[key] for key in sources if key in usual and key not in self.mentioned}
            sensible = sensible_places(sort_of(item))
            tos = [key for key in targets if key in sensible and key not in self.mentioned]
            if froms and tos:
                shut = self.dice.chance(self.settings.hidden)
                fitting = {key: weight for key, weight in froms.items() if self._door(key) == shut}
                source, place = self.dice.weighted(Places.of(fitting or froms)), self.dice.pick(tos)
                goal, slots = goal_class("store" if self._door(place) else "put"), {"a": item, "p": place}
                text = self._text(goal, slots)
                if split_of(text) == self.split:
                    self.items[item] = source
                    self.mentioned.add(place)
                    conditions = tuple(c for c in self._part(goal, slots) if isinstance(c, Condition))
                    return ListEntry(owner, item, place, conditions, text)
            self.items = before
        return None

    def _door(self, key: str) -> bool:
        thing: Thing = self.layout.things[key]
        return thing.door
