"""Packed sequences: several rows of a batch one after another in one row, without padding between them.

Each token attends to the earlier tokens of its sequence, and its position counts from the start
of that sequence, so that results do not change. `lay_out` packs, `check_packing` refuses models that
would compute something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envsuite.errors import UsageError
from harness.lm.cache import can_reuse

VARLEN = ("flash_attention_2", "flash_attention_3")
"""Kernels that read where sequences begin from their positions: one row holds all, without a mask."""
TOLERANCE = 0.02
"""Largest difference, relative to the largest hidden state, between packed and separate sequences in
`check_packing`. bfloat16 rounds by 0.004."""


@dataclass(frozen=True)
class RowLayout:
    """The input of a forward pass."""

    ids: Tensor  # [R, W]
    mask: Tensor | None  # [R, first + W] of valid columns, or [R, 1, W, first + W] of who attends to whom
    positions: Tensor | None  # [R, W]; None: they count the columns
    row: Tensor  # [P] row of each position that is read
    column: Tensor  # [P] its column

    def options(self) -> dict[str, Tensor]:
        """Returns the arguments of a model's forward pass."""
        named = {"input_ids": self.ids, "attention_mask": self.mask, "position_ids": self.positions}
        return {name: value for name, value in named.items() if value is not None}


def fill_bins(lengths: list[int], capacity: int) -> tuple[list[int], list[int], int]:
    """Places sequences into as few rows of `capacity` tokens as first fit, longest first, finds.

    Returns the row of each sequence, its first column, and the number of rows.
    """
    used: list[int] = []
    rows, starts = [0] * len(lengths), [0] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        row = next((row for row, tokens in enumerate(used) if tokens + length <= capacity), len(used))
        if row == len(used):
            used.append(0)
        rows[number], starts[number] = row, used[row]
        used[row] += length
    return rows, starts, len(used)


def lay_out(
    ids: Tensor, lengths: list[int], row: Tensor, column: Tensor, first: int, kernel: str, dtype: torch.dtype
) -> RowLayout:
    """Packs rows [U, L] of these lengths, from column `first` on: all of them continue the same prefix
    of `first` tokens.

    `row` and `column` are the positions to read. A packed row has at most as many tokens as the longest
    sequence; the kernels of `VARLEN` get a single row.
    """
    device = ids.device
    tokens = [length - first for length in lengths]
    capacity = sum(tokens) if kernel in VARLEN else max(tokens)
    bins, starts, count = fill_bins(tokens, capacity)
    packed_row, start, each = (torch.tensor(numbers, device=device) for numbers in (bins, starts, tokens))
    source = torch.arange(len(lengths), device=device).repeat_interleave(each)
    offset = torch.arange(len(source), device=device) - (each.cumsum(0) - each)[source]
    where = packed_row[source], start[source] + offset
    width = max(start + length for start, length in zip(starts, tokens, strict=True))
    packed, positions = (torch.zeros(count, width, dtype=torch.long, device=device) for _ in range(2))
    packed[where] = ids[source, first + offset]
    positions[where] = first + offset
    mask = None
    if kernel not in VARLEN:
        sequence = torch.full((count, width), -1, device=device)  # padding attends to itself: no row of a mask is empty
        sequence[where] = source
        mask = _block_diagonal(sequence, first, kernel, dtype)
    return RowLayout(packed, mask, positions, packed_row[row], start[row] + column - first)


def _block_diagonal(sequence: Tensor, first: int, kernel: str, dtype: torch.dtype) -> Tensor:
    """Returns the attention mask of packed rows: each token sees the prefix and the earlier tokens of
    its sequence. [R, W] -> [R, 1, W, first + W], boolean for SDPA and additive for other kernels."""
    mask = (sequence[:, :, None] == sequence[:, None, :]).tril()
    mask = torch.nn.functional.pad(mask, (first, 0), value=True)[:, None]
    if kernel == "sdpa":
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


@torch.no_grad()
def check_packing(lm: Any) -> None:
    """Raises UsageError if the model's attention cannot keep packed sequences apart.

    Compares the hidden states of three short sequences, two of which share a row, with the states of each
    alone: a model that ignores positions or the mask computes others.
    """
    config = lm.config.get_text_config()
    cure = "set model.packing = false."
    if not can_reuse(lm.config):
        raise UsageError(
            f"model.packing needs full attention in every layer, and {config.model_type!r} has other layers "
            f"(sliding windows or a recurrent state): {cure}"
        )
    if lm.device.type == "meta":
        return
    lengths = [16, 8, 8]
    ids = torch.arange(48, device=lm.device).reshape(3, 16) % config.vocab_size
    row, column = (torch.arange(16) < torch.tensor(lengths)[:, None]).to(lm.device).nonzero(as_tuple=True)
    layout = lay_out(ids, lengths, row, column, 0, lm.config._attn_implementation, lm.dtype)
    alone = [
        lm.base_model(input_ids=ids[number : number + 1, :length], use_cache=False).last_hidden_state[0]
        for number, length in enumerate(lengths)
    ]
    expected = torch.cat(alone)
    try:
        packed = lm.base_model(**layout.options(), use_cache=False).last_hidden_state[layout.row, layout.column]
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UsageError(f"model.packing does not work with {config.model_type!r} ({reason}): {cure}") from error
    difference = ((packed - expected).abs().max() / expected.abs().max()).item()
    if difference > TOLERANCE:
        raise UsageError(
            f"model.packing does not work with {config.model_type!r}: hidden states of packed sequences differ by "
            f"{difference:.2g} of the largest from those of separate ones: {cure}"
        )
