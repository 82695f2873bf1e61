"""Counts receptacles and their contents per floor plan, from which generated games draw their rooms.

    python -m benchmarks.alfworld_plans [--check]

Reads the official games of train and valid_seen under $ALFWORLD_DATA and writes
`envsuite/envs/alfworld/games/plans.json`. The games of valid_unseen are never read; the rows of its
floor plans come from the alfworld package's layouts and from the constants below.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from envsuite.cache import write_atomically
from envsuite.envs.alfworld.games import data
from envsuite.envs.alfworld.games.floorplans import ROOMS, floor_plan, holders, statistics
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.plan_counts import RARE, SINGLE, Group, PlanCounts

OUTPUT = Path(__file__).parents[1] / "envsuite/envs/alfworld/games/plans.json"
SPLITS = ("train", "valid_seen")
UNSEEN_EXTRAS: dict[int, Counter[Group]] = {
    10: Counter({("Cabinet", False): 3, ("CoffeeMachine", False): 1, ("StoveBurner", False): 4, ("Toaster", False): 1}),
    219: Counter({("GarbageCan", False): 1}),
    308: Counter({("Drawer", False): 3, ("LaundryHamper", False): 1, ("Shelf", False): 1}),
    424: Counter(
        {
            ("GarbageCan", False): 1,
            ("HandTowelHolder", False): 2,
            ("ToiletPaperHanger", False): 1,
            ("TowelHolder", False): 1,
        }
    ),
}
"""Receptacles that the opening sentence of every valid_unseen game lists and the layout does not."""
UNSEEN_CONTENTS: dict[int, dict[str, float]] = {10: {"Cabinet": 6.8}, 219: {"Safe": 1.7}}
"""Mean contents in valid_unseen that a comparison with its games reported; all others are modelled."""
PRIOR_GAMES = 1.0
"""weight of the modelled contents of a floor plan, in games"""
FULL = 0.97  # the largest share of a capacity that can be occupied on average
EVENNESS = {
    ("ArmChair", False): 0.45,
    ("BathtubBasin", False): 0.45,
    ("Bed", False): 0.55,
    ("Cabinet", False): 0.75,
    ("CoffeeTable", False): 0.35,
    ("Desk", False): 0.4,
    ("Dresser", False): 0.7,
    ("GarbageCan", False): 0.4,
    ("Shelf", False): 0.6,
    ("SideTable", False): 0.6,
    ("Sofa", False): 0.4,
}
"""Variance of a group's contents between games of one floor plan, relative to independent draws."""
ROUNDS = 60  # of proportional fitting


class CountedGame(NamedTuple):
    """Receptacles and contents of an official game."""

    name: str
    plan: int
    receptacles: Counter[Group]
    held: Counter[tuple[str, Group]]
    """(class, group) -> objects, without fixtures"""
    fixtures: Counter[tuple[str, str]]
    """(class, kind) -> 1 for each fixture in a kind of receptacle"""
    copies: Counter[str]
    """class -> objects in receptacles"""


def count(name: str, game: AlfworldGame) -> CountedGame:
    """Counts the receptacles and objects of an official game."""
    kinds = {kind.lower() + "type": kind for kind in holders()}
    classes = {thing.lower() + "type": thing for things in holders().values() for thing in things}
    fixed = {thing.lower() + "type": thing for thing in statistics()["fixtures"]}
    counted = CountedGame(name, plan_of(name), Counter(), Counter(), Counter(), Counter())
    reachable = set()
    for r, row in enumerate(game.start.contents):
        group = kinds[game.receptacle_types[r]], bool(game.openable >> r & 1)
        counted.receptacles[group] += 1
        for o in row:
            kind = game.object_types[o]
            if kind in fixed:
                counted.fixtures[fixed[kind], group[0]] = 1
            elif kind in classes:
                counted.held[classes[kind], group] += 1
                reachable.add(o)
    counted.copies.update(classes[game.object_types[o]] for o in reachable)
    return counted


def plan_of(name: str) -> int:
    """Returns the floor plan of a game from its name, 'SPLIT/TYPE-...-PLAN/TRIAL'."""
    return int(name.split("/")[1].rsplit("-", 1)[1])


def room_of(plan: int) -> str:
    """Returns the type of room of a floor plan."""
    return next(room for room, plans in ROOMS.items() if plan in plans)


def make_table(games: Iterable[CountedGame], receptacles: dict[int, Counter[Group]]) -> dict[str, Any]:
    """Returns the table of all 120 floor plans.

    `receptacles` gives the furniture of floor plans that have no game among `games`.
    """
    by_plan: dict[int, list[CountedGame]] = defaultdict(list)
    for game in games:
        by_plan[game.plan].append(game)
    known = receptacles | {plan: members[0].receptacles for plan, members in by_plan.items()}
    plans: dict[str, Any] = {}
    rooms: dict[str, Any] = {}
    for room, numbers in ROOMS.items():
        counted = {plan: by_plan[plan] for plan in numbers if plan in by_plan}
        rooms[room] = {"holds": _preferences(counted), "copies": _copies(counted)}
        model = _RoomModel(room, rooms[room], counted)
        for plan in numbers:
            furniture = known.get(plan) or _borrowed_receptacles(plan, {p: known[p] for p in counted})
            plans[str(plan)] = _row(plan, furniture, counted.get(plan, []), model)
    return {"plans": plans, "rooms": rooms}


def unseen_receptacles() -> dict[int, Counter[Group]]:
    """Returns the receptacles of the floor plans of valid_unseen."""
    return {plan: _placed(plan) + extra for plan, extra in UNSEEN_EXTRAS.items()}


def _row(plan: int, receptacles: Counter[Group], games: list[CountedGame], model: _RoomModel) -> dict[str, Any]:
    contents = model.contents(plan, receptacles)
    for group in contents:
        total = sum(n for game in games for (_, where), n in game.held.items() if where == group)
        contents[group] = (total + PRIOR_GAMES * contents[group]) / (len(games) + PRIOR_GAMES)
    for kind, reported in UNSEEN_CONTENTS.get(plan, {}).items():
        members = [group for group in contents if group[0] == kind]
        scale = reported / sum(contents[group] for group in members)
        contents |= {group: contents[group] * scale for group in members}
    weights, factor = model.fit(plan, receptacles, contents)
    row: dict[str, Any] = {
        "games": len(games),
        "receptacles": _pairs(receptacles, 0),
        "contents": _pairs(contents, 2),
        "capacity": _pairs(capacities(receptacles, contents), 2),
        "weights": _pairs(weights, 4),
        "more": round(factor, 4),
    }
    if games:
        fixtures: dict[str, dict[str, float]] = defaultdict(dict)
        for thing, kind in sorted({pair for game in games for pair in game.fixtures}):
            share = sum(game.fixtures[thing, kind] for game in games) / len(games)
            fixtures[thing][kind] = round(share, 2)
        row["fixtures"] = fixtures
    return row


def _placed(plan: int) -> Counter[Group]:
    return Counter((receptacle.kind, receptacle.openable) for receptacle in floor_plan(plan).fixed_receptacles)


def _borrowed_receptacles(plan: int, known: dict[int, Counter[Group]]) -> Counter[Group]:
    """Returns the receptacles of a floor plan without games.

    They are the receptacles of its layout, plus as many others as in a random floor plan of the room.
    """
    rng, room = Random(f"alfworld receptacles {plan}"), floor_plan(plan)
    receptacles = _placed(plan)
    source = rng.choice(sorted(known))
    for group, number in (known[source] - _placed(source)).items():
        if group in (("Cabinet", False), ("Drawer", False), ("Shelf", False)):
            receptacles[group] += number
    for kind in room.unplaced:
        numbers = [known[p][kind, False] for p in sorted(known) if kind in floor_plan(p).unplaced]
        receptacles[kind, False] = max(receptacles[kind, False], rng.choice(numbers) if numbers else 1)
    return +receptacles


def _preferences(counted: dict[int, list[CountedGame]]) -> dict[str, dict[str, float]]:
    """Maps class and kind to the mean number of objects, over games whose rooms have both."""
    total: Counter[tuple[str, str]] = Counter()
    possible: Counter[tuple[str, str]] = Counter()
    for plan, games in counted.items():
        things = floor_plan(plan).things
        for game in games:
            possible.update((thing, kind) for thing in things for kind in {kind for kind, _ in game.receptacles})
            for (thing, (kind, _)), number in game.held.items():
                total[thing, kind] += number
    holds: dict[str, dict[str, float]] = defaultdict(dict)
    for (thing, kind), number in sorted(total.items()):
        holds[thing][kind] = round(number / max(possible[thing, kind], 1), 4)
    return holds


def _copies(counted: dict[int, list[CountedGame]]) -> dict[str, list[int]]:
    """Maps each class to the number of games with 0, 1, 2, 3 and 4 of its objects."""
    copies: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for plan, games in counted.items():
        for thing in floor_plan(plan).things:
            for game in games:
                copies[thing][min(game.copies[thing], 4)] += 1
    return copies


class _RoomModel:
    """Model of how objects spread over the receptacles of a type of room.

    The weight of a group of N receptacles is a N^b, with a and b fitted to all counted games.
    """

    def __init__(self, room: str, counts: dict[str, Any], counted: dict[int, list[CountedGame]]) -> None:
        self.room, self.counts = room, counts
        all_groups = sorted({group for games in counted.values() for game in games for group in game.receptacles})
        self.level = dict.fromkeys(all_groups, 0.0)  # log a
        self.slope = dict.fromkeys(all_groups, 0.3)
        samples = [(plan, games[0].receptacles, games) for plan, games in counted.items()]
        held: dict[int, Counter[Group]] = {}
        for plan, _, games in samples:
            held[plan] = Counter()
            for game in games:
                for (_, group), number in game.held.items():
                    held[plan][group] += number
        for _ in range(ROUNDS):
            rise = dict.fromkeys(all_groups, 0.0)
            bend = dict.fromkeys(all_groups, 0.0)
            expected = dict.fromkeys(all_groups, 0.1)
            curvature = dict.fromkeys(all_groups, 0.5)
            observed = dict.fromkeys(all_groups, 0.1)
            for plan, receptacles, games in samples:
                mean = self.contents(plan, receptacles)
                for group, number in receptacles.items():
                    observed[group] += held[plan][group]
                    expected[group] += mean[group] * len(games)
                    rise[group] = np.log(observed[group] / expected[group])
                    size = np.log(number)
                    bend[group] += (held[plan][group] - mean[group] * len(games)) * size
                    curvature[group] += mean[group] * len(games) * size**2
            for group in all_groups:
                self.level[group] += rise[group]
                self.slope[group] = float(np.clip(self.slope[group] + 0.3 * bend[group] / curvature[group], -0.5, 1.0))

    def contents(self, plan: int, receptacles: Counter[Group]) -> dict[Group, float]:
        """Returns the modelled mean contents of each group."""
        weights = {
            group: float(np.exp(self.level.get(group, -1.0)) * number ** self.slope.get(group, 0.3))
            for group, number in receptacles.items()
        }
        copies = PlanCounts({"plans": {str(plan): {"more": 1.0}}, "rooms": {self.room: self.counts}})
        means = {thing: _mean(copies.copies(plan, self.room, thing)) for thing in floor_plan(plan).things}
        spread = self._spread(plan, means, weights)
        return {
            group: min(mean, receptacles[group] * FULL) if group[0] in SINGLE else mean
            for group, mean in spread.items()
        }

    def fit(
        self, plan: int, receptacles: Counter[Group], contents: dict[Group, float]
    ) -> tuple[dict[Group, float], float]:
        """Returns the weights and the factor of copies that give each group its mean contents."""
        factor, means = self._more_copies(plan, contents)
        weights = dict.fromkeys(contents, 1.0)
        for _ in range(ROUNDS):
            expected = self._spread(plan, means, weights)
            for group, goal in contents.items():
                if expected[group]:
                    weights[group] = float(np.clip(weights[group] * goal / expected[group], 1e-4, 1e4))
        for group, capacity in capacities(receptacles, contents).items():
            share = min(contents[group] / max(capacity, 0.01), FULL)
            weights[group] *= float(-np.log(1.0 - share) / share) if share else 1.0
        return weights, factor

    def _spread(self, plan: int, means: dict[str, float], weights: dict[Group, float]) -> dict[Group, float]:
        expected = dict.fromkeys(weights, 0.0)
        for thing, number in means.items():
            shares = {
                group: weight * (self.counts["holds"].get(thing, {}).get(group[0], 0.0) or RARE)
                for group, weight in weights.items()
                if thing in holders()[group[0]]
            }
            total = sum(shares.values())
            for group, share in shares.items():
                expected[group] += number * share / total
        return expected

    def _more_copies(self, plan: int, goals: dict[Group, float]) -> tuple[float, dict[str, float]]:
        kinds = {kind for kind, _ in goals}
        things = [thing for thing in floor_plan(plan).things if any(thing in holders()[kind] for kind in kinds)]
        low, high = 0.05, 20.0
        for _ in range(30):
            factor = (low * high) ** 0.5
            copies = PlanCounts({"plans": {str(plan): {"more": factor}}, "rooms": {self.room: self.counts}})
            means = {thing: _mean(copies.copies(plan, self.room, thing)) for thing in things}
            if sum(means.values()) < sum(goals.values()):
                low = factor
            else:
                high = factor
        return factor, means


def capacities(receptacles: Counter[Group], contents: dict[Group, float]) -> dict[Group, float]:
    """Returns at how many objects a group is full, for groups whose contents vary little.

    A group whose weight falls linearly to zero at its capacity has a variance that is smaller by
    the share of the capacity in use.
    """
    full = {group: float(number) for group, number in receptacles.items() if group[0] in SINGLE}
    return full | {group: contents[group] / (1.0 - EVENNESS[group]) for group in contents if group in EVENNESS}


def _mean(weights: list[float]) -> float:
    return sum(n * weight for n, weight in enumerate(weights)) / sum(weights)


def _pairs(values: dict[Group, Any], digits: int) -> dict[str, list[Any]]:
    """Returns values by kind, as [of openable receptacles, of the others]."""
    row: dict[str, list[Any]] = defaultdict(lambda: [0, 0])
    for (kind, openable), value in sorted(values.items()):
        row[kind][not openable] = round(value, digits) if digits else value
    return row


def official_games() -> list[CountedGame]:
    """Counts all official games of the splits that the table may use."""
    return [count(file.name, AlfworldGame.load(file.path)) for split in SPLITS for file in data.games(split)]


def main() -> None:
    games = official_games()
    names = hashlib.sha256("\n".join(sorted(game.name for game in games)).encode()).hexdigest()
    about = {
        "about": "Receptacles of each floor plan and their mean contents: [openable ones, the others].",
        "games": {split: sum(game.name.startswith(split + "/") for game in games) for split in SPLITS},
        "sha256_of_names": names,
    }
    text = json.dumps(about | make_table(games, unseen_receptacles()), separators=(",", ":"))
    text = text.replace('},"', '},\n"') + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if OUTPUT.read_text() == text else f"{OUTPUT} differs from what these games give")
    write_atomically(OUTPUT, text)
    print(f"{OUTPUT}: {len(games)} games, {len({game.plan for game in games})} of 120 floor plans, {len(text):,} bytes")


if __name__ == "__main__":
    main()
