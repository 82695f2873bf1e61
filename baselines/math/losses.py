"""Policy, value and KL losses, the averaging of losses over tokens, and the refusal of NaN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envsuite.errors import EnvsuiteError


class NonFiniteLoss(EnvsuiteError):
    """A loss or gradient is NaN or infinite. No step was taken with it, and the last checkpoint is
    intact."""


def check_finite(value: float, name: str) -> None:
    """Raises NonFiniteLoss if `value` is NaN or infinite."""
    if not math.isfinite(value):
        raise NonFiniteLoss(f"The {name} is {value}: lower the learning rate, or clip the gradient harder.")


def aggregate(x: Tensor, mask: Tensor, how: str = "token-mean", constant: float | None = None) -> Tensor:
    """Averages a loss per token over the valid tokens. [B, L], [B, L] -> []

    token-mean: all tokens weigh the same; seq-mean-token-mean: all rows do (original GRPO);
    seq-mean-token-sum: the mean over rows of their sums; seq-sum-constant: the same divided by
    `constant`, such as the longest possible reply (Dr. GRPO). Rows without a valid token are not
    counted.
    """
    mask = mask.to(x.dtype)
    x = torch.where(mask > 0, x, torch.zeros_like(x))  # 0 * inf at a padded position must not spoil the sum
    if how == "token-mean":
        return x.sum() / mask.sum().clamp(min=1)
    rows = (mask.sum(-1) > 0).to(x.dtype).sum().clamp(min=1)
    if how == "seq-mean-token-sum":
        return x.sum() / rows
    if how == "seq-mean-token-mean":
        return (x.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / rows
    if how == "seq-sum-constant":
        if constant is None:
            raise ValueError("seq-sum-constant needs its constant: the longest possible reply")
        return x.sum() / (rows * constant)
    raise ValueError(
        f"unknown aggregation {how!r}: token-mean, seq-mean-token-mean, seq-mean-token-sum or seq-sum-constant"
    )


def clipped_surrogate(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns PPO's loss per element (Schulman et al., 2017), and where the clip was active. All of
    one shape.

    The exponent is limited to +-20 so that a stale sample cannot overflow. `dual_clip` bounds the
    loss of negative advantages at -A * c (Ye et al., 2020).
    """
    ratio = (new - old).clamp(-20, 20).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, clipped)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)
    return loss, clipped > plain


def turn_means(x: Tensor, turns: Tensor, mask: Tensor) -> Tensor:
    """Replaces each valid entry by the mean over the entries of its turn; others get 0. `turns`
    numbers the turn of each entry. [B, L] -> [B, L]"""
    numbers, index = turns[mask].unique(return_inverse=True)
    total = x.new_zeros(len(numbers)).index_add(0, index, x[mask])
    counts = torch.bincount(index, minlength=len(numbers)).to(x.dtype)
    return torch.zeros_like(x).masked_scatter(mask, (total / counts)[index])


def truncated_importance(proximal: Tensor, behaviour: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """Returns min(proximal / behaviour, cap) per element of two log-probs, and where `cap` was
    active. All of one shape.

    The weight is a constant. Truncation bounds its variance at the price of a bias (Ionides, 2008).
    """
    weight = (proximal - behaviour).detach().clamp(-20, 20).exp()
    return weight.clamp(max=cap), weight > cap


def clipped_value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None = 0.2) -> Tensor:
    """Returns max((V - G)^2, (V_clipped - G)^2) per element, without a factor 1/2.

    V_clipped is V limited to within `clip` of the value at rollout.
    """
    plain = (values - returns) ** 2
    if clip is None:
        return plain
    limited = old + (values - old).clamp(-clip, clip)
    return torch.maximum(plain, (limited - returns) ** 2)


def kl_estimate(logprobs: Tensor, reference: Tensor, kind: str = "k3") -> Tensor:
    """Returns Schulman's (2020) estimates of KL(pi || reference) on sampled tokens, per element.

    As a loss, k2 has the right gradient; that of k1 has mean 0, and that of k3 follows KL(reference
    || pi). "k1+" and "k3+" have the value of k1 and k3, and the gradient of k2.
    """
    if kind.endswith("+"):
        k2 = kl_estimate(logprobs, reference, "k2")
        return k2 + (kl_estimate(logprobs, reference, kind[:-1]) - k2).detach()
    x = logprobs - reference
    if kind == "k1":
        return x
    if kind == "k2":
        return 0.5 * x**2
    if kind == "k3":
        return ((-x).clamp(-20, 20).exp() + x - 1).clamp(-10, 10)
    raise ValueError(f"unknown KL estimator {kind!r}: k1, k2 or k3, or k1+ or k3+")


def adapted_kl_coef(coef: float, kl: float, target: float, episodes: int, horizon: int) -> float:
    """Returns the coefficient of a KL penalty after a batch whose mean KL was `kl` (Ziegler et al.,
    2019, section 2.2)."""
    return coef * (1 + min(max(kl / target - 1, -0.2), 0.2) * episodes / horizon)


def early_stop_kl(new: Tensor, old: Tensor) -> Tensor:
    """Returns (r - 1) - log r per element for r = new / old, which estimates KL(old || new) on
    samples of old."""
    log_ratio = new - old
    return log_ratio.exp() - 1 - log_ratio


def distillation_loss(new: Tensor, teacher: Tensor, kind: str, steepness: float = 0.0) -> Tensor:
    """Returns the loss of a student's log-probs of sampled tokens against a teacher's, per element.

    gated: g (teacher - new) with the constant g = sigmoid(steepness * (teacher - new)) (SDAR); kl: the
    value of k1 and the gradient of k2 (`kl_estimate`), an unbiased gradient of KL(student || teacher) on samples
    of the student.
    """
    if kind == "gated":
        gap = teacher - new
        return (steepness * gap.detach()).sigmoid() * gap
    if kind == "kl":
        return kl_estimate(new, teacher, "k1+")
    raise ValueError(f"unknown distillation {kind!r}: gated or kl")
