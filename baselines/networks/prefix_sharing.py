"""Forward passes that compute duplicate rows and a shared prompt prefix only once, and read only
sampled positions.

Rows of a batch begin with the same rules, rows of a group with the same game, and with short
histories many rows are copies of each other. Equal tokens have equal hidden states and their
gradients add up, so that results do not change.

`distinct_rows` removes duplicate rows and lists the positions to read. `read_head` runs a causal
language model and returns hidden states and logits at these positions, `read_trunk` a model without
head. With `packing` the rest of the rows is packed without padding (`baselines.networks.packing`).
On a CPU, `passes` computes rows that begin alike or are alike in length in separate passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
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
PASS_TOKENS = 64
"""Tokens that a further pass must save on a CPU. Other devices are faster with few large passes."""


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

    def part(self, start: int, end: int) -> DistinctRows:
        """Returns the rows from `start` to before `end`, without columns in which all of them are padding."""
        width = int(self.valid[start:end].sum(1).max())
        inside = (self.row >= start) & (self.row < end)
        return DistinctRows(
            ids=self.ids[start:end, :width],
            valid=self.valid[start:end, :width],
            row=self.row[inside] - start,
            column=self.column[inside],
            source=torch.arange(end - start, device=self.ids.device),
            sets=None if self.sets is None else self.sets[inside],
            packing=self.packing,
        )


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


def passes(module: Any, rows: DistinctRows) -> list[DistinctRows]:
    """Divides rows into forward passes that compute the fewest tokens; their positions keep the order of `rows`.

    Rows of one game share more than rows of all games do, and rows alike in length need little padding.
    """
    if len(rows.ids) < 2 or rows.packing or rows.ids.device.type != "cpu" or _is_single(module):
        return [rows]
    ends = _cheapest_ends(rows)
    return [rows.part(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _cheapest_ends(rows: DistinctRows) -> list[int]:
    """Returns where each pass ends, if every pass takes rows next to each other.

    `distinct_rows` sorts rows by their tokens, so that rows which begin alike are next to each other.
    """
    ids, valid = rows.ids, rows.valid
    alike = ((ids[1:] == ids[:-1]) & valid[1:] & valid[:-1]).long().cumprod(1).sum(1).numpy()
    lengths = valid.sum(1).numpy()
    readable = torch.full((len(ids),), ids.shape[1]).scatter_reduce(0, rows.row, rows.column, "amin").numpy()
    cost, before = [0.0], [0]
    for end in range(1, len(ids) + 1):  # `start` runs from `end - 1` down to 0
        last = slice(end - 1, None, -1)
        shared = np.concatenate([lengths[end - 1 : end], alike[: end - 1][::-1]])
        prefix = np.minimum.accumulate(np.minimum(readable[last], shared))
        prefix = np.where((prefix < MIN_PREFIX) | (np.arange(end) == 0), 0, prefix)
        suffixes = np.arange(1, end + 1) * (np.maximum.accumulate(lengths[last]) - prefix)
        totals = np.array(cost[::-1]) + prefix + suffixes + PASS_TOKENS
        best = int(totals.argmin())
        cost.append(float(totals[best]))
        before.append(end - 1 - best)
    ends = [len(ids)]
    while before[ends[-1]]:
        ends.append(before[ends[-1]])
    return ends[::-1]


def read_trunk(trunk: Any, rows: DistinctRows) -> Tensor:
    """Returns the last hidden states of a model without head at the positions of `rows`. [P, H]"""
    outputs = [_forward(trunk, part, {}) for part in passes(trunk, rows)]
    return joined([output.last_hidden_state[positions.row, positions.column] for output, positions in outputs])


def joined(parts: list[Tensor]) -> Tensor:
    """Joins the results of passes, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def read_head(lm: Any, rows: DistinctRows, logits: bool = True) -> tuple[Tensor, Tensor | None]:
    """Returns the hidden states [P, H] that enter the head at the positions of `rows`, and their
    logits [P, V].

    Only these positions reach the head: the vocabulary is much larger than the hidden size. With
    `logits=False` the head computes nothing.
    """
    hidden: list[Tensor] = []
    with _gathered_before(lm.get_output_embeddings(), hidden, logits) as positions:
        output, _ = _forward(lm, rows, {"logits_to_keep": 0}, positions)
    return hidden[0], output.logits[0] if logits else None


class _ReadPositions:
    """The positions to read in the output of a pass, known once the pass begins."""

    row: Tensor
    column: Tensor
    active = False

    def begin(self, layout: RowLayout) -> None:
        self.row, self.column, self.active = layout.row, layout.column, True


@contextlib.contextmanager
def _gathered_before(head: nn.Module, hidden: list[Tensor], logits: bool) -> Iterator[_ReadPositions]:
    """Has `head` see only the positions to read, which are appended to `hidden`."""
    positions = _ReadPositions()

    def gather(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not positions.active:
            return None
        hidden.append(arguments[0][positions.row, positions.column])
        return ((hidden[0] if logits else hidden[0][:0])[None], *arguments[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield positions
    finally:
        handle.remove()


def _forward(module: Any, rows: DistinctRows, options: dict[str, Any], positions: _ReadPositions | None = None) -> Any:
    """Runs `module` and returns its output with the positions to read in it."""
    positions = positions or _ReadPositions()
    kernel = getattr(module.config, "_attn_implementation", "")
    # Kernels that find packed sequences by their positions find none behind a cache.
    first = 0 if _is_single(module) or (rows.packing and kernel in VARLEN) else shared_prefix(rows)
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
    positions.begin(layout)
    output = module(**layout.options(), past_key_values=cache, use_cache=cache is not None, **options)
    return output, positions


def _is_single(module: Any) -> bool:
    """Returns True if a module must take all rows in one pass without a cache.

    A further pass would be one more than other processes take where the model is sharded over them. Behind a cache
    a compiled block depends on its number: every layer would be compiled by itself.
    """
    return is_checkpointed(module) or is_compiled(module) or is_sharded(module) or not can_reuse(module.config)


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
