"""Contract checks for any environment, behind `envsuite-check MyEnv`.

`check` runs Gymnasium's own checker with warnings as errors, tests determinism (twice in one
process, and in another process under two hash seeds), fuzzes the action space, looks for leaks over
200 resets, verifies that the expert wins and that idle and blind players lose, and checks the schema of `info`
and the properties of each reward mode.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils.env_checker import check_env

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import DataError, EnvsuiteError, MissingData, UsageError
from envsuite.types import RewardMode, StopReason, Task

INFO: dict[str, type | tuple[type, ...]] = {
    "success": bool,
    "is_action_valid": bool,
    "admissible_commands": list,
    "progression": float,
    "stop_reason": (StopReason, type(None)),
}
HOSTILE = (
    "",
    " ",
    "\n",
    "\\",
    "\x00\x01\x1b[2J",
    "x" * 10_000,
    "打开 冰箱 🧊",
    "'; DROP TABLE games; --",
    "../../etc/passwd",
    "save",
    "restore",
    "restart",
    "quit",
    "{}{0}%s%n",
    "<action>look</action>",
    "go to\tnowhere",
    "undo",
    '"""',
    "\ud800",
)
BLIND_GAMES, BLIND_GAMES_OF_SLOW_ENGINES = 50, 10
MAX_BLIND_SUCCESS = 0.2
"""Share of games above which a level tests too little; published and `-v0` tasks only state their share."""
LEAK_RESETS, LEAK_SECONDS, LEAK_BYTES = 200, 60.0, 48 * 2**20


class Finding(NamedTuple):
    """Result of one check: its name, whether it passed, and details."""

    name: str
    ok: bool
    detail: str


def absent(task: Task, **knobs: Any) -> str:
    """Returns the message that the task's data are missing on this machine, or '' if the task can be
    built.
    """
    try:
        registry.build(task, **knobs).close()
    except MissingData as error:
        return str(error)
    return ""


def check(task: Task, seconds: float = LEAK_SECONDS, seeds: int = 5, **knobs: Any) -> Iterator[Finding]:
    """Runs every check on a task and yields each finding as it ends.

    `seconds` bounds the leak check, `seeds` the number of games per check.
    """

    def build(mode: RewardMode = RewardMode.SPARSE) -> TextEnv:
        return registry.build(task, mode, **knobs)

    game_seeds = list(range(seeds)) if task.panel else list(task.splits[registry.default_split(task)][:seeds])
    for name, property_of in (
        ("gymnasium check_env, warnings as errors", lambda: _gymnasium(build)),
        ("splits do not overlap", lambda: _splits(task)),
        ("info schema", lambda: _schema(build, game_seeds)),
        ("same seed, same game (one process)", lambda: _same_process(build, game_seeds)),
        ("same game in another process, two hash seeds", lambda: _other_processes(task, knobs, game_seeds)),
        ("any string is answered (fuzzing)", lambda: _fuzz(build, game_seeds)),
        ("expert wins", lambda: _expert(build, game_seeds)),
        ("idle player loses", lambda: _idle(build, game_seeds)),
        ("a fixed script does not win the level", lambda: _blind(build, task)),
        ("reward modes keep their promises", lambda: _rewards(build, game_seeds)),
        ("no leak over resets", lambda: _leaks(build, game_seeds, seconds)),
    ):
        try:
            yield Finding(name, True, property_of())
        except Exception as error:  # any error is a failed check
            yield Finding(name, False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _gymnasium(build: Callable[..., TextEnv]) -> str:
    env = build()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env, skip_render_check=True)
    finally:
        env.close()
    return "passed"


def _splits(task: Task) -> str:
    ordered = sorted(task.splits.items(), key=lambda item: item[1].start)
    for (first, seeds), (second, later_seeds) in pairwise(ordered):
        _demand(seeds.stop <= later_seeds.start, f"{first} and {second} share seeds")
    return ", ".join(f"{name} {len(seeds):,}" for name, seeds in ordered)


def _schema(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env = build()
    try:
        steps = 0
        for info in _infos(env, seeds):
            for key, kind in INFO.items():
                _demand(key in info, f"info lacks {key!r}")
                _demand(isinstance(info[key], kind), f"info[{key!r}] is {type(info[key]).__name__}")
            _demand(0.0 <= info["progression"] <= 1.0, f"progression is {info['progression']}")
            _demand(all(isinstance(word, str) for word in info["admissible_commands"]), "a command is not a string")
            steps += 1
        _demand(bool(env.instructions.strip()), "no instructions")
        return f"{steps} infos"
    finally:
        env.close()


def _infos(env: TextEnv, seeds: list[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        _, info = env.reset(seed=seed)
        _demand(isinstance(info.get("objective"), str) and bool(info["objective"]), "no objective on reset")
        labels = info.get("labels", {})
        _demand(
            all(isinstance(x, str) for pair in labels.items() for x in pair), f"labels are not all strings: {labels}"
        )
        yield info
        for turn in range(10):
            command = env.random_command(np.random.default_rng([seed, turn]))
            _, reward, terminated, truncated, info = env.step(command)
            _demand(isinstance(reward, float) and math.isfinite(reward), f"reward {reward!r} is not a finite float")
            _demand((info["stop_reason"] is None) != (terminated or truncated), "stop_reason does not match the ending")
            yield info
            if terminated or truncated:
                break


def transcript(env: TextEnv, seed: int, turns: int = 12) -> str:
    """Returns a SHA-256 digest of everything a random player observes and receives as reward in one
    game.
    """
    digest = hashlib.sha256()

    def add(*values: Any) -> None:
        digest.update(json.dumps(values, sort_keys=True, default=str).encode())

    text, info = env.reset(seed=seed, options={"attempt": 1})
    add(text, info["admissible_commands"], info["objective"], info.get("labels"), env.instructions)
    for turn in range(turns):
        command = env.random_command(np.random.default_rng([seed, turn]))
        text, reward, terminated, truncated, info = env.step(command)
        add(command, text, reward, terminated, truncated, info["admissible_commands"], info["success"])
        if terminated or truncated:
            break
    return digest.hexdigest()


def _same_process(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env, second_env = build(), build()
    try:
        first = [transcript(env, seed) for seed in seeds]
        # Play the seeds in another order, so that no state can carry over from the previous game.
        again = {seed: transcript(second_env, seed) for seed in reversed(seeds)}
        for seed, digest in zip(seeds, first, strict=True):
            _demand(again[seed] == digest, f"seed {seed} plays differently the second time")
        return f"{len(seeds)} seeds"
    finally:
        env.close()
        second_env.close()


def _other_processes(task: Task, knobs: dict[str, Any], seeds: list[int]) -> str:
    env = registry.build(task, **knobs)
    try:
        here = [transcript(env, seed) for seed in seeds]
    finally:
        env.close()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.run(
            [sys.executable, "-m", "envsuite.checks"],
            input=pickle.dumps((task, knobs, seeds)),
            capture_output=True,
            env=environment,
            timeout=300,
        )
        _demand(process.returncode == 0, f"the second process failed: {process.stderr.decode()[-300:]}")
        there = json.loads(process.stdout.splitlines()[-1])
        for seed, mine, theirs in zip(seeds, here, there, strict=True):
            _demand(mine == theirs, f"seed {seed} plays differently under PYTHONHASHSEED={hash_seed}")
    return f"{len(seeds)} seeds x 2 hash seeds"


def _fuzz(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env = build()
    tried = 0
    try:
        env.action_space.seed(0)
        for commands in (HOSTILE, [env.action_space.sample() for _ in range(30)]):
            env.reset(seed=seeds[0])
            for command in commands:
                text, reward, terminated, truncated, info = env.step(command)
                _demand(isinstance(text, str), f"{command[:20]!r} returned {type(text).__name__}, not a string")
                _demand(not info["success"], f"{command[:20]!r} won the game")
                tried += 1
                if terminated or truncated:
                    env.reset(seed=seeds[0])
        return f"{tried} strings"
    finally:
        env.close()


def _expert(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env = build()
    try:
        if not type(env).experts:
            return "no expert"
        lengths = []
        for seed in seeds:
            env.reset(seed=seed)
            done = success = False
            turns = 0
            while not done:
                command = env.expert()
                _demand(command is not None, f"seed {seed}: the expert returns no command at turn {turns}")
                assert command is not None
                _, _, terminated, truncated, info = env.step(command)
                _demand(info["is_action_valid"], f"seed {seed}: the expert's {command[:40]!r} is not valid")
                done, success, turns = terminated or truncated, info["success"], turns + 1
            _demand(success, f"seed {seed}: the expert does not win ({info['stop_reason']})")
            lengths.append(turns)
        return f"{len(seeds)} of {len(seeds)} won in {min(lengths)}-{max(lengths)} turns"
    finally:
        env.close()


def _idle(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env = build()
    try:
        for seed in seeds[:2]:
            env.reset(seed=seed)
            done = False
            while not done:
                _, reward, terminated, truncated, info = env.step(env.idle())
                done = terminated or truncated
                _demand(not info["success"] and reward <= 0, f"seed {seed}: an idle player gets reward {reward}")
        return f"{len(seeds[:2])} games lost"
    finally:
        env.close()


def _blind(build: Callable[..., TextEnv], task: Task) -> str:
    """States how often the blind player wins; fails for a level of a `-v1` or later task that it wins too often."""
    env = build()
    try:
        if type(env).blind_script is TextEnv.blind_script:
            return "no blind player"
        games = BLIND_GAMES_OF_SLOW_ENGINES if type(env).isolate else BLIND_GAMES
        seeds = task.splits[registry.default_split(task)][:games] if not task.panel else range(games)
        wins = sum(_blind_wins(env, seed) for seed in seeds)
    finally:
        env.close()
    rate = f"{wins} of {len(seeds)} games won by the blind player"
    version = task.id.rpartition("-v")[2]
    counts = bool(task.level) and version.isdigit() and int(version) >= 1
    _demand(not counts or wins <= MAX_BLIND_SUCCESS * len(seeds), f"{rate}, more than {MAX_BLIND_SUCCESS:.0%}")
    return rate


def _blind_wins(env: TextEnv, seed: int) -> bool:
    env.reset(seed=seed)
    over = False
    while not over and (command := env.blind()) is not None:
        _, _, terminated, truncated, _ = env.step(command)
        over = terminated or truncated
    return env.success


def _rewards(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    summaries = []
    for mode in RewardMode:
        try:
            env = build(mode)
        except UsageError as refusal:
            _demand(mode is RewardMode.SHAPED, f"{mode} is refused: {refusal}")
            summaries.append("no shaped reward")
            continue
        refused = 0
        try:
            for seed in seeds[:3]:
                try:
                    env.reset(seed=seed)
                except DataError as refusal:  # a family may not know the shortest plan of some games
                    _demand(mode is RewardMode.SHAPED, f"{mode} is refused for seed {seed}: {refusal}")
                    refused += 1
                    continue
                _check_returns(env, mode)
            summaries.append(f"{mode} (refused for {refused} of {len(seeds[:3])} games)" if refused else str(mode))
        finally:
            env.close()
    return ", ".join(summaries)


def _check_returns(env: TextEnv, mode: RewardMode) -> None:
    """Plays the expert's game in an environment just reset and checks the return that `mode` defines."""
    total = 0.0
    discount = 1.0
    done = success = terminated = False
    start = env._potential
    while not done:
        command = env.expert() if type(env).experts else None
        command = command or env.random_command(np.random.default_rng(0))
        _, reward, terminated, truncated, info = env.step(command)
        done = terminated or truncated
        success = info["success"]
        if mode is RewardMode.SHAPED:
            total += discount * (reward - float(success))
            discount *= env.shaping.discount(env.primitive_steps)
        else:
            total += reward
    if mode is RewardMode.SPARSE:
        _demand(total == float(success), f"sparse rewards sum to {total} for success={success}")
    if mode is RewardMode.DENSE and success:
        _demand(total > 0, f"dense rewards sum to {total} for a solved game")
    if mode is RewardMode.SHAPED and terminated:  # phi(end) = 0, so that the discounted terms telescope to -phi(start)
        _demand(abs(total + start) < 1e-6, f"shaping sums to {total}, not to -phi(start) = {-start}")


def _leaks(build: Callable[..., TextEnv], seeds: list[int], seconds: float) -> str:
    """Compares memory and process count of the whole process tree after the first tenth of the resets
    and at the end.
    """
    env = build()
    began, resets, base = time.monotonic(), 0, 0
    warm = max(5, LEAK_RESETS // 10)
    before = len(list(_tree(os.getpid())))
    try:
        while resets < LEAK_RESETS and (time.monotonic() - began < seconds or resets <= warm):
            seed = seeds[resets % len(seeds)]
            env.reset(seed=seed)
            env.step(env.random_command(np.random.default_rng([seed, 0])))
            resets += 1
            if resets == warm:
                base = _memory()
        grown = _memory() - base
        _demand(grown < LEAK_BYTES, f"{grown / 2**20:.0f} MB more after {resets} resets")
    finally:
        env.close()
    time.sleep(0.1)
    after = len(list(_tree(os.getpid())))
    _demand(after <= before, f"{after - before} processes left behind")
    return f"{resets} resets, {grown / 2**20:+.1f} MB"


def _tree(root: int) -> Iterator[int]:
    """Yields the process and all its descendants, from /proc; only the process itself without /proc."""
    yield root
    children = Path(f"/proc/{root}/task/{root}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            yield from _tree(int(child))


def _memory() -> int:
    """Returns the resident memory of this process and its descendants [bytes]."""
    pages = 0
    for pid in _tree(os.getpid()):
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _transcripts_for_another_process() -> None:
    """Prints the transcripts of a pickled (task, knobs, seeds) read from stdin; runs in a subprocess."""
    task, knobs, seeds = pickle.loads(sys.stdin.buffer.read())
    env = registry.build(task, **knobs)
    try:
        print(json.dumps([transcript(env, seed) for seed in seeds]))
    except EnvsuiteError as error:
        sys.exit(str(error))
    finally:
        env.close()


if __name__ == "__main__":
    import envsuite  # noqa: F401  registers the tasks

    _transcripts_for_another_process()
