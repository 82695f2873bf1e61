"""Counts structures of TextWorld games and twins between splits; writes structures.json and a page.

    python -m benchmarks.textworld_structures --scan FOLDER [--seconds 240] [w2-o3-q4 ...]

A twin of a test game is a game of `train` with the same structure (`structure.structure_digest`).
Games are generated without .z8, for both kinds of seeds: TextWorld's own (version 0) and split by
structure (version 1 and later). Lines already in FOLDER are reused, so after --seconds the command can be
repeated for the others. It writes envsuite/envs/textworld/structures.json and
benchmarks/textworld_splits.md, which state how many games are compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import write_atomically
from envsuite.envs.textworld.games import game_spec
from envsuite.envs.textworld.structure import split_of_seed

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "envsuite/envs/textworld/structures.json"
PAGE = ROOT / "benchmarks/textworld_splits.md"
SPLITS = {"test": 1, "valid": 40_001, "train": 50_001}
"""First seed of each split, in both versions."""


class Sizes(NamedTuple):
    """Numbers of games for one setting: of each version, in test, valid and train."""

    settings: tuple[int, int, int]  # rooms, objects, quest length
    by_seed: tuple[int, int, int]
    by_structure: tuple[int, int, int]


SIZES = {
    "w2-o3-q4": Sizes((2, 3, 4), (100, 50, 1500), (200, 20, 1000)),
    "w8-o3-q4": Sizes((8, 3, 4), (50, 10, 100), (10, 5, 40)),
    "w2-o12-q4": Sizes((2, 12, 4), (50, 10, 100), (10, 5, 40)),
    "w8-o12-q4": Sizes((8, 12, 4), (50, 10, 100), (10, 5, 40)),
    "w4-o6-q7": Sizes((4, 6, 7), (100, 20, 300), (100, 20, 300)),
    "w4-o6-q8": Sizes((4, 6, 8), (100, 20, 300), (100, 20, 300)),
    "w8-o12-q12": Sizes((8, 12, 12), (50, 10, 100), (50, 10, 100)),
}


def describe(job: tuple[str, str, int]) -> str:
    """Returns 'version seed structure', with '!' as the structure of a game that does not exist."""
    from envsuite.envs.textworld.generator import CannotGenerate, make_game
    from envsuite.envs.textworld.structure import structure_digest

    name, split_by, seed = job
    rooms, objects, length = SIZES[name].settings
    spec = game_spec("custom", {"world_size": rooms, "nb_objects": objects, "quest_length": length}, seed, split_by)
    try:
        return f"{split_by} {seed} {structure_digest(make_game(spec).serialize())}"
    except CannotGenerate:
        return f"{split_by} {seed} !"


def jobs(name: str) -> list[tuple[str, str, int]]:
    """Returns (setting, version, seed) of every game to compare; training games come last."""
    sizes = SIZES[name]
    return [
        (name, split_by, first + number)
        for position, first in enumerate(SPLITS.values())
        for split_by, counts in (("seed", sizes.by_seed), ("structure", sizes.by_structure))
        for number in range(counts[position])
    ]


def scan(name: str, folder: Path, processes: int, deadline: float) -> dict[str, str]:
    """Returns the structures by 'version seed' of the games known when time runs out."""
    file = folder / name
    known = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines()) if file.exists() else {}
    todo = [job for job in jobs(name) if f"{job[1]} {job[2]}" not in known]
    with multiprocessing.get_context("spawn").Pool(processes) as pool, file.open("a") as out:
        for line in pool.imap(describe, todo, chunksize=4):
            out.write(line + "\n")
            out.flush()
            key, digest = line.rsplit(" ", 1)
            known[key] = digest
            if time.monotonic() > deadline:
                print(f"{name}: {len(known)} of {len(jobs(name))} games are known: repeat the command for the others.")
                break
    return known


def summary(name: str, known: dict[str, str]) -> dict[str, Any]:
    """Returns the counts for one setting."""
    compared = {f"{split_by} {seed}" for _, split_by, seed in jobs(name)}
    of_split: dict[tuple[str, str], list[str]] = {}
    for key, digest in known.items():
        split_by, seed = key.split()
        if key in compared and digest != "!":
            of_split.setdefault((split_by, split_of_seed(int(seed))), []).append(digest)
    drawn = Counter(digest for (split_by, _), digests in of_split.items() if split_by == "seed" for digest in digests)
    twins = {}
    for split_by in ("seed", "structure"):
        train = of_split.get((split_by, "train"), [])
        twins[split_by] = {"train_games": len(train)}
        for split in ("test", "valid"):
            games = of_split.get((split_by, split), [])
            twins[split_by][split] = {
                "games": len(games),
                "structures": len(set(games)),
                "with_twin_in_train": sum(digest in set(train) for digest in games),
            }
    return {
        "games": drawn.total(),
        "structures": len(drawn),
        "seen_once": sum(count == 1 for count in drawn.values()),
        "twins": twins,
    }


def page(results: dict[str, Any]) -> str:
    """Returns the page with the counts of all settings."""
    lines = [
        "# TextWorld: structures and twins between splits",
        "",
        "`python -m benchmarks.textworld_structures --scan FOLDER`. Two games have the same structure if "
        "renaming things of one kind, and turning or mirroring the compass, makes their facts and quests equal. Such "
        "games are twins.",
        "",
        "Structures that exist, counted in games with TextWorld's own seeds. The last column is the share of these "
        "games whose structure no other of them has: the Good-Turing estimate of the chance that the next game has a "
        "new one.",
        "",
        "| setting | games | structures | chance of a new one |",
        "|---|--:|--:|--:|",
    ]
    for name, result in results.items():
        chance = result["seen_once"] / result["games"]
        lines.append(f"| {name} | {result['games']:,} | {result['structures']:,} | {100 * chance:.1f} % |")
    lines += [
        "",
        "Games of test and valid with a twin among the training games. Version 0 splits by seed, as the Practitioner's "
        "Guide does; later versions (v1 in the table) assign every structure to one split, for all settings at once.",
        "",
        "| setting | version | training games | test: twins | test: structures | valid: twins | valid: structures |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name, result in results.items():
        for version, split_by in enumerate(("seed", "structure")):
            counts = result["twins"][split_by]
            if not counts["train_games"]:
                continue  # not scanned so far
            cells = [name, f"v{version}", f"{counts['train_games']:,}"]
            for split in ("test", "valid"):
                of = counts[split]
                cells += [f"{of['with_twin_in_train']} of {of['games']}", str(of["structures"])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SIZES))
    parser.add_argument("--scan", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.scan.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    results: dict[str, Any] = {}
    for name in options.names:
        results[name] = summary(name, scan(name, options.scan, options.processes, deadline))
        twins = results[name]["twins"]
        print(name, results[name]["structures"], "structures;", twins["seed"]["test"], twins["structure"]["test"])
    results = {**(json.loads(TARGET.read_text()) if TARGET.exists() else {}), **results}
    ordered = {name: results[name] for name in SIZES if name in results}
    write_atomically(TARGET, json.dumps(ordered, indent=1) + "\n")
    write_atomically(PAGE, page(ordered))


if __name__ == "__main__":
    main()
