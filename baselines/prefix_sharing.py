"""The same numbers for less: rows that are copies go through the model once, and so does the beginning that all share.

Rows of one batch begin with the same rules, rows of a group with the same game, and where an action is one of few and
histories are short most rows are copies of each other. Equal tokens have equal states and their gradients add up, so
nothing changes but the time and the memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from baselines.distributed.fsdp import is_cut
from harness.lm.cache import can_reuse

WORTH = 16
"""fewer shared tokens than this are not worth a pass of their own"""


def distinct(ids: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each row once, and for every row of [B, L] where it went: [U, L], [U, L], [B]."""
    rows, back = torch.unique(torch.where(valid, ids, -1), dim=0, return_inverse=True)
    return rows.clamp(min=0), rows >= 0, back


def beginning(rows: Tensor, valid: Tensor, columns: Tensor) -> int:
    """So many first tokens stand in every row and lie before the first of `columns`; 0 where that is not worth while."""
    if len(rows) < 2 or not len(columns):
        return 0
    same = ((rows == rows[0]) & valid).all(0).long().cumprod(0).sum()
    found = min(int(same), int(columns[0]))
    return found if found >= WORTH else 0


def forward(module: Any, rows: Tensor, valid: Tensor, columns: Tensor, logits: bool) -> tuple[Any, int]:
    """`module`'s output for rows [U, L], of which the first so many columns are left out: none of `columns` is among them.

    `logits`: the module has a head, and of its logits those at `columns` are wanted alone.
    """
    # A pass more for the beginning would be a pass more than other processes take where the model is cut over them.
    alone = module.training or is_cut(module) or not can_reuse(module.config)
    first = 0 if alone else beginning(rows, valid, columns)
    cache = None
    if first:
        cache = DynamicCache()
        keep: dict[str, Any] = {"logits_to_keep": 1} if logits else {}
        module(input_ids=rows[:1, :first], past_key_values=cache, use_cache=True, **keep)
        cache.batch_repeat_interleave(len(rows))
    wanted: dict[str, Any] = {"logits_to_keep": columns - first} if logits else {}
    output = module(
        input_ids=rows[:, first:],
        attention_mask=valid.long(),
        past_key_values=cache,
        use_cache=cache is not None,
        **wanted,
    )
    return output, first
