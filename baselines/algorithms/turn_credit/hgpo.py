"""HGPO: hierarchy-of-groups policy optimisation (He et al., 2026, arXiv 2602.22817).

    C_k(i, t) = (s_{t-k}, ..., s_t)            the last k + 1 observations, of one episode
    A_k(i, t) = (G_{i,t} - mean) / (std + eps) over the turns of the group with the same C_k
    A_{i,t} = sum_k w_k A_k(i, t),   w_k = (k + 1)**alpha / sum_l (l + 1)**alpha,   k = 0 .. history

G is the return-to-go. Turns that saw the same are compared more strictly the longer their shared
past is. With `history = 0` this is the step advantage of GiGPO alone.

Left open by the paper, and chosen here: the weights are normalised over the levels at which a turn
has another one to compare with, and a turn without any gets 0 (as in the published code). A level
that reaches beyond the first turn does not exist for that turn (as in the published code). The
deviation is the sample's, as in GiGPO; the published code uses the population's, weights level k by
(k + 2)**alpha, and can add the episode's advantage as one more level.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.advantages import returns_to_go
from baselines.math.estimators import anchor_cells, compared_in_cells
from baselines.ranges import Natural, NonNegative, Share
from envsuite.types import Shaping
from harness.types import Trajectory


@dataclass(frozen=True)
class HGPO(GroupConfig):
    """Hierarchy-of-groups policy optimisation: turns compared by observation and by history."""

    gamma: Share = 0.95
    """Discount of the return-to-go by which turns are compared."""
    history: Natural = 2
    """Most earlier observations that compared turns must share; 0: the present observation alone."""
    alpha: NonNegative = 1.0
    """Exponent of the weights: a level with k earlier observations weighs (k + 1)**alpha."""
    std: bool = True
    """Divide by the standard deviation of the turns that are compared."""
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping:
        return Shaping(self.gamma)


Config = HGPO


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups. Logs the share of turns that are compared with another turn of
    the same observation (`shared_anchors`) and of the longest context (`shared_contexts`)."""
    config = inputs.config
    shared: list[float] = []

    def compare(
        trajectories: Sequence[Trajectory], rewards: list[list[float]], groups: list[Hashable]
    ) -> list[list[float]]:
        states = [[turn.observation for turn in run.turns] for run in trajectories]
        turns = sum(map(len, states))
        for length in (0, config.history):
            shared.append(sum(map(len, comparable_turns(states, groups, length))) / turns)
        return advantages(rewards, states, groups, config)

    log = update_groups(inputs, compare)
    log["shared_anchors"], log["shared_contexts"] = shared
    return log


def comparable_turns(
    states: Sequence[Sequence[Hashable]], groups: Sequence[Hashable], length: int
) -> list[list[tuple[int, int]]]:
    """Returns the sets of two or more (trajectory, turn) pairs of a group that share their
    observation and the `length` observations before it. [N][T_n], [N] -> [sets][pairs]"""
    contexts: list[list[Hashable]] = [
        [tuple(row[t - length : t + 1]) if t >= length else (i, t) for t in range(len(row))]
        for i, row in enumerate(states)
    ]  # a context that would begin before the episode is equal to no other
    return [cell for cell in anchor_cells(contexts, groups) if len(cell) > 1]


def advantages(
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    config: Config,
) -> list[list[float]]:
    """Returns an advantage per episode and turn. [E][T_e], [E][T_e], [E] -> [E][T_e]"""
    returns = [returns_to_go(row, config.gamma) for row in rewards]
    total = [[0.0] * len(row) for row in rewards]
    weight = [[0.0] * len(row) for row in rewards]
    for length in range(config.history + 1):
        level = (length + 1) ** config.alpha
        cells = comparable_turns(states, groups, length)
        compared = compared_in_cells(returns, cells, config.std)
        for i, t in chain.from_iterable(cells):
            total[i][t] += level * compared[i][t]
            weight[i][t] += level
    return [[x / (w or 1.0) for x, w in zip(*rows, strict=True)] for rows in zip(total, weight, strict=True)]
