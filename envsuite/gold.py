"""Whether every game of a panel can be won, and only by playing it: `envsuite-check --gold ENV`.

The expert plays each game several times (of SWE-Gym: the gold patch, as commands), and once a player who changes
nothing. A game the expert never wins is `broken`, one he wins only sometimes `flaky`, one that is won by doing nothing
`free`. Such games are set aside by name: many published instances cannot be solved by their own gold patch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import EnvsuiteError, MissingExtra, UsageError
from envsuite.types import Task

TIMES = 3


class Verdict(NamedTuple):
    """What was seen of one game."""

    game: str
    status: str
    """sound | broken | flaky | free"""
    detail: str
    seconds: float
    """wall clock of one winning play, its reset included; of all plays where none won"""


def examine(task: Task, times: int = TIMES, first: int | None = None, **knobs: Any) -> Iterator[Verdict]:
    """Yields a verdict per game of the task's panel, in its order. `first`: only so many.

    Raises UsageError for a task without a panel or without an expert, MissingExtra where its engine is not there.
    """
    panel = registry.panel(task, **knobs)
    if panel is None or not registry.env_class(task).experts:
        lacks = "list of games" if panel is None else "expert"
        raise UsageError(f"{task.id} has no {lacks} to examine: --gold is for tasks that have both, say swegym.")
    env: TextEnv | None = None
    try:
        for seed, game in enumerate(panel.games[:first]):
            try:
                env = env or registry.build(task, **knobs)
                yield _examined(env, seed, game, times)
            except (UsageError, MissingExtra):
                raise
            except EnvsuiteError as error:  # of this game alone: the next one gets a fresh environment
                yield Verdict(game, "broken", " ".join(str(error).split()), 0.0)
                if env is not None:
                    env.close()
                env = None
    finally:
        if env is not None:
            env.close()


def _examined(env: TextEnv, seed: int, game: str, times: int) -> Verdict:
    plays = []
    for _ in range(times):
        began = time.monotonic()
        plays.append((*played(env, seed, expert=True), time.monotonic() - began))
    won = [seconds for success, _, seconds in plays if success]
    if len(won) < times:
        why = next(why for success, why, _ in plays if not success)
        status = "flaky" if won else "broken"
        return Verdict(
            game, status, f"the expert won {len(won)} of {times} ({why})", sum(seconds for *_, seconds in plays)
        )
    free, _ = played(env, seed, expert=False)
    detail = (
        "a player who changes nothing wins too"
        if free
        else f"the expert won {times} of {times}, the idle player 0 of 1"
    )
    return Verdict(game, "free" if free else "sound", detail, min(won))


def played(env: TextEnv, seed: int, expert: bool) -> tuple[bool, str]:
    """Whether the expert, or else the idle player, won the game, and how it ended."""
    env.reset(seed=seed)
    while True:
        command = env.expert() if expert else env.idle()
        if command is None:
            return False, "the expert knows no command"
        *_, terminated, truncated, info = env.step(command)
        if terminated or truncated:
            return bool(info["success"]), str(info.get("fault") or info["stop_reason"])


def deny_list(found: Sequence[Verdict]) -> str:
    """The games to leave out, one a line with the reason behind it, as the knob `deny` of SWE-Gym reads them."""
    return "".join(f"{one.game}  # {one.status}: {one.detail}\n" for one in found if one.status != "sound")
