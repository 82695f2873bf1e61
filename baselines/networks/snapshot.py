"""A copy of the actor's weights, which plays while the model learns."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from baselines.distributed import collectives
from baselines.networks.model import Model, actor_logprobs
from baselines.networks.prefix_sharing import distinct_rows


class Snapshot:
    """The actor with the weights that it had at the last `take`.

    Only trained weights are copied; frozen ones are shared with the model. `lm`, `tokenizer` and
    `logprobs` are as in `Model`.
    """

    sharded = False
    processes = collectives

    def __init__(self, model: Model) -> None:
        self._model = model
        frozen = {id(parameter): parameter for parameter in model.lm.parameters() if not parameter.requires_grad}
        self.lm = copy.deepcopy(model.lm, frozen).requires_grad_(False).eval()
        self.tokenizer, self.device = model.tokenizer, model.device

    @torch.no_grad()
    def take(self) -> None:
        """Copies the model's present weights."""
        for mine, actors in zip(self.lm.parameters(), self._model.lm.parameters(), strict=True):
            if mine is not actors:
                mine.copy_(actors)

    @torch.no_grad()
    def logprobs(
        self, ids: Tensor, valid: Tensor, temperature: float = 1.0, sampled: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns log-probs and entropies like `Model.logprobs`. [B, L] -> [B, L], [B, L]"""
        return actor_logprobs(self.lm, distinct_rows(ids, valid, sampled, self.device), temperature, False)
