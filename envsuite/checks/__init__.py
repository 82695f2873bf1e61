"""Contract checks for any environment, behind `envsuite check MyEnv`.

`check` runs Gymnasium's own checker with warnings as errors, tests determinism (twice in one
process, and in another process under two hash seeds), fuzzes the action space, looks for leaks over
200 resets, verifies that the expert wins and that idle and blind players lose, and checks the schema of `info`
and the properties of each reward mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.checks import determinism, interface, leaks, players, rewards
from envsuite.checks.demand import NotJudged
from envsuite.core import TextEnv
from envsuite.errors import MissingData
from envsuite.types import RewardMode, Task


class Finding(NamedTuple):
    """Result of one check: its name, whether it passed, and details."""

    name: str
    ok: bool
    detail: str
    judged: bool = True
    """False if the check passes no judgement on this environment"""


def absent(task: Task, **knobs: Any) -> str:
    """Returns the message that the task's data are missing on this machine, or '' if the task can be
    built.
    """
    try:
        registry.build(task, **knobs).close()
    except MissingData as error:
        return str(error)
    return ""


def check(task: Task, seconds: float = leaks.LEAK_SECONDS, seeds: int = 5, **knobs: Any) -> Iterator[Finding]:
    """Runs every check on a task and yields each finding as it ends.

    `seconds` bounds the leak check, `seeds` the number of games per check.
    """

    def build(mode: RewardMode = RewardMode.SPARSE) -> TextEnv:
        return registry.build(task, mode, **knobs)

    games = range(seeds) if task.panel else task.splits[registry.default_split(task)][:seeds]
    game_seeds = list(games)
    for name, property_of in (
        ("gymnasium check_env, warnings as errors", lambda: interface.gymnasium(build)),
        ("splits do not overlap", lambda: interface.splits(task)),
        ("info schema", lambda: interface.info_schema(build, game_seeds)),
        ("same seed, same game (one process)", lambda: determinism.same_process(build, game_seeds)),
        (
            "same game in another process, two hash seeds",
            lambda: determinism.other_processes(task, knobs, game_seeds),
        ),
        ("any string is answered (fuzzing)", lambda: interface.fuzz(build, game_seeds)),
        ("expert wins", lambda: players.expert(build, game_seeds)),
        ("idle player loses", lambda: players.idle(build, game_seeds)),
        ("a fixed script does not win the level", lambda: players.blind(build, task)),
        ("reward modes keep their promises", lambda: rewards.modes(build, game_seeds)),
        ("no leak over resets", lambda: leaks.resets(build, game_seeds, seconds)),
    ):
        judged = True
        try:
            ok, detail = True, property_of()
        except NotJudged as reason:
            ok, judged, detail = True, False, str(reason)
        except (Exception, SystemExit) as error:  # any error is a failed check, and so is an attempt to exit
            ok, detail = False, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        yield Finding(name, ok, detail, judged)
