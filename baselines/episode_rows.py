"""The sampled tokens of a batch as one row per episode, for `estimators.gae`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from baselines.batch import Batch


@dataclass
class EpisodeRows:
    """The sampled tokens of E episodes, one padded row per episode; every field is [E, T]."""

    index: Tensor  # index among the N flat tokens; 0 where mask is False
    mask: Tensor
    ends_turn: Tensor
    cut: Tensor  # the last token of the episode

    def arrange(self, x: Tensor) -> Tensor:
        """[N] -> [E, T], 0 where mask is False."""
        return x[self.index] * self.mask.to(x.dtype)

    def flatten(self, x: Tensor) -> Tensor:
        """[E, T] -> [N]"""
        out = x.new_zeros(int(self.mask.sum()))
        out[self.index[self.mask]] = x[self.mask]
        return out


def episode_rows(batch: Batch) -> EpisodeRows:
    """Arranges the batch's sampled tokens by episode."""
    members = [torch.nonzero(batch.episode == e).flatten() for e in batch.episode.unique(sorted=True)]
    width = max(len(tokens) for tokens in members)
    index = torch.zeros(len(members), width, dtype=torch.long)
    mask = torch.zeros(len(members), width, dtype=torch.bool)
    cut = torch.zeros(len(members), width, dtype=torch.bool)
    for e, tokens in enumerate(members):
        index[e, : len(tokens)] = tokens
        mask[e, : len(tokens)] = True
        cut[e, len(tokens) - 1] = True
    return EpisodeRows(index, mask, batch.ends_turn[index] & mask, cut)


def token_rewards(batch: Batch, per_turn: Sequence[Sequence[float]]) -> Tensor:
    """Pays each turn's reward on the last token of its reply. [E][T_e] -> [N]

    The reward of a turn without tokens is paid on the next turn that has some, or, after the last
    such turn, on the episode's last sampled token, so that the sum per episode stays the same.
    """
    out = torch.zeros(len(batch.episode))
    last_token: dict[int, dict[int, int]] = {}
    for token in batch.ends_turn.nonzero().flatten().tolist():
        last_token.setdefault(int(batch.episode[token]), {})[int(batch.turn[token])] = token
    for e, rewards in enumerate(per_turn):
        if e not in last_token:
            continue
        turns = sorted(last_token[e])
        for t, reward in enumerate(rewards):
            paid_on = next((turn for turn in turns if turn >= t), turns[-1])
            out[last_token[e][paid_on]] += reward
    return out
