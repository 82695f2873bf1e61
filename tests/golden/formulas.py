"""The trainers' formulas in NumPy, float64, written without the trainers' code.

`make_algorithms.py` computes the committed cases with these functions, and the exact-gradient tests compute their
expected advantages with them. Sums are written out instead of computed by recursion, and gradients are derived by
hand, so that an error in the trainers is unlikely to be repeated here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Ragged = list[list[float]]
Row = list[float]


def advantages(
    rewards: Sequence[float],
    values: Sequence[Sequence[float]],
    stops: Sequence[bool],
    bootstraps: Sequence[float],
    gamma_token: float,
    lambda_token: float,
    gamma_step: float | Sequence[float],
    lambda_step: float,
    token_rewards: Sequence[Sequence[float]] | None = None,
) -> Ragged:
    """Generalised advantages of one stream of turns; `values[t][j]` precedes token j of turn t.

    A_i is the sum over k >= i of delta_k times every discount and trace between i and k. `stops[t]` ends an episode
    after turn t, whose last token then sees `bootstraps[t]` in place of the next value.
    """
    counts = [len(row) for row in values]
    flat = np.concatenate([np.asarray(row, float) for row in values])
    turn = np.repeat(np.arange(len(counts)), counts)
    last = np.cumsum(counts) - 1
    gamma = np.full(len(flat), float(gamma_token))
    trace = np.full(len(flat), float(lambda_token))
    gamma[last] = gamma_step
    trace[last] = lambda_step
    paid = np.zeros(len(flat))
    paid[last] = rewards
    if token_rewards is not None:
        paid += np.concatenate([np.asarray(row, float) for row in token_rewards])
    stop = np.zeros(len(flat), bool)
    stop[last] = np.asarray(stops, bool)
    following = np.append(flat[1:], 0.0)
    following[stop] = np.asarray(bootstraps, float)[turn[stop]]
    delta = paid + gamma * following - flat
    result = np.zeros(len(flat))
    for i in range(len(flat)):
        weight = 1.0
        for k in range(i, len(flat)):
            result[i] += weight * delta[k]
            if stop[k]:
                break
            weight *= gamma[k] * trace[k]
    return [row.tolist() for row in np.split(result, np.cumsum(counts)[:-1])]


def masked_advantages(
    rewards: np.ndarray, values: np.ndarray, mask: np.ndarray, gamma: float, trace: float
) -> np.ndarray:
    """Token advantages of padded rows [B, L] whose masked positions (the environment's text) do not exist."""
    result = np.zeros(values.shape)
    for row in range(len(values)):
        places = np.flatnonzero(mask[row])
        if len(places):
            sampled = [[value] for value in values[row, places]]
            stops = [place == places[-1] for place in places]
            stream = advantages(rewards[row, places], sampled, stops, [0.0] * len(places), 1, 1, gamma, trace)
            result[row, places] = [x for (x,) in stream]
    return result


def whitened(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean 0 and sample variance 1 over the valid entries, with 1e-8 in each denominator; 0 elsewhere."""
    mask = np.asarray(mask, float)
    count = mask.sum()
    mean = (x * mask).sum() / (count + 1e-8)
    variance = (mask * (x - mean) ** 2).sum() / (count + 1e-8) * count / (count - 1)
    return mask * (x - mean) / np.sqrt(variance + 1e-8)


def standardised(x: np.ndarray, kind: str) -> np.ndarray:
    """(x - mean) / (deviation + 1e-8): "sample" (n - 1), or "population" (n, zeros left out of the statistics)."""
    seen = x if kind == "sample" else x[x != 0]
    return (x - np.mean(seen)) / (np.std(seen, ddof=int(kind == "sample")) + 1e-8)


# ---- groups --------------------------------------------------------------------------------------


def leave_one_out(scores: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Each score less the mean score of the other members of its group."""
    baselines = [[s for k, s in enumerate(scores) if groups[k] == g and k != i] for i, g in enumerate(groups)]
    return [score - float(np.mean(peers)) for score, peers in zip(scores, baselines, strict=True)]


def normalised(scores: Sequence[float], groups: Sequence[Hashable], scaled: bool, eps: float = 1e-6) -> list[float]:
    """Returns GRPO advantages: scores minus the group mean, divided by its deviation if `scaled`."""
    result = []
    for score, group in zip(scores, groups, strict=True):
        peers = [s for s, g in zip(scores, groups, strict=True) if g == group]
        mean, deviation = (0.0, 1.0) if len(peers) == 1 else (np.mean(peers), np.std(peers, ddof=1))
        result.append(float((score - mean) / (deviation + eps if scaled else 1.0)))
    return result


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """Discounted sums of the present and later rewards."""
    return [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]


def per_turn(rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], gamma: float, mode: str) -> Ragged:
    """Compares returns-to-go with the group's at the same turn: "grpo_std", "grpo_mean" or "rloo"."""
    returns = [returns_to_go(row, gamma) for row in rewards]
    result = []
    for row, group in zip(returns, groups, strict=True):
        line = []
        for t, value in enumerate(row):
            peers = [r[t] for r, g in zip(returns, groups, strict=True) if g == group and len(r) > t]
            alone = len(peers) == 1
            if mode == "rloo":
                baseline = 0.0 if alone else (sum(peers) - value) / (len(peers) - 1)
                line.append(value - baseline)
            else:
                mean, deviation = (0.0, 1.0) if alone else (np.mean(peers), np.std(peers, ddof=1))
                line.append(float((value - mean) / (deviation + 1e-6 if mode == "grpo_std" else 1.0)))
        result.append(line)
    return result


def group_in_group(
    rewards: Sequence[Sequence[float]],
    anchors: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    gamma: float,
    omega: float,
    scaled: bool,
    over_rows: bool = False,
) -> tuple[list[float], Ragged, Ragged]:
    """GiGPO's episode, step and total advantages. `over_rows` counts an episode once per turn in the statistics."""

    def centred(value: float, peers: list[float], lone: float) -> float:
        if len(peers) == 1:
            return lone
        scale = np.std(peers, ddof=1) + 1e-6 if scaled else 1.0
        return float((value - np.mean(peers)) / scale)

    totals = [float(sum(row)) for row in rewards]
    returns = [returns_to_go(row, gamma) for row in rewards]
    episode, step = [], []
    for i, group in enumerate(groups):
        members = [k for k, g in enumerate(groups) if g == group]
        peers = [totals[k] for k in members for _ in range(len(rewards[k]) if over_rows else 1)]
        episode.append(centred(totals[i], peers, totals[i] / (1 + 1e-6 if scaled else 1)))
        seen = [(anchors[k][t], returns[k][t]) for k in members for t in range(len(rewards[k]))]
        row = zip(anchors[i], returns[i], strict=True)
        step.append([centred(value, [r for a, r in seen if a == anchor], 0.0) for anchor, value in row])
    total = [[e + omega * s for s in row] for e, row in zip(episode, step, strict=True)]
    return episode, step, total


def hierarchy_of_groups(
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    gamma: float,
    history: int,
    alpha: float,
    scaled: bool,
) -> Ragged:
    """HGPO's advantages: for each turn the weighted mean of its standing at each length of shared history."""
    returns = [returns_to_go(row, gamma) for row in rewards]

    def peers(i: int, t: int, k: int) -> list[float]:
        """Returns-to-go of the turns whose last k + 1 states are those of turn t of episode i."""
        past = list(states[i][t - k : t + 1])
        places = [(j, u) for j, row in enumerate(states) for u in range(k, len(row)) if groups[j] == groups[i]]
        return [returns[j][u] for j, u in places if list(states[j][u - k : u + 1]) == past]

    result = []
    for i, row in enumerate(returns):
        line = []
        for t, value in enumerate(row):
            terms = []
            for k in range(min(history, t) + 1):
                others = peers(i, t, k)
                if len(others) > 1:
                    deviation = np.std(others, ddof=1) + 1e-6 if scaled else 1.0
                    terms.append(((1 + k) ** alpha, (value - np.mean(others)) / deviation))
            line.append(float(sum(w * a for w, a in terms) / sum(w for w, _ in terms)) if terms else 0.0)
        result.append(line)
    return result


def graph_credit(
    rewards: Sequence[Sequence[float]],
    transitions: Sequence[Sequence[tuple[str, Hashable, str | None]]],
    groups: Sequence[Hashable],
    decay: float,
    weights: tuple[float, float],
    merge: bool,
    scaled: bool,
) -> Ragged:
    """GraphGPO's advantages, with SALT's means over equal transitions if `merge`. The goal is the state None;
    `weights` are those of the episode and of the graph."""
    scores = normalised([sum(row) for row in rewards], groups, scaled)
    result = []
    for i, row in enumerate(transitions):
        inside = [j for j, g in enumerate(groups) if g == groups[i]]
        edges = [(j, *edge) for j in inside for edge in transitions[j]]
        distance: dict[str | None, float] = {None: 0.0}
        for _ in edges:  # a shortest path has at most this many edges
            for _, state, _, after in edges:
                if after in distance:
                    distance[state] = min(distance.get(state, np.inf), distance[after] + 1)
        farthest = max(distance.values())
        paid = {s: 10 * decay ** (distance.get(s, farthest + 1) + 1) for _, _, _, s in edges}
        line = []
        for state, command, after in row:
            peers = [paid[s] for _, other, _, s in edges if other == state]
            scale = np.std(peers, ddof=1) + 1e-6 if scaled and len(peers) > 1 else 1.0
            of_graph = (paid[after] - np.mean(peers)) / scale if len(peers) > 1 else 0.0
            equal = [scores[j] for j, *edge in edges if edge == [state, command, after]]
            of_episode = np.mean(equal) if merge else scores[i]
            line.append(float(weights[0] * of_episode + weights[1] * of_graph))
        result.append(line)
    return result


def grouped_temporal(
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    gamma: float,
    lam: float,
    scaled: bool,
) -> Ragged:
    """GAGPO's advantages: sums of differences of values that are means over a group's turns with the same state."""
    returns = [returns_to_go(row, gamma) for row in rewards]

    def value(i: int, t: int) -> float:
        if t == len(states[i]):
            return 0.0
        places = [(j, u) for j, row in enumerate(states) for u in range(len(row)) if groups[j] == groups[i]]
        return float(np.mean([returns[j][u] for j, u in places if states[j][u] == states[i][t]]))

    raw = []
    for i, row in enumerate(rewards):
        deltas = [r + gamma * value(i, t + 1) - value(i, t) for t, r in enumerate(row)]
        raw.append([sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(row))) for t in range(len(row))])
    result = []
    for i, row in enumerate(raw):
        peers = [x for j, other in enumerate(raw) if groups[j] == groups[i] for x in other]
        scale = np.std(peers, ddof=1) + 1e-6 if scaled else 1.0
        result.append([float((x - np.mean(peers)) / scale) for x in row])
    return result


# ---- losses ----------------------------------------------------------------------------------------


def token_weights(mask: np.ndarray, how: str, constant: float = 1.0) -> np.ndarray:
    """The weight of each token's loss in the total, so that the aggregate is sum(weights * losses). [B, L]"""
    mask = np.asarray(mask, float)
    rows = max(1, int((mask.sum(1) > 0).sum()))
    if how == "token-mean":
        return mask / mask.sum()
    if how == "seq-mean-token-sum":
        return mask / rows
    if how == "seq-mean-token-mean":
        return mask / np.maximum(mask.sum(1, keepdims=True), 1) / rows
    if how == "seq-sum-constant":
        return mask / (rows * constant)
    raise ValueError(how)


def clipped_surrogate(
    new: np.ndarray, old: np.ndarray, advantage: np.ndarray, low: float, high: float, dual: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PPO's loss per token, its derivative by the new log-prob, and where the ratio's clip is the active bound."""
    ratio = np.exp(new - old)
    plain = -advantage * ratio
    bound = -advantage * np.clip(ratio, 1 - low, 1 + high)
    active = bound > plain
    loss, slope = np.where(active, bound, plain), np.where(active, 0.0, plain)
    if dual is not None:
        capped = (advantage < 0) & (loss > -advantage * dual)
        loss, slope = np.where(capped, -advantage * dual, loss), np.where(capped, 0.0, slope)
    return loss, slope, active


def value_loss(new: np.ndarray, old: np.ndarray, target: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the clipped value loss (the larger squared error) and its derivative."""
    held = old + np.clip(new - old, -clip, clip)
    plain, bound = (new - target) ** 2, (held - target) ** 2
    free = np.abs(new - old) < clip
    return np.maximum(plain, bound), np.where(
        plain >= bound, 2 * (new - target), np.where(free, 2 * (held - target), 0)
    )


def kl(new: np.ndarray, reference: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Schulman's estimators on sampled tokens, and their derivatives by the new log-prob."""
    x = new - reference
    if kind == "k1":
        return x, np.ones_like(x)
    if kind == "k2":
        return x**2 / 2, x
    if kind == "abs":
        return np.abs(x), np.sign(x)
    value = np.exp(np.minimum(-x, 20)) + x - 1
    return np.clip(value, -10, 10), np.where(value > 10, 0.0, 1 - np.exp(np.minimum(-x, 20)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of a categorical distribution over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def entropy(logits: np.ndarray) -> np.ndarray:
    """Entropy of the categorical distribution over the last axis, in nats."""
    logp = log_softmax(logits)
    return -(np.exp(logp) * logp).sum(-1)


def distillation(student: Sequence[float], teacher: Sequence[float], steepness: float | None) -> tuple[Row, Row]:
    """Loss of each token's log-probs against a teacher's, and its derivative by the student's. [N], [N] -> [N], [N]

    With a steepness: the gated difference of SDAR. Without: log(student / teacher), whose mean over the student's
    tokens is KL(student || teacher), with the derivative that makes the mean gradient that of the KL.
    """
    x, y = np.asarray(student, float), np.asarray(teacher, float)
    if steepness is None:
        return (x - y).tolist(), (x - y).tolist()
    gate = 1 / (1 + np.exp(-steepness * (y - x)))
    return (gate * (y - x)).tolist(), (-gate).tolist()
