"""Settings of the algorithms with a critic: PPO, NTPO, POAD, TWOSOME and dual GAE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from baselines.configs.ranges import (
    AdvantageScope,
    Count,
    Deviation,
    Natural,
    NonNegative,
    Normalisation,
    Positive,
    PositiveShare,
    Share,
)
from baselines.configs.update import UpdateConfig
from envsuite.errors import UsageError
from envsuite.types import Shaping, ShapingUnit


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
    critic_warmup_batch: Count = 1
    """Above 1: these updates are passes over one batch that is so many times as large (Verlog: 40). They
    are one line of the log."""
    critic_warmup_share: PositiveShare = 1.0
    """Share of that batch's rows that each pass draws (Verlog: 0.25)."""

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
        if self.critic_warmup_batch > 1 and not self.critic_warmup:
            raise UsageError(
                f"config.critic_warmup_batch = {self.critic_warmup_batch} needs passes over this batch: set "
                "config.critic_warmup (5)."
            )
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
            ("ratio", self.ratio, "token"),
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
