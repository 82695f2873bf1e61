"""Cases of `tabular_bad.json`: small processes whose actions are strings of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.golden import tables

FLIP = {
    "actions": {"0": [[0, 1, 2, 3, 4], [0, 2, 5], [6]], "1": [[7, 8], [9]]},
    "R": [[0, 0, 0.8], [0, 1, 0.5], [0, 2, 0.7], [1, 0, 0.3], [1, 1, 0.1]],
    "P": [[s, k, [[1.0, 0, True]]] for s, k in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))],
}
"""the longest action of state 0 is the best one, unless its tokens are discounted"""


def random_process(rng: np.random.Generator, low: float, high: float) -> dict[str, Any]:
    """Three states, each with a few prefix-free actions of one to four tokens, that lead to each other at random."""
    actions, rewards, following = {}, [], []
    for state in range(3):
        rows: list[list[int]] = []
        while len(rows) < 4:
            row = rng.integers(0, 4, size=rng.integers(1, 5)).tolist()
            if not any(row[: len(known)] == known or known[: len(row)] == row for known in rows):
                rows.append(row)
        actions[str(state)] = rows
        for k in range(len(rows)):
            rewards.append([state, k, round(float(rng.uniform(low, high)), 6)])
            p = round(float(rng.uniform(0.2, 0.8)), 6)
            ends = [[p, int(rng.integers(3)), False], [round(1 - p, 6), int(rng.integers(3)), bool(rng.random() < 0.6)]]
            following.append([state, k, ends])
    return {"actions": actions, "R": rewards, "P": following}


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    gammas = [1.0, 0.99, 0.95, 0.8, 0.5]
    named = {
        "hand_flip": FLIP,
        "random_positive": random_process(rng, 0, 1),
        "random_negative": random_process(rng, -1, 0),
    }
    for name, data in named.items():
        result = tables.optimum(tables.Process(data), 0.95, gammas)
        yield {"name": name, "params": {"gamma_a": 0.95}, "inputs": {"mdp": data}, "expected": result}
    rows = [[n, gamma, gamma ** (n - 1), 1 - gamma ** (n - 1)] for n in range(1, 13) for gamma in gammas]
    yield {"name": "bandit_discrepancy", "params": {}, "inputs": {}, "expected": {"table": rows}}
    counts, rewards = [4, 1, 3, 2], [0.1, -0.4, 0.7, 1.0]
    rows = []
    for inside, step in ((0.95, 0.95), (1.0, 0.95), (0.9, 1.0), (0.5, 0.8)):
        values = []
        for t, count in enumerate(counts):
            for j in range(count):
                left = [count - 1 - j] + [n - 1 for n in counts[t + 1 :]]
                terms = [step**k * inside ** sum(left[: k + 1]) * r for k, r in enumerate(rewards[t:])]
                values.append([t, j, sum(terms)])
        rows.append({"gamma_w": inside, "gamma_a": step, "V": values})
    inputs = {"token_counts": counts, "rewards": rewards}
    yield {"name": "trajectory_closed_form", "params": {}, "inputs": inputs, "expected": {"rows": rows}}
    data = random_process(rng, -1, 1)
    process = tables.Process(data)
    policy = {}
    for state, prefix in process.nodes:
        tokens = process.tokens(state, prefix)
        weights = rng.uniform(0.2, 1, size=len(tokens))
        for token, p in zip(tokens, weights / weights.sum(), strict=True):
            policy[state, prefix, token] = float(p)
    inputs = {"mdp": data, "policy": [[s, list(prefix), token, p] for (s, prefix, token), p in policy.items()]}
    result = tables.evaluation(process, 0.95, policy)
    yield {"name": "policy_evaluation_and_gradient", "params": {"gamma_a": 0.95}, "inputs": inputs, "expected": result}
    result = tables.soft(process, 0.95, 0.2)
    yield {"name": "soft_bad", "params": {"gamma_a": 0.95, "beta": 0.2}, "inputs": {"mdp": data}, "expected": result}
