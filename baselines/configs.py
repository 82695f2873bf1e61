"""Every number a recipe can set, apart from what computes with it, so that a bad recipe is refused before torch is imported."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from envsuite.errors import UsageError

Normalisation = Literal["sum", "token", "word"]
"""of a command's likelihood"""
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-constant"]


@dataclass(frozen=True)
class ModelConfig:
    """Which weights, and what of them learns."""

    name: str
    """alias, path or org/name"""
    device: str = "auto"
    dtype: str = "auto"
    lora_rank: int = 0
    """0 trains every weight; POAD and TWOSOME use 8"""
    lora_alpha: int = 16
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    critic: Literal["none", "head", "own"] = "own"
    """head: an MLP on the frozen first weights; own: a copy that learns, with a linear head"""
    critic_hidden: tuple[int, ...] = (1024, 512)
    """of the head's MLP (TWOSOME, ADRL); () for a linear one"""
    gradient_checkpointing: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Tuning:
    """Supervised fine-tuning on demonstrations."""

    learning_rate: float = 1e-5
    epochs: int = 1
    rows: int = 16
    """demonstrations per step"""
    micro_rows: int = 0
    """rows per forward pass; 0: all at once"""
    warmup: float = 0.1
    """share of the steps in which the rate rises to its full height; then it falls as a cosine"""
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    last_only: bool = False
    """learn the last assistant message of a line alone: for windows of history, whose earlier turns are lines of their own"""


@dataclass(frozen=True)
class Descent:
    """How the weights follow the advantages. Defaults are POAD's common ones where the papers agree."""

    learning_rate: float = 1e-6
    critic_learning_rate: float = 1e-5
    epochs: int = 1
    """passes over each batch of episodes"""
    minibatches: int = 1
    """steps per pass"""
    micro_rows: int = 0
    """rows per forward pass, gradients accumulated up to the minibatch; 0: all at once"""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 0.0
    """bound c of Ye et al. for negative advantages; 0: none"""
    value_clip: float = 0.2
    """0: none"""
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_target: float = 0.0
    """move kl_coef after each batch so that the KL to the first weights comes to this (Ziegler et al., 2019); 0: fixed"""
    kl_horizon: int = 10000
    """episodes in which the coefficient may change e-fold, at a fifth of its size a step"""
    kl_kind: Literal["k1", "k2", "k3", "k1+", "k3+"] = "k3"
    """k1+ and k3+: the value of the one, as a loss with the gradient of k2"""
    kl_in: Literal["loss", "reward"] = "loss"
    target_kl: float = 0.0
    """skip the policy step of a minibatch whose KL to the rollout exceeds this; 0: never"""
    normalise: Literal["none", "batch", "minibatch"] = "batch"
    """advantages to mean 0, variance 1"""
    deviation: Literal["whiten", "sample", "population"] = "whiten"
    """how: whiten (verl) | sample (TWOSOME) | population (ADRL); see `estimators.standardise`"""
    aggregation: Aggregation = "token-mean"
    constant: float = 0.0
    """of seq-sum-constant: the longest reply allowed"""
    max_grad_norm: float = 0.5
    weight_decay: float = 0.0
    schedule: Literal["constant", "linear"] = "constant"
    """of the learning rates; linear: to 0 at the last update, or as a `budget` is spent"""


class Rates(NamedTuple):
    """The four numbers of the kernel."""

    gamma_token: float
    lambda_token: float
    gamma_step: float
    lambda_step: float


@dataclass(frozen=True)
class PPO(Descent):
    """A critic, and the four rates of `estimators.gae`."""

    gamma: float = 0.99
    lam: float = 0.95
    level: Literal["token", "turn"] = "token"
    bootstrap: bool = True
    """an episode cut by a time limit ends in the value of its final observation; False: in 0, as TWOSOME and ADRL do"""
    smdp: bool = False
    """gamma**k for a command that took k primitive steps"""
    whole: bool = True
    """a row is a conversation; False: a turn"""
    critic_warmup: int = 0
    """first updates in which the critic alone learns"""

    def rates(self) -> Rates:
        if self.level == "turn":
            return Rates(1.0, 1.0, self.gamma, self.lam)
        return Rates(self.gamma, self.lam, self.gamma, self.lam)


@dataclass(frozen=True)
class NTPO(PPO):
    gamma_token: float = -1.0
    """discount inside an action; -1: gamma"""

    def rates(self) -> Rates:
        inside = self.gamma if self.gamma_token < 0 else self.gamma_token
        return Rates(inside, self.lam, self.gamma, self.lam)


@dataclass(frozen=True)
class POAD(PPO):
    lambda_token: float = -1.0
    """trace inside an action; -1: lam, as the published code; 1: no fading"""
    target_tau: float = 0.0
    """share of the way a target critic goes to the critic after each batch (1: a copy); the critic then regresses on the
    one-step targets of eq. 15; 0: no target critic, lambda-returns, as the published code"""

    def rates(self) -> Rates:
        inside = self.lam if self.lambda_token < 0 else self.lambda_token
        return Rates(1.0, inside, self.gamma, self.lam)


@dataclass(frozen=True)
class TWOSOME(PPO):
    normalisation: Normalisation = "word"
    """must be acting.normalisation"""
    entropy_coef: float = 0.01
    minibatches: int = 4
    normalise: Literal["none", "batch", "minibatch"] = "minibatch"
    deviation: Literal["whiten", "sample", "population"] = "sample"
    whole: bool = False
    target_kl: float = 0.02

    def rates(self) -> Rates:
        return Rates(1.0, 1.0, self.gamma, self.lam)


@dataclass(frozen=True)
class DualGAE(PPO):
    gamma_token: float = 1.0
    lambda_token: float = 1.0
    whole: bool = False
    kl_coef: float = 0.001
    kl_in: Literal["loss", "reward"] = "reward"
    dual_clip: float = 3.0
    value_clip: float = 0.5
    entropy_coef: float = 0.001
    max_grad_norm: float = 1.0
    critic_warmup: int = 5

    def rates(self) -> Rates:
        return Rates(self.gamma_token, self.lambda_token, self.gamma, self.lam)


@dataclass(frozen=True)
class GRPO(Descent):
    group_size: int = 8
    """episodes per task and seed"""
    std: bool = True
    """scale by the group's deviation; False: Dr. GRPO"""
    per_turn: bool = False
    gamma: float = 1.0
    """of return-to-go, with per_turn"""
    kl_coef: float = 0.001
    normalise: Literal["none", "batch", "minibatch"] = "none"
    aggregation: Aggregation = "seq-mean-token-mean"
    whole: bool = True


@dataclass(frozen=True)
class RLOO(Descent):
    group_size: int = 8
    """episodes per task and seed; at least 2"""
    per_turn: bool = False
    """return-to-go turn by turn in place of the episode's sum"""
    gamma: float = 1.0
    kl_coef: float = 0.001
    kl_in: Literal["loss", "reward"] = "reward"
    normalise: Literal["none", "batch", "minibatch"] = "none"
    whole: bool = True

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise UsageError(
                f"rloo: group_size must be at least 2, not {self.group_size}: one episode has no baseline."
            )


@dataclass(frozen=True)
class GiGPO(Descent):
    group_size: int = 8
    gamma: float = 0.95
    """of the return-to-go that turns are compared by"""
    omega: float = 1.0
    """weight of the step advantage"""
    std: bool = True
    over_rows: bool = False
    kl_coef: float = 0.01
    normalise: Literal["none", "batch", "minibatch"] = "none"
    whole: bool = False


CONFIGS: dict[str, type[Descent]] = {
    "sft": Descent,
    "ppo": PPO,
    "ntpo": NTPO,
    "poad": POAD,
    "twosome": TWOSOME,
    "dual_gae": DualGAE,
    "grpo": GRPO,
    "rloo": RLOO,
    "gigpo": GiGPO,
}
"""the settings of each algorithm"""


class Range(NamedTuple):
    """What a number may be: finite, and from `low` to `high`; `above`: greater than `low`."""

    low: float = 0.0
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        least = f"{'above' if self.above else 'at least'} {self.low:g}"
        return least if math.isinf(self.high) else f"{least} and at most {self.high:g}"


COUNT, ANY, SHARE, POSITIVE = Range(1), Range(), Range(0, 1), Range(above=True)

RANGES: dict[str, Range] = {
    **dict.fromkeys(("episodes", "eval_episodes", "save_every", "max_tokens", "rows", "epochs", "minibatches"), COUNT),
    **dict.fromkeys(("group_size", "kl_horizon", "lora_alpha", "critic_hidden"), COUNT),
    **dict.fromkeys(("updates", "seed", "turns", "train_seeds", "max_turns", "eval_every", "budget", "context"), ANY),
    **dict.fromkeys(("lora_rank", "micro_rows", "critic_warmup", "Demonstrations.episodes"), ANY),
    **dict.fromkeys(("learning_rate", "critic_learning_rate", "weight_decay", "temperature", "eval_temperature"), ANY),
    **dict.fromkeys(("clip_high", "dual_clip", "value_clip", "value_coef", "entropy_coef", "constant", "omega"), ANY),
    **dict.fromkeys(("kl_coef", "kl_target", "target_kl"), ANY),
    **dict.fromkeys(("gamma", "lam", "gamma_token", "lambda_token", "shaping_gamma", "clip_low", "target_tau"), SHARE),
    **dict.fromkeys(("advance_at", "stop_at", "warmup"), SHARE),
    "top_p": Range(0, 1, above=True),
    **dict.fromkeys(("max_grad_norm", "tolerance", "timeout"), POSITIVE),
    "history": Range(-1),
    "history_reasoning": ANY,
}
"""of every number in a recipe, by its name (or Class.name, where one name means two things); a default is always taken"""


def range_of(cls: type, name: str) -> Range:
    return RANGES.get(f"{cls.__name__}.{name}") or RANGES[name]
