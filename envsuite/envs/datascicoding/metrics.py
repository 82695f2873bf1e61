"""Metrics of predictions: `mean_auc` and `r2` for scores, and `METRICS` by name for competitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from envsuite.errors import UsageError, did_you_mean

CLASSIFICATION, REGRESSION = "classification", "regression"


def mean_auc(labels: np.ndarray, values: np.ndarray, classes: np.ndarray) -> float:
    """Returns the ROC AUC of `values` [n, K], columns as `classes`; for K > 2 the mean over pairs of
    classes (Hand & Till, 2001).

    Equals sklearn's `multi_class="ovo", average="macro"`, except that rows may sum to any value and
    that pairs without test rows of both classes are skipped. 0.5 if no pair is left.
    """
    if len(classes) == 2:
        return _auc(values[labels == classes[1], 1], values[labels == classes[0], 1])
    pairs = []
    for i in range(len(classes)):
        for j in range(i):
            first, second = labels == classes[i], labels == classes[j]
            if first.any() and second.any():
                pair = _auc(values[first, i], values[second, i]), _auc(values[second, j], values[first, j])
                pairs.append(sum(pair) / 2)
    return float(np.mean(pairs)) if pairs else 0.5


def _auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Returns the share of (positive, negative) pairs in the right order, ties counted half
    (Mann-Whitney).
    """
    if not len(positive) or not len(negative):
        return 0.5
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.sum() / (2 * len(positive) * len(negative)))


@dataclass(frozen=True)
class Metric:
    """A metric: its name, the kind of target it is for, and how to compute it."""

    name: str
    kind: str
    loss: bool
    """True if lower is better: scores are stored and compared negated"""
    value: Callable[[np.ndarray, np.ndarray], float]
    """metric of answers [rows] and predictions: probabilities [rows, classes], or numbers [rows, 1]"""

    def score(self, answers: np.ndarray, predictions: np.ndarray) -> float:
        """Returns the metric, negated for a loss."""
        value = self.value(answers, predictions)
        return -value if self.loss else value

    def written(self, score: float) -> str:
        """Returns a score as people write this metric."""
        return f"{-score if self.loss else score:.4f}"


def _class_auc(answers: np.ndarray, predictions: np.ndarray) -> float:
    return mean_auc(answers.astype(int), predictions, np.arange(predictions.shape[1]))


def _accuracy(answers: np.ndarray, predictions: np.ndarray) -> float:
    return float((predictions.argmax(axis=1) == answers).mean())


def _log_loss(answers: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean negative log of the probability of the true class; rows are scaled to sum to 1."""
    shares = np.clip(predictions, 1e-15, None)
    shares = shares / shares.sum(axis=1, keepdims=True)
    return float(-np.log(shares[np.arange(len(answers)), answers.astype(int)]).mean())


def r2(answers: np.ndarray, values: np.ndarray) -> float:
    """Returns 1 - residual / total sum of squares of `values` [n] for `answers` [n].

    It is at most 1, and below 0 for predictions that are worse than the mean of the answers.
    """
    total = ((answers - answers.mean()) ** 2).sum()
    return float(1 - ((answers - values) ** 2).sum() / total) if total > 0 else 0.0


def _r2(answers: np.ndarray, predictions: np.ndarray) -> float:
    return r2(answers, predictions[:, 0])


def _rmse(answers: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.sqrt(((answers - predictions[:, 0]) ** 2).mean()))


def _mae(answers: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.abs(answers - predictions[:, 0]).mean())


METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", CLASSIFICATION, False, _class_auc),
        Metric("accuracy", CLASSIFICATION, False, _accuracy),
        Metric("log_loss", CLASSIFICATION, True, _log_loss),
        Metric("r2", REGRESSION, False, _r2),
        Metric("rmse", REGRESSION, True, _rmse),
        Metric("mae", REGRESSION, True, _mae),
    )
}
DEFAULTS = {CLASSIFICATION: "auc", REGRESSION: "r2"}


def choose(name: str, kind: str) -> Metric:
    """Returns the metric `name`, or the default of a kind of target. Raises UsageError if it is for another kind."""
    metric = METRICS.get(name or DEFAULTS[kind])
    if metric is None or metric.kind != kind:
        fitting = [metric.name for metric in METRICS.values() if metric.kind == kind]
        raise UsageError(f"A {kind} has no metric {name!r}: choose {', '.join(fitting)}.{did_you_mean(name, fitting)}")
    return metric
