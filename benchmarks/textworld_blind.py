"""Compares the scripts of TextWorld's blind player with random changes of them, on training games.

    python -m benchmarks.textworld_blind [--first-seed 50001] [--games 200] [--candidates 40]

The scripts are those of `LONG_SCRIPTS`, for objectives that name the last command of a quest only. A candidate is a
script after one to three changes: a command is replaced, inserted, removed, or exchanged with another. Inserted
commands are drawn from all scripts of the level. Every script is played in the interpreter, in all games of its group
of goals, and repeated until the turns of the level are over.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from envsuite import registry
from envsuite.envs.textworld.blind import brief_goal, fill_script, goal_group
from envsuite.envs.textworld.blind_scripts import LONG_SCRIPTS
from envsuite.envs.textworld.engine.interpreter import WON
from envsuite.envs.textworld.game_cache import prepare

TASKS = {16: "TextWorld-easy-v3", 24: "TextWorld-medium-v2", 50: "TextWorld-hard-v2"}


class Job(NamedTuple):
    """One game and the scripts to play in it, the shipped one first."""

    group: str
    path: Path
    scripts: list[str]
    turns: int


def changed(script: str, vocabulary: list[str], dice: random.Random, turns: int) -> str:
    """Returns a script after one to three random changes; it has at most `turns` commands."""
    commands = script.split("; ")
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(commands))
        change = dice.choice(("replace", "insert", "remove", "exchange"))
        if change == "insert" and len(commands) < turns:
            commands.insert(place, dice.choice(vocabulary))
        elif change == "remove" and len(commands) > 1:
            del commands[place]
        elif change == "exchange":
            other = dice.randrange(len(commands))
            commands[place], commands[other] = commands[other], commands[place]
        else:
            commands[place] = dice.choice(vocabulary)
    return "; ".join(commands)


def winners(job: Job) -> list[bool]:
    """Returns for every script whether it wins the game.

    A script continues from a snapshot of the first one, where the two first differ, because a command takes a
    millisecond.
    """
    import jericho

    warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
    kind, names = _goal(job.path)
    first, *others = [
        list(itertools.islice(itertools.cycle(fill_script(script, kind, names)), job.turns)) for script in job.scripts
    ]
    game = jericho.FrotzEnv(str(job.path))
    game.reset()
    snapshots, won = [game.get_state()], False
    for command in first:
        won = WON in game.step(command)[0]
        if won:
            break
        snapshots.append(game.get_state())
    results = [won]
    for commands in others:
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, commands, strict=True)))
        if shared < len(snapshots):
            game.set_state(snapshots[shared])
            results.append(any(WON in game.step(command)[0] for command in commands[shared:]))
        else:  # the first script has won before the two differ
            results.append(won)
    game.close()
    return results


def _goal(path: Path) -> tuple[str, dict[str, str]]:
    """Returns the kind of the last command of a game's quest and the names in it."""
    objective = json.loads(path.with_suffix(".json").read_bytes())["objective"]
    goal = brief_goal(" ".join(objective.split()))
    assert goal is not None, objective
    return goal


def jobs(turns: int, first_seed: int, games: int, candidates: int) -> Iterator[Job]:
    """Yields the games of a level with the scripts of their groups; generates them if necessary."""
    dice = random.Random(turns)
    shipped = LONG_SCRIPTS[turns]
    vocabulary = sorted({command for script in shipped.values() for command in script.split("; ")})
    scripts = {
        group: [script, *(changed(script, vocabulary, dice, turns) for _ in range(candidates))]
        for group, script in shipped.items()
    }
    knobs = registry.knob_names(registry.TASKS[TASKS[turns]])
    for result in prepare(knobs, range(first_seed, first_seed + games)):
        if result.path is not None:
            group = goal_group(*_goal(result.path))
            yield Job(group, result.path, scripts[group], turns)


def row(task: str, group: str, results: list[list[bool]]) -> str:
    """Returns a line of the table: wins of the shipped script, and of its changes."""
    shipped, *others = [sum(wins) for wins in zip(*results, strict=True)]
    better, best = sum(wins > shipped for wins in others), max(others)
    return f"| {task} | {group} | {len(results)} | {shipped} | {better} of {len(others)} | {best} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=50_001)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=40)
    options = parser.parse_args()
    print("| level | goals | games | shipped script wins | candidates that win more | wins of the best candidate |")
    print("|---|---|--:|--:|--:|--:|", flush=True)
    for turns, task in TASKS.items():
        by_group: dict[str, list[list[bool]]] = defaultdict(list)
        todo = list(jobs(turns, options.first_seed, options.games, options.candidates))
        with multiprocessing.get_context("spawn").Pool() as pool:
            for job, results in zip(todo, pool.imap(winners, todo), strict=True):
                by_group[job.group].append(results)
        for group in LONG_SCRIPTS[turns]:
            if by_group[group]:
                print(row(task, group, by_group[group]), flush=True)


if __name__ == "__main__":
    main()
