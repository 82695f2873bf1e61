"""Many kitchens in one process, behind Gymnasium's vector interface.

A published kitchen with one cook and no slips has a small graph of states and is played by table look-up; other
kitchens are simulated. Results are those of `SyncVectorEnv`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from envsuite.envs.overcooked.engine import NOTHING
from envsuite.envs.overcooked.env import OvercookedEnv
from envsuite.envs.overcooked.rounds import PAPER_GAMMA, PAPER_SUMS
from envsuite.envs.overcooked.service.env import ServiceEnv
from envsuite.vector.base import TextVectorEnv
from envsuite.vector.tables import TableVectorEnv

_IDLE = (None,), (NOTHING,), (0,), (0,)  # `Simulation.in_progress` of a cook between two commands


class Sums(NamedTuple):
    """What the metrics of an episode add up."""

    time: int = 0
    discounted: float = 0.0
    plain: float = 0.0
    chopped: int = 0
    wrong: int = 0


class Change(NamedTuple):
    """What a command adds: steps of a walk in which nothing happens, then the gains of single steps."""

    skipped: int
    gains: tuple[float, ...]
    chopped: int
    wrong: int


class OvercookedTable(TableVectorEnv):
    """`num_envs` games in one published kitchen."""

    extra_keys = ("discount",)
    clock_key = "env_step"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self._envs[0].settings
        self.horizon, self._cost = settings.horizon, settings.step_cost
        self._powers = [PAPER_GAMMA**time for time in range(settings.horizon + len(PAPER_SUMS))]

    def _state(self, env: OvercookedEnv) -> Hashable:
        return env.sim.save(), env.team.save()

    def _load(self, env: OvercookedEnv, state: Any) -> None:
        saved, team = state
        tally = env.discounted_return, env.plain_return, env.chopped, env.wrong
        env.set_state((saved, _IDLE, env.time, 0, tally, team))

    def _add(self, env: OvercookedEnv, sums: Sums | None, changes: list[Change]) -> None:
        """Adds changes to the sums in the sequence of `OvercookedEnv._run`, which decides the last digits."""
        time, discounted, plain, chopped, wrong = sums or Sums()
        cost = self._cost
        powers = self._powers
        for skipped, gains, chops, mistakes in changes:
            paper = powers[time]
            if skipped:
                plain -= cost * skipped
                discounted -= paper * cost * PAPER_SUMS[skipped]
                paper *= powers[skipped]
            for gain in gains:
                plain += gain
                discounted += paper * gain
                paper *= PAPER_GAMMA
            time += skipped + len(gains)
            chopped += chops
            wrong += mistakes
        env.time, env.discounted_return, env.plain_return, env.chopped, env.wrong = (
            time,
            discounted,
            plain,
            chopped,
            wrong,
        )

    def _time(self, env: OvercookedEnv) -> int:
        return env.time

    def _sums_of(self, env: OvercookedEnv) -> Sums:
        return Sums(env.time, env.discounted_return, env.plain_return, env.chopped, env.wrong)

    def _change(self, env: OvercookedEnv, before: Sums | None) -> Change | None:
        if before is None:
            return None
        return Change(env.skipped_steps, tuple(env.step_gains), env.chopped - before.chopped, env.wrong - before.wrong)


def make_vector(
    num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
) -> TextVectorEnv:
    """Returns `num_envs` kitchens with the same settings."""
    make = partial(OvercookedEnv, **settings)
    knobs = make().settings
    fixed = knobs.layout != "random" and knobs.recipe != "random"
    tabular = fixed and knobs.cooks == 1 and not knobs.slip
    vector = (OvercookedTable if tabular else TextVectorEnv)(make, num_envs, autoreset_mode)
    envs: list[Any] = vector.envs
    first, *others = envs
    for env in others:  # texts of facts and menus of commands follow from the settings alone
        env._menus, env._sentences, env._offered = first._menus, first._sentences, first._offered
    return vector


def make_service_vector(
    num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
) -> TextVectorEnv:
    """Returns `num_envs` kitchens of version 1 or 2 with the same settings."""
    return TextVectorEnv(partial(ServiceEnv, **settings), num_envs, autoreset_mode)
