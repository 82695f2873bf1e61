"""The input of every algorithm's `update`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from baselines.algorithms.optimisers import Optimisers
from baselines.configs import UpdateConfig
from baselines.networks.model import Model
from harness.types import Trajectory

Config = TypeVar("Config", bound=UpdateConfig)


@dataclass(frozen=True)
class UpdateInput(Generic[Config]):
    """One batch of episodes, the model that learns from it, and the settings."""

    model: Model
    optimisers: Optimisers
    trajectories: Sequence[Trajectory]
    config: Config
    generator: torch.Generator
    """Draws the order of rows."""
    final_prompts: Sequence[Sequence[int]] = ()
    """For each trajectory the tokens of the prompt that would follow; [] if the episode ended by
    itself."""
    temperature: float = 1.0
    """Sampling temperature of the rollout."""
    step: int = 0
    """Updates before this one."""
