"""Measures version 1 of Overcooked's levels: success of scripted players, plan lengths, resets, twins of the splits.

    python -m benchmarks.overcooked_levels --games 100 --proofs --markdown benchmarks/overcooked_levels.md

The games are the first ones of the test split. Besides the environment's blind player, all its variants are
played: sequence of the orders, arrangement of the foods, batches or single foods, numbers of crates, racks
and hatches. The generator rejects them in the orders' own sequence only. Interleaved scripts also begin foods
of the next order on boards and stoves that are free; the generator does not try them. The page lists the best
script of each sort; it is chosen on the games that it is counted on, so its share is too high rather than too
low.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.envs.overcooked.service import cooks
from envsuite.envs.overcooked.service.engine import CHOPPED, Service
from envsuite.envs.overcooked.service.env import ServiceEnv
from envsuite.envs.overcooked.service.generator import draw_service
from envsuite.envs.overcooked.service.layout import BOARD, COUNTER, CRATE, HATCH, RACK, STOVE, structure
from envsuite.envs.overcooked.service.outlook import items_of
from harness.stats.intervals import success_interval

LEVELS = ("easy", "medium", "hard")
PLAYERS = ("random", "blind", "greedy", "expert")
TWIN_GAMES = 100  # games of each split that are compared


def wins(env: ServiceEnv, player: str, seed: int) -> bool:
    """Plays one game. Returns True if it is won."""
    _, info = env.reset(seed=seed)
    rng = np.random.default_rng([seed, 7])
    over = False
    while not over:
        if player == "random":
            command: Any = env.random_command(rng)
        elif player == "blind":
            command = env.blind()
        else:
            command = env.expert("greedy" if player == "greedy" else "")
        _, _, terminated, truncated, info = env.step(command)
        over = terminated or truncated
    return bool(info["success"])


def script_wins(service: Service) -> list[bool]:
    """Returns which scripts serve every order in time, for every sequence of the orders."""
    results = []
    for sequence in permutations(service.orders):
        reordered = Service(service.layout, sequence, service.rules)
        results += [cooks.wins(reordered, uses) for uses in cooks.scripts(reordered, distinct=False)]
    return results


def interleaved(items_of_orders: list[list[int]], boards: int, stoves: int, ahead: Sequence[int]) -> list[cooks.Use]:
    """Returns uses that serve the orders one by one, and meanwhile begin foods of the next order on free stations.

    `ahead` holds the kinds of station (BOARD, STOVE) on which the next order may begin.
    """
    uses: list[cooks.Use] = []
    free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
    waiting = [(order, item) for order, items in enumerate(items_of_orders) for item in items]
    begun: dict[tuple[int, int], cooks.Use] = {}
    for order, items in enumerate(items_of_orders):
        left, first = list(items), True
        while left:
            for entry in [entry for entry in waiting if entry[0] <= order + 1]:
                kind = _kind(entry[1])
                needed = any(_kind(item) == kind for number, item in waiting if number == order)
                if free[kind] and (entry[0] == order or (kind in ahead and not needed)):
                    begun[entry] = place = (kind, free[kind].pop(0))
                    uses += [(CRATE, entry[1] >> 2), place] + ([place] if kind == BOARD else [])
                    waiting.remove(entry)
            uses.append((RACK, 0) if first else (COUNTER, 0))
            first = False
            for item in [item for item in left if (order, item) in begun]:
                kind, number = place = begun.pop((order, item))
                uses.append(place)
                free[kind].append(number)
                left.remove(item)
            uses.append((COUNTER, 0) if left else (HATCH, 0))
    return uses


def _kind(item: int) -> int:
    """Returns the kind of station that a food needs."""
    return BOARD if item & 3 == CHOPPED else STOVE


def interleaved_wins(service: Service) -> list[bool]:
    """Returns which interleaved scripts win: every sequence of the orders and choice of equal stations.

    The first of the sequences is by deadline.
    """
    layout, of_kind = service.layout, service.layout.of_kind
    crates = [[i for i in of_kind[CRATE] if layout.stations[i].food == food] for food in range(len(layout.foods))]
    results = []
    by_deadline = sorted(service.orders, key=lambda order: order.deadline)
    for sequence in permutations(by_deadline):
        reordered = Service(layout, sequence, service.rules)
        for arrange, ahead in product((1, 0, -1), ((BOARD,), (STOVE,), (BOARD, STOVE))):
            dishes = [sorted(items_of(order.dish), key=lambda item: -arrange * (item & 3)) for order in sequence]
            uses = interleaved(dishes, layout.boards, layout.stoves, ahead)
            for *crate, rack, hatch in product(*crates, of_kind[RACK], of_kind[HATCH]):
                numbers = {**dict(enumerate(of_kind)), CRATE: crate, RACK: [rack], HATCH: [hatch]}
                results.append(cooks.wins(reordered, [numbers[kind][which] for kind, which in uses]))
    return results


def share(count: int, games: int) -> str:
    """Returns a share in percent with its 95 % Wilson interval."""
    interval = success_interval([True] * count + [False] * (games - count), range(games))
    return f"{100 * count / games:.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def measure(level: str, games: int, proofs: bool) -> dict[Any, Any]:
    """Returns the measurements of a level."""
    task = registry.TASKS[f"Overcooked-{level}-v1"]
    seeds = task.splits["test"][:games]
    row: dict[Any, Any] = {"level": level}
    lengths, resets, commands, variants, mixed = [], [], [], [], []
    env = registry.build(task, control="station")
    assert isinstance(env, ServiceEnv)
    for seed in seeds:
        draw_service.cache_clear()
        start = time.process_time()
        env.reset(seed=seed)
        resets.append(1000 * (time.process_time() - start))
        lengths.append(max(cooks.serving_times(env.service, env.plan)))
        commands.append(len(env.plan))
        if proofs:
            variants.append(script_wins(env.service))
            mixed.append(interleaved_wins(env.service))
    row["plan"] = lengths
    row["uses"] = commands
    row["resets"] = resets
    row["scripts"] = row["interleaved"] = row["twins"] = "not run"
    if proofs:
        for name, wins in (("scripts", variants), ("interleaved", mixed)):
            best = max(sum(column) for column in zip(*wins, strict=True))
            row[name] = f"{share(best, games)}, of {len(wins[0]):,}"
        row["twins"] = f"{twins(level, min(games, TWIN_GAMES))} of {min(games, TWIN_GAMES)}"
    for control in ("primitive", "station"):
        env = registry.build(task, control=control)
        assert isinstance(env, ServiceEnv)
        for player in PLAYERS:
            row[control, player] = sum(wins(env, player, seed) for seed in seeds)
    return row


def twins(level: str, games: int) -> int:
    """Returns how many of the first test games share their structure with one of the first training games."""
    env = registry.build(f"Overcooked-{level}-v1")
    assert isinstance(env, ServiceEnv)
    forms: dict[str, list[str]] = {}
    for split in ("train", "test"):
        forms[split] = []
        for seed in registry.TASKS[f"Overcooked-{level}-v1"].splits[split][:games]:
            env.reset(seed=seed)
            forms[split].append(structure(env.service.layout.rows))
    return sum(form in set(forms["train"]) for form in forms["test"])


def spread(values: list[int]) -> str:
    return f"{min(values)} / {np.median(values):.0f} / {max(values)}"


def page(levels: Sequence[str], games: int, proofs: bool) -> str:
    """Returns the page."""
    measured = [measure(level, games, proofs) for level in levels]
    lines = [
        "# Overcooked, version 1: players, plans, resets\n",
        f"`python -m benchmarks.overcooked_levels --games {games}`: the first {games} games of the test split. "
        "Success in percent with 95 %\nintervals. `station` is `control=station`; the default is `primitive`.\n",
        "| level | control | random | blind | best of all scripts | best interleaved script | greedy | expert |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        for control in ("primitive", "station"):
            cells = [share(row[control, player], games) for player in PLAYERS]
            best = ["none walks"] * 2 if control == "primitive" else [row["scripts"], row["interleaved"]]
            lines.append(f"| {row['level']} | {control} | {' | '.join([*cells[:2], *best, *cells[2:]])} |")
    lines += [
        "\nPlans (least / median / most), and resets in milliseconds of CPU time, each of a kitchen that was "
        "not in memory.\n",
        "| level | steps of the plan | uses of stations | reset median | 90 % | 99 % | most | twins of test in train |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        times = [f"{value:.0f}" for value in np.quantile(row["resets"], [0.5, 0.9, 0.99, 1])]
        cells = [row["level"], spread(row["plan"]), spread(row["uses"]), *times, row["twins"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--proofs", action="store_true", help="also play all scripts and compare the splits: minutes")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    options = parser.parse_args()
    text = page(options.levels, options.games, options.proofs)
    if options.markdown:
        write_atomically(options.markdown, text)
    print(text)


if __name__ == "__main__":
    main()
