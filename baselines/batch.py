"""Tensors built from trajectories, with the very tokens that were sampled.

`collate` makes a `Batch` of padded rows, with `AllowedTokens` where tokens were not drawn from the
whole vocabulary. `turn_values` spreads numbers per turn over tokens. `split`, `crop` and `evaluate`
pass a few rows at a time through a model, shared between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.types import Trajectory

ADVISED = "advised_prompt"
"""Key of `Reply.extra`: the tokens of a teacher's prompt for the reply; [] if no teacher is asked."""


@dataclass(frozen=True)
class AllowedTokens:
    """The set of tokens from which each sampled token was drawn; every distinct set is stored once."""

    index: Tensor  # [B, L] number of its set; 0 if no other token was possible, and where nothing was sampled
    sets: Tensor  # [S, K] tokens, -1 past the end of a set; set 0 is empty

    def rows(self, index: Tensor, width: int) -> AllowedTokens:
        """Selects rows and their first `width` columns."""
        return AllowedTokens(self.index[index, :width], self.sets)


@dataclass
class Batch:
    """B rows of at most L tokens. A row is a conversation, or the part of one that no later prompt
    rewrote.

    The N sampled tokens are also listed in the order of play, episode by episode: `where`,
    `episode`, `turn`.
    """

    ids: Tensor  # [B, L] tokens, 0 past the end
    valid: Tensor  # [B, L] bool: not past the end
    sampled: Tensor  # [B, L] bool: the policy sampled this token
    logprobs: Tensor  # [B, L] as sampled, or recomputed where `behaviour` is set; 0 elsewhere
    where: Tensor  # [N, 2] row and column of each sampled token
    episode: Tensor  # [N] index of its trajectory
    turn: Tensor  # [N] its turn within the episode
    ends_turn: Tensor  # [N] bool: the last token of its reply
    allowed: AllowedTokens | None = None  # None: every token was drawn from the whole vocabulary
    behaviour: Tensor | None = None  # [B, L] as sampled, if older weights sampled: `algorithms.update`

    def flat(self, x: Tensor) -> Tensor:
        """Gathers the sampled positions of [B, L] in the order of play. [N]"""
        return x[self.where[:, 0], self.where[:, 1]]

    def spread(self, x: Tensor) -> Tensor:
        """Scatters [N] to [B, L], 0 elsewhere."""
        out = x.new_zeros(self.ids.shape)
        out[self.where[:, 0], self.where[:, 1]] = x
        return out

    def turn_numbers(self) -> Tensor:
        """Returns a number of its episode and turn at each sampled position, 0 elsewhere. [B, L]"""
        return self.spread(self.episode * (int(self.turn.max()) + 1) + self.turn)

    def rows(self, index: Tensor) -> Batch:
        """Selects rows, cropped to the longest of them."""
        width = int(self.valid[index].sum(1).max())
        new_row = torch.full((len(self.ids),), -1)
        new_row[index] = torch.arange(len(index))
        selected = new_row[self.where[:, 0]] >= 0
        where = torch.stack([new_row[self.where[selected, 0]], self.where[selected, 1]], dim=1)
        return Batch(
            ids=self.ids[index, :width],
            valid=self.valid[index, :width],
            sampled=self.sampled[index, :width],
            logprobs=self.logprobs[index, :width],
            where=where,
            episode=self.episode[selected],
            turn=self.turn[selected],
            ends_turn=self.ends_turn[selected],
            allowed=None if self.allowed is None else self.allowed.rows(index, width),
            behaviour=None if self.behaviour is None else self.behaviour[index, :width],
        )


@dataclass
class _Row:
    """A row of a batch while it is built."""

    ids: list[int]
    sampled: list[bool]
    logprobs: list[float]
    sets: list[int]


def collate(trajectories: Sequence[Trajectory], whole: bool = True) -> Batch:
    """Builds a batch with one row per trajectory for as long as each prompt continues the row so
    far; else a new row.

    `whole=False` begins a new row with every turn: a data point is a turn, as in Verlog and GiGPO.
    Turns whose reply has no tokens (from an API, or empty) are skipped. Raises ValueError for
    broken episodes, if nothing was sampled, and if only some replies state their allowed tokens.
    """
    rows: list[_Row] = []
    numbers: dict[tuple[int, ...], int] = {(): 0}
    states = {"allowed" in turn.reply.extra for run in trajectories for turn in run.turns if turn.reply.ids}
    if len(states) > 1:
        raise ValueError("not all replies state the tokens that were allowed")
    is_restricted = True in states
    where: list[tuple[int, int]] = []
    episodes: list[int] = []
    turns: list[int] = []
    ends: list[bool] = []
    for index, trajectory in enumerate(trajectories):
        if trajectory.broken:
            raise ValueError("a broken episode carries no gradient: drop it before collating")
        row: _Row | None = None
        for number, turn in enumerate(trajectory.turns):
            prompt, reply = list(turn.reply.prompt_ids), list(turn.reply.ids)
            if not reply:
                continue
            if row is None or not whole or prompt[: len(row.ids)] != row.ids:
                row = _Row([], [], [], [])
                rows.append(row)
            unseen = prompt[len(row.ids) :]
            first = len(prompt)
            row.ids += unseen + reply
            row.sampled += [False] * len(unseen) + [True] * len(reply)
            row.logprobs += [0.0] * len(unseen) + list(turn.reply.logprobs)
            if is_restricted:
                allowed = turn.reply.extra["allowed"]
                row.sets += [0] * len(unseen) + [numbers.setdefault(tokens, len(numbers)) for tokens in allowed]
            where += [(len(rows) - 1, first + k) for k in range(len(reply))]
            episodes += [index] * len(reply)
            turns += [number] * len(reply)
            ends += [False] * (len(reply) - 1) + [True]
    if not rows:
        raise ValueError("no trajectory holds a sampled token: does this policy return token ids?")
    lengths = torch.tensor([len(row.ids) for row in rows])
    width = int(lengths.max())
    return Batch(
        ids=_padded([row.ids for row in rows], width, np.int64),
        valid=torch.arange(width)[None, :] < lengths[:, None],
        sampled=_padded([row.sampled for row in rows], width, np.bool_),
        logprobs=_padded([row.logprobs for row in rows], width, np.float32),
        where=torch.tensor(where),
        episode=torch.tensor(episodes),
        turn=torch.tensor(turns),
        ends_turn=torch.tensor(ends),
        allowed=_allowed(rows, width, list(numbers)) if is_restricted else None,
    )


def _allowed(rows: Sequence[_Row], width: int, sets: Sequence[tuple[int, ...]]) -> AllowedTokens:
    most = max(1, *map(len, sets))
    table = torch.tensor([[*tokens, *[-1] * (most - len(tokens))] for tokens in sets])
    return AllowedTokens(_padded([row.sets for row in rows], width, np.int32), table)


def _padded(rows: Sequence[Sequence[float]], width: int, dtype: type) -> Tensor:
    out: np.ndarray = np.zeros((len(rows), width), dtype)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(out)


def turn_values(batch: Batch, per_turn: Sequence[Sequence[float]]) -> Tensor:
    """Gives every token the number of its episode and turn. [E][T_e] -> [N]"""
    pairs = zip(batch.episode.tolist(), batch.turn.tolist(), strict=True)
    return torch.tensor([per_turn[e][t] for e, t in pairs])


def turn_rewards(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Returns the reward of each turn. [E][T_e]"""
    return [[turn.reward for turn in trajectory.turns] for trajectory in trajectories]


class MicroBatch(NamedTuple):
    """A few rows of a batch; every tensor is [b, l]."""

    ids: Tensor
    valid: Tensor
    sampled: Tensor
    allowed: AllowedTokens | None


def split(model: Any, batch: Batch, rows: Tensor, micro_rows: int) -> list[Tensor]:
    """Divides row indices into micro-batches of `micro_rows`; 0: one for each process of the model.

    With `micro_rows`, rows of similar length go together, so that little is computed on padding.
    """
    if micro_rows:
        lengths = batch.valid[rows].sum(1)
        rows = rows[lengths.argsort(descending=True, stable=True)]  # the longest first: memory runs out at once
    return list(rows.split(micro_rows or -(-len(rows) // model.processes.size())))


def crop(batch: Batch, rows: Tensor) -> MicroBatch:
    """Returns some rows without the columns in which all of them are padding."""
    width = int(batch.valid[rows].sum(1).max())
    allowed = None if batch.allowed is None else batch.allowed.rows(rows, width)
    return MicroBatch(batch.ids[rows, :width], batch.valid[rows, :width], batch.sampled[rows, :width], allowed)


@torch.no_grad()
def evaluate(model: Any, function: Callable[[MicroBatch], Tensor], batch: Batch, micro_rows: int) -> Tensor:
    """Computes a `function` [b, l] of the model over micro-batches, and returns it for the sampled tokens. [N]"""
    out = torch.zeros(batch.ids.shape)
    for part, weight in model.processes.rounds(
        split(model, batch, torch.arange(len(batch.ids)), micro_rows), model.sharded
    ):
        rows = crop(batch, part)
        result = function(rows)
        if weight:
            out[part, : rows.ids.shape[1]] = result.to(out.dtype)
    return batch.flat(model.processes.add(out))
