"""Faster linear layers of a model on a CPU: weights in the layout that oneDNN's kernels read.

torch multiplies with MKL, which is made for tall matrices. Decoding multiplies by few rows, one per conversation.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

MOST_BYTES = 2 << 30
"""Largest size of the copies of a model's weights; a larger model keeps torch's layout."""


class PackedLinear(nn.Linear):
    """A linear layer that multiplies by its packed weight where no gradient is needed.

    A copy, or a layer moved to another data type, is a plain linear layer.
    """

    packed: torch.Tensor | None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packed": None}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        plain = self.packed is None or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
        if plain or not (_fits(rows) and _fits(self.weight)):
            return super().forward(rows)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return product


def pack_linears(network: nn.Module, most: int = MOST_BYTES) -> int:
    """Makes the float32 linear layers of a network on a CPU faster where no gradient is needed; returns their number.

    Every layer gets a second copy of its weight, and takes twice the memory. Later changes of the weight do not
    reach the copy. Results differ by rounding. Nothing happens if the copies exceed `most` bytes or this torch has no
    oneDNN.
    """
    layers = [layer for layer in network.modules() if type(layer) is nn.Linear and _fits(layer.weight)]
    if not available() or sum(layer.weight.nbytes for layer in layers) > most:
        return 0
    for layer in layers:
        layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        layer.__class__ = PackedLinear
    return len(layers)


def _fits(weight: torch.Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32


def available() -> bool:
    """Returns True if this torch has oneDNN's operators."""
    operators: Any = torch.ops.mkldnn
    return (
        sys.platform == "linux"
        and torch.backends.mkldnn.is_available()
        and all(hasattr(operators, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    )
