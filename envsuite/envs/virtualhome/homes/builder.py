"""Builds an episode in one home: the parts of its goal, and the places of all objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.homes.classes import DrawSettings
from envsuite.envs.virtualhome.homes.conditions import Condition, Stage
from envsuite.envs.virtualhome.homes.goals import (
    Alternatives,
    GoalTracker,
    OrderedGoal,
    Part,
    ground,
)
from envsuite.envs.virtualhome.homes.layouts import Dice, Places, layout
from envsuite.envs.virtualhome.homes.players.lower_bound import LowerBound
from envsuite.envs.virtualhome.homes.rules import HomeRules
from envsuite.envs.virtualhome.homes.structure import facts_of, mentions, split_of, split_of_facts
from envsuite.envs.virtualhome.homes.vocabulary import (
    GoalClass,
    categories,
    goal_class,
    members,
    noun_of,
    nouns,
    object_names,
    sensible_places,
    sort_of,
    sorts_of_nouns,
    unseen_furniture,
    usual_places,
    vocabulary,
)

MIN_COMMANDS = 5
MAX_WAYS = 4  # to fix the choices of a goal; the exact planner tries all of them
_TRIES = 12  # sentences and places tried for one home
_COUNTS = {1: "", 2: "two", 3: "three"}


@dataclass(frozen=True)
class DrawnHome:
    """Home and goal of one episode; `plan` is the number of the home."""

    home: Home
    goal: OrderedGoal
    plan: int


class EpisodeBuilder:
    """Draws the goal and the objects of an episode in one home."""

    def __init__(self, dice: Dice, settings: DrawSettings, plan: int, split: str) -> None:
        self.dice, self.settings, self.plan, self.split = dice, settings, plan, split
        self.layout = layout(plan, settings.rooms, settings.split)
        self.unseen_objects = settings.split == "unseen_object"
        self.items: dict[str, str] = {}  # loose object -> place where it must start, or ""
        self.banned: set[str] = set()  # nouns of further objects that would count for the goal
        self.ways = 1  # to fix the choices of all parts
        self.mentioned: set[str] = set()  # furniture and rooms that the goal mentions
        self.bare: set[str] = set()  # places that must be bare: no other objects start there
        self.powered: set[str] = set()  # furniture that is on at the start, because the goal switches it off
        self.parts: list[Part] = []
        self.texts: list[str] = []

    # ---- parts

    def add(self, name: str) -> bool:
        """Appends a part of a goal class. Returns False if no sentence fits this home and the split."""
        goal = goal_class(name)
        for _ in range(_TRIES):
            before = dict(self.items), set(self.banned), set(self.bare), self.ways
            slots = self._fill(goal)
            if slots is not None:
                text = self._text(goal, slots)
                if split_of(text) == self.split:
                    self.parts.append(self._part(goal, slots))
                    self.texts.append(text)
                    self.powered.update([slots[x] for _, kind, x, _ in goal.holds if kind == "off"])
                    self.mentioned.update(value for key, value in slots.items() if key in "pqdeslmr")
                    return True
            self.items, self.banned, self.bare, self.ways = before
        return False

    def _fill(self, goal: GoalClass) -> dict[str, Any] | None:
        """Draws objects and furniture for the letters of a goal class."""
        slots: dict[str, Any] = {}
        if goal.kinds:
            kind, count, excluded = self.dice.pick(goal.kinds), goal.count, goal.excluded
            chosen = self._alike(count) if kind == "alike" else self._members(kind, count + excluded)
            if chosen is None:
                return None
            slots["kind"], slots["k"], slots["count"] = kind, chosen, count
            self.ways *= math.comb(len(chosen) - excluded, count)
        sort = ""
        for letter, sorts in goal.objects:
            if sorts == ("k",):
                slots[letter] = slots["k"].pop()
                continue
            item = self._new_item(sort if sorts == ("=",) else self.dice.pick(sorts))
            if item is None:
                return None
            slots[letter] = item
            sort = sort_of(item)
        taken = set(self.mentioned)
        for slot, kind in goal.slots:
            options = [key for key in self._candidates(kind, slots) if key not in taken]
            if not options:
                return None
            slots[slot] = self.dice.pick(options)
            taken.add(slots[slot])
        if goal.start:
            self.bare.add(slots["p"])
            if not self._cover(slots["p"], goal.start):
                return None
        return slots

    def _one_more(self, number: int) -> bool:
        """Draws whether the home has one object more than a choice needs, if the planner can still try all ways."""
        return self.dice.chance(0.5) and self.ways * (number + 1) <= MAX_WAYS

    def _members(self, kind: str, number: int) -> list[str] | None:
        """Adds objects of a kind to the home: `number`, and sometimes one more."""
        of_kind = vocabulary()["kinds"][kind]["members"]
        present = [item for item in self.items if noun_of(item) in of_kind]
        free = self._free(members, kind)
        number += self._one_more(number)
        new = self.dice.shuffled(free)[: max(number - len(present), 0)]
        chosen = [self.dice.pick(object_names(noun)) for noun in new]
        if len(present) + len(chosen) != number:
            return None
        self.items.update(dict.fromkeys(chosen, ""))
        self.banned.update(of_kind)
        return self.dice.shuffled(present + chosen)

    def _alike(self, number: int) -> list[str] | None:
        """Adds objects of one noun to the home: `number`, and sometimes one more."""
        free = self._free(members, "alike")
        if not free:
            return None
        alike = self.dice.shuffled(object_names(self.dice.pick(free)))
        chosen = alike[: number + self._one_more(number)]
        self.items.update(dict.fromkeys(chosen, ""))
        return chosen

    def _free(self, source: Callable[[str, bool], tuple[str, ...]], name: str, unseen: bool | None = None) -> list[str]:
        """Returns the nouns of `source` that people keep in this home and that can still get an object."""
        usable = self.layout.usable(source, name, self.unseen_objects if unseen is None else unseen)
        taken = self.banned.union(map(noun_of, self.items))
        return [noun for noun in usable if noun not in taken]

    def _new_item(self, sort: str) -> str | None:
        """Adds a new object of a category ('*': any) to the home. Returns None if none is left."""
        if sort == "*":
            sort = self.dice.pick(categories())
        free = self._free(nouns, sort)
        if not free:
            return None
        item = self.dice.pick(object_names(self.dice.pick(free)))
        self.items[item] = ""
        return item

    def _candidates(self, kind: str, slots: dict[str, Any]) -> Sequence[str]:
        """Returns the rooms or furniture that can fill a slot: sensible for the objects where they are put there."""
        if " at " in kind:
            before, _, target = kind.partition(" at ")
            return self.layout.kinds.get(f"{before} at {slots[target]}", ())
        keys: Sequence[str] = self.layout.candidates(kind)
        if keys and kind.startswith(("put", "store")):
            items = [slots[letter] for letter in "abc" if letter in slots] + slots.get("k", [])
            for sort in {sort_of(item) for item in items}:
                sensible = sensible_places(sort)
                keys = [key for key in keys if key in sensible]
        return keys

    def _cover(self, place: str, number: int) -> bool:
        """Adds `number` objects that start at a place where people keep such objects."""
        sorts = [sort for sort in categories() if place in usual_places(sort)]
        for _ in range(number):
            item = self._new_item(self.dice.pick(sorts)) if sorts else None
            if item is None:
                return False
            self.items[item] = place
        return True

    def _text(self, goal: GoalClass, slots: dict[str, Any]) -> str:
        words = {key: noun_of(value) if key in "abc" else value for key, value in slots.items()}
        if "k" in slots:
            count, kind = slots["count"], slots["kind"]
            if kind == "alike":
                plural = singular = vocabulary()["plurals"][noun_of(slots["k"][0])]
            else:
                spec = vocabulary()["kinds"][kind]
                plural, singular = spec["many"], spec.get("one", kind)
            words["k"] = f"{_COUNTS[count]} {plural}" if count > 1 else f"a {singular}"
        if "p" in slots:
            words["at"] = "in" if self._is_container(slots["p"]) else "on"
        return goal.text.format(**words)

    def _is_container(self, key: str) -> bool:
        thing = self.layout.things.get(key)
        return thing is not None and thing.container

    def _part(self, goal: GoalClass, slots: dict[str, Any]) -> Part:
        part: list[Condition | Alternatives] = []
        of_kind: dict[str, list[Condition]] = {}
        preferences: list[Stage] = []
        for ranked, kind, x, second in goal.holds:
            y = slots.get(second, second)
            if kind == "at":
                kind = "in" if self._is_container(y) else "on"
            if x == "k":
                for item in slots["k"]:
                    of_kind.setdefault(item, []).append(Condition(kind, item, y))
            elif ranked:
                preferences.append((Condition(kind, slots[x], y),))
            else:
                part.append(Condition(kind, slots[x], y))
        if of_kind:
            part.insert(0, Alternatives(slots["count"], tuple(map(tuple, of_kind.values()))))
        if preferences:
            part.insert(0, Alternatives(1, tuple(preferences), ranked=True))
        return tuple(part)

    # ---- places

    def finish(self, names: list[str]) -> DrawnHome | None:
        """Returns the episode, or None if it does not fit the split or is too short."""
        mentioned = self.mentioned
        if self.settings.split == "unseen_appliance" and mentioned.isdisjoint(unseen_furniture().values()):
            return None
        if self.settings.split == "unseen_object" and not self.items:
            return None
        goal = OrderedGoal(_sentence(self.texts), tuple(self.parts), tuple(names))
        plan = self.layout
        changed = {key: plan.things[key]._replace(powered=True) for key in self.powered}
        mentioned_things = mentions(goal, plan.home.devices)
        objects: dict[str, Thing] = {}
        goal_items = sorted(self.items)
        for _ in range(_TRIES):
            start = self.dice.pick(plan.rooms)
            for item in goal_items:
                thing = self._place(item, avoid=self.mentioned)
                if thing is None:
                    return None
                objects[item] = thing
            if split_of_facts(facts_of(mentioned_things, start, plan.things | changed | objects)) == self.split:
                break
        else:
            return None
        if not self._add_other_items(objects):
            return None
        home = plan.home.furnished(dict(sorted(objects.items())), start, changed)
        return DrawnHome(home, goal, self.plan) if _is_long_enough(home, goal) else None

    def _place(self, item: str, avoid: set[str]) -> Thing | None:
        """Places an object at the start, not at furniture in `avoid`. Returns None without a place."""
        plan, place = self.layout, self.items[item]
        if not place:
            random, sort = self.dice.random, sort_of(item)
            surprise, hidden = random() < self.settings.surprise, random() < self.settings.hidden
            if surprise or not plan.usual[sort]:
                sort = "*"
            if avoid.isdisjoint(plan.usual[sort]):
                places = plan.usual_by_door[sort, hidden]
            else:
                places = self._places_without(avoid, sort, hidden)
            if not places.weights:
                return None
            place = self.dice.weighted(places)
        furniture = plan.things[place]
        at: dict[str, Any] = {"inside": place} if furniture.container else {"on": (place,)}
        return Thing(item, furniture.room, movable=True, sort=sort_of(item), **at)

    def _places_without(self, avoid: set[str], sort: str, hidden: bool) -> Places:
        """Returns the usual places of an object, or all if there are none, without those in `avoid`."""
        usual = self.layout.usual
        places = {key: weight for key, weight in usual[sort].items() if key not in avoid}
        if not places:
            places = {key: weight for key, weight in usual["*"].items() if key not in avoid}
        return self.layout.by_door(places, hidden)

    def _add_other_items(self, objects: dict[str, Thing]) -> bool:
        """Adds objects that the goal does not need: first some of the same categories, then any."""
        settings = self.settings
        sorts = {sort_of(item) for item in self.items}
        sort_of_noun = sorts_of_nouns()
        free = self.dice.shuffled(self._free(nouns, "*", unseen=False))
        if self.bare:
            placeable = {sort for sort, places in self.layout.usual.items() if places.keys() - self.bare}
            free = [noun for noun in free if sort_of_noun[noun] in placeable]
        number = settings.objects - len(self.items)
        alike = [noun for noun in free if sort_of_noun[noun] in sorts][: settings.distractors]
        unlike = (noun for noun in free if noun not in alike)
        nouns_to_add = [*alike, *islice(unlike, max(number, 0))][: max(number, 0)]
        for noun in nouns_to_add:
            item = self.dice.pick(object_names(noun))
            self.items[item] = ""
            thing = self._place(item, avoid=self.bare)
            if thing is None:
                return False
            objects[item] = thing
        return len(nouns_to_add) == number


def _is_long_enough(home: Home, goal: OrderedGoal) -> bool:
    """Returns True if no part of a goal holds at the start and every way to reach it takes enough commands."""
    rules = HomeRules(home)
    tracker = GoalTracker(rules, goal)
    if any(tracker.holds(rules.start, part) for part in range(len(goal.parts))):
        return False
    return all(LowerBound(rules, grounded)(rules.start, 0) >= MIN_COMMANDS for grounded in ground(goal))


def _sentence(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0][0].upper() + texts[0][1:] + "."
    return f"First {texts[0]}. " + " ".join(f"Then {text}." for text in texts[1:])
