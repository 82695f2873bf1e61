"""Transformer blocks that torch.compile compiles, for the passes of an update only.

Generation grows by one token per step and would compile again and again, so that a block is compiled
inside `active` and ordinary everywhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from baselines.distributed.fsdp import blocks


class CompiledBlocks:
    """The compiled blocks of a network; none for the backend ""."""

    def __init__(self, network: nn.Module, backend: str) -> None:
        self._blocks = blocks(network) if backend else []
        self._calls = [torch.compile(block._call_impl, backend=backend, dynamic=True) for block in self._blocks]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Runs the compiled blocks in place of the ordinary ones."""
        for block, call in zip(self._blocks, self._calls, strict=True):
            block._compiled_call_impl = call
        try:
            yield
        finally:
            for block in self._blocks:
                block._compiled_call_impl = None
