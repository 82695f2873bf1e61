"""Generates games into a cache while players use it, and checks that no game is ever incomplete.

    python -m benchmarks.textworld_proof [--games 1000] [--players 8] [--processes 2] [--pause 0]
        [--minutes 0]

The players visit the same seeds in a different order: they find a complete game, or generate it
under the lock, and play it to its end with the shortest plan, pausing `--pause` seconds between
games. Then every game in the cache is checked: header and checksum of the story file, .json
readable (every tenth game equal to a new one), no partial folders. After `--minutes` no further
game is started, and the existing ones are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from envsuite import registry
from envsuite.cache import cache_dir
from envsuite.envs.textworld.game_cache import find_game, generate_many
from envsuite.envs.textworld.games import game_spec
from envsuite.envs.textworld.story_files import check_story

TASK = "TextWorld-w2-o3-q4-v0"
FIRST = 60_001  # outside of every split


class Proof(NamedTuple):
    """Counts of the games played, and one line per error."""

    games: int
    episodes: int
    won: int
    steps: int
    wrong: list[str]


def prove(games: int, players: int, processes: int, pause: float = 0.0, minutes: float = 0.0) -> Proof:
    """Generates `games` games while `players` play, in the cache of $ENVSUITE_CACHE.

    Each player pauses `pause` seconds between games. Stops after `minutes` unless they are 0.
    """
    from envsuite.envs.textworld.generator import canonical_game, make_game

    specs = [game_spec("custom", {}, FIRST + number) for number in range(games)]
    over, lock = threading.Event(), threading.Lock()
    wrong: list[str] = []
    count = {"episodes": 0, "won": 0, "steps": 0}

    def play(player: int) -> None:
        env = registry.build(TASK, max_steps=50)
        dice = random.Random(player)
        try:
            while True:
                info = env.reset(seed=FIRST + dice.randrange(games))[1]
                steps, ended = 0, False
                while not ended:
                    _, _, terminated, truncated, info = env.step(env.expert() or "look")
                    ended, steps = terminated or truncated, steps + 1
                with lock:
                    count["episodes"] += 1
                    count["won"] += bool(info["success"])
                    count["steps"] += steps
                if over.wait(pause):
                    return
        except Exception as error:
            wrong.append(f"player {player}: {type(error).__name__}: {error}")
        finally:
            env.close()

    threads = [threading.Thread(target=play, args=(player,)) for player in range(players)]
    for thread in threads:
        thread.start()
    began, made = time.monotonic(), 0
    try:
        for made, result in enumerate(generate_many(specs, processes), 1):
            if result.path is None:
                wrong.append(result.problem)
            if made % 50 == 0:
                print(f"{made} games, {count['episodes']} episodes", file=sys.stderr, flush=True)
            if 0 < minutes * 60 < time.monotonic() - began:
                break
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for number, spec in enumerate(specs[:made]):
        path = find_game(spec)
        if path is None:
            wrong.append(f"{spec.name}: missing or damaged")
            continue
        check_story(path)
        stored = json.loads(path.with_suffix(".json").read_text())
        if number % 10 == 0 and canonical_game(stored) != canonical_game(make_game(spec).serialize()):
            wrong.append(f"{spec.name}: another game than made anew")
        if sorted(file.name for file in path.parent.iterdir()) != ["game.json", "game.z8"]:
            wrong.append(f"{spec.name}: its folder holds something else")
    wrong += [f"{path}: left behind" for path in cache_dir("textworld").rglob("*.partial")]
    if count["won"] < count["episodes"]:
        wrong.append(f"{count['episodes'] - count['won']} episodes were not won by the shortest plan")
    return Proof(made, count["episodes"], count["won"], count["steps"], wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--players", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds; leaves a small machine's cores to the generator"
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="stop generating after so many; 0: when all are made"
    )
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ENVSUITE_CACHE"] = str(Path(cache))
        proof = prove(options.games, options.players, options.processes, options.pause, options.minutes)
    print(
        f"{proof.games} of {options.games} games generated in {options.processes} processes while {options.players} "
        f"players played {proof.episodes} episodes ({proof.steps} commands, {proof.won} won), "
        f"{time.perf_counter() - began:.0f} s: "
        f"{len(proof.wrong)} faults"
    )
    for line in proof.wrong:
        print(line)
    raise SystemExit(bool(proof.wrong))


if __name__ == "__main__":
    main()
