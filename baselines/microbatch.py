"""Micro-batches: passes over a few rows of a batch at a time, shared between processes.

`split` divides rows, `crop` cuts them out of the batch, `evaluate` computes something for every
sampled token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from baselines.batch import AllowedTokens, Batch
from baselines.distributed import collectives


class MicroBatch(NamedTuple):
    """A few rows of a batch; every tensor is [b, l]."""

    ids: Tensor
    valid: Tensor
    sampled: Tensor
    allowed: AllowedTokens | None


def split(batch: Batch, rows: Tensor, micro_rows: int) -> list[Tensor]:
    """Divides row indices into micro-batches of `micro_rows`; 0: one for each process.

    With `micro_rows`, rows of similar length go together, so that little is computed on padding.
    """
    if micro_rows:
        lengths = batch.valid[rows].sum(1)
        rows = rows[
            lengths.argsort(descending=True, stable=True)
        ]  # the longest first: memory runs out at once, if ever
    return list(rows.split(micro_rows or -(-len(rows) // collectives.size())))


def crop(batch: Batch, rows: Tensor) -> MicroBatch:
    """Returns some rows without the columns in which all of them are padding."""
    width = int(batch.valid[rows].sum(1).max())
    allowed = None if batch.allowed is None else batch.allowed.rows(rows, width)
    return MicroBatch(batch.ids[rows, :width], batch.valid[rows, :width], batch.sampled[rows, :width], allowed)


@torch.no_grad()
def evaluate(function: Callable[[MicroBatch], Tensor], batch: Batch, micro_rows: int, even: bool) -> Tensor:
    """Computes `function` [b, l] over micro-batches, and returns it for the sampled tokens. [N]

    `even` is that of `collectives.rounds`: True if the model is sharded.
    """
    out = torch.zeros(batch.ids.shape)
    for part, weight in collectives.rounds(split(batch, torch.arange(len(batch.ids)), micro_rows), even):
        rows = crop(batch, part)
        result = function(rows)
        if weight:
            out[part, : rows.ids.shape[1]] = result.to(out.dtype)
    return batch.flat(collectives.add(out))


@torch.no_grad()
def evaluate_features(
    function: Callable[[MicroBatch], tuple[Tensor, Tensor]],
    batch: Batch,
    micro_rows: int,
    even: bool,
    features: Tensor,
) -> tuple[Tensor, Tensor]:
    """Computes numbers [b, l] and hidden states [n, H] by `function`, for the sampled tokens. [N],
    [N, H]

    The function returns hidden states of its sampled tokens row by row; they are written into
    `features` [N, H].
    """
    out, numbers = torch.zeros(batch.ids.shape), batch.numbers()
    for part, weight in collectives.rounds(split(batch, torch.arange(len(batch.ids)), micro_rows), even):
        rows = crop(batch, part)
        result, hidden = function(rows)
        if weight:
            width = rows.ids.shape[1]
            out[part, :width] = result.to(out.dtype)
            features[numbers[part, :width][rows.sampled]] = hidden
    return batch.flat(collectives.add(out)), collectives.add(features)
