"""Compares the native ALFWorld engine with the stock engine: equal commands must give equal
answers.

    python -m benchmarks.alfworld_equivalence [--games N] [--processes 2] [--recorded] [--write]

The stock engine (textworld 1.7 with alfworld's demangler) plays each game in separate processes:
four walks in the dialect of the file and one in the second dialect. Its answers are cached, so
an interrupted run resumes, and after a change of the native engine the comparison takes seconds
(`--recorded` compares only what is in the cache). Feedback, admissible commands, reward, won and
done are compared at reset and after each command.

A stock game takes 15 to 30 s of processor time, all 340 games about two hours.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.engine import AlfworldGame, NativeEngine
from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.logic import remake

RECIPE = "1"
"""Changes when walks are chosen otherwise: transcripts of another recipe are not used."""

OTHER = {True: "2.1.1", False: "0.4"}  # by whether a game has dialect 0.4
IDLE = ("look", "inventory", "help", "examine ", "go to ")


class Point(NamedTuple):
    """One compared moment: the command (None at reset) and the full answer."""

    command: str | None
    feedback: str
    admissible: list[str]
    reward: float
    won: bool
    done: bool


Walk = list[Point]


# ---- the stock side, in its own process


def record(text: str, name: str, plan: list[str], kinds: Sequence[str], memoise: bool = False) -> list[Walk]:
    """Returns the stock engine's answers for one game, walk by walk; call it in a separate process.

    With `memoise`, the stock engine translates each problem and parses each grammar expression
    once.
    """
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    if memoise:
        memoise_stock()
    env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    env.load(json.loads(text))
    return [
        _record_walk(env, kind, plan, random.Random(f"{name}/{number}/{kind}")) for number, kind in enumerate(kinds)
    ]


def memoise_stock() -> None:
    """Caches the results of three pure functions of the stock engine.

    Where the engine modifies a result it gets a copy: of a context only the dictionaries, to which
    it adds names, and not the objects, which it only reads. This reduces the time per game to a
    fifth.
    """
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    if hasattr(fast_downward.pddl2sas, "cache_clear"):
        return
    translate, parse, query = fast_downward.pddl2sas, textgen._parse_and_convert, Rule.parse_conjunctive_query
    fast_downward.pddl2sas = functools.lru_cache(maxsize=2)(translate)  # the problem, plain and for its planner
    parsed: dict[str, Any] = {}
    queries: dict[str, Any] = {}

    def parse_once(text: str, **options: Any) -> Any:
        if text not in parsed:
            parsed[text] = parse(text, **options)
        return copy.deepcopy(parsed[text])

    def query_once(expression: str) -> Any:
        if expression not in queries:
            queries[expression] = query(expression)
        return queries[expression]

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    textgen.copy_context = copy_context
    textgen._parse_and_convert = parse_once
    Rule.parse_conjunctive_query = query_once


def _record_walk(env: Any, kind: str, plan: list[str], rng: random.Random) -> Walk:
    state = env.reset()
    walk = [Point(None, state.feedback, state["admissible_commands"], 0.0, bool(state["won"]), bool(state["won"]))]
    player = {"plan": _plan_player, "uniform": _uniform_player, "busy": _busy_player, "remade": _remade_player}[kind]
    for command in player(walk, plan, rng):
        state, reward, done = env.step(command)
        walk.append(
            Point(command, state.feedback, state["admissible_commands"], float(reward), bool(state["won"]), bool(done))
        )
    return walk


def _plan_player(walk: Walk, plan: list[str], rng: random.Random) -> Iterator[str]:
    """Plays the optimal plan mixed with nonsense, six commands after the win, and nonsense again."""
    for command in plan:
        if rng.random() < 0.5:
            yield nonsense(walk[-1].admissible, rng)
        yield command
    for _ in range(6):
        yield _busy_command(walk[-1].admissible, rng)
    for _ in range(5):
        yield nonsense(walk[-1].admissible, rng)


def _uniform_player(walk: Walk, plan: list[str], rng: random.Random) -> Iterator[str]:
    for _ in range(30):
        yield rng.choice(walk[-1].admissible)


def _busy_player(walk: Walk, plan: list[str], rng: random.Random) -> Iterator[str]:
    for _ in range(30):
        yield _busy_command(walk[-1].admissible, rng)


def _remade_player(walk: Walk, plan: list[str], rng: random.Random) -> Iterator[str]:
    yield from _plan_player(walk, plan, rng)
    for _ in range(12):
        yield _busy_command(walk[-1].admissible, rng)


def _busy_command(admissible: list[str], rng: random.Random) -> str:
    """Returns an admissible command, in three of four cases one with an effect if there is one."""
    busy = [command for command in admissible if not command.startswith(IDLE)]
    return rng.choice(busy) if busy and rng.random() < 0.75 else rng.choice(admissible)


def nonsense(admissible: list[str], rng: random.Random) -> str:
    """Returns an invalid command: a damaged admissible one, one of the second dialect, or anything."""
    command = rng.choice(admissible)
    there = rng.choice(admissible).removeprefix("go to ")
    return rng.choice(
        [
            command.upper(),
            command + ".",
            command.replace(" ", "  ", 1) + " ",
            f"  {command}\n",  # the stock engine strips commands, so this one is valid
            command + " 1",
            f"go to {there}",
            f"open {there}",
            f"take apple 1 from {there}",
            f"put apple 1 in/on {there}",
            f"move apple 1 to {there}",
            f"examine {there}",
            f"clean apple 1 with {there}",
            f"slice {there} with {there}",
            "use desklamp 1",
            "go to",
            "",
            " ",
            "wait",
            "help",
            "\x00",
            "go to réfrigérateur №1 \U0001f34e",
            "look " * 200,
        ]
    )


def _kept(key: str) -> Path:
    return cache_dir("alfworld", "equivalence") / f"{key}.json.gz"


def _record_job(job: tuple[str, str, list[str], tuple[str, ...], str]) -> str:
    text, name, plan, kinds, key = job
    walks = record(text, name, plan, kinds, memoise=True)
    write_atomically(_kept(key), gzip.compress(json.dumps(walks).encode(), mtime=0))
    return key


# ---- the native side


def replay(game: AlfworldGame, walk: Walk) -> Iterator[tuple[Point, Point]]:
    """Yields (stock answer, native answer) for every point of a walk."""
    engine = NativeEngine(game)
    for point in walk:
        feedback, admissible, won = engine.reset() if point.command is None else engine.step(point.command)
        yield point, Point(point.command, feedback, admissible, 0.0 if point.command is None else float(won), won, won)


class Job(NamedTuple):
    """One game in one dialect."""

    name: str
    text: str
    kinds: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the transcript: everything that decides what is played is in it."""
        return hashlib.sha256("\0".join([RECIPE, self.name, self.text, *self.kinds]).encode()).hexdigest()[:24]


def jobs_of(path: Path, name: str, walks: tuple[str, ...] = ("plan", "uniform", "busy", "busy")) -> list[Job]:
    """Returns the jobs of a game file: its own dialect and the second one."""
    text = path.read_text()
    second_dialect = OTHER[AlfworldGame.from_json(text, name).sentences.help is not None]
    return [Job(name, text, walks), Job(f"{name}@{second_dialect}", remake(text, second_dialect), ("remade",))]


def compare(job: Job) -> tuple[Counter[str], list[str]]:
    """Returns the totals of a recorded job and one line per mismatch."""
    game = AlfworldGame.from_json(job.text, job.name)
    totals: Counter[str] = Counter()
    lines = []
    for number, rows in enumerate(json.loads(gzip.decompress(_kept(job.key).read_bytes()))):
        walk = [Point(*row) for row in rows]
        totals.update(walks=1, commands=len(walk) - 1, points=len(walk), wins=any(point.won for point in walk))
        for turn, (stock, native) in enumerate(replay(game, walk)):
            totals["nothing"] += stock.feedback == "Nothing happens."
            if stock != native:
                totals["mismatches"] += 1
                fields = [f for f in Point._fields if getattr(stock, f) != getattr(native, f)]
                differences = "; ".join(f"{f}: {getattr(stock, f)!r} != {getattr(native, f)!r}" for f in fields)
                lines.append(f"{job.name} walk {number} turn {turn} {stock.command!r}: {differences}")
    return totals, lines


def record_all(jobs: list[Job], processes: int) -> Iterator[int]:
    """Runs the stock engine for all jobs missing in the cache; yields the number left."""
    missing = [job for job in jobs if not _kept(job.key).exists()]
    work = []
    for job in missing:
        game = AlfworldGame.from_json(job.text, job.name)
        work.append((job.text, job.name, solver.commands(game, game.start) or [], job.kinds, job.key))
    if not work:
        return
    # a new process every few games, because each keeps a copy of the 34 MB library
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=8) as pool:
        for count, _ in enumerate(pool.imap_unordered(_record_job, work), 1):
            yield len(work) - count


def main() -> int:
    """Compares all games, prints the totals, and returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=0, help="only the first N (default: all)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--recorded", action="store_true", help="compare what is recorded so far, record nothing")
    parser.add_argument("--write", action="store_true", help="write benchmarks/alfworld_equivalence.md")
    args = parser.parse_args()
    shared = Path(os.environ.get("ENVSUITE_SHARED", "../shared"))
    root = Path(os.environ.get("ALFWORLD_DATA", shared / "data" / "alfworld")) / "json_2.1.1"
    paths = sorted(root.glob("*/*/*/game.tw-pddl"))
    random.Random(0).shuffle(paths)  # an interrupted run, or one with --games, is then a fair sample
    paths = paths[: args.games or None]
    if not paths:
        sys.exit(f"No games under {root}: set ALFWORLD_DATA or ENVSUITE_SHARED.")
    jobs = [job for path in paths for job in jobs_of(path, str(path.parent.relative_to(root)))]
    if args.recorded:
        jobs = [job for job in jobs if _kept(job.key).exists()]
        print(f"{len(jobs)} of {2 * len(paths)} transcripts are recorded.", file=sys.stderr)
    for left in record_all(jobs, args.processes):
        print(f"\r{left:5d} of {len(jobs)} left to record", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if not jobs:
        sys.exit("Nothing is recorded yet: run without --recorded.")
    games = {job.name.partition("@")[0] for job in jobs}
    report, failed = _report(jobs, f"{len(games)} of the {len(paths)} games")
    print(report)
    if args.write:
        write_atomically(Path(__file__).with_suffix(".md"), report)
    return int(failed)


def _report(jobs: list[Job], games: str) -> tuple[str, bool]:
    rows: dict[str, Counter[str]] = {"as published": Counter(), "re-made in the other dialect": Counter()}
    for job in jobs:
        totals, lines = compare(job)
        rows["re-made in the other dialect" if "@" in job.name else "as published"] += totals
        for line in lines[:3]:
            print(line, file=sys.stderr)
    columns = ("walks", "commands", "points", "nothing", "wins", "mismatches")
    table = [
        "# Native ALFWorld engine against the stock one",
        "",
        f"{games}, {len(jobs)} transcripts including games converted to the second dialect. "
        "Per game as published: the optimal plan mixed with malformed and inadmissible "
        "commands, play past the win and more nonsense; one uniform and two busy random walks of 30 admissible "
        "commands. Converted: the plan walk and 12 busy commands. A point is one answer "
        "of either engine: feedback (exact), admissible list "
        "(exact, in order), reward, won, done.",
        "",
        "| games | "
        + " | ".join(("walks", "commands", "points", "'Nothing happens.'", "walks won", "mismatches"))
        + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    total: Counter[str] = sum(rows.values(), Counter())
    for name, row in {**rows, "total": total}.items():
        table.append(f"| {name} | " + " | ".join(f"{row[c]:,}" for c in columns) + " |")
    table += ["", "`make equivalence` runs it again.", ""]
    return "\n".join(table), total["mismatches"] > 0


if __name__ == "__main__":
    sys.exit(main())
