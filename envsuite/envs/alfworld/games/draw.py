"""One attempt to draw a new game: its room, its goal and what lies where.

Rooms are drawn from the 120 floor plans, furnished and filled as counted in each of them
(`plan_counts.py`). Task types, rooms, copies and hidden targets of the goal are drawn with
frequencies counted in the official games (`rooms.json`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random

from envsuite.envs.alfworld.games.floorplans import (
    BASINS,
    HELD_OUT_PLANS,
    ROOMS,
    TASK_TYPES,
    floor_plan,
    goal_texts,
    holders,
    pddl_name,
    statistics,
    with_property,
)
from envsuite.envs.alfworld.games.game_files import LAMP, Room, game_text
from envsuite.envs.alfworld.games.plan_counts import SINGLE, Group, PlanCounts, plan_counts
from envsuite.errors import UsageError

UNSEEN_SEEDS = range(2_000_000, 2_001_000)
"""Seeds whose games use the floor plans of valid_unseen; no other seed uses them."""
MOST_TARGETS = 4
"""largest number of objects that a game could ask for"""
PROPERTY = {
    "pick_clean_then_place_in_recep": "Cleanable",
    "pick_heat_then_place_in_recep": "Heatable",
    "pick_cool_then_place_in_recep": "Coolable",
}
APPLIANCE = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
COLD_IN_FRIDGE = 0.05  # official games: 55 cool objects, each in a fridge, of about 1,100 objects in fridges
UNCERTAIN = (0.5, 0.7, 1.0, 1.0, 1.4, 2.0)
"""factors on the weights of a floor plan without counted games, whose contents are modelled"""
SAME_LOCATION = 0.09  # chance that an unplaced receptacle shares the location of the previous one


@dataclass(frozen=True)
class GeneratorSettings:
    """Settings of the generator. The defaults imitate the official games."""

    task_types: tuple[str, ...] = TASK_TYPES
    rooms: tuple[str, ...] = tuple(ROOMS)
    receptacles: int = 0
    """number of receptacles; 0: as in the floor plan"""
    objects: int = 0
    """number of portable objects within reach; 0: as in official rooms"""
    hidden: float = -1.0
    """share of targets that start in closed receptacles; -1: as in official games of the type"""
    dialect: str = "2.1.1"
    numbers: str = "consecutive"
    """consecutive: 1, 2, ... in every class, as in ALFWorld; drawn: distinct numbers, drawn from the seed"""


class InvalidDraw(Exception):
    """This draw cannot satisfy the settings; another draw may."""


class Draw:
    """One attempt to draw a game."""

    def __init__(
        self,
        rng: Random,
        settings: GeneratorSettings,
        seed: int,
        chances: Sequence[float],
        plan: int = 0,
        counts: PlanCounts | None = None,
    ) -> None:
        self.rng, self.settings, self.seed, self.chances = rng, settings, seed, chances
        self.counts = counts or plan_counts()
        pairs, weights = _task_room_pairs(settings.task_types, settings.rooms)
        if not pairs:
            raise UsageError(
                f"Tasks of type {', '.join(settings.task_types)} do not occur in {', '.join(settings.rooms)}."
            )
        self.task_type, room = rng.choices(pairs, weights)[0]
        unseen = seed in UNSEEN_SEEDS
        self.plan = floor_plan(plan or self._choose_plan([n for n in ROOMS[room] if (n in HELD_OUT_PLANS) == unseen]))
        self.used_ids: set[str] = set()
        self.inside: list[tuple[str, str]] = []  # (object, receptacle)
        self.kind_of: dict[str, str] = {}  # objects
        self.occupied: set[str] = set()
        self.filled: Counter[Group] = Counter()
        self._furnish()
        self._choose_goal()
        self._reduce_receptacles()
        self._place_receptacles()
        self._fill()

    # ---- receptacles

    def _choose_plan(self, numbers: list[int]) -> int:
        """Draws a floor plan as often as official games use it."""
        return self.rng.choices(numbers, [1 + self.counts.games(number) for number in numbers])[0]

    def _furnish(self) -> None:
        """Draws all receptacles of the room: id -> (kind, location or '', openable)."""
        number = self.plan.number
        self.groups = self.counts.weights(number)
        if not self.counts.games(number):
            self.groups = {group: weight * self.rng.choice(UNCERTAIN) for group, weight in self.groups.items()}
        self.capacity = self.counts.capacities(number)
        remaining = Counter(self.counts.receptacles(number))
        self.receptacles: dict[str, tuple[str, str, bool]] = {}
        for kind, id, location, openable in self.plan.fixed_receptacles:
            if remaining[kind, openable]:
                remaining[kind, openable] -= 1
                self.receptacles[id] = (kind, location, openable)
        for (kind, openable), count in sorted(remaining.items()):
            for _ in range(count):
                self.receptacles[self._new_id(kind)] = (kind, "", openable)

    def _choose_goal(self) -> None:
        rng, task, present = self.rng, self.task_type, {kind for kind, _, _ in self.receptacles.values()}
        appliance = APPLIANCE.get(task)
        if appliance and appliance not in present:
            raise InvalidDraw(f"the {self.plan.room} has no {appliance}")
        property_ = PROPERTY.get(task)
        holds = holders()
        can_hold = {thing: [kind for kind in sorted(present) if thing in holds[kind]] for thing in self.plan.things}
        targets = [
            thing
            for thing in self.plan.things
            if can_hold[thing] and (property_ is None or thing in with_property(property_)) and thing not in ("Towel",)
        ]
        self.goal_kind, self.lamp_on = "", ""
        if task == "look_at_obj_in_light":
            surfaces = statistics()["fixtures"][LAMP]["on"]
            on = [kind for kind in sorted(present) if kind in surfaces]
            if LAMP not in self.plan.fixtures or not on:
                raise InvalidDraw("the room has no lamp on a table")
            self.lamp_on = rng.choices(on, [surfaces[kind] for kind in on])[0]
        if not targets:
            raise InvalidDraw("the room has no object for the task")
        self.target = rng.choice(targets)
        starts = [kind for kind in can_hold[self.target] if kind != appliance]
        if task != "look_at_obj_in_light":
            goals = [kind for kind in can_hold[self.target] if kind != appliance]
            if not goals:
                raise InvalidDraw(f"no receptacle can hold a {self.target}")
            self.goal_kind = rng.choice(goals)
            if not appliance:  # otherwise the task would be done at the start
                starts = [kind for kind in starts if kind != self.goal_kind]
        if not starts:
            raise InvalidDraw(f"no receptacle for a {self.target} to start in")
        self.starts = frozenset(starts)
        self.needed = {kind for kind in (appliance, self.goal_kind, self.lamp_on) if kind}
        hidden, counts = self.settings.hidden, statistics()["target_copies"][task]
        share = statistics()["target_hidden"][task] if hidden < 0 else hidden
        count = rng.choices(range(1, len(counts) + 1), counts)[0]
        if 0 < hidden < 1:
            self.hide = [chance < hidden for chance in self.chances[:count]]
        else:
            self.hide = [rng.random() < share for _ in range(count)]

    def _reduce_receptacles(self) -> None:
        """Reduces the receptacles to the requested number and keeps those the task needs."""
        limit = self.settings.receptacles
        if not limit or limit >= len(self.receptacles):
            return
        rng = self.rng
        order = sorted(self.receptacles)
        rng.shuffle(order)
        selected: list[str] = []
        needs = [lambda kind, openable, needed=needed: kind == needed for needed in sorted(self.needed)]
        for hidden in sorted({*self.hide}):
            needs.append(lambda kind, openable, hidden=hidden: kind in self.starts and openable == hidden)
        for is_suitable in needs:
            if any(is_suitable(self.receptacles[id][0], self.receptacles[id][2]) for id in selected):
                continue
            match = next((id for id in order if is_suitable(self.receptacles[id][0], self.receptacles[id][2])), None)
            if match is None:
                raise InvalidDraw(f"no suitable receptacle for a {self.target} to start in")
            selected.append(match)
        if len(selected) > limit:
            raise InvalidDraw(f"the task needs {len(selected)} receptacles")
        selected += [id for id in order if id not in selected][: limit - len(selected)]
        self.receptacles = {id: self.receptacles[id] for id in self.receptacles if id in set(selected)}

    def _place_receptacles(self) -> None:
        rng = self.rng
        horizons, weights = _horizons()
        self.location: dict[str, str] = {}
        before: dict[str, str] = {}  # kind -> the last one's location
        for id, (kind, location, _) in self.receptacles.items():
            if not location:
                if kind in before and rng.random() < (0.5 if kind == "StoveBurner" else SAME_LOCATION):
                    self.location[id] = before[kind]
                    continue
                location = self._new_location()
            self.location[id] = before[kind] = f"{location}_bar_{rng.choices(horizons, cum_weights=weights)[0]}"
        taken = set(self.location.values())
        self.start = next(p for p in iter(lambda: f"{self._new_location()}_bar_30", "") if p not in taken)

    # ---- objects

    def _fill(self) -> None:
        settings, plan, can_hold = self.settings, self.plan, holders()
        by_kind: dict[str, list[str]] = defaultdict(list)
        for id, (kind, _, _) in self.receptacles.items():
            by_kind[kind].append(id)
        self.kinds = by_kind
        candidates = {}  # object class -> (receptacles, weights)
        for thing in plan.things:
            ids = [id for kind, members in by_kind.items() if thing in can_hold[kind] for id in members]
            if ids:
                candidates[thing] = ids, self._weights(thing, ids)
        for hidden in self.hide:
            ids = [id for id, (kind, _, openable) in self.receptacles.items() if kind in self.starts]
            matching = [id for id in ids if self.receptacles[id][2] == hidden]
            if not matching and settings.hidden >= 0:
                raise InvalidDraw(f"no {'closed' if hidden else 'open'} receptacle for a {self.target} to start in")
            ids = matching or ids
            if not ids:
                raise InvalidDraw(f"no receptacle for a {self.target} to start in")
            self._add_object(self.target, self._choose_receptacle(ids, self._weights(self.target, ids)))
        for thing in self._others([*candidates]):
            self._add_object(thing, self._choose_receptacle(*candidates[thing]))
        for thing in plan.fixtures:
            self._place_fixture(thing)

    def _weights(self, thing: str, ids: list[str]) -> list[float]:
        """Returns how likely each receptacle is to hold an object of this class."""
        candidates = [(kind, openable) for kind, _, openable in (self.receptacles[id] for id in ids)]
        shares = {
            group: self.groups[group] * self.counts.preference(self.plan.room, thing, group[0]) / members
            for group, members in Counter(candidates).items()
        }
        return [shares[group] for group in candidates]

    def _choose_receptacle(self, ids: list[str], weights: list[float]) -> str:
        """Draws a receptacle; the fuller a group is, the less it attracts objects."""
        room = {group: max(0.0, 1 - self.filled[group] / capacity) for group, capacity in self.capacity.items()}
        attraction = []
        for id, weight in zip(ids, weights, strict=True):
            kind, _, openable = self.receptacles[id]
            attraction.append(0.0 if id in self.occupied else weight * room.get((kind, openable), 1.0))
        return self.rng.choices(ids, attraction if any(attraction) else weights)[0]

    def _others(self, possible: list[str]) -> list[str]:
        """Draws the classes of all portable objects other than the targets, with repetition."""
        classes = [thing for thing in possible if thing != self.target]
        total = self.settings.objects - len(self.hide) if self.settings.objects else -1
        if self.settings.objects and total < 0:
            raise InvalidDraw(f"objects={self.settings.objects} is less than the number of targets")
        return self._copies(classes, total)

    def _copies(self, classes: list[str], total: int) -> list[str]:
        """Draws copies of every class as counted in the room, or `total` objects unless it is -1."""
        if not classes:
            return []
        rng = self.rng
        if total < 0:
            number, room = self.plan.number, self.plan.room
            copies = {thing: self.counts.copies(number, room, thing) for thing in classes}
            return [thing for thing in classes for _ in range(rng.choices(range(5), copies[thing])[0])]
        weights = statistics()["copies"]
        drawn = [thing for thing in classes for _ in range(rng.choices((1, 2, 3, 4), weights)[0])]
        rng.shuffle(drawn)
        return drawn[:total] + [rng.choice(classes) for _ in range(total - len(drawn))]

    def _add_object(self, kind: str, receptacle: str) -> None:
        if receptacle in self.occupied and kind != self.target and not self.settings.objects:
            return  # a towel for which no holder is free
        id = self._new_id(kind)
        self.kind_of[id] = kind
        self.inside.append((id, receptacle))
        holder, _, openable = self.receptacles[receptacle]
        self.filled[holder, openable] += 1
        if holder in SINGLE:
            self.occupied.add(receptacle)

    def _place_fixture(self, thing: str) -> None:
        """Places a lamp, plant or other fixture on its usual furniture."""
        counted = self.counts.fixtures(self.plan.number)
        needed = thing == LAMP and bool(self.lamp_on)
        if counted is not None and not needed:
            for kind, share in counted.get(thing, {}).items():
                if kind in self.kinds and self.rng.random() < share:
                    self._add_object(thing, self.rng.choice(self.kinds[kind]))
            return
        usual = statistics()["fixtures"][thing]
        if not needed and self.rng.random() >= usual["share"]:
            return
        on = [self.lamp_on] if needed else [kind for kind in usual["on"] if kind in self.kinds]
        if on:
            kind = self.rng.choices(on, [usual["on"][kind] for kind in on])[0]
            self._add_object(thing, self.rng.choice(self.kinds[kind]))

    # ---- ids

    def _new_id(self, kind: str) -> str:
        rng, numbers = self.rng, _numbers()
        while True:
            x, y, z = int(800 * rng.random()), int(220 * rng.random()), int(800 * rng.random())
            id = f"{kind}_bar_{numbers[x]}_bar_{numbers[400 + y]}_bar_{numbers[z]}"
            if kind in BASINS.values():  # Sink_bar_..._bar_SinkBasin, as official games spell it, is a "sinkbasin"
                id = f"{kind.removesuffix('Basin')}{id.removeprefix(kind)}_bar_{kind}"
            if id not in self.used_ids:
                self.used_ids.add(id)
                return id

    def _new_location(self) -> str:
        x, z, rotation = self.rng.randrange(-16, 17), self.rng.randrange(-16, 17), self.rng.randrange(4)
        return pddl_name(f"loc|{x}|{z}|{rotation}")

    # ---- the file

    def write(self) -> tuple[str, str]:
        """Returns the name of the game and the text of its file."""
        rng, target = self.rng, self.target
        goal, sentences = goal_texts(self.task_type)
        goal = goal.format(obj=target, recep=self.goal_kind, toggle=LAMP)
        sentence = rng.choice(sentences).format(obj=target.lower(), recep=self.goal_kind.lower(), toggle=LAMP.lower())
        instance = f"{self.task_type}-{target}-None-{self.goal_kind or LAMP}-{self.plan.number}"
        name = f"generated/{instance}/seed_{self.seed}"
        return name, game_text(self._room(), f"seed_{self.seed}", goal, sentence, self.settings.dialect)

    def _room(self) -> Room:
        coolable, cold = with_property("Coolable"), set()
        for id, receptacle in self.inside:
            kind, where = self.kind_of[id], self.receptacles[receptacle][0]
            if where == "Fridge" and kind in coolable and kind != self.target and self.rng.random() < COLD_IN_FRIDGE:
                cold.add(id)
        return Room(
            start=self.start,
            receptacles={id: (kind, openable) for id, (kind, _, openable) in self.receptacles.items()},
            location=self.location,
            objects=self.kind_of,
            inside=self.inside,
            cold=frozenset(cold),
            portable=frozenset(self.plan.things) | {"PaperTowelRoll", "TeddyBear"},
            target=self.target,
        )


@cache
def _task_room_pairs(task_types: tuple[str, ...], rooms: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[float]]:
    """Returns the possible (task type, room) pairs with their frequencies in official games."""
    pairs, weights = [], []
    for task_type in sorted({*task_types}):
        seen = statistics()["tasks"][task_type]
        for room in sorted({*rooms} & {*seen}):
            pairs.append((task_type, room))
            weights.append(statistics()["task_weights"][task_type] * seen[room] / sum(seen.values()))
    return pairs, weights


@cache
def _horizons() -> tuple[list[str], list[int]]:
    seen = statistics()["horizons"]
    return [pddl_name(h) for h in seen], list(accumulate(seen.values()))


@cache
def _numbers() -> tuple[str, ...]:
    """Returns -4.00 to 3.99 in steps of 0.01, as ids spell them."""
    return tuple(pddl_name(f"{hundredths / 100:+06.2f}") for hundredths in range(-400, 400))
