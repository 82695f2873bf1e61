"""Critics: a value for every token, read at the token before it.

A critic with a `trunk` trains a copy of the model. One without reads the hidden states of the
frozen reference and trains an MLP on them.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from baselines.networks.masters import EXACT, MasterWeights
from baselines.networks.prefix_sharing import DistinctRows, read_trunk


class Critic(nn.Module):
    """A head in float32 with ReLU layers of sizes `hidden` and without biases, on a `trunk` or on
    given features."""

    def __init__(self, width: int, hidden: tuple[int, ...], trunk: nn.Module | None = None) -> None:
        super().__init__()
        sizes = [width, *hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs, bias=False), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1, bias=False)
        nn.init.zeros_(last.weight)  # values begin at 0, so that the first advantages are the returns themselves
        self.head = nn.Sequential(*layers, last).float()
        self.trunk = trunk

    @property
    def masters(self) -> MasterWeights:
        """The trained weights, with float32 masters that are made at the first call."""
        if not hasattr(self, "_masters"):
            self._masters = MasterWeights(p for p in self.parameters() if p.requires_grad)
        return self._masters

    def of_features(self, features: Tensor) -> Tensor:
        """Returns the values of hidden states. [P, H] -> [P]"""
        return self.head(features.to(self.head[-1].weight.dtype)).squeeze(-1)  # type: ignore[arg-type]

    def forward(self, rows: DistinctRows) -> Tensor:
        """Returns the values at the positions of `rows`, for a critic with a trunk. [P]"""
        return self.of_features(read_trunk(self.trunk, rows))

    def target(self) -> Critic:
        """Returns an untrained copy, in float32 at least: bfloat16 would round away the steps by
        which it follows."""
        duplicate = copy.deepcopy(self)
        duplicate.__dict__.pop("_masters", None)
        if any(parameter.dtype not in EXACT for parameter in duplicate.parameters()):
            duplicate.float()
        return duplicate.requires_grad_(False)

    @torch.no_grad()
    def move_towards(self, critic: Critic, share: float) -> None:
        """Moves every weight the `share` of the way to that of `critic`."""
        for mine, theirs in zip(self.parameters(), critic.parameters(), strict=True):
            mine.lerp_(theirs.to(mine.dtype), share)
