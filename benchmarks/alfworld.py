"""Compares ALFWorld's own engine with ours on the same games and commands, in one process.

    python -m benchmarks.alfworld [--games 8] [--write]

Ours is measured through the public API: `gym.make`, with text, info and admissible commands on
every turn. The stock engine is set up as in ALFWorld (textworld's PddlEnv with alfworld's
demangler). Times are processor seconds, because the machine may be shared. Memory is the resident
set, measured in separate processes. Reads the official games under $ALFWORLD_DATA.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.envs.alfworld import env as alfworld_env
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.games import compiled, solver

TASK = "ALFWorld-valid_seen-v0"
STEPS = 30
EPISODES = 1_000
LIVE = 1_000
MODES = ("sync", "vector_entry_point")


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Returns the median processor time of `work`."""
    times = []
    for _ in range(repeats):
        log_starts = time.process_time()
        work()
        times.append(time.process_time() - log_starts)
    return median(times)


def stock_env() -> Any:
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs.pddl import PddlEnv

    return AlfredInfos(AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))))


def random_tape(env: gym.Env[str, str], seed: int, steps: int) -> list[str]:
    """Returns random admissible commands for one episode."""
    rng = random.Random(seed)
    _, info = env.reset(seed=seed)
    tape = []
    for _ in range(steps):
        tape.append(rng.choice(info["admissible_commands"]))
        _, _, terminated, truncated, info = env.step(tape[-1])
        if terminated or truncated:
            break
    return tape


def play(env: gym.Env[str, str], tape: list[str]) -> None:
    for command in tape:
        env.step(command)


def forget_games() -> None:
    """Clears the games in memory, so that the next reset reads a compiled game from disk."""
    alfworld_env._official.cache_clear()
    compiled.clear_memory()


def pairs(games: int) -> list[dict[str, tuple[float, float]]]:
    """Returns per game: measurement -> (stock seconds, our seconds)."""
    stock, ours = stock_env(), registry.make(TASK)
    core = ours.unwrapped
    assert isinstance(core, AlfworldEnv)
    rows = []
    for seed in range(games):
        tape = random_tape(ours, seed, STEPS)
        file = core.labels() and core.extra_info()["extra.gamefile"]

        def cold_stock(file: str = file) -> None:
            stock.load(file)
            stock.reset()

        def play_stock(tape: list[str] = tape) -> None:
            for command in tape:
                stock.step(command)

        def cold_ours(seed: int = seed) -> None:
            forget_games()
            ours.reset(seed=seed)

        def read_before(seed: int = seed) -> None:
            alfworld_env._official.cache_clear()
            ours.reset(seed=seed)

        row = {}
        first = seconds(cold_stock)
        again = seconds(stock.reset)
        steps = seconds(play_stock)
        row["reset, cold"] = first, seconds(cold_ours, 7)
        row["reset, game read before"] = first, seconds(read_before, 7)
        row["reset, game among the last 256"] = again, seconds(lambda seed=seed: ours.reset(seed=seed), 25)
        new, known = [], []
        for times, forget in ((new, True), (known, False)):
            for _ in range(9):
                if forget:
                    forget_games()
                ours.reset(seed=seed)
                times.append(seconds(lambda tape=tape: play(ours, tape)))
        row["step, nothing seen before"] = steps / len(tape), median(new) / len(tape)
        row["step, all seen before"] = steps / len(tape), median(known) / len(tape)
        rows.append(row)
        print(
            f"game {seed + 1} of {games}: {', '.join(f'{k} {a / b:,.0f}x' for k, (a, b) in row.items())}",
            file=sys.stderr,
        )
    return rows


def random_play(stock_episodes: int) -> tuple[float, float]:
    """Returns processor seconds of an episode of 50 random commands: stock, and ours averaged over
    1,000.
    """
    ours, stock = registry.make(TASK), stock_env()

    def ours_all() -> None:
        for seed in range(EPISODES):
            random_tape(ours, seed, 50)

    spent = seconds(ours_all) / EPISODES
    core = ours.unwrapped
    assert isinstance(core, AlfworldEnv)
    total = 0.0
    for seed in range(stock_episodes):
        tape = random_tape(ours, seed, 50)
        file = core.extra_info()["extra.gamefile"]

        def episode(tape: list[str] = tape, file: str = file) -> None:
            stock.load(file)
            stock.reset()
            for command in tape:
                stock.step(command)

        total += seconds(episode)
    return total / stock_episodes, spent


def at_once(numbers: tuple[int, ...] = (1, 8, 64, 512)) -> dict[int, tuple[float, float, float]]:
    """Returns steps/s by number of games: one environment in turn, SyncVectorEnv, our vector
    environment.
    """
    results = {}
    single = registry.make(TASK)
    for n in numbers:
        tapes = [random_tape(single, seed, 49) for seed in range(n)]
        turns = min(len(tape) for tape in tapes) if n < 64 else 40
        tapes = [(tape * turns)[:turns] for tape in tapes]  # a won game receives further commands and is reset
        columns = list(zip(*tapes, strict=False))
        rivals = [gym.make_vec(f"envsuite/{TASK}", num_envs=n, vectorization_mode=mode) for mode in MODES]
        spent: list[list[float]] = [[], [], []]
        for _ in range(5):
            total = 0.0
            for seed, tape in enumerate(tapes):
                single.reset(seed=seed)
                total += seconds(lambda tape=tape: play_on(single, tape))
            spent[0].append(total)
            for envs, times in zip(rivals, spent[1:], strict=False):
                envs.reset(seed=0)
                times.append(seconds(lambda columns=columns, envs=envs: [envs.step(column) for column in columns]))
        in_turn, sync, ours = (n * turns / median(times) for times in spent)
        results[n] = in_turn, sync, ours
        for envs in rivals:
            envs.close()
    return results


def play_on(env: gym.Env[str, str], tape: list[str]) -> None:
    for command in tape:
        _, _, terminated, truncated, _ = env.step(command)
        if terminated or truncated:
            env.reset()


def expert_speed() -> float:
    """Returns how many commands per second the exact solver finds, over random states of 50 games."""
    env = registry.make(TASK)
    core = env.unwrapped
    assert isinstance(core, AlfworldEnv)
    states = []
    for seed in range(50):
        rng = random.Random(seed)
        _, info = env.reset(seed=seed)
        for _ in range(20):
            _, _, over, _, info = env.step(rng.choice(info["admissible_commands"]))
            if over:
                break
            assert core._native is not None
            states.append((core._native.game, core._native.get_state()))

    def ask():
        return [solver.next_command(game, state) for game, state in states]

    ask()
    return len(states) / seconds(ask, 3)


# ---- memory, each in a separate process


def resident() -> float:
    """Returns the resident memory of this process in megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def grown_by_resets(who: str, resets: int) -> float:
    """Returns by how many megabytes a process grows after the given numbers of resets."""
    ours = registry.make(TASK)
    if who == "ours":
        ours.reset(seed=0)
        before = resident()
        for seed in range(resets):
            ours.reset(seed=seed)
        return resident() - before
    stock, core = stock_env(), ours.unwrapped
    assert isinstance(core, AlfworldEnv)
    files = [str(game.path) for game in core._files]
    stock.load(files[0])
    stock.reset()
    before = resident()
    for seed in range(resets):
        stock.load(files[seed % len(files)])
        stock.reset()
    return resident() - before


def live_games(label: str) -> float:
    """Returns the megabytes that 1,000 running games need after ten random commands each."""
    task = {"official": TASK, "generated": "ALFWorld-generated-v0"}[label]
    registry.make(task).reset(seed=5_000)
    before = resident()
    envs = [registry.make(task) for _ in range(LIVE)]
    for seed, env in enumerate(envs):
        random_tape(env, seed, 10)
    return resident() - before


def apart(work: Callable[..., float], *arguments: object) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


class Page(list[str]):
    """Lines of a report, printed as soon as they are added."""

    def append(self, line: str) -> None:
        super().append(line)
        print(line, flush=True)

    def __iadd__(self, lines: Iterable[str]) -> Page:  # type: ignore[misc, override]
        for line in lines:
            self.append(line)
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--stock-episodes", type=int, default=4)
    parser.add_argument("--stock-resets", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write benchmarks/alfworld.md")
    args = parser.parse_args()
    rows = pairs(args.games)
    lines = Page()
    lines += [
        "# ALFWorld: stock engine and ours",
        "",
        f"One run, {args.games} official games, the same {STEPS} random commands; ours through `gym.make` with text, "
        "info and admissible commands. Processor time (ours: median of repeats) on two busy cores; ratios are medians "
        "of each game's own pair. `python -m benchmarks.alfworld --write` runs it again.",
        "",
        "| | stock, median | ours, median | ratio, median | least | most |",
        "|---|---|---|---|---|---|",
    ]
    for label in rows[0]:
        ratios = [row[label][0] / row[label][1] for row in rows]
        stock, ours = (median(row[label][side] for row in rows) for side in (0, 1))
        lines.append(
            f"| {label} | {stock * 1e3:,.1f} ms | {ours * 1e6:,.1f} µs | **{median(ratios):,.0f}x** "
            f"| {min(ratios):,.0f}x | {max(ratios):,.0f}x |"
        )
    stock, ours = random_play(args.stock_episodes)
    lines.append(
        f"| {EPISODES:,} episodes of 50 random commands | {stock * EPISODES:,.0f} s (from {args.stock_episodes}) "
        f"| {ours * EPISODES:,.2f} s | **{stock / ours:,.0f}x** | | |"
    )
    lines += [
        "",
        "| games at once | one environment, steps/s | SyncVectorEnv, steps/s | ours, steps/s "
        "| ours / one | ours / SyncVectorEnv |",
        "|---|---|---|---|---|---|",
    ]
    for n, (single, sync, ours) in at_once().items():
        lines.append(f"| {n} | {single:,.0f} | {sync:,.0f} | {ours:,.0f} | {ours / single:.2f}x | {ours / sync:.2f}x |")
    grown = apart(grown_by_resets, "stock", args.stock_resets)
    lines += [
        "",
        f"- Exact expert: {expert_speed():,.0f} states/s (next command, random states).",
        f"- Memory growth over resets: ours {apart(grown_by_resets, 'ours', 1_000):,.1f} MB after 1,000, "
        f"stock {grown:,.0f} MB after {args.stock_resets}.",
        f"- {LIVE:,} games in play at once: {apart(live_games, 'official'):,.0f} MB over 140 official files, "
        f"{apart(live_games, 'generated'):,.0f} MB all different (generated).",
        "",
    ]
    if args.write:
        write_atomically(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()
