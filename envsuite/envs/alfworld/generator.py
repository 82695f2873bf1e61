"""A generator of new ALFWorld games in the PDDL domain of the official ones (docs/specs/alfworld.md, "Generator").

A game is what `seed` and the knobs make of it, on every machine. Unless knobs say otherwise it looks like the official
games: task types, rooms, contents, copies and hidden targets are drawn with frequencies counted in them (`rooms.json`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from envsuite.envs.alfworld import solver
from envsuite.envs.alfworld.game import Game
from envsuite.envs.alfworld.scenery import (
    BASINS,
    HELD_OUT_PLANS,
    ROOMS,
    SEVERAL,
    TASK_TYPES,
    floor_plan,
    goal_texts,
    having,
    holders,
    mangled,
    statistics,
)
from envsuite.envs.alfworld.writing import LAMP, Room, game_text
from envsuite.errors import UsageError

UNSEEN_SEEDS = range(2_000_000, 2_001_000)
"""seeds whose games take place on the floor plans of valid_unseen, and only these"""
TRIES = 200
SHORTEST = 3  # commands; no official game needs fewer
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
SAME_PLACE = 0.09  # of burners and other receptacles no plan places: stands at its neighbour's location


@dataclass(frozen=True)
class Recipe:
    """What a generated game may be. The defaults imitate the official games."""

    task_types: tuple[str, ...] = TASK_TYPES
    rooms: tuple[str, ...] = tuple(ROOMS)
    receptacles: int = 0
    """how many, 0 as the floor plan has"""
    objects: int = 0
    """portable objects within reach, 0 as in official rooms"""
    distractors: int = -1
    """of these, objects of other classes that the task could as well have asked for; -1 as it comes"""
    hidden: float = -1.0
    """share of target objects that start in closed receptacles, -1 as in official games of the type"""
    copies: int = 0
    """how many objects of the target's class, 0 as in official games of the type"""
    dialect: str = "2.1.1"


class Made(NamedTuple):
    """A generated game."""

    name: str
    """'generated/pick_heat_then_place_in_recep-Egg-None-CounterTop-12/seed_5'"""
    text: str
    """the content of a game.tw-pddl"""
    game: Game
    """the same, parsed"""


class _NoSuchRoom(Exception):
    """This draw cannot be furnished as asked; the next one may."""


def generate(seed: int, recipe: Recipe = Recipe()) -> Made:
    """The game of `seed`. Raises UsageError where the knobs leave no possible game."""
    rng = Random(f"alfworld {seed}")
    why = ""
    for _ in range(TRIES):
        try:
            name, text = _Draw(rng, recipe, seed).write()
        except _NoSuchRoom as reason:
            why = str(reason)
            continue
        game = Game.from_json(text, name)
        needed = solver.remaining(game, game.start)
        if needed is not None and needed >= SHORTEST:
            return Made(name, text, game)
        why = "it is solved, or cannot be, in fewer than three commands"
    raise UsageError(f"No game found in {TRIES} draws for {recipe}: {why}. Loosen the knobs.")


class _Draw:
    """One attempt at a game."""

    def __init__(self, rng: Random, recipe: Recipe, seed: int) -> None:
        self.rng, self.recipe, self.seed = rng, recipe, seed
        pairs, weights = _kinds(recipe.task_types, recipe.rooms)
        if not pairs:
            raise UsageError(f"Tasks of type {', '.join(recipe.task_types)} do not occur in {', '.join(recipe.rooms)}.")
        self.task_type, room = rng.choices(pairs, weights)[0]
        unseen = seed in UNSEEN_SEEDS
        self.plan = floor_plan(rng.choice([n for n in ROOMS[room] if (n in HELD_OUT_PLANS) == unseen]))
        self.taken_ids: set[str] = set()
        self.inside: list[tuple[str, str]] = []  # (object, receptacle)
        self.kind_of: dict[str, str] = {}  # objects
        self._furnish()
        self._choose_goal()
        self._thin_out()
        self._place_receptacles()
        self._fill()

    # ---- receptacles

    def _furnish(self) -> None:
        """All receptacles the room could have: id -> (kind, place or '', openable)."""
        rng, found = self.rng, {}
        for kind, id, place, openable in self.plan.spots:
            found[id] = (kind, place, openable)
        for kind in self.plan.unplaced:
            for _ in range(rng.choice(SEVERAL.get(kind, (1,)))):
                found[self._new_id(kind)] = (kind, "", False)
        # Cabinets, drawers and shelves the plan does not list are plain surfaces in official games.
        for kind, frequencies in statistics()["plain_receptacles"][self.plan.room].items():
            die = rng.random()
            for count, share in frequencies.items():
                die -= share
                if die < 0:
                    for _ in range(int(count)):
                        found[self._new_id(kind)] = (kind, "", False)
                    break
        self.receptacles = found

    def _choose_goal(self) -> None:
        rng, task, present = self.rng, self.task_type, {kind for kind, _, _ in self.receptacles.values()}
        appliance = APPLIANCE.get(task)
        if appliance and appliance not in present:
            raise _NoSuchRoom(f"the {self.plan.room} has no {appliance}")
        property_ = PROPERTY.get(task)
        may = holders()
        can_hold = {thing: [kind for kind in sorted(present) if thing in may[kind]] for thing in self.plan.things}
        targets = [
            thing
            for thing in self.plan.things
            if can_hold[thing] and (property_ is None or thing in having(property_)) and thing not in ("Towel",)
        ]
        self.goal_kind, self.lamp_on = "", ""
        if task == "look_at_obj_in_light":
            surfaces = statistics()["fixtures"][LAMP]["on"]
            on = [kind for kind in sorted(present) if kind in surfaces]
            if LAMP not in self.plan.fixtures or not on:
                raise _NoSuchRoom("the room has no lamp on a table")
            self.lamp_on = rng.choices(on, [surfaces[kind] for kind in on])[0]
        if not targets:
            raise _NoSuchRoom("the room has nothing the task could ask for")
        self.target = rng.choice(targets)
        starts = [kind for kind in can_hold[self.target] if kind != appliance]
        if task != "look_at_obj_in_light":
            goals = [kind for kind in can_hold[self.target] if kind != appliance]
            if not goals:
                raise _NoSuchRoom(f"nowhere to put a {self.target}")
            self.goal_kind = rng.choice(goals)
            if not appliance:  # else the task would be done
                starts = [kind for kind in starts if kind != self.goal_kind]
        if not starts:
            raise _NoSuchRoom(f"nowhere for a {self.target} to be found")
        self.starts = frozenset(starts)
        self.needed = {kind for kind in (appliance, self.goal_kind, self.lamp_on) if kind}
        hidden, counts = self.recipe.hidden, statistics()["target_copies"][task]
        share = statistics()["target_hidden"][task] if hidden < 0 else hidden
        count = self.recipe.copies or rng.choices(range(1, len(counts) + 1), counts)[0]
        if task == "pick_two_obj_and_place" and count < 2:
            raise _NoSuchRoom("two objects cannot be one: copies must be 2 or more for pick_two_obj_and_place")
        self.hide = [rng.random() < share for _ in range(count)]

    def _thin_out(self) -> None:
        """Leaves as many receptacles as asked for, the needed ones among them."""
        wanted = self.recipe.receptacles
        if not wanted or wanted >= len(self.receptacles):
            return
        rng = self.rng
        order = sorted(self.receptacles)
        rng.shuffle(order)
        kept: list[str] = []
        needs = [lambda kind, openable, needed=needed: kind == needed for needed in sorted(self.needed)]
        for hidden in sorted({*self.hide}):
            needs.append(lambda kind, openable, hidden=hidden: kind in self.starts and openable == hidden)
        for fits in needs:
            if any(fits(self.receptacles[id][0], self.receptacles[id][2]) for id in kept):
                continue
            found = next((id for id in order if fits(self.receptacles[id][0], self.receptacles[id][2])), None)
            if found is None:
                raise _NoSuchRoom(f"no fit receptacle for a {self.target} to start in")
            kept.append(found)
        if len(kept) > wanted:
            raise _NoSuchRoom(f"the task needs {len(kept)} receptacles")
        kept += [id for id in order if id not in kept][: wanted - len(kept)]
        self.receptacles = {id: self.receptacles[id] for id in self.receptacles if id in set(kept)}

    def _place_receptacles(self) -> None:
        rng = self.rng
        horizons, weights = _horizons()
        self.location: dict[str, str] = {}
        before: dict[str, str] = {}  # kind -> the last one's location
        for id, (kind, place, _) in self.receptacles.items():
            if not place:
                if kind in before and rng.random() < (0.5 if kind == "StoveBurner" else SAME_PLACE):
                    self.location[id] = before[kind]
                    continue
                place = self._new_place()
            self.location[id] = before[kind] = f"{place}_bar_{rng.choices(horizons, cum_weights=weights)[0]}"
        taken = set(self.location.values())
        self.start = next(p for p in iter(lambda: f"{self._new_place()}_bar_30", "") if p not in taken)

    # ---- objects

    def _fill(self) -> None:
        rng, recipe, plan, may = self.rng, self.recipe, self.plan, holders()
        typical = statistics()["placement"][plan.room]
        weight = {id: typical.get(kind, 0.0) or 0.005 for id, (kind, _, _) in self.receptacles.items()}
        by_kind: dict[str, list[str]] = defaultdict(list)
        for id, (kind, _, _) in self.receptacles.items():
            by_kind[kind].append(id)
        self.kinds = by_kind
        places = {}  # object class -> (receptacles, cumulative weights)
        for thing in plan.things:
            ids = [id for kind, members in by_kind.items() if thing in may[kind] for id in members]
            if ids:
                places[thing] = ids, list(accumulate(weight[id] for id in ids))
        for hidden in self.hide:
            ids = [id for id, (kind, _, openable) in self.receptacles.items() if kind in self.starts]
            right = [id for id in ids if self.receptacles[id][2] == hidden]
            if not right and recipe.hidden >= 0:
                raise _NoSuchRoom(f"no {'closed' if hidden else 'open'} receptacle for a {self.target} to start in")
            ids = right or ids
            if not ids:
                raise _NoSuchRoom(f"nowhere for a {self.target} to be found")
            self._put(self.target, rng.choices(ids, [weight[id] for id in ids])[0])
        for thing in self._others(places):
            ids, cumulative = places[thing]
            self._put(thing, rng.choices(ids, cum_weights=cumulative)[0])
        for thing in plan.fixtures:
            self._stand(thing)

    def _others(self, places: dict[str, tuple[list[str], list[float]]]) -> list[str]:
        """The classes of all portable objects but the targets, with repetition."""
        rng, recipe = self.rng, self.recipe
        classes = [thing for thing in places if thing != self.target]
        room = recipe.objects - len(self.hide) if recipe.objects else -1
        if recipe.objects and room < max(0, recipe.distractors):
            raise _NoSuchRoom(f"objects={recipe.objects} are fewer than the targets and distractors")
        if recipe.distractors < 0:
            return self._copies(classes, room)
        if self.goal_kind in holders() and self.task_type not in PROPERTY:
            similar = holders()[self.goal_kind]
        else:
            similar = having(PROPERTY[self.task_type]) if self.task_type in PROPERTY else frozenset(classes)
        alike = [thing for thing in classes if thing in similar]
        unlike = [thing for thing in classes if thing not in similar]
        if not alike and recipe.distractors:
            raise _NoSuchRoom(f"the room holds nothing to be taken for a {self.target}")
        rest = self._copies(unlike, room - recipe.distractors if recipe.objects else -1) if unlike else []
        return [rng.choice(alike) for _ in range(recipe.distractors)] + rest

    def _copies(self, classes: list[str], total: int) -> list[str]:
        """Some of every class as official rooms have it; cut, or filled up, to `total` unless that is -1."""
        if not classes:
            return []
        rng, weights = self.rng, statistics()["copies"]
        found = [thing for thing in classes for _ in range(rng.choices((1, 2, 3, 4), weights)[0])]
        if total >= 0:
            rng.shuffle(found)
            found = found[:total] + [rng.choice(classes) for _ in range(total - len(found))]
        return found

    def _put(self, kind: str, receptacle: str) -> None:
        id = self._new_id(kind)
        self.kind_of[id] = kind
        self.inside.append((id, receptacle))

    def _stand(self, thing: str) -> None:
        """A lamp, plant or the like on its usual furniture."""
        needed = thing == LAMP and self.lamp_on
        usual = statistics()["fixtures"][thing]
        if not needed and self.rng.random() >= usual["share"]:
            return
        on = [self.lamp_on] if needed else [kind for kind in usual["on"] if kind in self.kinds]
        if on:
            kind = self.rng.choices(on, [usual["on"][kind] for kind in on])[0]
            self._put(thing, self.rng.choice(self.kinds[kind]))

    # ---- ids

    def _new_id(self, kind: str) -> str:
        rng, numbers = self.rng, _numbers()
        while True:
            x, y, z = int(800 * rng.random()), int(220 * rng.random()), int(800 * rng.random())
            id = f"{kind}_bar_{numbers[x]}_bar_{numbers[400 + y]}_bar_{numbers[z]}"
            if kind in BASINS.values():  # Sink_bar_..._bar_SinkBasin, as official games spell it, is a "sinkbasin"
                id = f"{kind.removesuffix('Basin')}{id.removeprefix(kind)}_bar_{kind}"
            if id not in self.taken_ids:
                self.taken_ids.add(id)
                return id

    def _new_place(self) -> str:
        x, z, rotation = self.rng.randrange(-16, 17), self.rng.randrange(-16, 17), self.rng.randrange(4)
        return mangled(f"loc|{x}|{z}|{rotation}")

    # ---- the file

    def write(self) -> tuple[str, str]:
        """Its name and the text of its file."""
        rng, target = self.rng, self.target
        goal, sentences = goal_texts(self.task_type)
        goal = goal.format(obj=target, recep=self.goal_kind, toggle=LAMP)
        said = rng.choice(sentences).format(obj=target.lower(), recep=self.goal_kind.lower(), toggle=LAMP.lower())
        instance = f"{self.task_type}-{target}-None-{self.goal_kind or LAMP}-{self.plan.number}"
        name = f"generated/{instance}/seed_{self.seed}"
        return name, game_text(self._room(), f"seed_{self.seed}", goal, said, self.recipe.dialect)

    def _room(self) -> Room:
        coolable, cold = having("Coolable"), set()
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
def _kinds(task_types: tuple[str, ...], rooms: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[float]]:
    """(task type, room) pairs that occur, with their frequencies in official games."""
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
    return [mangled(h) for h in seen], list(accumulate(seen.values()))


@cache
def _numbers() -> tuple[str, ...]:
    """-4.00 to 3.99 by hundredths, as ids spell them."""
    return tuple(mangled(f"{hundredths / 100:+06.2f}") for hundredths in range(-400, 400))
