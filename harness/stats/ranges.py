"""Known ranges of the quantities in records, which make intervals of bounded quantities possible."""

from __future__ import annotations

from functools import cache

from envsuite import registry
from envsuite.errors import EnvsuiteError
from envsuite.types import RewardMode
from harness.stats.intervals import SHARE, Range


@cache
def known_ranges(task: str, reward_mode: str) -> dict[str, Range]:
    """Returns the range of every quantity of a task's records whose range is known, by name.

    Success, progression and sparse returns are in [0, 1] for every task. The environment declares the ranges of its
    metrics and of its dense return (`TextEnv.ranges`). Shaped returns have no known range.
    """
    ranges = dict.fromkeys(("success", "progression"), SHARE)
    if reward_mode == RewardMode.SPARSE:
        ranges["reward"] = SHARE
    if task not in registry.TASKS:
        return ranges
    try:
        declared = registry.env_class(registry.TASKS[task]).ranges
    except (EnvsuiteError, ImportError):  # a plug-in that is not installed here
        return ranges
    if reward_mode == RewardMode.DENSE and "dense" in declared:
        ranges["reward"] = declared["dense"]
    return {**{name: limits for name, limits in declared.items() if name != "dense"}, **ranges}
