"""Many homes in one process, behind Gymnasium's vector interface.

In a published task every episode starts alike, and it is played by table look-up; drawn homes are simulated. Results
are those of `SyncVectorEnv`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, cast

from gymnasium.vector import AutoresetMode

from envsuite.envs.virtualhome.base import HomeEnv
from envsuite.envs.virtualhome.env import VirtualHomeEnv
from envsuite.envs.virtualhome.household.env import HouseholdEnv
from envsuite.vector.base import TextVectorEnv
from envsuite.vector.tables import TableVectorEnv


class VirtualHomeTable(TableVectorEnv):
    """`num_envs` games of one published task."""

    def _state(self, env: VirtualHomeEnv) -> Hashable:
        state: Hashable = env.game.save()
        return state

    def _load(self, env: VirtualHomeEnv, state: Any) -> None:
        env.set_state((env.episode_seed, state))


class DrawnHomes(TextVectorEnv):
    """`num_envs` drawn homes. Each sub-environment keeps its present game only, as resets rarely repeat a seed."""

    def __init__(
        self,
        make: Callable[[], HomeEnv],
        num_envs: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        super().__init__(make, num_envs, autoreset_mode)
        for env in cast(list[HomeEnv], self.envs):
            env.kept_games = 1


def make_vector(
    num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
) -> TextVectorEnv:
    """Returns `num_envs` homes of version 0 with the same settings."""
    make = partial(VirtualHomeEnv, **settings)
    tabular = make().settings.task != "household"
    return (VirtualHomeTable if tabular else DrawnHomes)(make, num_envs, autoreset_mode)


def make_household_vector(
    num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any
) -> TextVectorEnv:
    """Returns `num_envs` homes of version 1 with the same settings."""
    return DrawnHomes(partial(HouseholdEnv, **settings), num_envs, autoreset_mode)
