"""Scores of predictions against known chances: exact expectations, without drawing a label."""

from __future__ import annotations

import numpy as np


def expected_auc(chances: np.ndarray, values: np.ndarray) -> float:
    """Returns the expected share of pairs (a row of class 1, a row of class 0) that `values` put in the right order.

    `chances` [rows] are the true probabilities of class 1, and labels are independent. The expectation is that of the
    numerator over that of the denominator. Ties count half. Ordering rows by `chances` gives the largest score there
    is: a pair of rows counts for the order of its chances at least as much as for the other order.
    """
    order = np.argsort(values, kind="stable")
    p, ordered = chances[order], values[order]
    group = np.cumsum(np.concatenate([[0], (np.diff(ordered) > 0).astype(int)]))
    positive, negative = np.bincount(group, p), np.bincount(group, 1.0 - p)
    below = np.cumsum(negative) - negative
    same_row = float((p * (1.0 - p)).sum())  # a row does not pair with itself, which would be a tie
    right = float((positive * (below + 0.5 * negative)).sum()) - 0.5 * same_row
    pairs = float(p.sum() * (1.0 - p).sum()) - same_row
    return right / pairs if pairs > 0 else 0.5


def expected_errors(means: np.ndarray, variance: float, values: np.ndarray) -> tuple[float, float]:
    """Returns the expected R2 and the root of the expected squared error of `values` [rows].

    `means` [rows] are the true conditional means, `variance` the variance of the outcome around them. The largest R2 is
    that of `means` themselves.
    """
    error = float(np.mean((means - values) ** 2)) + variance
    total = float(means.var()) + variance
    return 1.0 - error / total, float(np.sqrt(error))


def share(score: float, trivial: float, best: float) -> float:
    """Returns the share of the attainable: 0 for the trivial score, 1 for the best, never below -1."""
    return max(-1.0, (score - trivial) / (best - trivial))
