"""Measures both versions of the game generator and compares their rooms with the official ones.

    python -m benchmarks.alfworld_generator [games]

Reads the official games under $ALFWORLD_DATA (valid_seen and train).
`python -m benchmarks.alfworld_classifier` measures how well a classifier tells them apart.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from statistics import mean, median

from envsuite.envs.alfworld.games import data, solver
from envsuite.envs.alfworld.games.floorplans import ROOMS, TASK_TYPES
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.envs.alfworld.games.logic import PICKUPABLE

SHORT = {kind: kind.split("_")[1] if "then" in kind else kind.split("_")[0] for kind in TASK_TYPES}
SHORT |= {"pick_and_place_simple": "simple", "pick_two_obj_and_place": "two"}


def describe(games: list[tuple[int, AlfworldGame]]) -> dict[str, dict[str, str]]:
    """Maps rows and columns to 'median (min-max)' or a share, for pairs of (floor plan, game)."""
    rooms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    types: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for plan, game in games:
        room = next(room for room, plans in ROOMS.items() if plan in plans)
        start, openable = game.start, game.openable
        inside = {o: r for r, row in enumerate(start.contents) for o in row if game.flags[o] & PICKUPABLE}
        numbers = {
            "receptacles": len(game.receptacles),
            "distinct locations": len({*game.receptacle_location}),
            "openable receptacles": openable.bit_count(),
            "portable objects in receptacles": len(inside),
            "of these inside closed ones": sum(openable >> r & 1 for r in inside.values()),
            "object classes": len({game.object_types[o] for o in inside}),
            "empty receptacles": sum(not row for row in start.contents),
        }
        for row, number in numbers.items():
            rooms[row][room].append(number)
        kind = SHORT[game.goal.kind]
        targets = [o for o in inside if o in game.targets]
        types["share of games"][kind].append(1)
        types["shortest plan, mean"][kind].append(solver.remaining(game, start) or 0)
        types["target objects, mean"][kind].append(len(targets))
        types["share of targets hidden"][kind] += [openable >> inside[o] & 1 for o in targets]
        types["several receptacles of the target's type"][kind].append(len(game.destinations) > 1)
    results: dict[str, dict[str, str]] = {}
    for row, columns in rooms.items():
        results[row] = {room: f"{median(v):g} ({min(v):g}-{max(v):g})" for room, v in columns.items()}
    for row, columns in types.items():
        if row == "share of games":
            results[row] = {kind: f"{len(v) / len(games):.2f}" for kind, v in columns.items()}
        else:
            results[row] = {kind: f"{mean(v):.2f}" for kind, v in columns.items()}
    return results


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    official = []
    for split in ("valid_seen", "train"):
        for file in data.games(split):
            official.append((int(file.name.split("/")[1].rsplit("-", 1)[1]), AlfworldGame.load(file.path)))
    theirs, versions = describe(official), []
    for version in (0, 1):
        settings = GeneratorSettings(version=version)
        generate(0, settings)  # reads the package's tables
        start, cpu = time.perf_counter(), time.process_time()
        made = [generate(seed, settings) for seed in range(count)]
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        versions.append(describe([(int(m.name.split("/")[1].rsplit("-", 1)[1]), m.game) for m in made]))
        speed = f"{count / wall:.0f} games/s ({count / cpu:.0f} per CPU second)"
        print(f"v{version}: {count:,} games, each solved exactly: {speed}\n")
    for columns in (tuple(ROOMS), tuple(SHORT.values())):
        print("| | " + " | ".join(f"{column}: official | v0 | v1" for column in columns) + " |")
        print("|---" * (1 + 3 * len(columns)) + "|")
        for row in theirs:
            if set(theirs[row]) <= set(columns):
                cells = [table[row].get(column, "-") for column in columns for table in (theirs, *versions)]
                print(f"| {row} | " + " | ".join(cells) + " |")
        print()


if __name__ == "__main__":
    main()
