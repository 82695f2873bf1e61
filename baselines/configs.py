"""Settings of models and algorithms, with the range of every number beside its field.

The module imports no torch, so that a bad recipe is rejected before anything slow happens.
`CONFIGS` maps an algorithm's name to its settings; `baselines.recipe` reads them from TOML.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from envsuite.errors import UsageError
from envsuite.types import Shaping, ShapingUnit


class Range(NamedTuple):
    """The finite numbers from `low` to `high`; with `above`, `low` itself is excluded."""

    low: float = 0.0
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        lower = f"{'above' if self.above else 'at least'} {self.low:g}"
        return lower if math.isinf(self.high) else f"{lower} and at most {self.high:g}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range()]
NonNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, above=True)]

Normalisation = Literal["sum", "token", "word"]
"""Divisor of a command's log-likelihood: none, its tokens, or its words."""
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-constant"]
AdvantageScope = Literal["none", "batch", "minibatch"]
Deviation = Literal["whiten", "sample", "population"]
Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class ModelConfig:
    """The model to train, and which of its weights are trained."""

    name: str
    """Alias, path or org/name."""
    device: str = "auto"
    dtype: str = "auto"
    """Type of the forward passes. Trained weights have float32 master copies and moments in any
    case."""
    attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Attention kernel; the FlashAttention kernels need the package flash-attn and a GPU."""
    lora_rank: Natural = 0
    """0 trains every weight; POAD and TWOSOME use 8."""
    lora_alpha: Count = 16
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    critic: Literal["none", "head", "own"] = "own"
    """head: an MLP on the features of the frozen reference; own: a trained copy of the model with a
    linear head. Algorithms without a critic build none."""
    critic_hidden: tuple[Count, ...] = (1024, 512)
    """Hidden sizes of the MLP (TWOSOME, ADRL); () gives a linear head."""
    gradient_checkpointing: bool = False
    """Recomputes the activations of actor and critic in the backward pass."""
    seed: Natural = 0


@dataclass(frozen=True)
class SFTConfig:
    """Supervised fine-tuning on demonstrations."""

    learning_rate: NonNegative = 1e-5
    epochs: Count = 1
    rows: Count = 16
    """Demonstrations per optimiser step."""
    micro_rows: Natural = 0
    """Rows per forward pass; 0: all rows of a step."""
    warmup: Share = 0.1
    """Share of the steps in which the learning rate rises to its full value; it then falls as a
    cosine."""
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0
    last_only: bool = False
    """Train only the last assistant message of each line. Use it with a history window, where each
    turn has its own line."""


@dataclass(frozen=True)
class UpdateConfig:
    """Settings of the policy and critic steps, common to all algorithms."""

    needs_critic: ClassVar[bool] = False
    compares_groups: ClassVar[bool] = False

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
    clip_low: Share = 0.2
    clip_high: NonNegative = 0.2
    dual_clip: NonNegative = 0.0
    """Bound c of Ye et al. (2020) for negative advantages; 0: no bound."""
    value_clip: NonNegative = 0.2
    """0: no clipping of values."""
    value_coef: NonNegative = 0.5
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


@dataclass(frozen=True)
class SFT(UpdateConfig):
    """Settings of a run of fine-tuning alone, whose numbers are in the table `sft.train`."""

    def validate(self, recipe: Any) -> None:
        if not recipe.sft.any:
            raise UsageError(
                "algorithm = 'sft' learns from demonstrations, and the recipe has none: set sft.episodes "
                "(100) or sft.file."
            )


class Rates(NamedTuple):
    """Discounts and trace decays of `estimators.gae`."""

    gamma_token: float
    lambda_token: float
    gamma_step: float
    lambda_step: float


@dataclass(frozen=True)
class PPO(UpdateConfig):
    """PPO with a critic. Subclasses change the four rates of `estimators.gae`."""

    needs_critic: ClassVar[bool] = True

    gamma: Share = 0.99
    lam: Share = 0.95
    level: Literal["token", "turn"] = "token"
    bootstrap: bool = True
    """A truncated episode ends in the value of its final observation; False: in 0, as in TWOSOME
    and ADRL."""
    smdp: bool = False
    """Discount a command that took k primitive steps by gamma**k."""
    critic_warmup: Natural = 0
    """First updates, in which only the critic learns."""

    def rates(self) -> Rates:
        if self.level == "turn":
            return Rates(1.0, 1.0, self.gamma, self.lam)
        return Rates(self.gamma, self.lam, self.gamma, self.lam)

    def shaping(self) -> Shaping | None:
        rates = self.rates()
        if rates.gamma_token < 1:  # the discount of a command would depend on its number of tokens
            return None
        return Shaping(rates.gamma_step, ShapingUnit.STEP if self.smdp else ShapingUnit.COMMAND)

    def one_step_rates(self) -> Rates:
        """The rates at lambda 0, where GAE's advantage plus value is the one-step target."""
        rates = self.rates()
        return rates._replace(lambda_token=0.0, lambda_step=0.0)

    @property
    def target_share(self) -> float:
        """Share of the way that the target critic moves towards the critic after each batch; 0: no
        target critic."""
        return 0.0

    @property
    def trains_target_critic(self) -> bool:
        return self.target_share > 0

    def validate(self, recipe: Any) -> None:
        super().validate(recipe)
        if recipe.turns and not self.bootstrap:
            raise UsageError(
                f"turns = {recipe.turns} cuts episodes at the end of a batch, and config.bootstrap = false takes what "
                "follows for nothing: leave one of them out."
            )


@dataclass(frozen=True)
class NTPO(PPO):
    """Naive token-level policy optimisation: every token is discounted."""

    target_kl: NonNegative = 0.02
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "population"
    gamma_token: Share = -1.0
    """Discount inside an action; -1: gamma."""

    def rates(self) -> Rates:
        gamma_token = self.gamma if self.gamma_token < 0 else self.gamma_token
        return Rates(gamma_token, self.lam, self.gamma, self.lam)


@dataclass(frozen=True)
class POAD(PPO):
    """Policy optimisation with action decomposition: no discount inside an action."""

    target_kl: NonNegative = 0.02
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "population"
    lambda_token: Share = -1.0
    """Trace decay inside an action; -1: lam, as in the published code; 1: no decay."""
    target_tau: Share = 0.0
    """Share of the way that a target critic moves towards the critic after each batch (1: a copy).
    The critic then regresses on the one-step targets of eq. 15; 0: no target critic and
    lambda-returns, as in the published code."""

    def rates(self) -> Rates:
        lambda_token = self.lam if self.lambda_token < 0 else self.lambda_token
        return Rates(1.0, lambda_token, self.gamma, self.lam)

    @property
    def target_share(self) -> float:
        return self.target_tau


@dataclass(frozen=True)
class TWOSOME(PPO):
    """PPO over admissible commands."""

    normalisation: Normalisation = "word"
    """Must equal acting.normalisation."""
    entropy_coef: NonNegative = 0.01
    minibatches: Count = 4
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "sample"
    whole: bool = False
    target_kl: NonNegative = 0.02

    def rates(self) -> Rates:
        return Rates(1.0, 1.0, self.gamma, self.lam)

    def validate(self, recipe: Any) -> None:
        if self.normalisation != recipe.acting.normalisation:
            raise UsageError(
                f"config.normalisation is {self.normalisation!r} and acting.normalisation "
                f"{recipe.acting.normalisation!r}: "
                "twosome learns the distribution that it draws from; set both alike."
            )
        if recipe.acting.choose != "admissible":
            raise UsageError(
                f"acting.choose cannot be {recipe.acting.choose!r}: twosome chooses among admissible "
                f"commands, 'admissible'."
            )
        for key, value, unused in (
            ("kl_coef", self.kl_coef, 0.0),
            ("aggregation", self.aggregation, "token-mean"),
        ):
            if value != unused:
                raise UsageError(
                    f"config.{key} cannot be {value!r}: twosome learns whole commands and does not use it; "
                    f"leave it at {unused!r}."
                )
        if recipe.fsdp:
            raise UsageError(
                "fsdp = true has all processes take the same passes, and twosome scores as many commands "
                "as a turn has: "
                "leave fsdp out."
            )
        super().validate(recipe)

    def _check_sampling(self, recipe: Any) -> None:
        """Accepts any temperature: the trainer computes the very distribution over commands that
        was drawn from."""


@dataclass(frozen=True)
class DualGAE(PPO):
    """PPO with separate discounts for tokens and turns (Verlog)."""

    gamma_token: Share = 1.0
    lambda_token: Share = 1.0
    whole: bool = False
    kl_coef: NonNegative = 0.001
    kl_in: Literal["loss", "reward"] = "reward"
    dual_clip: NonNegative = 3.0
    value_clip: NonNegative = 0.5
    entropy_coef: NonNegative = 0.001
    max_grad_norm: Positive = 1.0
    critic_warmup: Natural = 5

    def rates(self) -> Rates:
        return Rates(self.gamma_token, self.lambda_token, self.gamma, self.lam)


@dataclass(frozen=True)
class GroupConfig(UpdateConfig):
    """Settings common to algorithms that compare the episodes of one game with each other."""

    compares_groups: ClassVar[bool] = True

    group_size: Count = 8
    """Episodes per task and seed."""
    gamma: Share = 1.0
    """Discount of the return-to-go."""
    normalise: AdvantageScope = "none"
    kl_coef: NonNegative = 0.001

    @property
    def episodes_per_group(self) -> int:
        return self.group_size

    def validate(self, recipe: Any) -> None:
        super().validate(recipe)
        if recipe.episodes % self.group_size:
            raise UsageError(f"episodes = {recipe.episodes} is not a whole number of groups of {self.group_size}.")
        if recipe.turns:
            raise UsageError(
                f"{recipe.algorithm} compares whole episodes, and turns = {recipe.turns} cuts them: leave turns out."
            )


@dataclass(frozen=True)
class GRPO(GroupConfig):
    """Advantages relative to the mean of a group, without a critic."""

    std: bool = True
    """Divide by the group's standard deviation; False: Dr. GRPO."""
    per_turn: bool = False
    """Compare the return-to-go turn by turn in place of the episode's sum."""
    aggregation: Aggregation = "seq-mean-token-mean"

    def shaping(self) -> Shaping:
        return Shaping(self.gamma if self.per_turn else 1.0)


@dataclass(frozen=True)
class RLOO(GroupConfig):
    """REINFORCE with a leave-one-out baseline."""

    group_size: Annotated[int, Range(2)] = 8
    """Episodes per task and seed; at least 2."""
    per_turn: bool = False
    """Compare the return-to-go turn by turn in place of the episode's sum."""
    kl_in: Literal["loss", "reward"] = "reward"

    def shaping(self) -> Shaping:
        return Shaping(self.gamma if self.per_turn else 1.0)

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise UsageError(
                f"rloo: group_size must be at least 2, not {self.group_size}: one episode has no baseline."
            )


@dataclass(frozen=True)
class GiGPO(GroupConfig):
    """Group-in-group policy optimisation: episode and step advantages."""

    gamma: Share = 0.95
    """Discount of the return-to-go by which turns are compared."""
    omega: NonNegative = 1.0
    """Weight of the step advantage."""
    std: bool = True
    """Divide by the standard deviation of the group and of the turns with the same anchor."""
    over_rows: bool = False
    """Count an episode once per turn in the episode statistics, as in the published code."""
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping | None:
        """Returns None unless both advantages, of the episode's sum and of the return-to-go, use
        one discount."""
        return Shaping(1.0) if self.gamma == 1 or not self.omega else None


CONFIGS: dict[str, type[UpdateConfig]] = {
    "sft": SFT,
    "ppo": PPO,
    "ntpo": NTPO,
    "poad": POAD,
    "twosome": TWOSOME,
    "dual_gae": DualGAE,
    "grpo": GRPO,
    "rloo": RLOO,
    "gigpo": GiGPO,
}
"""Settings of each algorithm."""
