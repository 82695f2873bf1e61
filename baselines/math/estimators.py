"""Advantage estimators: pure functions from rewards (and values) to advantages, with shapes in
brackets.

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


def members(groups: Sequence[Hashable]) -> list[list[int]]:
    """Returns the indices of each group, in the order of first appearance."""
    indices: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        indices[group].append(index)
    return list(indices.values())


def leave_one_out(scores: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """Subtracts from each score the mean of the other scores in its group (RLOO, Ahmadian et al.,
    2024). [N] -> [N]

    Raises ValueError for a group of one, which has no baseline.

    Examples:
        >>> scores = torch.tensor([1.0, 0.0, 0.5])
        >>> leave_one_out(scores, ["game", "game", "game"]).tolist()
        [0.75, -0.75, 0.0]
    """
    out = torch.zeros_like(scores)
    for group in members(groups):
        if len(group) < 2:
            raise ValueError(f"RLOO needs groups of two or more; {groups[group[0]]!r} has one: raise group_size")
        members_scores = scores[group]
        out[group] = members_scores - (members_scores.sum() - members_scores) / (len(group) - 1)
    return out


def group_normalised(scores: Tensor, groups: Sequence[Hashable], std: bool = True, eps: float = 1e-6) -> Tensor:
    """Centres scores by group and divides by the sample deviation (GRPO, Shao et al., 2024). [N] ->
    [N]

    `std=False` only centres (Dr. GRPO). A group of one keeps its score (mean 0, deviation 1), as in
    the reference codes; the trainers drop such groups before.
    """
    out = torch.zeros_like(scores)
    for group in members(groups):
        members_scores = scores[group]
        if len(group) == 1:
            out[group] = members_scores / (1 + eps) if std else members_scores
            continue
        centred = members_scores - members_scores.mean()
        out[group] = centred / (members_scores.std(unbiased=True) + eps) if std else centred
    return out


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """Returns sum_{k >= t} gamma**(k - t) r_k for every t. [T] -> [T]"""
    out, later = [0.0] * len(rewards), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        out[t] = later = rewards[t] + gamma * later
    return out


def per_turn(
    rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], gamma: float, mode: str, eps: float = 1e-6
) -> list[list[float]]:
    """Compares each turn's return-to-go with those at the same turn of its group. `[N][T_n] ->
    [N][T_n]`

    mode: "grpo_std" (mean and deviation), "grpo_mean" (mean only) or "rloo". A turn that only one
    episode of the group reached keeps its return.
    """
    returns = [returns_to_go(row, gamma) for row in rewards]
    out = [[0.0] * len(row) for row in returns]
    for group in members(groups):
        for turn in range(max((len(returns[i]) for i in group), default=0)):
            present = [i for i in group if len(returns[i]) > turn]
            column = torch.tensor([returns[i][turn] for i in present], dtype=torch.float64)
            if mode == "rloo" and len(present) > 1:
                compared = leave_one_out(column, [0] * len(present))
            else:
                compared = group_normalised(column, [0] * len(present), std=mode == "grpo_std", eps=eps)
            for i, value in zip(present, compared.tolist(), strict=True):
                out[i][turn] = value
    return out


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


def standardise(x: Tensor, mask: Tensor, kind: str = "whiten") -> Tensor:
    """Scales the valid entries to mean 0 and deviation 1, and sets the others to 0; fewer than two
    stay unscaled.

    whiten: as verl; sample: (x - mean) / (std + 1e-8), as TWOSOME; population: with the
    population's deviation, and with entries that are exactly 0 excluded from the statistics, as
    ADRL (POAD's code).
    """
    if kind == "whiten":
        return whiten(x, mask)
    if kind not in ("sample", "population"):
        raise ValueError(f"unknown normalisation {kind!r}: whiten, sample or population")
    counted = x[mask] if kind == "sample" else x[mask & (x != 0)]
    if len(counted) < 2:
        return x * mask.to(x.dtype)
    return (x - counted.mean()) / (counted.std(unbiased=kind == "sample") + 1e-8) * mask.to(x.dtype)


def whiten(x: Tensor, mask: Tensor) -> Tensor:
    """Scales the valid entries to mean 0 and variance 1 (Bessel-corrected), and sets the others to
    0.

    The small constants are verl's, so that runs can be compared with it.
    """
    valid = mask.to(x.dtype)
    n = valid.sum()
    if n < 2:
        return x * valid
    mean = (x * valid).sum() / (n + 1e-8)
    variance = ((x - mean) ** 2 * valid).sum() / (n + 1e-8) * n / (n - 1)
    return (x - mean) * torch.rsqrt(variance + 1e-8) * valid
