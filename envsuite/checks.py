"""The contract, as a check that anybody's environment can be put to: `envsuite-check MyEnv`.

Gymnasium's own checker with warnings as errors, determinism (twice in one process, in another one, under two hash seeds),
fuzzing, leaks over 200 resets, the expert wins, an idle player loses, the schema of info, what each reward mode promises.
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
LEAK_RESETS, LEAK_SECONDS, LEAK_BYTES = 200, 60.0, 48 * 2**20


class Finding(NamedTuple):
    """One property: whether it holds, and what was seen."""

    name: str
    ok: bool
    detail: str


def absent(task: Task, **knobs: Any) -> str:
    """What says that the task's data are not on this machine, so that it cannot be checked; "" where they are."""
    try:
        registry.build(task, **knobs).close()
    except MissingData as error:
        return str(error)
    return ""


def check(task: Task, seconds: float = LEAK_SECONDS, seeds: int = 5, **knobs: Any) -> Iterator[Finding]:
    """Puts a task to every check; yields as they end. `seconds` bounds the leak check, `seeds` the games per check."""

    def build(mode: RewardMode = RewardMode.SPARSE) -> TextEnv:
        return registry.build(task, mode, **knobs)

    played = list(range(seeds)) if task.panel else list(task.splits[registry.default_split(task)][:seeds])
    for name, property_of in (
        ("gymnasium check_env, warnings as errors", lambda: _gymnasium(build)),
        ("splits do not overlap", lambda: _splits(task)),
        ("info schema", lambda: _schema(build, played)),
        ("same seed, same game (one process)", lambda: _same_process(build, played)),
        ("same game in another process, two hash seeds", lambda: _other_processes(task, knobs, played)),
        ("any string is answered (fuzzing)", lambda: _fuzz(build, played)),
        ("expert wins", lambda: _expert(build, played)),
        ("idle player loses", lambda: _idle(build, played)),
        ("reward modes keep their promises", lambda: _rewards(build, played)),
        ("no leak over resets", lambda: _leaks(build, played, seconds)),
    ):
        try:
            yield Finding(name, True, property_of())
        except Exception as error:  # whatever goes wrong is the finding
            yield Finding(name, False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


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
    ranges = sorted(task.splits.items(), key=lambda item: item[1].start)
    for (first, one), (second, other) in zip(ranges, ranges[1:]):
        _demand(one.stop <= other.start, f"{first} and {second} share seeds")
    return ", ".join(f"{name} {len(span):,}" for name, span in ranges)


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
    """A digest of all that a random player sees and is paid in one game."""
    digest = hashlib.sha256()

    def note(*seen: Any) -> None:
        digest.update(json.dumps(seen, sort_keys=True, default=str).encode())

    text, info = env.reset(seed=seed, options={"attempt": 1})
    note(text, info["admissible_commands"], info["objective"], info.get("labels"), env.instructions)
    for turn in range(turns):
        command = env.random_command(np.random.default_rng([seed, turn]))
        text, reward, terminated, truncated, info = env.step(command)
        note(command, text, reward, terminated, truncated, info["admissible_commands"], info["success"])
        if terminated or truncated:
            break
    return digest.hexdigest()


def _same_process(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    one, other = build(), build()
    try:
        first = [transcript(one, seed) for seed in seeds]
        # In another order, so that nothing can hang over from the game before.
        again = {seed: transcript(other, seed) for seed in reversed(seeds)}
        for seed, digest in zip(seeds, first, strict=True):
            _demand(again[seed] == digest, f"seed {seed} plays differently the second time")
        return f"{len(seeds)} seeds"
    finally:
        one.close()
        other.close()


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
        _demand(process.returncode == 0, f"the other process failed: {process.stderr.decode()[-300:]}")
        there = json.loads(process.stdout.splitlines()[-1])
        for seed, mine, theirs in zip(seeds, here, there, strict=True):
            _demand(mine == theirs, f"seed {seed} plays differently under PYTHONHASHSEED={hash_seed}")
    return f"{len(seeds)} seeds x 2 hash seeds"


def _fuzz(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    env = build()
    tried = 0
    try:
        env.action_space.seed(0)
        for words in (HOSTILE, [env.action_space.sample() for _ in range(30)]):
            env.reset(seed=seeds[0])
            for command in words:
                text, reward, terminated, truncated, info = env.step(command)
                _demand(isinstance(text, str), f"{command[:20]!r} was answered with {type(text).__name__}")
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
            over = success = False
            turns = 0
            while not over:
                command = env.expert()
                _demand(command is not None, f"seed {seed}: the expert has nothing to say at turn {turns}")
                assert command is not None
                _, _, terminated, truncated, info = env.step(command)
                _demand(info["is_action_valid"], f"seed {seed}: the expert's {command[:40]!r} is not valid")
                over, success, turns = terminated or truncated, info["success"], turns + 1
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
            over = False
            while not over:
                _, reward, terminated, truncated, info = env.step(env.idle())
                over = terminated or truncated
                _demand(not info["success"] and reward <= 0, f"seed {seed}: an idle player is paid {reward}")
        return f"{len(seeds[:2])} games lost"
    finally:
        env.close()


def _rewards(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    found = []
    for mode in RewardMode:
        try:
            env = build(mode)
        except UsageError as refusal:
            _demand(mode is RewardMode.SHAPED, f"{mode} is refused: {refusal}")
            found.append("no shaped reward")
            continue
        without = 0
        try:
            for seed in seeds[:3]:
                try:
                    env.reset(seed=seed)
                except DataError as refusal:  # of some games a family may not know the shortest plan, and says so
                    _demand(mode is RewardMode.SHAPED, f"{mode} is refused for seed {seed}: {refusal}")
                    without += 1
                    continue
                # The expert's potential is that of the whole game; phi(end) = 0 closes the telescope.
                total, discount, over, success = 0.0, 1.0, False, False
                start = env._potential
                while not over:
                    command = (env.expert() if type(env).experts else None) or env.random_command(
                        np.random.default_rng(0)
                    )
                    _, reward, terminated, truncated, info = env.step(command)
                    over, success = terminated or truncated, info["success"]
                    if mode is RewardMode.SHAPED:
                        reward -= float(success)
                        total += discount * reward
                        discount *= env.shaping_gamma**env.primitive_steps
                    else:
                        total += reward
                if mode is RewardMode.SPARSE:
                    _demand(total == float(success), f"sparse pays {total} for success={success}")
                if mode is RewardMode.DENSE and success:
                    _demand(total > 0, f"dense pays {total} for a solved game")
                if mode is RewardMode.SHAPED and terminated:
                    _demand(abs(total + start) < 1e-6, f"shaping sums to {total}, not to -phi(start) = {-start}")
            found.append(f"{mode} (refused for {without} of {len(seeds[:3])} games)" if without else str(mode))
        finally:
            env.close()
    return ", ".join(found)


def _leaks(build: Callable[..., TextEnv], seeds: list[int], seconds: float) -> str:
    """Memory and number of processes of the whole tree, between the first tenth of the resets and the last."""
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
    """The process and all its descendants, from /proc; just itself where there is none."""
    yield root
    children = Path(f"/proc/{root}/task/{root}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            yield from _tree(int(child))


def _memory() -> int:
    pages = 0
    for pid in _tree(os.getpid()):
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _transcripts_for_another_process() -> None:
    task, knobs, seeds = pickle.loads(sys.stdin.buffer.read())
    env = registry.build(task, **knobs)
    try:
        print(json.dumps([transcript(env, seed) for seed in seeds]))
    except EnvsuiteError as error:
        sys.exit(str(error))
    finally:
        env.close()


if __name__ == "__main__":
    import envsuite  # noqa: F401  the menu

    _transcripts_for_another_process()
