"""Training algorithms, one module each, and what they share.

Each algorithm's module has `Config`, its settings, and `update(UpdateInput) -> dict`, which learns
from one batch of episodes and returns numbers to log. Shared: `update` (common settings, the input,
the passes before the steps), `policy_step` (the clipped step), `critic_step`, `optimisers`,
`actor_critic` (PPO and its variants) and `groups` (GRPO and its variants). The folder `turn_credit`
holds the group algorithms that assign credit to single turns.
"""

from __future__ import annotations

import importlib
import types

TURN_CREDIT = ("hgpo", "graphgpo", "gagpo", "spa", "sdar")
ALGORITHMS = (
    *("sft", "ppo", "ntpo", "poad", "twosome", "dual_gae"),
    *("grpo", "rloo", "gigpo", *TURN_CREDIT),
)
"""Names of the algorithms, as recipes write them."""


def module_of(name: str) -> types.ModuleType:
    """Returns the module of an algorithm."""
    folder = "turn_credit." if name in TURN_CREDIT else ""
    return importlib.import_module(f"baselines.algorithms.{folder}{name}")
