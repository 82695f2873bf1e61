"""The KL divergence from the policy to the reference, as a reward or as a term of the loss.

`reference_pass` runs the frozen reference once per batch, for its log-probs and for the features
that a critic may read. `penalty` turns the log-probs into a reward per token, and adapts the
coefficient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from baselines.algorithms.update import UpdateInput
from baselines.batch import Batch
from baselines.math.losses import adapted_kl_coef, kl_estimate
from baselines.microbatch import MicroBatch, evaluate, evaluate_features


def reference_pass(inputs: UpdateInput[Any], batch: Batch) -> Tensor | None:
    """Returns the reference's log-probs [N] if there is a KL term, and stores features in `batch`
    if the critic reads them."""
    model, config, temperature = inputs.model, inputs.config, inputs.temperature
    needs_logprobs = bool(config.kl_coef)
    if not model.reads_features:
        if not needs_logprobs:
            return None

        def only_logprobs(rows: MicroBatch) -> Tensor:
            return model.reference_logprobs(rows.ids, rows.valid, temperature, rows.sampled, rows.allowed)

        return evaluate(only_logprobs, batch, config.micro_rows, model.sharded)

    def both(rows: MicroBatch) -> tuple[Tensor, Tensor]:
        return model.reference_features(rows.ids, rows.valid, rows.sampled, temperature, needs_logprobs, rows.allowed)

    width = model.lm.config.get_text_config().hidden_size
    features = torch.zeros(len(batch.where), width, dtype=model.lm.dtype)
    logprobs, batch.features = evaluate_features(both, batch, config.micro_rows, model.sharded, features)
    return logprobs if needs_logprobs else None


def penalty(inputs: UpdateInput[Any], batch: Batch, reference: Tensor | None) -> Tensor:
    """Returns the KL penalty in the reward, 0 unless `kl_in = "reward"`. [N]

    With `kl_target` it sets the coefficient of the next batch, by the mean over episodes of their
    mean k1.
    """
    config, optimisers = inputs.config, inputs.optimisers
    if reference is None:
        return torch.zeros(len(batch.episode))
    # In the reward the penalty is a constant, and k1 is its unbiased estimate (Schulman, 2020).
    kl = kl_estimate(batch.flat(batch.logprobs), reference, "k1")
    if config.kl_target:
        means = [kl[batch.episode == episode].mean() for episode in batch.episode.unique()]
        mean = torch.stack(means).mean().item()
        optimisers.next_kl_coef = adapted_kl_coef(
            optimisers.kl_coef, mean, config.kl_target, len(means), config.kl_horizon
        )
    return -optimisers.kl_coef * kl if config.kl_in == "reward" else torch.zeros_like(kl)
