"""Cases of losses, KL estimators, normalisation, entropy and fine-tuning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.golden import formulas
from tests.golden.cases import Case, case, draw

MASK = np.array([[1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-sum-constant")


def policy_loss(rng: np.random.Generator) -> Iterator[Case]:
    for (low, high, dual), how in itertools.product(((0.2, 0.2, 3.0), (0.2, 0.28, 3.0), (0.1, 0.1, 1.5)), AGGREGATIONS):
        old, advantage = -np.abs(draw(rng, 4, 6)), draw(rng, 4, 6)
        new = np.round(old + 0.6 * draw(rng, 4, 6), 6)
        new[0, 0], advantage[0, 0] = old[0, 0] + 1.5, -1.0  # beyond the dual clip
        params = {"clip_low": low, "clip_high": high, "dual_clip_c": dual, "agg": how, "constant": 8.0}
        loss, slope, active = formulas.clipped_surrogate(new, old, advantage, low, high, dual)
        weights = formulas.token_weights(MASK, how, 8.0)
        expected = {
            "loss": (weights * loss).sum(),
            "clip_fraction": (formulas.token_weights(MASK, "token-mean") * active).sum(),
            "grad_new_logprobs": weights * slope,
        }
        inputs = {"old_logprobs": old, "new_logprobs": new, "advantages": advantage, "mask": MASK}
        yield case(f"clip_{low}_{high}_dual_{dual}_{how}", params, inputs, expected)
    old, advantage, spread = -np.abs(draw(rng, 4, 6)), draw(rng, 4, 6), np.abs(draw(rng, 4, 6))
    new = np.round(old + 0.4 * draw(rng, 4, 6), 6)
    loss, slope, _ = formulas.clipped_surrogate(new, old, advantage, 0.2, 0.2)
    weights = formulas.token_weights(MASK, "token-mean")
    expected = {
        "loss": (weights * (loss - 0.01 * spread)).sum(),
        "approx_kl_k3_early_stop": (weights * (np.exp(new - old) - 1 - (new - old))).sum(),
        "grad_new_logprobs": weights * slope,
    }
    inputs = {"old_logprobs": old, "new_logprobs": new, "advantages": advantage, "entropy": spread, "mask": MASK}
    yield case("entropy_bonus", {"clip_low": 0.2, "clip_high": 0.2, "entropy_coef": 0.01}, inputs, expected)


def value_loss(rng: np.random.Generator) -> Iterator[Case]:
    for clip, first in itertools.product((0.2, 0.5, 10.0), (1.0, 3.0)):
        new, old, target = (draw(rng, 4, 6) for _ in range(3))
        weights = formulas.token_weights(MASK, "token-mean")
        weights[:, 0] *= first
        loss, slope = formulas.value_loss(new, old, target, clip)
        inputs = {"values_new": new, "values_old": old, "returns": target, "mask": MASK}
        params = {"clip": clip, "factor": 0.5, **({"first_token_weight": first} if first != 1 else {})}
        expected = {"loss": 0.5 * (weights * loss).sum(), "grad_values_new": 0.5 * weights * slope}
        yield case(f"clip_{clip}_first_{first}", params, inputs, expected)


def kl(rng: np.random.Generator) -> Iterator[Case]:
    new, reference = -np.abs(draw(rng, 3, 5)), -np.abs(draw(rng, 3, 5))
    new[0, 0], reference[0, 0] = -9.0, -0.5  # k3 meets its bound
    mask = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 0, 0], [1, 1, 1, 1, 1]])
    for kind in ("k1", "k2", "k3", "abs"):
        value, slope = formulas.kl(new, reference, kind)
        expected = {
            "value": value,
            "loss_token_mean": (value * mask).sum() / mask.sum(),
            "grad_of_masked_sum": slope * mask,
        }
        if kind in ("k1", "k3"):
            expected["straight_through_grad"] = (new - reference) * mask
        yield case(f"kl_{kind}", {"kind": kind}, {"logprobs": new, "ref_logprobs": reference, "mask": mask}, expected)
    for kind, beta in (("k1", 0.01), ("k2", 0.1), ("k3", 0.001)):
        scores = draw(rng, 3, 5) * mask
        inputs = {"token_level_scores": scores, "old_logprobs": new, "ref_logprobs": reference, "mask": mask}
        paid = scores - beta * formulas.kl(new, reference, kind)[0] * mask
        params = {"kind": kind, "beta": beta}
        yield case(f"kl_in_reward_{kind}", params, inputs, {"token_level_rewards": paid})
    beta, after, updates = 0.1, [], [[5.0, 64], [9.0, 64], [0.0, 128], [6.0, 8]]
    for measured, episodes in updates:
        beta *= 1 + np.clip(measured / 6.0 - 1, -0.2, 0.2) * episodes / 10_000
        after.append(beta)
    params = {"init": 0.1, "target": 6.0, "horizon": 10_000}
    yield case("adaptive_controller", params, {"updates": updates}, {"beta_after": after})
    p, q = (formulas.log_softmax(draw(rng, 5)) for _ in range(2))
    divergence = (np.exp(p) * (p - q)).sum()
    expected = {"E_k1": divergence, "E_k2": (np.exp(p) * (p - q) ** 2).sum() / 2, "E_k3": divergence}
    yield case("expectations_exact", {}, {"logp": p, "logq": q}, expected)


def others(rng: np.random.Generator) -> Iterator[Case]:
    """Normalisation, entropy and fine-tuning."""
    x, mask = draw(rng, 3, 4), np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    yield case("verl_masked_whiten", {}, {"x": x, "mask": mask}, {"y": formulas.whitened(x, mask)})
    holes = x * mask
    yield case("adrl_token_norm", {}, {"x": holes}, {"y": formulas.standardised(holes, "population")})
    yield case("adrl_twosome_action_norm", {}, {"x": x}, {"y": formulas.standardised(x, "sample")})
    logits, mask = draw(rng, 2, 3, 5), np.array([[1, 1, 0], [1, 1, 1]])
    result = formulas.entropy(logits)
    expected = {"entropy": result, "token_mean": (result * mask).sum() / mask.sum()}
    yield case("entropy", {}, {"logits": logits, "mask": mask}, expected)
    logits, ids = draw(rng, 2, 5, 4), rng.integers(0, 4, size=(2, 5))
    mask = np.array([[0, 0, 1, 1, 0], [0, 1, 0, 1, 1]])  # of the tokens themselves
    logp = formulas.log_softmax(logits)
    nll = np.array([[-logp[b, t - 1, ids[b, t]] for t in range(1, 5)] for b in range(2)])
    loss = (nll * mask[:, 1:]).sum() / mask[:, 1:].sum()
    inputs = {"logits": logits, "input_ids": ids, "loss_mask": mask}
    yield case("sft", {}, inputs, {"nll": nll, "loss_label_mask": loss})
