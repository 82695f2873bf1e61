"""Forward passes that compute duplicate rows and a shared prompt prefix only once, and read only
sampled positions.

Rows of a batch begin with the same rules, rows of a group with the same game, and with short
histories many rows are copies of each other. Equal tokens have equal hidden states and their
gradients add up, so that results do not change.

`pack` removes duplicate rows and lists the positions to read. `read_head` runs a causal language
model and returns hidden states and logits at these positions, `read_trunk` a model without head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer

from baselines.batch import AllowedTokens
from baselines.distributed.fsdp import is_sharded
from harness.lm.cache import can_reuse

MIN_PREFIX = 16
"""Shortest shared prefix, in tokens, that is worth a separate pass."""


@dataclass(frozen=True)
class PackedRows:
    """U distinct rows and the P positions whose next token is scored."""

    ids: Tensor  # [U, L]
    valid: Tensor  # [U, L] bool
    row: Tensor  # [P] row of each position
    column: Tensor  # [P] its column; the scored token is the one after it
    source: Tensor  # [B] the distinct row that equals each row of the batch
    sets: Tensor | None = None  # [P, K] the tokens possible at each position (`AllowedTokens`); None: all

    @property
    def tokens(self) -> Tensor:
        """The scored tokens. [P]"""
        return self.ids[self.row, self.column + 1]

    def spread(self, x: Tensor) -> Tensor:
        """Puts a number per position under the token that it scores, in every row of the batch. [P]
        -> [B, L]"""
        out = x.new_zeros(self.ids.shape)
        return out.index_put((self.row, self.column + 1), x)[self.source]


def pack(
    ids: Tensor,
    valid: Tensor,
    sampled: Tensor | None,
    device: torch.device,
    allowed: AllowedTokens | None = None,
) -> PackedRows:
    """Removes duplicate rows of [B, L] and lists the positions before `sampled` tokens (None:
    before all valid ones).

    With `allowed`, rows are duplicates if their sets are equal too.
    """
    scored = valid if sampled is None else sampled & valid
    keys, width = torch.where(valid, ids, -1), ids.shape[1]
    if allowed is not None:
        keys = torch.cat([keys, allowed.index * scored], dim=1)
    keys, source = torch.unique(keys, dim=0, return_inverse=True)
    rows = keys[:, :width]
    positions = torch.zeros(rows.shape, dtype=torch.long).index_add_(0, source, scored.long())[:, 1:]
    row, column = positions.nonzero(as_tuple=True)
    tensors = [rows.clamp(min=0), rows >= 0, row, column, source]
    if allowed is not None:
        tensors.append(allowed.sets[keys[:, width:][row, column + 1]])
    return PackedRows(*(tensor.to(device) for tensor in tensors))


def shared_prefix(packed: PackedRows) -> int:
    """Returns the number of first tokens that all rows share and that no position reads; 0 if not
    worth a pass."""
    if len(packed.ids) < 2 or not len(packed.column):
        return 0
    equal = ((packed.ids == packed.ids[0]) & packed.valid).all(0).long().cumprod(0).sum()
    length = min(int(equal), int(packed.column.min()))
    return length if length >= MIN_PREFIX else 0


def read_trunk(trunk: Any, packed: PackedRows) -> Tensor:
    """Returns the last hidden states of a model without head at the packed positions. [P, H]"""
    output, first = _forward(trunk, packed, {})
    return output.last_hidden_state[packed.row, packed.column - first]


def read_head(lm: Any, packed: PackedRows, logits: bool = True) -> tuple[Tensor, Tensor | None]:
    """Returns the hidden states [P, H] that enter the head at the packed positions, and their
    logits [P, V].

    Only these positions reach the head: the vocabulary is much larger than the hidden size. With
    `logits=False` the head computes nothing.
    """
    hidden: list[Tensor] = []
    with _gathered_before(lm.get_output_embeddings(), packed, hidden, logits) as crop:
        output, _ = _forward(lm, packed, {"logits_to_keep": 0}, crop)
    return hidden[0], output.logits[0] if logits else None


class _Crop:
    """The number of first columns that a pass left out, known once the pass begins."""

    first = 0
    active = False


@contextlib.contextmanager
def _gathered_before(head: nn.Module, packed: PackedRows, hidden: list[Tensor], logits: bool) -> Iterator[_Crop]:
    """Has `head` see only the packed positions, which are appended to `hidden`."""
    crop = _Crop()

    def gather(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not crop.active:
            return None
        hidden.append(arguments[0][packed.row, packed.column - crop.first])
        return ((hidden[0] if logits else hidden[0][:0])[None], *arguments[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield crop
    finally:
        handle.remove()


def _forward(module: Any, packed: PackedRows, options: dict[str, Any], crop: _Crop | None = None) -> tuple[Any, int]:
    """Runs `module` and returns its output with the number of first columns that the output lacks."""
    # A pass for the prefix would be one more than other processes take where the model is sharded
    # over them.
    alone = is_checkpointed(module) or is_sharded(module) or not can_reuse(module.config)
    first = 0 if alone else shared_prefix(packed)
    cache = None
    if first:
        cache = DynamicCache()
        last = {"logits_to_keep": 1} if options else {}
        module(input_ids=packed.ids[:1, :first], past_key_values=cache, use_cache=True, **last)
        cache.batch_repeat_interleave(len(packed.ids))
    if crop is not None:
        crop.first, crop.active = first, True
    output = module(
        input_ids=packed.ids[:, first:],
        attention_mask=packed.valid.long(),
        past_key_values=cache,
        use_cache=cache is not None,
        **options,
    )
    return output, first


def is_checkpointed(module: nn.Module) -> bool:
    """Returns True if the next pass through `module` recomputes activations in its backward pass."""
    return any(isinstance(layer, GradientCheckpointingLayer) and layer.training for layer in module.modules())


def set_checkpointing(module: nn.Module, active: bool) -> None:
    """Switches the recomputation of activations on or off, and leaves everything else in evaluation
    mode.

    Transformers ties it to the training mode, in which models with dropout would no longer compute
    what was sampled.
    """
    for layer in module.modules():
        layer.training = active and isinstance(layer, GradientCheckpointingLayer)
