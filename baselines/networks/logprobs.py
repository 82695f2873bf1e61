"""Log-probabilities and entropies of tokens from logits, without float32 copies of all logits.

The vocabulary makes logits the largest tensor of a training step. `token_logprobs` converts and
normalises them in chunks and writes their gradient in the same type and in one tensor.
`allowed_logprobs` normalises over a few tokens only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 2**24
"""Elements of a chunk of logits: 64 MiB in float32."""


def token_logprobs(
    logits: Tensor, tokens: Tensor, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the log-prob of each token and the entropy of its distribution. [P, V], [P] -> [P],
    [P]

    Both are float32 (float64 for float64 logits). The entropy is differentiable only with
    `entropy_gradient`.
    """
    return _TokenLogprobs.apply(logits, tokens, temperature if temperature > 0 else 1.0, entropy_gradient)


def allowed_logprobs(
    logits: Tensor, tokens: Tensor, sets: Tensor, temperature: float = 1.0, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the log-prob of each token among the tokens of its set, and the entropy over this
    set. [P, V], [P], [P, K] -> [P], [P]

    A set ends where its tokens are -1. A token with an empty set has no alternative: log-prob and
    entropy are 0. Types and `entropy_gradient` are as in `token_logprobs`.
    """
    inside = sets >= 0
    is_open = inside.any(-1, keepdim=True)
    z = _scaled(logits.gather(-1, sets.clamp(min=0)), temperature if temperature > 0 else 1.0)
    logp = z.masked_fill(~inside & is_open, -torch.inf).log_softmax(-1)
    logprobs = logp.masked_fill(sets != tokens[:, None], 0.0).sum(-1)
    over = logp if entropy_gradient else logp.detach()
    return logprobs, -(over.exp() * over.masked_fill(~inside, 0.0)).sum(-1)


def _chunks(logits: Tensor) -> list[slice]:
    size = max(1, CHUNK // max(1, logits.shape[-1]))
    return [slice(start, start + size) for start in range(0, len(logits), size)]


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide / temperature if temperature != 1.0 else wide


class _TokenLogprobs(torch.autograd.Function):
    """log p = z - logsumexp(z) and H = logsumexp(z) - sum(p z), for z = logits / temperature."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        logits, tokens, temperature, entropy_gradient = arguments
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        logprobs, entropy, normaliser = (logits.new_empty(len(logits), dtype=dtype) for _ in range(3))
        for part in _chunks(logits):
            z = _scaled(logits[part], temperature)
            normaliser[part] = z.logsumexp(-1)
            logprobs[part] = z.gather(-1, tokens[part, None]).squeeze(-1) - normaliser[part]
            shifted = z - normaliser[part, None]
            entropy[part] = -(shifted.exp() * shifted).sum(-1)
        ctx.save_for_backward(logits, tokens, normaliser, entropy)
        ctx.temperature, ctx.entropy_gradient = temperature, entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        logits, tokens, normaliser, entropy = ctx.saved_tensors
        of_logprob, of_entropy = gradients
        out = torch.empty_like(logits)
        for part in _chunks(logits):
            logp = _scaled(logits[part], ctx.temperature) - normaliser[part, None]
            p = logp.exp()
            gradient = -p * of_logprob[part, None]
            gradient.scatter_add_(-1, tokens[part, None], of_logprob[part, None].to(gradient.dtype))
            if ctx.entropy_gradient:
                gradient -= p * (logp + entropy[part, None]) * of_entropy[part, None]
            out[part] = (gradient / ctx.temperature).to(out.dtype)
        return out, None, None, None
