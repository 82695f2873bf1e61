"""Settings of the algorithms that compare the episodes of one game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from baselines.configs.ranges import AdvantageScope, Aggregation, Count, Natural, NonNegative, Range, Share
from baselines.configs.update import UpdateConfig
from envsuite.errors import UsageError
from envsuite.types import Shaping

TURN_CREDIT = "baselines.algorithms.turn_credit"


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
    resample: Natural = 0
    """Extra rollouts per update in which groups whose episodes all earned the same are replaced by
    other games (DAPO's dynamic sampling); 0: such groups stay."""

    @property
    def episodes_per_group(self) -> int:
        return self.group_size

    @property
    def resampling_rounds(self) -> int:
        return self.resample

    def validate(self, recipe: Any) -> None:
        super().validate(recipe)
        if recipe.episodes % self.group_size:
            raise UsageError(f"episodes = {recipe.episodes} is not a whole number of groups of {self.group_size}.")
        if self.resample and self.group_size == 1:
            raise UsageError(
                f"config.resample = {self.resample} replaces groups that earned the same, and config.group_size = 1 "
                "compares nothing: set group_size to 2 or more, or leave resample out."
            )
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


@dataclass(frozen=True)
class HGPO(GroupConfig):
    """Hierarchy-of-groups policy optimisation: turns compared by observation and by history."""

    package: ClassVar[str] = TURN_CREDIT

    gamma: Share = 0.95
    """Discount of the return-to-go by which turns are compared."""
    history: Natural = 2
    """Most earlier observations that compared turns must share; 0: the present observation alone."""
    alpha: NonNegative = 1.0
    """Exponent of the weights: a level with k earlier observations weighs (k + 1)**alpha."""
    std: bool = True
    """Divide by the standard deviation of the turns that are compared."""
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping:
        return Shaping(self.gamma)


@dataclass(frozen=True)
class GraphGPO(GroupConfig):
    """Graph-based group policy optimisation: turns compared by their distance to the goal."""

    package: ClassVar[str] = TURN_CREDIT

    decay: Share = 0.1
    """Factor of a turn's step reward per transition between its next state and the goal."""
    episode_weight: NonNegative = 1.0
    graph_weight: NonNegative = 1.0
    merge: bool = False
    """Average the episode advantages over equal transitions of a group (SALT)."""
    state: Literal["text", "commands"] = "text"
    """text: turns with equal observations are in one state | commands: their admissible commands are equal too."""
    std: bool = True
    """Divide by the standard deviation of the group and of the turns with the same state."""
    kl_coef: NonNegative = 0.01
    whole: bool = False


@dataclass(frozen=True)
class GAGPO(GroupConfig):
    """Generalised advantages from values that are means over a group's turns with the same state."""

    package: ClassVar[str] = TURN_CREDIT

    gamma: Share = 0.95
    """Discount of the values and of the advantages."""
    lam: Share = 0.95
    """Decay of the trace of the advantages."""
    std: bool = True
    """Divide by the standard deviation of all turns of the group."""
    ratio: Literal["token", "turn"] = "turn"
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping:
        return Shaping(self.gamma)


@dataclass(frozen=True)
class SPA(GroupConfig):
    """Stepwise progress attribution: the outcome is redistributed over turns by an estimator, the
    model's critic."""

    needs_critic: ClassVar[bool] = True
    package: ClassVar[str] = TURN_CREDIT

    contribution: NonNegative = 1.0
    """Weight of the estimated contribution in a turn's reward."""
    grounding: NonNegative = 0.5
    """Reward of a turn that the environment executed."""
    estimator_epochs: Count = 1
    """Steps of the estimator per update."""
    estimator_warmup: Natural = 0
    """First updates, in which only the estimator learns."""
    std: bool = True
    """Divide by the standard deviation of the group's returns at the same turn."""


@dataclass(frozen=True)
class SDAR(GroupConfig):
    """Self-distillation from a teacher that reads the expert's next command, beside GRPO."""

    package: ClassVar[str] = TURN_CREDIT

    expert: str = "expert"
    """Expert whose next command the teacher reads: expert, or expert:KIND."""
    teacher: Literal["present", "first"] = "present"
    """Weights of the teacher: those before the update (SDAR), or those that training began with (OPSD)."""
    distillation: Literal["gated", "kl"] = "gated"
    """gated: SDAR's gated difference of log-probs | kl: the gradient of KL(student || teacher), estimated on the
    sampled tokens."""
    distil_coef: NonNegative = 0.01
    """Weight of the distillation in the loss; 0: GRPO."""
    gate: NonNegative = 5.0
    """Steepness of the gate of `gated`."""
    policy_weight: NonNegative = 1.0
    """Weight of GRPO's advantages; 0: distillation alone (OPSD)."""
    std: bool = True
    """Divide by the group's standard deviation."""
    kl_coef: NonNegative = 0.01
    whole: bool = False

    @property
    def advisor(self) -> str:
        return self.expert

    @property
    def reads_reference(self) -> bool:
        return super().reads_reference or self.teacher == "first"

    def __post_init__(self) -> None:
        if self.expert.partition(":")[0] != "expert":
            raise UsageError(
                f"sdar: config.expert cannot be {self.expert!r}: it is expert, or expert:KIND for another expert of "
                "the task."
            )
