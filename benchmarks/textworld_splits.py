"""Finds the seeds of the published ranges that repeat another game; writes left_out.json.

    python -m benchmarks.textworld_splits [--scan FOLDER] [--processes 2] [w2-o3-q4 ...]

The target is envsuite/envs/textworld/left_out.json. Games are compared by content: facts and
quests, with entities by name (`generator.content_digest`). If the seed draws a map, the map is
compared first, which takes milliseconds: a game of `train` whose map does not occur in `test` or
`valid` cannot repeat their games and is not generated. All others are generated (without .z8),
except games of the fixed house, which a few random draws determine. Lines already in FOLDER are
reused. All games of `test` are kept; `valid` loses repetitions of `test` and of earlier seeds,
`train` loses repetitions of both and of earlier generated seeds. Whether a game that was not
generated exists is known only when it is first played.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.envs.textworld.games import SETTINGS, GameSpec, game_spec

GRID = ("w2-o3-q4", "w8-o3-q4", "w2-o12-q4", "w8-o12-q4", "w4-o6-q8")
TASKS = (*GRID, "hard", "simple-dense", "balrog-treasure_hunter", "balrog-coin_collector", "balrog-cooking")
TARGET = Path(__file__).resolve().parents[1] / "envsuite/envs/textworld/left_out.json"
ORDER = ("test", "valid", "train")


def sketch(facts: Iterable[dict[str, Any]]) -> str:
    """Returns 16 hex digits over the map: per room its exits, their doors, and the neighbours'
    exits.

    It does not depend on names, quest or objects. Games with different sketches therefore differ
    in content too: names are unique in a game, and equal contents would map room to room.
    """
    exits: dict[str, dict[str, str]] = defaultdict(dict)
    doors = set()
    for fact in facts:
        places = [item["name"] for item in fact["arguments"]]
        if fact["name"] == "link":
            doors.add((places[0], places[2]))
        elif fact["name"].endswith("_of") and {item["type"] for item in fact["arguments"]} == {"r"}:
            exits[places[1]][fact["name"]] = places[0]
    own = {room: sorted((way, (room, to) in doors) for way, to in ways.items()) for room, ways in exits.items()}
    around = sorted([own[room], sorted((way, own[to]) for way, to in ways.items())] for room, ways in exits.items())
    return hashlib.sha256(json.dumps(around).encode()).hexdigest()[:16]


def draw_map(spec: GameSpec) -> str:
    """Returns 'seed sketch' of the game's map, drawn as by its generator."""
    import textworld
    from textworld.generator import World, make_map

    options = textworld.GameOptions()
    options.seeds = int(spec.seed)
    states = {"custom": ["open", "closed", "locked"], "treasure_hunter": ["open"]}.get(spec.challenge)
    if states is None:
        return f"{spec.seed} {sketch([fact.serialize() for fact in placed(spec)])}"
    drawn = make_map(dict(spec.settings).get("world_size", 20), rng=options.rngs["map"], possible_door_states=states)
    return f"{spec.seed} {sketch(World.from_map(drawn).serialize())}"


class _Placed(BaseException):
    """Raised when all objects are placed; names, prose and walkthrough would take most of the time."""


def placed(spec: GameSpec) -> list[Any]:
    """Returns the facts of a game that textworld's GameMaker builds, stopped before it finishes."""
    from textworld import GameMaker

    from envsuite.envs.textworld.engine.patches import apply_patches
    from envsuite.envs.textworld.generator import make_game

    def stop(maker: GameMaker, *remaining: object) -> None:
        raise _Placed(list(maker.facts))

    apply_patches()  # first, because it replaces one of the two functions
    with mock.patch.multiple(GameMaker, build=stop, set_walkthrough=stop):
        try:
            make_game(spec)
        except _Placed as error:
            return list(error.args[0])
    raise SystemExit(f"{spec.name}: its generator has changed: it makes its games without GameMaker.")


def furnish(spec: GameSpec) -> str:
    """Returns 'seed content' of a game of the fixed house, drawn as by its generator.

    The content is the position of each food and of the key, and the requested food; only prose
    differs otherwise. Foods in one place are interchangeable. A test compares this with
    `generator.content_digest`.
    """
    import textworld

    options = textworld.GameOptions()
    options.seeds = int(spec.seed)
    dice = options.rngs["quest"]
    places = ("refrigerator", "refrigerator", "couch", "garden", "garden", "garden")
    foods = ["apple", "milk", "chips", "tomato", "pepper", "lettuce"]
    dice.shuffle(foods)
    in_the_drawer = bool(dice.rand() > 0.5)
    requested = foods[int(dice.choice(len(foods)))]
    drawn = json.dumps([sorted(zip(places, foods, strict=False)), in_the_drawer, requested])
    return f"{spec.seed} {hashlib.sha256(drawn.encode()).hexdigest()[:16]}"


def describe(spec: GameSpec) -> str:
    """Returns 'seed content sketch', or 'seed ! reason'."""
    from envsuite.envs.textworld.generator import CannotGenerate, content_digest, make_game

    try:
        game = make_game(spec).serialize()
    except CannotGenerate as error:
        return f"{spec.seed} ! {error}"
    return f"{spec.seed} {content_digest(game)} {sketch(game['world'])}"


def worked_out(work: Callable[[GameSpec], str], specs: list[GameSpec], file: Path, pool: Any) -> dict[int, list[str]]:
    """Returns the result of `work` by seed; results are appended to `file` and read from there."""
    lines = file.read_text().splitlines() if file.exists() else []
    known = {int(seed): values.split() for seed, values in (line.split(" ", 1) for line in lines)}
    with file.open("a") as out:
        for line in pool.imap(work, [spec for spec in specs if spec.seed not in known], chunksize=8):
            out.write(line + "\n")
            out.flush()
            seed, values = line.split(" ", 1)
            known[int(seed)] = values.split()
    return known


def scan(name: str, folder: Path, pool: Any) -> dict[str, object]:
    task = registry.TASKS[f"TextWorld-{name}-v0"]
    challenge = str(task.kwargs.get("challenge", "custom"))
    settings = {key: value for key, value in task.kwargs.items() if key in SETTINGS[challenge]}
    ranges = {split: range(task.splits[split].start, task.splits[split].stop) for split in ORDER}
    specs = [game_spec(challenge, settings, seed) for seeds in ranges.values() for seed in seeds]
    todo, maps, work = specs, {}, furnish
    if challenge != "simple":
        work = describe
        maps = worked_out(draw_map, specs, folder / f"map_{name}", pool)
        games_of = Counter(maps[spec.seed][0] for spec in specs)
        held_out = {maps[seed][0] for split in ("test", "valid") for seed in ranges[split]}
        todo = [spec for spec in specs if games_of[maps[spec.seed][0]] > 1 and maps[spec.seed][0] in held_out]
    made = worked_out(work, todo, folder / f"game_{name}", pool)
    for seed, drawn in maps.items():
        if seed in made and made[seed][0] != "!" and made[seed][1] != drawn[0]:
            raise SystemExit(
                f"{name}: seed {seed} has another map than the one drawn first: its generator has changed."
            )
    seen: set[str] = set()
    left_out: dict[str, list[int]] = {}
    for split, seeds in ranges.items():
        left_out[split] = []
        for seed in seeds:
            if seed not in made:
                continue  # its map is unique
            first = made[seed][0]
            if first == "!" or (first in seen and split != "test"):
                left_out[split].append(seed)
            seen.add(first)
    return {"games": len(specs), "compared": len(todo), "left_out": left_out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TASKS)
    parser.add_argument("--scan", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    results = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    with tempfile.TemporaryDirectory() as fresh:
        for name in options.names:
            with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
                results[name] = scan(name, options.scan or Path(fresh), pool)
            counts = {key: value for key, value in results[name].items() if key != "left_out"}
            print(name, counts, {split: len(seeds) for split, seeds in results[name]["left_out"].items()}, flush=True)
            lines = [f" {json.dumps(key)}: {json.dumps(results[key])}" for key in sorted(results)]
            write_atomically(TARGET, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
