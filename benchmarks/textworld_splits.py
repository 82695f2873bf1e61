"""Which seeds of the papers' ranges repeat another game: makes envsuite/envs/textworld/left_out.json.

    python -m benchmarks.textworld_splits [--scan FOLDER] [--processes 2] [w2-o3-q4 ...]

Generates every game of the named settings (no .z8; five grids of 5,200 games and the house of 3,200: about an hour of
one core) and compares contents: facts and quests, entities by name (`generator.content`). Lines already in FOLDER are not
made again. Games of `test` are all kept; `valid` loses what `test` has or what came before in it, `train` what any has.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from pathlib import Path

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.envs.textworld.games import SETTINGS, GameSpec, game_spec

TASKS = {"w2-o3-q4", "w8-o3-q4", "w2-o12-q4", "w8-o12-q4", "w4-o6-q8", "simple-dense"}
TARGET = Path(__file__).resolve().parents[1] / "envsuite/envs/textworld/left_out.json"
ORDER = ("test", "valid", "train")


def describe(spec: GameSpec) -> str:
    """'seed content skeleton', or 'seed ! why not'."""
    from envsuite.envs.textworld.generator import CannotGenerate, content, make_game

    try:
        game = make_game(spec).serialize()
    except CannotGenerate as error:
        return f"{spec.seed} ! {error}"
    return f"{spec.seed} {content(game)} {content(game, named=False)}"


def scan(name: str, folder: Path, processes: int) -> dict[str, object]:
    task = registry.TASKS[f"TextWorld-{name}-v0"]
    challenge = str(task.kwargs.get("challenge", "custom"))
    settings = {key: value for key, value in task.kwargs.items() if key in SETTINGS[challenge]}
    ranges = {split: range(task.splits[split].start, task.splits[split].stop) for split in ORDER}
    file = folder / f"scan_{name.removesuffix('-dense')}"
    known = dict(line.split(" ", 1) for line in file.read_text().splitlines()) if file.exists() else {}
    todo = [game_spec(challenge, settings, seed) for one in ranges.values() for seed in one if str(seed) not in known]
    with file.open("a") as out, multiprocessing.get_context("spawn").Pool(processes) as pool:
        for line in pool.imap(describe, todo, chunksize=8):
            out.write(line + "\n")
            out.flush()
            seed, rest = line.split(" ", 1)
            known[seed] = rest
    seen: set[str] = set()
    left_out: dict[str, list[int]] = {}
    for split, seeds in ranges.items():
        left_out[split] = []
        for seed in seeds:
            first, _ = known[str(seed)].split(" ", 1)
            if first == "!" or (first in seen and split != "test"):
                left_out[split].append(seed)
            seen.add(first)
    skeletons = {split: {known[str(seed)].split()[1] for seed in seeds} for split, seeds in ranges.items()}
    return {
        "games": sum(map(len, ranges.values())),
        "contents": len(seen - {"!"}),
        "skeletons": len(set.union(*skeletons.values())),
        "test_skeletons_met_in_train": len(skeletons["test"] & skeletons["train"]),
        "test_skeletons": len(skeletons["test"]),
        "left_out": left_out,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=sorted(TASKS))
    parser.add_argument("--scan", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    found = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    with tempfile.TemporaryDirectory() as fresh:
        for name in options.names:
            found[name] = scan(name, options.scan or Path(fresh), options.processes)
            counts = {key: value for key, value in found[name].items() if key != "left_out"}
            print(name, counts, {split: len(seeds) for split, seeds in found[name]["left_out"].items()}, flush=True)
            lines = [f" {json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
            write_atomically(TARGET, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
