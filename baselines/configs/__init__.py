"""Settings of models and algorithms, with the range of every number beside its field.

The package imports no torch, so that a bad recipe is rejected before anything slow happens.
`CONFIGS` maps an algorithm's name to its settings; `baselines.recipe` reads them from TOML.
"""

from __future__ import annotations

from baselines.configs.actor_critic import NTPO, POAD, PPO, TWOSOME, DualGAE, Rates
from baselines.configs.groups import GAGPO, GRPO, HGPO, RLOO, SDAR, SPA, GiGPO, GraphGPO, GroupConfig
from baselines.configs.model import ModelConfig, SFTConfig
from baselines.configs.update import SFT, UpdateConfig

__all__ = [
    "CONFIGS",
    "GAGPO",
    "GRPO",
    "HGPO",
    "NTPO",
    "POAD",
    "PPO",
    "RLOO",
    "SDAR",
    "SFT",
    "SPA",
    "TWOSOME",
    "DualGAE",
    "GiGPO",
    "GraphGPO",
    "GroupConfig",
    "ModelConfig",
    "Rates",
    "SFTConfig",
    "UpdateConfig",
]

CONFIGS: dict[str, type[UpdateConfig]] = {
    "sft": SFT,
    "ppo": PPO,
    "ntpo": NTPO,
    "poad": POAD,
    "twosome": TWOSOME,
    "dual_gae": DualGAE,
    "grpo": GRPO,
    "rloo": RLOO,
    "gigpo": GiGPO,
    "hgpo": HGPO,
    "graphgpo": GraphGPO,
    "gagpo": GAGPO,
    "spa": SPA,
    "sdar": SDAR,
}
"""Settings of each algorithm."""
