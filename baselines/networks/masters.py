"""Float32 master copies of weights that are trained in a lower precision.

A step of AdamW is often smaller than the distance between two bfloat16 numbers, so that weights
stepped in bfloat16 hardly move. `MasterWeights` keeps a float32 copy of each such parameter and of
its gradient; the optimiser steps the copy, and `publish` rounds it into the model. A float32
parameter is its own master and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from baselines.distributed import fsdp

EXACT = (torch.float32, torch.float64)


class MasterWeights:
    """Pairs of parameters: the optimiser steps `masters`, and the model computes with `parameters`."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.masters = [self._master(parameter) for parameter in self.parameters]

    def _master(self, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.dtype in EXACT:
            return parameter
        master = nn.Parameter(parameter.detach().float())

        def accumulate(parameter: Tensor) -> None:
            # Micro-batches are summed in float32: in bfloat16 the later ones would be rounded away.
            if parameter.grad is None:
                return
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

        parameter.register_post_accumulate_grad_hook(accumulate)
        return master

    @torch.no_grad()
    def publish(self) -> None:
        """Rounds the masters into the model."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                parameter.copy_(master)

    @torch.no_grad()
    def refresh(self) -> None:
        """Sets the masters to the model's present weights, after something else than the optimiser
        changed these."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                master.copy_(parameter)

    @torch.no_grad()
    def fill(self, index: int, value: Tensor) -> None:
        """Sets a parameter and its master to an unsharded `value`."""
        fsdp.fill(self.masters[index], value)
        if self.masters[index] is not self.parameters[index]:
            self.parameters[index].copy_(self.masters[index])
