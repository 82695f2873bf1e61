"""Advantages without a critic: scores compared within groups, and the scaling of advantages.

Pure functions with shapes in brackets. A group is the episodes of one game.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor


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
