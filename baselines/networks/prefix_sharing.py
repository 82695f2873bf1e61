"""Forward passes that compute duplicate rows and a shared prompt prefix only once, and read only
sampled positions.

Rows of a batch begin with the same rules, rows of a group with the same game, and with short
histories many rows are copies of each other. Equal tokens have equal hidden states and their
gradients add up, so that results do not change.

`distinct_rows` removes duplicate rows and lists the positions to read. `read_head` runs a causal
language model and returns hidden states and logits at these positions, `read_trunk` a model without
head. With `packing` the rest of the rows is packed without padding (`baselines.networks.packing`).
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
from baselines.networks.packing import VARLEN, RowLayout, lay_out
from harness.lm.cache import can_reuse

MIN_PREFIX = 16
"""Shortest shared prefix, in tokens, that is worth a separate pass."""


@dataclass(frozen=True)
class DistinctRows:
    """U distinct rows and the P positions whose next token is scored."""

    ids: Tensor  # [U, L]
    valid: Tensor  # [U, L] bool
    row: Tensor  # [P] row of each position
    column: Tensor  # [P] its column; the scored token is the one after it
    source: Tensor  # [B] the distinct row that equals each row of the batch
    sets: Tensor | None = None  # [P, K] the tokens possible at each position (`AllowedTokens`); None: all
    packing: bool = False  # several rows share a row of the forward pass

    @property
    def tokens(self) -> Tensor:
        """The scored tokens. [P]"""
        return self.ids[self.row, self.column + 1]

    def spread(self, x: Tensor) -> Tensor:
        """Puts a number per position under the token that it scores, in every row of the batch. [P]
        -> [B, L]"""
        out = x.new_zeros(self.ids.shape)
        return out.index_put((self.row, self.column + 1), x)[self.source]


def distinct_rows(
    ids: Tensor,
    valid: Tensor,
    sampled: Tensor | None,
    device: torch.device,
    allowed: AllowedTokens | None = None,
    packing: bool = False,
) -> DistinctRows:
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
    sets = None if allowed is None else allowed.sets[keys[:, width:][row, column + 1]].to(device)
    return DistinctRows(
        ids=rows.clamp(min=0).to(device),
        valid=(rows >= 0).to(device),
        row=row.to(device),
        column=column.to(device),
        source=source.to(device),
        sets=sets,
        packing=packing,
    )


def shared_prefix(rows: DistinctRows) -> int:
    """Returns the number of first tokens that all rows share and that no position reads; 0 if not
    worth a pass."""
    if len(rows.ids) < 2 or not len(rows.column):
        return 0
    equal = ((rows.ids == rows.ids[0]) & rows.valid).all(0).long().cumprod(0).sum()
    length = min(int(equal), int(rows.column.min()))
    return length if length >= MIN_PREFIX else 0


def read_trunk(trunk: Any, rows: DistinctRows) -> Tensor:
    """Returns the last hidden states of a model without head at the positions of `rows`. [P, H]"""
    output, places = _forward(trunk, rows, {})
    return output.last_hidden_state[places.row, places.column]


def read_head(lm: Any, rows: DistinctRows, logits: bool = True) -> tuple[Tensor, Tensor | None]:
    """Returns the hidden states [P, H] that enter the head at the positions of `rows`, and their
    logits [P, V].

    Only these positions reach the head: the vocabulary is much larger than the hidden size. With
    `logits=False` the head computes nothing.
    """
    hidden: list[Tensor] = []
    with _gathered_before(lm.get_output_embeddings(), hidden, logits) as places:
        output, _ = _forward(lm, rows, {"logits_to_keep": 0}, places)
    return hidden[0], output.logits[0] if logits else None


class _Places:
    """The positions to read in the output of a pass, known once the pass begins."""

    row: Tensor
    column: Tensor
    active = False

    def begin(self, layout: RowLayout) -> None:
        self.row, self.column, self.active = layout.row, layout.column, True


@contextlib.contextmanager
def _gathered_before(head: nn.Module, hidden: list[Tensor], logits: bool) -> Iterator[_Places]:
    """Has `head` see only the positions to read, which are appended to `hidden`."""
    places = _Places()

    def gather(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not places.active:
            return None
        hidden.append(arguments[0][places.row, places.column])
        return ((hidden[0] if logits else hidden[0][:0])[None], *arguments[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield places
    finally:
        handle.remove()


def _forward(module: Any, rows: DistinctRows, options: dict[str, Any], places: _Places | None = None) -> Any:
    """Runs `module` and returns its output with the places of the positions to read."""
    places = places or _Places()
    kernel = getattr(module.config, "_attn_implementation", "")
    # A pass for the prefix would be one more than other processes take where the model is sharded
    # over them, and kernels that find packed sequences by their positions find none behind a cache.
    # Behind a cache a compiled block depends on its number: every layer would be compiled by itself.
    alone = is_checkpointed(module) or is_compiled(module) or is_sharded(module) or not can_reuse(module.config)
    first = 0 if alone or (rows.packing and kernel in VARLEN) else shared_prefix(rows)
    if rows.packing:
        lengths = rows.valid.sum(1).tolist()
        layout = lay_out(rows.ids, lengths, rows.row, rows.column, first, kernel, module.dtype)
    else:
        layout = RowLayout(rows.ids[:, first:], rows.valid.long(), None, rows.row, rows.column - first)
    cache = None
    if first:
        cache = DynamicCache()
        last = {"logits_to_keep": 1} if options else {}
        module(input_ids=rows.ids[:1, :first], past_key_values=cache, use_cache=True, **last)
        cache.batch_repeat_interleave(len(layout.ids))
    places.begin(layout)
    output = module(**layout.options(), past_key_values=cache, use_cache=cache is not None, **options)
    return output, places


def is_checkpointed(module: nn.Module) -> bool:
    """Returns True if the next pass through `module` recomputes activations in its backward pass."""
    return any(isinstance(layer, GradientCheckpointingLayer) and layer.training for layer in module.modules())


def is_compiled(module: nn.Module) -> bool:
    """Returns True if the next pass through `module` runs compiled blocks (`networks.compiled`)."""
    return any(block._compiled_call_impl is not None for block in module.modules())


def enable_checkpointing(module: Any) -> None:
    """Has a model of transformers recompute activations where `set_checkpointing` switches it on."""
    if hasattr(module, "activation_checkpointing_enable"):  # its name since 5.23
        module.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def set_checkpointing(module: nn.Module, active: bool) -> None:
    """Switches the recomputation of activations on or off, and leaves everything else in evaluation
    mode.

    Transformers ties it to the training mode, in which models with dropout would no longer compute
    what was sampled.
    """
    for layer in module.modules():
        layer.training = active and isinstance(layer, GradientCheckpointingLayer)
