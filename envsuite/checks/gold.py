"""Tests whether the expert can win every game of a panel and an idle player cannot: `envsuite check
--gold ENV`.

The expert plays each game several times (in SWE-Gym: it applies the gold patch), and an idle player
plays it once. A game that the expert never wins is `broken`, one that it wins only sometimes is
`flaky`, and one that the idle player wins is `free`. `deny_list` writes these games in the form
that SWE-Gym's knob `deny` reads: many published instances cannot be solved by their own gold patch.
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


class GameVerdict(NamedTuple):
    """Result of one game."""

    game: str
    status: str
    """sound | broken | flaky | free"""
    detail: str
    seconds: float
    """wall-clock time of one won play, reset included; of all plays if none was won"""


def examine(task: Task, times: int = TIMES, first: int | None = None, **knobs: Any) -> Iterator[GameVerdict]:
    """Yields a verdict for each game of the task's panel, in order, or for the `first` games only.

    Raises UsageError for a task without a panel or an expert, MissingExtra if its engine is not
    installed.
    """
    panel = registry.panel(task, **knobs)
    if panel is None or not registry.env_class(task).experts:
        missing = "list of games" if panel is None else "expert"
        raise UsageError(f"{task.id} has no {missing} to examine: use --gold with a task that has both, e.g. swegym.")
    env: TextEnv | None = None
    try:
        for seed, game in enumerate(panel.games[:first]):
            try:
                env = env or registry.build(task, **knobs)
                yield _examine_game(env, seed, game, times)
            except (UsageError, MissingExtra):
                raise
            except EnvsuiteError as error:  # affects this game only: the next one gets a fresh environment
                yield GameVerdict(game, "broken", " ".join(str(error).split()), 0.0)
                if env is not None:
                    env.close()
                env = None
    finally:
        if env is not None:
            env.close()


def _examine_game(env: TextEnv, seed: int, game: str, times: int) -> GameVerdict:
    plays = []
    for _ in range(times):
        began = time.monotonic()
        plays.append((*play(env, seed, expert=True), time.monotonic() - began))
    won = [seconds for success, _, seconds in plays if success]
    if len(won) < times:
        why = next(why for success, why, _ in plays if not success)
        status = "flaky" if won else "broken"
        return GameVerdict(
            game, status, f"the expert won {len(won)} of {times} ({why})", sum(seconds for *_, seconds in plays)
        )
    idle_wins, _ = play(env, seed, expert=False)
    if idle_wins:
        return GameVerdict(game, "free", "a player who changes nothing wins too", min(won))
    return GameVerdict(game, "sound", f"the expert won {times} of {times}, the idle player 0 of 1", min(won))


def play(env: TextEnv, seed: int, expert: bool) -> tuple[bool, str]:
    """Plays a game with the expert or the idle player; returns whether it was won and how it ended."""
    env.reset(seed=seed)
    while True:
        command = env.expert() if expert else env.idle()
        if command is None:
            return False, "the expert knows no command"
        *_, terminated, truncated, info = env.step(command)
        if terminated or truncated:
            return bool(info["success"]), str(info.get("fault") or info["stop_reason"])


def deny_list(verdicts: Sequence[GameVerdict]) -> str:
    """Returns the games to leave out, one per line followed by the reason, as the knob `deny` of
    SWE-Gym reads them.
    """
    return "".join(
        f"{verdict.game}  # {verdict.status}: {verdict.detail}\n" for verdict in verdicts if verdict.status != "sound"
    )
