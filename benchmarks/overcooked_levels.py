"""Measures version 2 of Overcooked's levels: success of scripted players, plan lengths, resets, twins of the splits.

    python -m benchmarks.overcooked_levels --games 100 --proofs --markdown benchmarks/overcooked_levels.md

The games are the first ones of the test split. `expert` follows the plan of the generator; `planner`
(`expert:planner`) plans by itself from the start of the game. Neither foresees a change of the orders. `--proofs` also
searches for winning scripts (`benchmarks.overcooked_scripts`): rules are chosen on the first training games and counted
on the test games.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from envsuite.envs.overcooked.service.engine import Service
from envsuite.envs.overcooked.service.env import ServiceEnv
from envsuite.envs.overcooked.service.generator import draw_service
from envsuite.envs.overcooked.service.layout import structure
from envsuite.envs.overcooked.service.scripts import won_by_script

from benchmarks.overcooked_scripts import RULES, best_scripts
from envsuite import registry
from envsuite.cache import write_atomically
from harness.stats.intervals import success_interval

LEVELS = ("easy", "medium", "hard")
PLAYERS = ("random", "blind", "greedy", "planner", "expert")


def play(env: ServiceEnv, player: str, seed: int) -> tuple[bool, int]:
    """Plays one game. Returns whether it is won, and its length in steps."""
    _, info = env.reset(seed=seed)
    rng = np.random.default_rng([seed, 7])
    over = False
    while not over:
        if player == "random":
            command: Any = env.random_command(rng)
        elif player == "blind":
            command = env.blind()
        else:
            command = env.expert("" if player == "expert" else player)
        _, _, terminated, truncated, info = env.step(command)
        over = terminated or truncated
    return bool(info["success"]), env.state.time


def share(count: int, games: int) -> str:
    """Returns a share in percent with its 95 % Wilson interval."""
    interval = success_interval([True] * count + [False] * (games - count), range(games))
    return f"{100 * count / games:.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def services(level: str, version: int, split: str, games: int) -> list[Service]:
    """Returns the services of the first games of a split."""
    task = registry.TASKS[f"Overcooked-{level}-v{version}"]
    env = registry.build(task)
    assert isinstance(env, ServiceEnv)
    drawn = []
    for seed in task.splits[split][:games]:
        env.reset(seed=seed)
        drawn.append(env.service)
    return drawn


def scripts_row(level: str, version: int, games: int) -> list[str]:
    """Returns the cells of the table of scripts: known ones, the best rule, and the best rules by kind of objective."""
    train, test = (services(level, version, split, games) for split in ("train", "test"))
    best = best_scripts(train, test)
    known = sum(won_by_script(service) for service in test)
    forms = {structure(service.layout.rows) for service in train}
    twins = sum(structure(service.layout.rows) in forms for service in test)
    cells = [f"{level}, v{version}", *(share(count, games) for count in (known, best["on train"], best["one"]))]
    return [*cells, share(best["by kind"], games), f"{twins} of {games}"]


def measure(level: str, games: int, controls: Sequence[str]) -> dict[Any, Any]:
    """Returns the measurements of a level."""
    task = registry.TASKS[f"Overcooked-{level}-v2"]
    seeds = task.splits["test"][:games]
    row: dict[Any, Any] = {"level": level, "resets": []}
    env = registry.build(task)
    for seed in seeds:
        draw_service.cache_clear()
        start = time.process_time()
        env.reset(seed=seed)
        row["resets"].append(1000 * (time.process_time() - start))
    for control in controls:
        env = registry.build(task, control=control)
        assert isinstance(env, ServiceEnv)
        for player in PLAYERS:
            results = [play(env, player, seed) for seed in seeds]
            row[control, player] = sum(won for won, _ in results)
            row["plan"] = [length for _, length in results]  # the expert is the last
    return row


def spread(values: list[int]) -> str:
    return f"{min(values)} / {np.median(values):.0f} / {max(values)}"


def page(levels: Sequence[str], games: int, proofs: bool, controls: Sequence[str]) -> str:
    """Returns the page."""
    measured = [measure(level, games, controls) for level in levels]
    lines = [
        "# Overcooked, version 2: players, scripts, plans, resets\n",
        f"`python -m benchmarks.overcooked_levels --games {games}{' --proofs' * proofs} --controls "
        f"{' '.join(controls)}`: the first {games} games of the\ntest split. Success in percent with 95 % intervals. "
        "`planner` is `expert:planner`, which plans by itself from the start. No player foresees\na change of the "
        "orders.\n",
        f"| level | control | {' | '.join(PLAYERS)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        for control in controls:
            cells = [share(row[control, player], games) for player in PLAYERS]
            lines.append(f"| {row['level']} | {control} | {' | '.join(cells)} |")
    lines += [
        "\nSteps of the expert (least / median / most), and resets in milliseconds of CPU time, each of a kitchen that "
        "was not in memory.\n",
        "| level | steps of the expert | reset median | 90 % | 95 % | most |",
        "|---|---|---|---|---|---|",
    ]
    for row in measured:
        times = [f"{value:.0f}" for value in np.quantile(row["resets"], [0.5, 0.9, 0.95, 1])]
        lines.append(f"| {' | '.join([row['level'], spread(row['plan']), *times])} |")
    if proofs:
        lines += [
            "\n## Scripts\n",
            "`known`: games that any script wins which version 2 rejects, in any sequence of the orders and with any "
            f"choice of stations. The other\ncolumns are {RULES} scripts that the generator does not know "
            f"(`benchmarks/overcooked_scripts.py`): the best of them on the first {games} training\ngames, its share "
            f"there and on the first {games} test games; and the best for each kind of objective, chosen on the same "
            "training games,\non the test games. Twins are test games whose structure is in these training games.\n",
            "| level | known | best, training games | best, test games | best for each kind, test games | twins |",
            "|---|---|---|---|---|---|",
        ]
        for level in levels:
            lines += [f"| {' | '.join(scripts_row(level, version, games))} |" for version in (1, 2)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--controls", nargs="+", choices=("primitive", "station"), default=("primitive", "station"))
    parser.add_argument("--proofs", action="store_true", help="also search for winning scripts: minutes")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    options = parser.parse_args()
    text = page(options.levels, options.games, options.proofs, options.controls)
    if options.markdown:
        write_atomically(options.markdown, text)
    print(text)


if __name__ == "__main__":
    main()
