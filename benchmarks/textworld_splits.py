"""Which seeds of the papers' ranges repeat another game: makes envsuite/envs/textworld/left_out.json.

    python -m benchmarks.textworld_splits [--scan FOLDER] [--processes 2] [w2-o3-q4 ...]

Contents are compared: facts and quests, entities by name (`generator.content`). Where the seed draws a map, the map comes
first, in milliseconds: a game of `train` whose map no game of `test` or `valid` has repeats none of them and is not made. All
others are (no .z8), but those of the fixed house, where a few draws say it all. Lines already in FOLDER are not worked out again. Games of `test` are all
kept; `valid` loses what `test` has or what came before in it, `train` what either has, or what came before among those made. Of a
seed that is not made it is not known whether it has a game: that is said when it is first played.
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
    """16 hex digits over the map among a game's facts: for each room its exits, which have doors, and its neighbours' exits.

    It takes no names, and neither quest nor objects change it. So games of different sketches differ in content too: names
    are unique in a game, and equal contents would map room to room.
    """
    exits: dict[str, dict[str, str]] = defaultdict(dict)
    doors = set()
    for fact in facts:
        places = [one["name"] for one in fact["arguments"]]
        if fact["name"] == "link":
            doors.add((places[0], places[2]))
        elif fact["name"].endswith("_of") and {one["type"] for one in fact["arguments"]} == {"r"}:
            exits[places[1]][fact["name"]] = places[0]
    own = {room: sorted((way, (room, to) in doors) for way, to in ways.items()) for room, ways in exits.items()}
    around = sorted([own[room], sorted((way, own[to]) for way, to in ways.items())] for room, ways in exits.items())
    return hashlib.sha256(json.dumps(around).encode()).hexdigest()[:16]


def draw_map(spec: GameSpec) -> str:
    """'seed sketch' of the game's map, drawn as its generator draws it."""
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
    """Everything is in its place: what follows (names, prose, a walkthrough that is tried out) takes most of the time."""


def placed(spec: GameSpec) -> list[Any]:
    """The facts of a game that textworld's GameMaker puts together, stopped before it finishes it."""
    from textworld import GameMaker

    from envsuite.envs.textworld.generator import make_game
    from envsuite.envs.textworld.hasten import hasten

    def stop(maker: GameMaker, *rest: object) -> None:
        raise _Placed(list(maker.facts))

    hasten()  # before, since it replaces one of the two as well
    with mock.patch.multiple(GameMaker, build=stop, set_walkthrough=stop):
        try:
            make_game(spec)
        except _Placed as found:
            return list(found.args[0])
    raise SystemExit(f"{spec.name}: its generator has changed: it makes its games without GameMaker.")


def furnish(spec: GameSpec) -> str:
    """'seed content' of a game of the fixed house: what its seed decides, drawn as its generator draws it.

    Which food lies where, where the key is, and which food is asked for; nothing else is asked or differs but prose. Foods
    in one place may be exchanged. (A test holds this against `generator.content`.)
    """
    import textworld

    options = textworld.GameOptions()
    options.seeds = int(spec.seed)
    dice = options.rngs["quest"]
    places = ("refrigerator", "refrigerator", "couch", "garden", "garden", "garden")
    foods = ["apple", "milk", "chips", "tomato", "pepper", "lettuce"]
    dice.shuffle(foods)
    in_the_drawer = bool(dice.rand() > 0.5)
    asked = foods[int(dice.choice(len(foods)))]
    drawn = json.dumps([sorted(zip(places, foods)), in_the_drawer, asked])
    return f"{spec.seed} {hashlib.sha256(drawn.encode()).hexdigest()[:16]}"


def describe(spec: GameSpec) -> str:
    """'seed content sketch', or 'seed ! why not'."""
    from envsuite.envs.textworld.generator import CannotGenerate, content, make_game

    try:
        game = make_game(spec).serialize()
    except CannotGenerate as error:
        return f"{spec.seed} ! {error}"
    return f"{spec.seed} {content(game)} {sketch(game['world'])}"


def worked_out(work: Callable[[GameSpec], str], specs: list[GameSpec], file: Path, pool: Any) -> dict[int, list[str]]:
    """By seed what `work` says of each game; kept in `file` line by line, and read from there where it is."""
    lines = file.read_text().splitlines() if file.exists() else []
    known = {int(seed): rest.split() for seed, rest in (line.split(" ", 1) for line in lines)}
    with file.open("a") as out:
        for line in pool.imap(work, [spec for spec in specs if spec.seed not in known], chunksize=8):
            out.write(line + "\n")
            out.flush()
            seed, rest = line.split(" ", 1)
            known[int(seed)] = rest.split()
    return known


def scan(name: str, folder: Path, pool: Any) -> dict[str, object]:
    task = registry.TASKS[f"TextWorld-{name}-v0"]
    challenge = str(task.kwargs.get("challenge", "custom"))
    settings = {key: value for key, value in task.kwargs.items() if key in SETTINGS[challenge]}
    ranges = {split: range(task.splits[split].start, task.splits[split].stop) for split in ORDER}
    specs = [game_spec(challenge, settings, seed) for one in ranges.values() for seed in one]
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
                continue  # its map is its own
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
    found = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    with tempfile.TemporaryDirectory() as fresh:
        for name in options.names:
            with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
                found[name] = scan(name, options.scan or Path(fresh), pool)
            counts = {key: value for key, value in found[name].items() if key != "left_out"}
            print(name, counts, {split: len(seeds) for split, seeds in found[name]["left_out"].items()}, flush=True)
            lines = [f" {json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
            write_atomically(TARGET, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
