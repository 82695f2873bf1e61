"""Who earned the reward? Pure functions from rewards (and values) to advantages; shapes in brackets.

One recursion serves every method with a critic (docs/explanation/algorithms.md):

    inside a turn      delta = r + gamma_token * V(next token) - V        trace: gamma_token * lambda_token
    at a turn's end    delta = r + gamma_step  * V(next turn)  - V        trace: gamma_step  * lambda_step
    at a cut           V(next) = boot                                  trace: 0

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
    """Generalised advantages over sampled tokens; everything [B, L], one row per stream of play.

    `ends_turn`: the token ends a turn; `cut`: nothing after it belongs to its episode; `boot`: the value that stands in
    there; `mask`: sampled by the policy (other positions are passed over and get 0). `gamma_step` may be a tensor:
    gamma**k at the end of a turn whose macro-action took k primitive steps.
    """
    discount = torch.where(ends_turn, torch.as_tensor(gamma_step, dtype=values.dtype), values.new_tensor(gamma_token))
    fade = torch.where(ends_turn, values.new_tensor(lambda_step), values.new_tensor(lambda_token))
    advantages = torch.zeros_like(values)
    following, trace = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in range(values.shape[1] - 1, -1, -1):
        here = mask[:, t]
        later = torch.where(cut[:, t], boot[:, t], following)
        carried = torch.where(cut[:, t], torch.zeros_like(trace), trace)
        delta = rewards[:, t] + discount[:, t] * later - values[:, t]
        advantage = delta + discount[:, t] * fade[:, t] * carried
        advantages[:, t] = torch.where(here, advantage, torch.zeros_like(advantage))
        trace = torch.where(here, advantage, trace)
        following = torch.where(here, values[:, t], following)
    return advantages


def members(groups: Sequence[Hashable]) -> list[list[int]]:
    """The indices of each group, in order of first appearance."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        found[group].append(index)
    return list(found.values())


def leave_one_out(scores: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """RLOO (Ahmadian et al., 2024): each score less the mean of the others in its group. [N] -> [N]

    Raises ValueError for a group of one: it has no baseline, and what it would teach is noise.

    Examples:
        >>> scores = torch.tensor([1.0, 0.0, 0.5])
        >>> leave_one_out(scores, ["game", "game", "game"]).tolist()
        [0.75, -0.75, 0.0]
    """
    out = torch.zeros_like(scores)
    for group in members(groups):
        if len(group) < 2:
            raise ValueError(f"RLOO needs groups of two or more; {groups[group[0]]!r} has one: raise group_size")
        mine = scores[group]
        out[group] = mine - (mine.sum() - mine) / (len(group) - 1)
    return out


def group_normalised(scores: Tensor, groups: Sequence[Hashable], std: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO (Shao et al., 2024): centred, and scaled by the sample deviation (`std=False`: Dr. GRPO). [N] -> [N]

    A group of one keeps its score (mean 0, deviation 1), as the reference codes do.
    """
    out = torch.zeros_like(scores)
    for group in members(groups):
        mine = scores[group]
        if len(group) == 1:
            out[group] = mine / (1 + eps) if std else mine
            continue
        centred = mine - mine.mean()
        out[group] = centred / (mine.std(unbiased=True) + eps) if std else centred
    return out


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """sum_{k >= t} gamma**(k - t) r_k. [T] -> [T]"""
    out, later = [0.0] * len(rewards), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        out[t] = later = rewards[t] + gamma * later
    return out


def per_turn(
    rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], gamma: float, mode: str, eps: float = 1e-6
) -> list[list[float]]:
    """Return-to-go of each turn against those of its group that have that turn. `[N][T_n] -> [N][T_n]`

    mode: "grpo_std" (mean and deviation), "grpo_mean" (mean alone) or "rloo". A lone member keeps its return.
    """
    returns = [returns_to_go(row, gamma) for row in rewards]
    out = [[0.0] * len(row) for row in returns]
    for group in members(groups):
        for turn in range(max((len(returns[i]) for i in group), default=0)):
            have = [i for i in group if len(returns[i]) > turn]
            column = torch.tensor([returns[i][turn] for i in have], dtype=torch.float64)
            if mode == "rloo" and len(have) > 1:
                found = leave_one_out(column, [0] * len(have))
            else:
                found = group_normalised(column, [0] * len(have), std=mode == "grpo_std", eps=eps)
            for i, value in zip(have, found.tolist(), strict=True):
                out[i][turn] = value
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
    """Group-in-group (arXiv 2505.10978): episode, step and total advantages. `[N][T_n] -> [N], [N][T_n], [N][T_n]`

    `anchors[i][t]` is what trajectory i saw at turn t; turns of one group with equal anchors are compared by their
    return-to-go. Episode statistics are taken over trajectories, as the paper has it; `over_rows=True` counts a
    trajectory once per turn, as the published code does.
    """
    totals = torch.tensor([float(sum(row)) for row in rewards], dtype=torch.float64)
    episode = torch.zeros_like(totals)
    for group in members(groups):
        rows = [i for i in group for _ in rewards[i]] if over_rows else group
        seen = totals[rows]
        alone = len(rows) == 1
        mean = 0.0 if alone else seen.mean()
        scale = 1.0 if alone else seen.std(unbiased=True)
        episode[group] = (totals[group] - mean) / ((scale + eps) if std else 1.0)
    returns = [returns_to_go(row, gamma) for row in rewards]
    cells: dict[tuple[Hashable, Hashable], list[tuple[int, int]]] = defaultdict(list)
    for i, row in enumerate(anchors):
        for t, anchor in enumerate(row):
            cells[groups[i], anchor].append((i, t))
    step = [[0.0] * len(row) for row in rewards]
    for cell in cells.values():
        if len(cell) == 1:
            continue
        column = torch.tensor([returns[i][t] for i, t in cell], dtype=torch.float64)
        centred = column - column.mean()
        for (i, t), value in zip(cell, (centred / (column.std(unbiased=True) + eps) if std else centred).tolist()):
            step[i][t] = value
    total = [[float(episode[i]) + omega * value for value in row] for i, row in enumerate(step)]
    return episode.tolist(), step, total


def standardise(x: Tensor, mask: Tensor, kind: str = "whiten") -> Tensor:
    """Advantages to mean 0 and deviation 1 over the valid entries; 0 elsewhere. Below two entries only masked.

    whiten: as verl; sample: (x - mean) / (std + 1e-8), as TWOSOME; population: likewise with the population's deviation,
    and entries that are exactly 0 left out of the statistics, as ADRL (POAD's code).
    """
    if kind == "whiten":
        return whiten(x, mask)
    if kind not in ("sample", "population"):
        raise ValueError(f"unknown normalisation {kind!r}: whiten, sample or population")
    seen = x[mask] if kind == "sample" else x[mask & (x != 0)]
    if len(seen) < 2:
        return x * mask.to(x.dtype)
    return (x - seen.mean()) / (seen.std(unbiased=kind == "sample") + 1e-8) * mask.to(x.dtype)


def whiten(x: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the valid entries (Bessel-corrected); 0 elsewhere. Below two entries only masked.

    The small constants are verl's, so that runs can be compared with it.
    """
    valid = mask.to(x.dtype)
    n = valid.sum()
    if n < 2:
        return x * valid
    mean = (x * valid).sum() / (n + 1e-8)
    variance = ((x - mean) ** 2 * valid).sum() / (n + 1e-8) * n / (n - 1)
    return (x - mean) * torch.rsqrt(variance + 1e-8) * valid
