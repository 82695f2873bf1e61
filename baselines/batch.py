"""From trajectories to tensors, keeping the very tokens that were sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.types import Trajectory


@dataclass
class Batch:
    """B rows of at most L tokens. A row is a whole conversation, or the part of one that no later prompt rewrote.

    The N sampled tokens are also listed in the order they were played, episode by episode: `where`, `episode`, `turn`.
    """

    ids: Tensor  # [B, L] tokens, 0 past the end
    valid: Tensor  # [B, L] bool: not past the end
    sampled: Tensor  # [B, L] bool: the policy sampled this token
    logprobs: Tensor  # [B, L] as sampled; 0 elsewhere
    where: Tensor  # [N, 2] row and column of each sampled token
    episode: Tensor  # [N] index of its trajectory
    turn: Tensor  # [N] its turn within the episode
    ends_turn: Tensor  # [N] bool: the last token of its reply

    def flat(self, x: Tensor) -> Tensor:
        """The sampled positions of [B, L], in the order they were played. [N]"""
        return x[self.where[:, 0], self.where[:, 1]]

    def spread(self, x: Tensor) -> Tensor:
        """[N] back to [B, L], 0 elsewhere."""
        out = x.new_zeros(self.ids.shape)
        out[self.where[:, 0], self.where[:, 1]] = x
        return out

    def rows(self, index: Tensor) -> Batch:
        """Some of the rows, cut to their longest."""
        width = int(self.valid[index].sum(1).max())
        place = torch.full((len(self.ids),), -1)
        place[index] = torch.arange(len(index))
        mine = place[self.where[:, 0]] >= 0
        where = torch.stack([place[self.where[mine, 0]], self.where[mine, 1]], dim=1)
        cut = lambda x: x[index, :width]
        return Batch(
            cut(self.ids), cut(self.valid), cut(self.sampled), cut(self.logprobs),
            where, self.episode[mine], self.turn[mine], self.ends_turn[mine],
        )  # fmt: skip


def collate(trajectories: Sequence[Trajectory], whole: bool = True) -> Batch:
    """One row per trajectory as long as each prompt continues the row before; else a new row.

    `whole=False` starts a new row with every turn: a data point is a turn, as in Verlog and GiGPO. Turns whose reply
    holds no tokens (an API's, or an empty one) teach nothing and are left out. Broken episodes must be dropped before.
    """
    rows: list[tuple[list[int], list[bool], list[float]]] = []
    where: list[tuple[int, int]] = []
    episode: list[int] = []
    turns: list[int] = []
    ends: list[bool] = []
    for owner, trajectory in enumerate(trajectories):
        if trajectory.broken:
            raise ValueError("a broken episode carries no gradient: drop it before collating")
        ids: list[int] = []
        for number, turn in enumerate(trajectory.turns):
            prompt, reply = list(turn.reply.prompt_ids), list(turn.reply.ids)
            if not reply:
                continue
            start = len(ids)
            if start == 0 or not whole or prompt[:start] != ids:
                ids, start = [], 0
                rows.append((ids, [], []))
            ids, mask, logprobs = rows[-1]
            shown = len(prompt) - start
            first = start + shown
            ids += prompt[start:] + reply
            mask += [False] * shown + [True] * len(reply)
            logprobs += [0.0] * shown + list(turn.reply.logprobs)
            where += [(len(rows) - 1, first + k) for k in range(len(reply))]
            episode += [owner] * len(reply)
            turns += [number] * len(reply)
            ends += [False] * (len(reply) - 1) + [True]
    if not rows:
        raise ValueError("no trajectory holds a sampled token: was this a policy that keeps them?")
    width = max(len(ids) for ids, _, _ in rows)
    lengths = torch.tensor([len(ids) for ids, _, _ in rows])
    return Batch(
        ids=_padded([ids for ids, _, _ in rows], width, np.int64),
        valid=torch.arange(width)[None, :] < lengths[:, None],
        sampled=_padded([mask for _, mask, _ in rows], width, np.bool_),
        logprobs=_padded([logprobs for *_, logprobs in rows], width, np.float32),
        where=torch.tensor(where),
        episode=torch.tensor(episode),
        turn=torch.tensor(turns),
        ends_turn=torch.tensor(ends),
    )


def _padded(rows: Sequence[Sequence[float]], width: int, kind: type) -> Tensor:
    out: np.ndarray = np.zeros((len(rows), width), kind)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(out)


@dataclass
class Streams:
    """The sampled tokens of E episodes laid side by side, for `estimators.gae`: all [E, T]."""

    index: Tensor  # which of the N flat tokens; 0 where mask is False
    mask: Tensor
    ends_turn: Tensor
    cut: Tensor  # the last token of the episode

    def lay(self, x: Tensor) -> Tensor:
        """[N] -> [E, T]"""
        return x[self.index] * self.mask.to(x.dtype)

    def flat(self, x: Tensor) -> Tensor:
        """[E, T] -> [N]"""
        out = x.new_zeros(int(self.mask.sum()))
        out[self.index[self.mask]] = x[self.mask]
        return out


def streams(batch: Batch) -> Streams:
    """Every episode of the batch as one stream of its sampled tokens."""
    lists = [torch.nonzero(batch.episode == e).flatten() for e in batch.episode.unique(sorted=True)]
    width = max(len(found) for found in lists)
    index = torch.zeros(len(lists), width, dtype=torch.long)
    mask = torch.zeros(len(lists), width, dtype=torch.bool)
    cut = torch.zeros(len(lists), width, dtype=torch.bool)
    for e, found in enumerate(lists):
        index[e, : len(found)] = found
        mask[e, : len(found)] = True
        cut[e, len(found) - 1] = True
    return Streams(index, mask, batch.ends_turn[index] & mask, cut)


def turn_values(batch: Batch, per_turn: Sequence[Sequence[float]]) -> Tensor:
    """A number per (episode, turn), given to every token of the turn. [N]"""
    return torch.tensor([per_turn[e][t] for e, t in zip(batch.episode.tolist(), batch.turn.tolist(), strict=True)])


def token_rewards(batch: Batch, per_turn: Sequence[Sequence[float]]) -> Tensor:
    """A turn's reward on the last token of its reply; rewards of turns without tokens fall to the next turn that has them.

    What follows the last sampled token of an episode falls to that token: nothing that was paid is lost. [N]
    """
    out = torch.zeros(len(batch.episode))
    position: dict[tuple[int, int], int] = {}
    for k, (e, t, end) in enumerate(
        zip(batch.episode.tolist(), batch.turn.tolist(), batch.ends_turn.tolist(), strict=True)
    ):
        if end:
            position[e, t] = k
    for e, row in enumerate(per_turn):
        places = sorted(t for owner, t in position if owner == e)
        if not places:
            continue
        for t, reward in enumerate(row):
            at = next((place for place in places if place >= t), places[-1])
            out[position[e, at]] += reward
    return out
