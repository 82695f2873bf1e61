"""Checks that the expert wins, and that idle and blind players lose."""

from __future__ import annotations

from collections.abc import Callable

from envsuite import registry
from envsuite.checks.demand import NotJudged, demand
from envsuite.core import TextEnv
from envsuite.types import Task

BLIND_GAMES, BLIND_GAMES_OF_SLOW_ENGINES = 50, 10
MAX_BLIND_SHARE: float = Task.blind_share
"""Share of games above which a level tests too little, unless the task declares its share."""


def expert(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks that the expert wins every game with valid commands; states its numbers of turns."""
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
                demand(command is not None, f"seed {seed}: the expert returns no command at turn {turns}")
                assert command is not None
                _, _, terminated, truncated, info = env.step(command)
                demand(info["is_action_valid"], f"seed {seed}: the expert's {command[:40]!r} is not valid")
                done, success, turns = terminated or truncated, info["success"], turns + 1
            demand(success, f"seed {seed}: the expert does not win ({info['stop_reason']})")
            lengths.append(turns)
        return f"{len(seeds)} of {len(seeds)} won in {min(lengths)}-{max(lengths)} turns"
    finally:
        env.close()


def idle(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks that a player that does nothing neither wins nor earns a reward."""
    env = build()
    try:
        for seed in seeds[:2]:
            env.reset(seed=seed)
            done = False
            while not done:
                _, reward, terminated, truncated, info = env.step(env.idle())
                done = terminated or truncated
                demand(not info["success"] and reward <= 0, f"seed {seed}: an idle player gets reward {reward}")
        return f"{len(seeds[:2])} games lost"
    finally:
        env.close()


def blind(build: Callable[..., TextEnv], task: Task) -> str:
    """States how often the blind player wins; fails for a level that it wins more often than the task declares.

    Raises NotJudged for a level that declares more than the usual share, for tasks that are no level, and for families
    without a blind player.
    """
    env = build()
    try:
        if type(env).blind_script is TextEnv.blind_script:
            raise NotJudged("this family has no blind player")
        games = BLIND_GAMES_OF_SLOW_ENGINES if type(env).isolate else BLIND_GAMES
        seeds = task.splits[registry.default_split(task)][:games] if not task.panel else range(games)
        wins = sum(_blind_wins(env, seed) for seed in seeds)
    finally:
        env.close()
    rate = f"{wins} of {len(seeds)} games won by the blind player"
    if not task.level:
        raise NotJudged(f"{rate}; only levels must keep it below {MAX_BLIND_SHARE:.0%}")
    demand(wins <= task.blind_share * len(seeds), f"{rate}, more than {task.blind_share:.0%}")
    if task.blind_share > MAX_BLIND_SHARE:
        raise NotJudged(f"{rate}; the level declares up to {task.blind_share:.0%}: compare a player with that")
    return rate


def _blind_wins(env: TextEnv, seed: int) -> bool:
    env.reset(seed=seed)
    over = False
    while not over and (command := env.blind()) is not None:
        _, _, terminated, truncated, _ = env.step(command)
        over = terminated or truncated
    return env.success
