"""SDAR: self-distilled agentic reinforcement learning (Lu et al., 2026, arXiv 2605.15155), and on-policy
self-distillation, OPSD (Zhao et al., 2026, arXiv 2601.18734).

The teacher is the same model with a prompt that also shows the expert's next command in the present state.
It plays nothing: it gives the log-probs of the tokens that the student sampled without this line.

    Delta_j = log pi_T(y_j | prompt and advice, y_<j) - log pi(y_j | prompt, y_<j)
    g_j = sigmoid(gate * Delta_j), a constant
    loss = policy_weight * GRPO + distil_coef * mean over tokens of g_j Delta_j           distillation = "gated" (SDAR)
    loss = policy_weight * GRPO + distil_coef * estimate of KL(pi || pi_T)                distillation = "kl" (OPSD)

The gradient passes through log pi alone. SDAR's term raises tokens that the teacher prefers and hardly
touches the others; "kl" also lowers tokens that the teacher rejects. With `policy_weight = 0` no reward is used.

Left open by the papers, and chosen here: SDAR's privileged context are retrieved skills and OPSD's is a reference
solution; here it is the expert's next command, one line at the end of the last message. OPSD's main loss
compares whole distributions over the vocabulary; "kl" is the estimate on sampled tokens, whose gradient has the same
mean. The teacher of SDAR has the weights before the update, that of OPSD the first ones (`teacher`). Its log-probs are
computed once per update, with the sampling temperature. A turn for which the expert has no command, or whose
longer prompt leaves no room for a reply, has no distillation, and counts in the mean over tokens. The
decoupled objective's weight does not multiply the distillation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.grpo import GRPO, advantages
from baselines.algorithms.update import UpdateInput
from baselines.batch import ADVISED, Batch, MicroBatch, collate, evaluate
from baselines.math.losses import distillation_loss
from baselines.ranges import NonNegative
from envsuite.errors import UsageError
from harness.types import Trajectory


@dataclass(frozen=True)
class SDAR(GroupConfig):
    """Self-distillation from a teacher that reads the expert's next command, beside GRPO."""

    expert: str = "expert"
    """Expert whose next command the teacher reads: expert, or expert:KIND."""
    teacher: Literal["present", "first"] = "present"
    """Weights of the teacher: before the update (SDAR), or at the beginning of training (OPSD)."""
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


Config = SDAR


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups. Logs the share of tokens that the teacher was asked about (`advised`), the
    mean of its log-probs minus the student's (`teacher_gap`) and of the gate (`gate`)."""
    config, logged = inputs.config, dict[str, float]()
    grpo = GRPO(group_size=config.group_size, std=config.std)

    def teach(batch: Batch, trajectories: Sequence[Trajectory]) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
        teacher = teacher_logprobs(inputs, trajectories)
        gap = (teacher - batch.flat(batch.logprobs))[~teacher.isnan()]
        logged["advised"] = len(gap) / len(teacher)
        if len(gap):
            logged["teacher_gap"] = gap.mean().item()
            logged["gate"] = (config.gate * gap).sigmoid().mean().item()
        return teacher, lambda new, rows: distillation(config, new, rows)

    log = update_groups(
        inputs,
        lambda _, rewards, groups: [
            [config.policy_weight * value for value in row] for row in advantages(rewards, groups, grpo)
        ],
        teacher=teach,
    )
    return {**log, **logged}


def teacher_logprobs(inputs: UpdateInput[Config], trajectories: Sequence[Trajectory]) -> Tensor:
    """Returns the teacher's log-probs of all sampled tokens in the order of play, NaN where it is not asked. [N]"""
    model, temperature = inputs.model, inputs.temperature
    is_advised = [bool(turn.reply.extra[ADVISED]) for run in trajectories for turn in run.turns for _ in turn.reply.ids]
    batch = collate([_as_advised(run) for run in trajectories], whole=False)

    def present(rows: MicroBatch) -> Tensor:
        return model.logprobs(rows.ids, rows.valid, temperature, rows.sampled, False, rows.allowed)[0]

    def first(rows: MicroBatch) -> Tensor:
        return model.reference_logprobs(rows.ids, rows.valid, temperature, rows.sampled, rows.allowed)

    weights = first if inputs.config.teacher == "first" else present
    logprobs = evaluate(model, weights, batch, inputs.config.micro_rows)
    return torch.where(torch.tensor(is_advised), logprobs, torch.nan)


def distillation(config: SDAR, new: Tensor, teacher: Tensor) -> Tensor:
    """Returns the weighted distillation of each token, 0 where the teacher is not asked. [b, l]"""
    is_advised = ~teacher.isnan()
    losses = distillation_loss(new, torch.where(is_advised, teacher, new.detach()), config.distillation, config.gate)
    return config.distil_coef * torch.where(is_advised, losses, 0.0)


def _as_advised(run: Trajectory) -> Trajectory:
    """Returns the episode as if its replies had been sampled after the teacher's prompts."""
    turns = []
    for turn in run.turns:
        prompt = turn.reply.extra[ADVISED] or turn.reply.prompt_ids
        turns.append(replace(turn, reply=replace(turn.reply, prompt_ids=prompt)))
    return replace(run, turns=turns)
