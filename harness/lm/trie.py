"""Trie-normalised tokens: probabilities among the tokens that continue an admissible command.

    log p(w | prompt, w_<j) = z_w / T - logsumexp over u in A(w_<j) of z_u / T
    A(w_<j): the tokens that follow w_<j in some admissible command;  z: logits

A command that begins another one ends with the model's end token (`prefix_free`). Each command is
then a leaf of the trie, and the product of its tokens' probabilities is its probability: over all
commands they sum to 1. A token without an alternative has log-prob 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.lm.likelihood import Candidate, Choice


def prefix_free(prompt: Sequence[int], commands: Sequence[Candidate], end: int) -> list[Candidate]:
    """Returns commands that all follow the same tokens of the prompt, and of which none begins
    another: such a command gets the token `end`, or several.
    """
    keeps = min(command.keeps for command in commands)
    paths = [(*prompt[keeps : command.keeps], *command.ids) for command in commands]
    beginnings = {path[:length] for path in paths for length in range(1, len(path))}
    return [Candidate(keeps, _extended(path, end, beginnings)) for path in paths]


def _extended(path: tuple[int, ...], end: int, beginnings: set[tuple[int, ...]]) -> tuple[int, ...]:
    while path in beginnings:  # more than once only if a command contains the end token
        path = (*path, end)
    return path


class Trie:
    """The tokens of K commands from `prefix_free`, as edges: one for each token and the tokens
    before it.

    Commands with equal tokens are one leaf, which belongs to the first of them.
    """

    def __init__(self, commands: Sequence[Candidate]) -> None:
        known: dict[tuple[int, int], int] = {}
        siblings: dict[int, list[int]] = {}
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._paths: list[list[int]] = []
        first: list[int] = []
        position = 0
        for command in commands:
            node, path = -1, []
            for token in command.ids:
                edge = known.setdefault((node, token), len(self._tokens))
                if edge == len(self._tokens):
                    self._tokens.append(token)
                    self._parents.append(node)
                    siblings.setdefault(node, []).append(edge)
                    first.append(position)
                path.append(edge)
                node = edge
                position += 1
            self._paths.append(path)
        self._allowed = {
            node: tuple(sorted(self._tokens[edge] for edge in edges)) if len(edges) > 1 else ()
            for node, edges in siblings.items()
        }
        groups = {node: number for number, node in enumerate(siblings)}
        self._first = torch.tensor(first)
        """The position of each edge's first occurrence among the tokens of all commands."""
        self._group = torch.tensor([groups[node] for node in self._parents])
        """The number of each edge's set of siblings."""
        self._groups = len(groups)
        leaves: dict[int, int] = {}
        self._is_repeated = torch.tensor([leaves.setdefault(path[-1], k) != k for k, path in enumerate(self._paths)])

    def allowed(self, command: int) -> list[tuple[int, ...]]:
        """Returns the tokens that are possible in place of each token of a command, itself
        included; () if no other is.
        """
        return [self._allowed[self._parents[edge]] for edge in self._paths[command]]

    def logprobs(self, logprobs: Sequence[Tensor], temperature: float = 1.0) -> list[Tensor]:
        """Normalises the log-probs of each command's tokens over their siblings, in float64.

        The log-probs may be those over any larger set, such as the vocabulary at temperature 1.
        """
        scores = torch.cat(list(logprobs)).cpu().double()[self._first] / temperature
        largest = torch.full((self._groups,), -torch.inf, dtype=scores.dtype)
        largest = largest.scatter_reduce(0, self._group, scores, "amax")[self._group]
        sums = torch.zeros(self._groups, dtype=scores.dtype)
        sums = sums.index_add(0, self._group, (scores - largest).exp())[self._group]
        normalised = scores - largest - sums.log()
        return [normalised[path] for path in self._paths]

    def choice(self, logprobs: Sequence[Tensor]) -> Choice:
        """Returns the distribution over commands from the result of `logprobs`.

        A command with the same tokens as an earlier one has probability 0.
        """
        sums = torch.stack([tokens.sum() for tokens in logprobs])
        distinct = sums[~self._is_repeated]
        entropy = -(distinct.exp() * distinct).sum()
        return Choice(sums, sums.masked_fill(self._is_repeated, -torch.inf), entropy)
