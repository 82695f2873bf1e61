"""Common to all algorithms: settings of an update, its input, and the passes before its steps.

Episodes that older weights played (`async_level = 1`) are learned from with the decoupled objective,
in which three policies take part: the behaviour policy sampled the tokens, the proximal policy has
the weights before the update, and pi is the policy that is trained. Per token, with advantage A:

    loss = w * max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))
    r = pi / proximal,    w = min(proximal / behaviour, importance_cap)

The clipping keeps pi near the proximal policy, however old the behaviour policy is, and the weight
w, a constant, corrects for who sampled. KL and entropy terms and the KL that `target_kl` limits
refer to the proximal policy and have no weight. Advantages are not corrected.

Sources: Hilton, Cobbe and Schulman, "Batch size-invariance for policy optimization" (2021,
arXiv 2110.00641), for the objective; Fu et al., "AReaL" (2025, arXiv 2505.24298), for its use with
language models that play while they learn (their code drops tokens above the cap); Ionides,
"Truncated importance sampling" (2008), for the truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from baselines.batch import Batch, MicroBatch, evaluate
from baselines.math.losses import adapted_kl_coef, early_stop_kl, kl_estimate, truncated_importance
from baselines.ranges import (
    AdvantageScope,
    Aggregation,
    Count,
    Deviation,
    Natural,
    NonNegative,
    Positive,
    Schedule,
    Share,
)
from envsuite.errors import UsageError
from envsuite.types import Shaping
from harness.types import Trajectory

if TYPE_CHECKING:
    from baselines.algorithms.optimisers import Optimisers
    from baselines.networks.model import Model


@dataclass(frozen=True)
class UpdateConfig:
    """Settings of the policy and critic steps, common to all algorithms."""

    needs_critic: ClassVar[bool] = False
    learning_rate: NonNegative = 1e-6
    critic_learning_rate: NonNegative = 1e-5
    adam_eps: Positive = 1e-5
    """Epsilon of Adam for actor and critic; 1e-5 is that of ADRL and TWOSOME, 1e-8 that of verl."""
    adam_betas: tuple[Share, ...] = (0.9, 0.999)
    warmup_updates: Natural = 0
    """First updates, in which the learning rates rise linearly to their full values."""
    epochs: Count = 1
    """Passes over each batch of episodes."""
    minibatches: Count = 1
    """Optimiser steps per pass."""
    micro_rows: Natural = 0
    """Rows per forward pass, with gradients accumulated over a minibatch; 0: all rows of the
    minibatch."""
    ratio: Literal["token", "turn"] = "token"
    """Ratio that is clipped: each token's own, or the geometric mean over the tokens of its reply."""
    clip_low: Share = 0.2
    clip_high: NonNegative = 0.2
    dual_clip: NonNegative = 0.0
    """Bound c of Ye et al. (2020) for negative advantages; 0: no bound."""
    importance_cap: Positive = 2.0
    """With async_level = 1, the largest weight of a token between the policy that played it and the
    policy before the update (`algorithms.update`)."""
    value_clip: NonNegative = 0.2
    """0: no clipping of values."""
    value_coef: NonNegative = 0.5
    highlight_first: Positive = 1.0
    """Weight of the value loss at the first token of each reply (Verlog: 3)."""
    entropy_coef: NonNegative = 0.0
    kl_coef: NonNegative = 0.0
    kl_target: NonNegative = 0.0
    """Adapt kl_coef after each batch so that the KL to the first weights approaches this (Ziegler
    et al., 2019); 0: fixed coefficient."""
    kl_horizon: Count = 10000
    """Episodes over which the adapted coefficient may change by a factor of e; a batch changes it
    by at most a fifth of (episodes / horizon)."""
    kl_kind: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k3"
    """Estimator of Schulman (2020); k1+ and k3+ have the value of k1 and k3, and the gradient of
    k2."""
    kl_in: Literal["loss", "reward"] = "loss"
    target_kl: NonNegative = 0.0
    """Skip the policy step of a minibatch whose KL to the rollout policy exceeds this; 0: never."""
    normalise: AdvantageScope = "batch"
    """Rows over which advantages are scaled to mean 0 and variance 1."""
    deviation: Deviation = "whiten"
    """Variant of the scaling: whiten (verl), sample (TWOSOME) or population (ADRL); see
    `estimators.standardise`."""
    aggregation: Aggregation = "token-mean"
    constant: NonNegative = 0.0
    """Divisor of seq-sum-constant: the longest possible reply, in tokens."""
    max_grad_norm: Positive = 0.5
    """Largest global norm of the gradient."""
    weight_decay: NonNegative = 0.0
    schedule: Schedule = "constant"
    """Learning rates over the run (or over its `budget`): constant, linear to 0, or a half cosine
    to 0."""
    whole: bool = True
    """A row is a conversation; False: a row is one turn with its prompt."""

    @property
    def episodes_per_group(self) -> int:
        """Episodes of one game that are compared with each other; 1 where nothing is compared."""
        return 1

    @property
    def resampling_rounds(self) -> int:
        """Times that groups which teach nothing are replaced by other games in one update."""
        return 0

    @property
    def advisor(self) -> str:
        """Expert whose next command a teacher reads, as in `Policy.advice_kind`; "" without a teacher."""
        return ""

    @property
    def reads_reference(self) -> bool:
        """True if updates read the weights that training began with."""
        return bool(self.kl_coef)

    @property
    def trains_target_critic(self) -> bool:
        return False

    def shaping(self) -> Shaping | None:
        """Returns the discount that `shaped` needs to keep the best policy; None if no single
        discount does.

        This default is a plain sum of rewards.
        """
        return Shaping(1.0)

    def validate(self, recipe: Any) -> None:
        """Rejects settings of this algorithm that contradict the `baselines.recipe.Recipe`. Raises
        UsageError."""
        if self.aggregation == "seq-sum-constant" and not self.constant:
            raise UsageError(
                "config.aggregation = 'seq-sum-constant' needs config.constant, the longest possible reply in tokens."
            )
        if len(self.adam_betas) != 2 or max(self.adam_betas) >= 1:
            raise UsageError(f"config.adam_betas cannot be {list(self.adam_betas)}: set two numbers below 1.")
        if self.needs_critic and recipe.model.critic == "none":
            raise UsageError(
                f"model.critic cannot be 'none': {recipe.algorithm} needs a critic; set it to 'own' or 'head'."
            )
        self._check_sampling(recipe)

    def _check_sampling(self, recipe: Any) -> None:
        """Rejects sampling whose probabilities differ from the trainer's."""
        acting = recipe.acting
        if acting.choose == "admissible" and acting.temperature != 1.0:
            raise UsageError(
                f"acting.temperature = {acting.temperature} flattens the draw among admissible commands, but "
                f"{recipe.algorithm} learns from the log-probs of their tokens, which it does not change: set it to 1."
            )
        if acting.choose == "free" and acting.top_p < 1:
            raise UsageError(
                f"acting.top_p = {acting.top_p}: tokens would be sampled from part of the vocabulary, and "
                f"{recipe.algorithm} "
                "learns from log-probs over all of it: set it to 1."
            )
        if acting.choose == "trie":
            for key, value, unused in (("top_p", acting.top_p, 1.0), ("normalisation", acting.normalisation, "word")):
                if value != unused:
                    raise UsageError(
                        f"acting.{key} cannot be {value!r}: acting.choose = 'trie' draws from all admissible commands "
                        "by the probabilities of their tokens, and does not use it; leave it out."
                    )


Config = TypeVar("Config", bound=UpdateConfig)


@dataclass(frozen=True)
class UpdateInput(Generic[Config]):
    """One batch of episodes, the model that learns from it, and the settings."""

    model: Model
    optimisers: Optimisers
    trajectories: Sequence[Trajectory]
    config: Config
    generator: torch.Generator
    """Draws the order of rows."""
    final_prompts: Sequence[Sequence[int]] = ()
    """For each trajectory the tokens of the prompt that would follow; [] if the episode ended by
    itself."""
    temperature: float = 1.0
    """Sampling temperature of the rollout."""
    step: int = 0
    """Updates before this one."""
    share: float = 1.0
    """Share of the rows that each epoch draws."""
    decoupled: bool = False
    """True if older weights may have played the episodes, and the objective is the decoupled one."""


@torch.no_grad()
def proximal_pass(inputs: UpdateInput[Any], batch: Batch) -> dict[str, float]:
    """Stores in `batch` the log-probs of both the proximal and the behaviour policy, and returns
    numbers to log; does nothing and returns {} unless the update is decoupled."""
    if not inputs.decoupled:
        return {}
    model, config, temperature = inputs.model, inputs.config, inputs.temperature

    def present(rows: MicroBatch) -> Tensor:
        return model.logprobs(rows.ids, rows.valid, temperature, rows.sampled, False, rows.allowed)[0]

    proximal = evaluate(model, present, batch, config.micro_rows)
    behaviour = batch.flat(batch.logprobs)
    batch.behaviour, batch.logprobs = batch.logprobs, batch.spread(proximal)
    weight, truncated = truncated_importance(proximal, behaviour, config.importance_cap)
    return {
        "importance": weight.mean().item(),
        "truncated": truncated.float().mean().item(),
        "behaviour_kl": early_stop_kl(proximal, behaviour).mean().item(),
    }


def reference_pass(inputs: UpdateInput[Any], batch: Batch) -> Tensor | None:
    """Returns the log-probs of the frozen reference if there is a KL term. [N]"""
    model, config, temperature = inputs.model, inputs.config, inputs.temperature
    if not config.kl_coef:
        return None

    def logprobs(rows: MicroBatch) -> Tensor:
        return model.reference_logprobs(rows.ids, rows.valid, temperature, rows.sampled, rows.allowed)

    return evaluate(model, logprobs, batch, config.micro_rows)


def kl_penalty(inputs: UpdateInput[Any], batch: Batch, reference: Tensor | None) -> Tensor:
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
