"""Compares generation with `tw-make`, and steps with the raw engine for the same information.

    python -m benchmarks.textworld [--games 5] [--episodes 20] [--processes 2]
        [--only generation|parallel|steps] [--kinds NAME ...]

Both sides of a ratio alternate within one run, on the same games and commands. Sequential
generation and steps are measured in processor seconds of all processes involved (worker and
compilers included), parallel generation in processor seconds and wall-clock time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envsuite import registry
from envsuite.envs.textworld.engine.interpreter import Interpreter
from envsuite.envs.textworld.game_cache import generate_many
from envsuite.envs.textworld.games import GameSpec, game_spec

KINDS = {
    "w2-o3-q4": ("custom", {"world_size": 2, "nb_objects": 3, "quest_length": 4}),
    "w4-o6-q8": ("custom", {"world_size": 4, "nb_objects": 6, "quest_length": 8}),
    "simple dense": ("simple", {}),
    "cooking r3 go6": ("cooking", {"recipe": 3, "take": 2, "go": 6, "open": True, "cook": True, "cut": True}),
    "treasure 10": ("treasure_hunter", {"level": 10}),
    "coin 5": ("coin_collector", {"level": 5}),
}


TICK = os.sysconf("SC_CLK_TCK")


def tw_make(spec: GameSpec, folder: Path) -> int:
    """Runs TextWorld's command line; returns its exit code (not 0 if the seed has no game)."""
    program = Path(sys.executable).parent / "tw-make"
    target = folder / f"{spec.key}.z8"
    words = [sys.executable, str(program), *spec.tw_make, "--output", str(target), "--silent", "-f"]
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def tw_make_cpu(spec: GameSpec, folder: Path) -> float:
    """Returns the processor seconds of `tw-make` and its compilers."""
    before = children()
    if tw_make(spec, folder):
        raise SystemExit(f"tw-make makes no game for {spec.name}")
    return children() - before


def children() -> float:
    """Returns the processor seconds of all finished child processes and their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def spent(worker: Interpreter) -> float:
    """Returns the processor seconds of a worker so far, and of its finished compilers."""
    fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


def on_cpu(worker: Interpreter) -> float:
    """Like `spent`, in nanosecond resolution and without compilers."""
    return int(Path(f"/proc/{worker.pid}/schedstat").read_text().split()[0]) / 1e9


def generation(games: int) -> None:
    print(f"Generation, CPU seconds a game (median of {games}), compiled .z8 included\n")
    print("| game | tw-make | here, one worker | ratio |\n| --- | --- | --- | --- |")
    worker = Interpreter()
    with tempfile.TemporaryDirectory() as folder:
        for name, (challenge, settings) in KINDS.items():
            mine = [game_spec(challenge, settings, 7_000 + i) for i in range(games + 1)]
            worker.ask("make", mine[0], timeout=300)  # reads the rules of this kind once
            theirs, ours = [], []
            for spec in mine[1:]:
                theirs.append(tw_make_cpu(spec, Path(folder)))
                before = spent(worker)
                worker.ask("make", spec, timeout=300)
                ours.append(spent(worker) - before)
            a, b = statistics.median(theirs), statistics.median(ours)
            print(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.1f} |", flush=True)
    worker.close()
    print()


def parallel(games: int, processes: int) -> None:
    specs = [game_spec(challenge, settings, 8_000 + i) for challenge, settings in KINDS.values() for i in range(games)]
    with tempfile.TemporaryDirectory() as folder:
        began, before = time.perf_counter(), children()
        with ThreadPoolExecutor(processes) as pool:
            refused = sum(code != 0 for code in pool.map(lambda spec: tw_make(spec, Path(folder)), specs))
        theirs, their_cpu = time.perf_counter() - began, children() - before
        began, before = time.perf_counter(), children()
        failed = sum(result.path is None for result in generate_many(specs, processes))
        ours, our_cpu = time.perf_counter() - began, children() - before
    print(f"{len(specs)} games of all kinds, {processes} at a time, starting its processes included")
    print(f"(seeds without a game: {refused} for tw-make, {failed} here):\n")
    print("| | tw-make | here | ratio |\n| --- | --- | --- | --- |")
    print(f"| seconds on the clock | {theirs:.1f} | {ours:.1f} | {theirs / ours:.1f} |")
    print(f"| CPU seconds | {their_cpu:.1f} | {our_cpu:.1f} | {their_cpu / our_cpu:.1f} |\n")


def steps(episodes: int) -> None:
    import textworld

    print("Steps, CPU milliseconds a step (admissible commands and moves requested; with compact also the inventory)\n")
    print("| game | observations | raw engine, same process | here | here / raw |\n| --- | --- | --- | --- | --- |")
    for name, (challenge, settings) in KINDS.items():
        for observations in ("compact", "raw"):
            env = registry.build(
                "TextWorld-w2-o3-q4-v0",
                **{"world_size": 2, "nb_objects": 3, "quest_length": 4} | {"challenge": challenge, **settings},
                observations=observations,
                engine="interpreter",  # this measures the interpreter; benchmarks/textworld_native.py the other
                max_steps=10_000,
            )
            infos = textworld.EnvInfos(
                admissible_commands=True, moves=True, inventory=observations == "compact", policy_commands=False
            )
            raw_seconds = here_seconds = 0.0
            count = 0
            for episode in range(episodes):
                env.reset(seed=7_001 + episode % 3)
                raw = textworld.start(env.path and str(env.path), infos)  # type: ignore[attr-defined]
                state = raw.reset()
                dice = random.Random(episode)
                for _ in range(40):
                    command = dice.choice(state["admissible_commands"])
                    first_raw = dice.random() < 0.5
                    for side in (first_raw, not first_raw):
                        if side:
                            began = time.process_time()
                            state, _, done = raw.step(command.lower())
                            raw_seconds += time.process_time() - began
                        else:
                            worker = on_cpu(env.interpreter)  # type: ignore[attr-defined]
                            began = time.process_time()  # reading is not part of a step
                            _, _, over, _, _ = env.step(command)
                            here_seconds += time.process_time() - began
                            here_seconds += on_cpu(env.interpreter) - worker  # type: ignore[attr-defined]
                    count += 1
                    assert done == over
                    if done:
                        break
                raw.close()
            env.close()
            a, b = raw_seconds / count * 1e3, here_seconds / count * 1e3
            print(f"| {name} | {observations} | {a:.2f} | {b:.2f} | {b / a:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=("generation", "parallel", "steps"))
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS), metavar="NAME")
    options = parser.parse_args()
    for left_out in set(KINDS) - set(options.kinds):
        del KINDS[left_out]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ENVSUITE_CACHE"] = cache
        if options.only in (None, "generation"):
            generation(options.games)
        if options.only in (None, "parallel"):
            parallel(options.games, options.processes)
        if options.only in (None, "steps"):
            steps(options.episodes)


if __name__ == "__main__":
    main()
