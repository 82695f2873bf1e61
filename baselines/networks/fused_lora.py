"""Linear layers with a LoRA adapter that is computed inside the layer's own matrix product.

peft computes `base(x) + lora_B(lora_A(x)) * scaling`, which reads and writes the layer's output
three more times. On a CPU this memory traffic costs about a third of a training step. Here the
adapter's product is accumulated into the output, and into the gradient of the input.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor


class FusedLinear(Linear):
    """peft's LoRA layer, with its forward pass in one function where that computes the same."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Returns the layer's output. [..., in] -> [..., out]"""
        weight: Any = self.base_layer.weight
        if args or kwargs or self.disable_adapters or self.merged or not self._is_plain(x, weight):
            return super().forward(x, *args, **kwargs)
        (name,) = self.active_adapters
        return _Fused.apply(x, weight, self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name])

    def _is_plain(self, x: Tensor, weight: Tensor) -> bool:
        """Returns True for one adapter without dropout or variants, on whole tensors of one type."""
        if len(self.active_adapters) != 1 or self.base_layer.bias is not None:
            return False
        (name,) = self.active_adapters
        if name in self.lora_variant or not isinstance(self.lora_dropout[name], torch.nn.Identity):
            return False
        down = self.lora_A[name].weight
        is_sharded = hasattr(weight, "full_tensor") or hasattr(down, "full_tensor")
        return not is_sharded and x.dtype == weight.dtype == down.dtype and not weight.requires_grad


class _Fused(torch.autograd.Function):
    """y = x W' + s (x A') B' for a frozen W [out, in] and trained A [r, in], B [out, r]."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        x, weight, down, up, scaling = arguments
        rows = x.reshape(-1, x.shape[-1])
        inner = rows @ down.T
        y = (rows @ weight.T).addmm_(inner, up.T, alpha=scaling)
        ctx.save_for_backward(rows, inner, weight, down, up)
        ctx.scaling, ctx.shape = scaling, x.shape
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, None, Tensor, Tensor, None]:
        rows, inner, weight, down, up = ctx.saved_tensors
        of_y = gradients[0].reshape(-1, gradients[0].shape[-1])
        of_inner = (of_y @ up).mul_(ctx.scaling)
        of_up = (of_y.T @ inner).mul_(ctx.scaling)
        of_down = of_inner.T @ rows
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (of_y @ weight).addmm_(of_inner, down).view(ctx.shape)
        return of_x, None, of_down, of_up, None
