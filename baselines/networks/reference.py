"""The frozen weights that training began with, for KL terms and for a critic's features."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from baselines.distributed import fsdp
from envsuite.errors import UsageError


class Reference:
    """The reference of an actor `lm`.

    A LoRA actor needs no second model: the reference is its base with the adapter as it was at
    `keep`, or without adapter. Otherwise `keep` makes a copy of the actor.
    """

    def __init__(self, lm: Any, lora: bool) -> None:
        self.lm, self.lora = lm, lora
        self.frozen: Any = None
        self.saved_adapter: list[Tensor] = []

    @property
    def adapter(self) -> list[nn.Parameter]:
        """The actor's LoRA weights. They are new objects once the actor is sharded."""
        return [parameter for parameter in self.lm.parameters() if parameter.requires_grad]

    def keep(self) -> None:
        """Makes the actor's present weights the reference."""
        if self.lora:
            self.saved_adapter = [parameter.detach().clone() for parameter in self.adapter]
        elif self.frozen is None:
            self.frozen = copy.deepcopy(self.lm).requires_grad_(False).eval()
        else:
            with torch.no_grad():
                for mine, actors in zip(self.frozen.parameters(), self.lm.parameters(), strict=True):
                    mine.copy_(actors)

    @contextlib.contextmanager
    def active(self) -> Iterator[Any]:
        """Yields a language model with the reference's weights. Raises UsageError before `keep` if
        that needs a copy."""
        if self.saved_adapter:
            trained = [parameter.detach().clone() for parameter in self.adapter]
            self._write(self.saved_adapter)
            try:
                yield self.lm
            finally:
                self._write(trained)
        elif self.lora:
            with self.lm.disable_adapter():
                yield self.lm
        elif self.frozen is None:
            raise UsageError("A KL term or a critic on frozen features needs a reference: call keep_reference() first.")
        else:
            yield self.frozen

    @torch.no_grad()
    def _write(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.adapter, values, strict=True):
            parameter.copy_(value)

    def state(self, adapter_names: Sequence[str]) -> dict[str, Tensor]:
        """Returns the unsharded reference for a checkpoint; {} before `keep`. All processes must
        call it."""
        if self.frozen is not None:
            return {name: fsdp.unsharded(value) for name, value in self.frozen.state_dict().items()}
        pairs = zip(adapter_names, self.saved_adapter, strict=True) if self.saved_adapter else ()
        return {name: fsdp.unsharded(value) for name, value in pairs}

    def load_state(self, state: dict[str, Tensor], adapter_names: Sequence[str]) -> None:
        """Restores what `state` returned."""
        self.keep()
        if self.frozen is not None:
            tensors = self.frozen.state_dict()
        else:
            tensors = dict(zip(adapter_names, self.saved_adapter, strict=True))
        for name, tensor in tensors.items():
            fsdp.fill(tensor, state[name])
