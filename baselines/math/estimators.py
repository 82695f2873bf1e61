"""Advantages from values, and from turns that saw the same: pure functions, with shapes in brackets.

One recursion serves every method with a critic (docs/explanation/algorithms.md):

    inside a turn      delta = r + gamma_token * V(next token) - V
                       trace = gamma_token * lambda_token
    at a turn's end    delta = r + gamma_step * V(next turn) - V
                       trace = gamma_step * lambda_step
    at a cut           V(next) = boot, trace = 0

`boot` is 0 if the task ended, and the value of the final observation after a time limit.

| method | gamma_token | lambda_token | gamma_step | lambda_step |
|---|---|---|---|---|
| turn-level PPO, TWOSOME | one "token" per turn | | gamma | lambda |
| NTPO, token-level PPO | gamma | lambda | gamma | lambda |
| POAD | 1 | lambda | gamma | lambda |
| Verlog, dual discounting | gamma_token | lambda_token | gamma_step | lambda_step |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from baselines.math.advantages import group_normalised, members, returns_to_go


def gae(
    rewards: Tensor,
    values: Tensor,
    ends_turn: Tensor,
    cut: Tensor,
    boot: Tensor,
    mask: Tensor,
    gamma_token: float = 1.0,
    lambda_token: float = 1.0,
    gamma_step: float | Tensor = 0.99,
    lambda_step: float = 0.95,
) -> Tensor:
    """Returns generalised advantages (Schulman et al., 2016) over sampled tokens. All tensors are
    [B, L], a row per episode.

    `ends_turn`: the token ends a turn; `cut`: nothing after the token belongs to its episode;
    `boot`: the next value at a cut; `mask`: sampled by the policy (other positions are skipped and
    get 0). `gamma_step` may be a tensor, such as gamma**k at the end of a turn whose macro-action
    took k primitive steps.
    """
    discount = torch.where(ends_turn, torch.as_tensor(gamma_step, dtype=values.dtype), values.new_tensor(gamma_token))
    decay = torch.where(ends_turn, values.new_tensor(lambda_step), values.new_tensor(lambda_token))
    advantages = torch.zeros_like(values)
    next_value, trace = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in range(values.shape[1] - 1, -1, -1):
        here = mask[:, t]
        target = torch.where(cut[:, t], boot[:, t], next_value)
        continued = torch.where(cut[:, t], torch.zeros_like(trace), trace)
        delta = rewards[:, t] + discount[:, t] * target - values[:, t]
        advantage = delta + discount[:, t] * decay[:, t] * continued
        advantages[:, t] = torch.where(here, advantage, torch.zeros_like(advantage))
        trace = torch.where(here, advantage, trace)
        next_value = torch.where(here, values[:, t], next_value)
    return advantages


def anchor_cells(anchors: Sequence[Sequence[Hashable]], groups: Sequence[Hashable]) -> list[list[tuple[int, int]]]:
    """Returns the (trajectory, turn) pairs of each group that share an anchor. [N][T_n], [N] ->
    [cells][pairs]"""
    cells: dict[tuple[Hashable, Hashable], list[tuple[int, int]]] = defaultdict(list)
    for i, row in enumerate(anchors):
        for t, anchor in enumerate(row):
            cells[groups[i], anchor].append((i, t))
    return list(cells.values())


def shared_turns(cells: Sequence[Sequence[tuple[int, int]]]) -> float:
    """Returns the share of turns whose cell of `anchor_cells` has another turn."""
    return sum(len(cell) for cell in cells if len(cell) > 1) / sum(map(len, cells))


def cell_means(values: Sequence[Sequence[float]], cells: Sequence[Sequence[tuple[int, int]]]) -> list[list[float]]:
    """Replaces a number per turn by its mean over the turn's cell. [N][T_n] -> [N][T_n]"""
    out = [[0.0] * len(row) for row in values]
    for cell in cells:
        mean = sum(values[i][t] for i, t in cell) / len(cell)
        for i, t in cell:
            out[i][t] = mean
    return out


def compared_in_cells(
    values: Sequence[Sequence[float]], cells: Sequence[Sequence[tuple[int, int]]], std: bool = True, eps: float = 1e-6
) -> list[list[float]]:
    """Centres a number per turn over the turn's cell and divides by the sample deviation; a turn
    alone in its cell gets 0. [N][T_n] -> [N][T_n]

    `std=False` only centres.
    """
    out = [[0.0] * len(row) for row in values]
    for cell in cells:
        if len(cell) == 1:
            continue
        column = torch.tensor([values[i][t] for i, t in cell], dtype=torch.float64)
        for (i, t), value in zip(cell, group_normalised(column, [0] * len(cell), std, eps).tolist(), strict=True):
            out[i][t] = value
    return out


def gigpo(
    rewards: Sequence[Sequence[float]],
    anchors: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    gamma: float = 0.95,
    omega: float = 1.0,
    std: bool = True,
    eps: float = 1e-6,
    over_rows: bool = False,
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Returns episode, step and total advantages of GiGPO (arXiv 2505.10978). `[N][T_n] -> [N],
    [N][T_n], [N][T_n]`

    `anchors[i][t]` is the observation of trajectory i at turn t; turns of one group with equal
    anchors are compared by their return-to-go. Episode statistics are over trajectories, as in the
    paper; `over_rows=True` counts a trajectory once per turn, as in the published code.
    """
    totals = torch.tensor([float(sum(row)) for row in rewards], dtype=torch.float64)
    episode = torch.zeros_like(totals)
    for group in members(groups):
        counted = totals[[i for i in group for _ in rewards[i]] if over_rows else group]
        mean, deviation = (0.0, 1.0) if len(counted) == 1 else (counted.mean(), counted.std(unbiased=True))
        episode[group] = (totals[group] - mean) / ((deviation + eps) if std else 1.0)
    returns = [returns_to_go(row, gamma) for row in rewards]
    step = compared_in_cells(returns, anchor_cells(anchors, groups), std, eps)
    total = [[float(episode[i]) + omega * value for value in row] for i, row in enumerate(step)]
    return episode.tolist(), step, total
