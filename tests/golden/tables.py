"""Small decision processes whose actions are strings of tokens, solved exactly in NumPy.

A process is `{"actions": {state: [tokens, ...]}, "R": [[state, action, reward]], "P": [[state, action, [[probability,
next state, done]]]]}`. No action is the beginning of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Prefix = tuple[int, ...]
Backup = Callable[[int, Prefix, dict[int, float]], float]


class Process:
    """A process with its lookups; `value_of` turns the Q-values at a node into its value."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.actions = {int(s): [tuple(a) for a in rows] for s, rows in data["actions"].items()}
        self.reward = {(s, k): r for s, k, r in data["R"]}
        self.next = {(s, k): rows for s, k, rows in data["P"]}
        self.nodes = sorted({(s, a[:j]) for s, rows in self.actions.items() for a in rows for j in range(len(a))})

    def tokens(self, state: int, prefix: Prefix) -> list[int]:
        """The tokens that may follow `prefix`."""
        size = len(prefix)
        return sorted({a[size] for a in self.actions[state] if a[:size] == prefix and len(a) > size})

    def target(self, state: int, action: int, gamma: float, values: dict[int, float]) -> float:
        """Reward plus the discounted expected value of the next state."""
        later = sum(p * (0.0 if done else values[to]) for p, to, done in self.next[state, action])
        return self.reward[state, action] + gamma * later

    def solve(self, gamma_token: float, gamma_step: float, value_of: Backup) -> tuple[dict, dict]:
        """The fixed point of the token-level backup: Q by (state, prefix, token), V by (state, prefix)."""
        values = dict.fromkeys(self.actions, 0.0)
        for _ in range(10_000):
            q: dict[tuple[int, Prefix, int], float] = {}
            v: dict[tuple[int, Prefix], float] = {}
            for state, prefix in sorted(self.nodes, key=lambda node: -len(node[1])):  # leaves first
                here = {}
                for token in self.tokens(state, prefix):
                    action = (*prefix, token)
                    if action in self.actions[state]:
                        here[token] = self.target(state, self.actions[state].index(action), gamma_step, values)
                    else:
                        here[token] = gamma_token * v[state, action]
                    q[state, prefix, token] = here[token]
                v[state, prefix] = value_of(state, prefix, here)
            moved = max(abs(v[s, ()] - values[s]) for s in values)
            values = {s: v[s, ()] for s in values}
            if moved < 1e-15:
                break
        return q, v

    def solve_actions(self, gamma: float, value_of: Callable[[int, list[float]], float]) -> dict:
        """The fixed point of the action-level backup: Q by (state, action)."""
        values = dict.fromkeys(self.actions, 0.0)
        for _ in range(10_000):
            q = {(s, k): self.target(s, k, gamma, values) for s, rows in self.actions.items() for k in range(len(rows))}
            new = {s: value_of(s, [q[s, k] for k in range(len(rows))]) for s, rows in self.actions.items()}
            moved = max(abs(new[s] - values[s]) for s in values)
            values = new
            if moved < 1e-15:
                break
        return q

    def greedy(self, q: dict, state: int) -> int:
        """The action that picks the best token at each node; the first of equals."""
        prefix: Prefix = ()
        while prefix not in self.actions[state]:
            choices = self.tokens(state, prefix)
            prefix += (max(choices, key=lambda token: q[state, prefix, token]),)
        return self.actions[state].index(prefix)


def optimum(process: Process, gamma: float, gammas: list[float]) -> dict[str, Any]:
    """Optimal values at token level for several discounts inside an action, and at action level."""
    best = process.solve_actions(gamma, lambda s, row: max(row))
    result: dict[str, Any] = {
        "Q_action": [[s, k, value] for (s, k), value in best.items()],
        "greedy_action": {
            str(s): int(np.argmax([best[s, k] for k in range(len(rows))])) for s, rows in process.actions.items()
        },
        "by_gamma_w": {},
    }
    for gamma_token in gammas:
        q, v = process.solve(gamma_token, gamma, lambda s, prefix, row: max(row.values()))
        result["by_gamma_w"][str(gamma_token)] = {
            "Q_last_token": [
                [s, k, q[s, a[:-1], a[-1]]] for s, rows in process.actions.items() for k, a in enumerate(rows)
            ],
            "V_first": [[s, v[s, ()]] for s in process.actions],
            "greedy": {str(s): process.greedy(q, s) for s in process.actions},
            "Q_all": [[s, list(prefix), token, value] for (s, prefix, token), value in q.items()],
        }
    return result


def evaluation(process: Process, gamma: float, policy: dict) -> dict[str, Any]:
    """Values of a policy, token advantages that add up to the action's, and the policy gradient at each node."""
    mean = lambda s, prefix, row: sum(policy[s, prefix, token] * value for token, value in row.items())
    q, v = process.solve(1.0, gamma, mean)
    telescoping, gradients = [], []
    for s, rows in process.actions.items():
        for k, a in enumerate(rows):
            each = [q[s, a[:j], a[j]] - v[s, a[:j]] for j in range(len(a))]
            action = q[s, a[:-1], a[-1]] - v[s, ()]
            telescoping.append({"state": s, "action": k, "token_advantages": each, "action_advantage": action})
    for s, prefix in process.nodes:
        tokens = process.tokens(s, prefix)
        p = np.array([policy[s, prefix, token] for token in tokens])
        advantage = np.array([q[s, prefix, token] - v[s, prefix] for token in tokens])
        reach = np.prod([policy[s, prefix[:j], prefix[j]] for j in range(len(prefix))])
        # d/dz_b of sum_a p_a A_a log p_a, with p_a A_a held constant: p_b A_b - p_b sum_a p_a A_a
        gradient = reach * (p * advantage - p * (p * advantage).sum())
        gradients.append({"state": s, "prefix": list(prefix), "tokens": tokens, "grad": gradient.tolist()})
    return {
        "V": [v[s, ()] for s in sorted(process.actions)],
        "Q_action": [[s, k, q[s, a[:-1], a[-1]]] for s, rows in process.actions.items() for k, a in enumerate(rows)],
        "V_prefix": [[s, list(prefix), value] for (s, prefix), value in v.items()],
        "telescoping": telescoping,
        "policy_gradient": gradients,
    }


def soft(process: Process, gamma: float, beta: float) -> dict[str, Any]:
    """Entropy-regularised optimum at action level, against the uniform token policy; prefixes from its own backup.

    The action-level reference gives each action the product of 1 / (number of tokens that may follow) along it.
    """
    reference = {
        (s, k): np.prod([1 / len(process.tokens(s, a[:j])) for j in range(len(a))])
        for s, rows in process.actions.items()
        for k, a in enumerate(rows)
    }
    log_mean = lambda weights, row: beta * np.log(sum(w * np.exp(q / beta) for w, q in zip(weights, row, strict=True)))
    q = process.solve_actions(gamma, lambda s, row: log_mean([reference[s, k] for k in range(len(row))], row))
    first = {}
    for s, prefix in process.nodes:  # the reference, given that the action begins with `prefix`
        keep = [k for k, a in enumerate(process.actions[s]) if a[: len(prefix)] == prefix]
        weights = np.array([reference[s, k] for k in keep])
        first[s, prefix] = log_mean(weights / weights.sum(), [q[s, k] for k in keep])
    return {
        "V_soft": [[s, float(first[s, ()])] for s in process.actions],
        "Q_soft_action": [[s, k, float(value)] for (s, k), value in q.items()],
        "V_soft_prefix": [[s, list(prefix), float(value)] for (s, prefix), value in first.items()],
    }
