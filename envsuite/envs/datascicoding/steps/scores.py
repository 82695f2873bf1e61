"""Feature engineering step by step: programs of several steps, and their scores (`evaluate`).

After CAAFE (Hollmann et al., 2023): a step is kept if the gain in ROC AUC plus the gain in accuracy on
validation rows is above zero, both by one classifier; the final features are scored by several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding import scoring
from envsuite.envs.datascicoding.instances import Instance
from envsuite.envs.datascicoding.steps import features
from envsuite.sandbox.protocol import Limits

if TYPE_CHECKING:
    from envsuite.sandbox.pool import Pool

CLASSIFIERS = ("logistic", "forest", "boosting")

_PROGRAM = """\
def _load(code):
    names = {{"__name__": "submission", "np": np, "pd": pd}}
    exec(compile(code, "<submission>", "exec"), names)
    if not callable(names.get("transform")):
        raise NameError("the code defines no function transform")
    return names["transform"]


def transform(df):
    rows = len(df)
    for step in map(_load, {codes!r}):
        df = step(df)
        if not isinstance(df, pd.DataFrame):
            raise TypeError(f"transform returned {{type(df).__name__}}, not a DataFrame")
        if len(df) != rows:
            raise ValueError(f"transform returned {{len(df)}} rows for {{rows}}")
    return df
"""


@dataclass(frozen=True)
class StepScore:
    """Result of a list of steps: verdict and, if that is "ok", the scores of the features that they make."""

    verdict: str
    message: str = ""
    auc: float = 0.0
    accuracy: float = 0.0
    """both on the validation halves, by the first classifier, averaged over the splits"""
    final: float = 0.0
    """ROC AUC on the holdout, averaged over all classifiers and splits"""
    by_classifier: tuple[float, ...] = ()
    """ROC AUC on the holdout of each classifier"""

    def gain(self, before: StepScore) -> float:
        """Returns the criterion: gain in ROC AUC plus gain in accuracy on the validation halves."""
        return self.auc - before.auc + self.accuracy - before.accuracy


def program(codes: Sequence[str]) -> str:
    """Returns a program whose `transform` applies the steps in turn, each with names of its own."""
    return _PROGRAM.format(codes=list(codes))


def evaluate(
    pool: Pool,
    codes: Sequence[str],
    instance: Instance,
    splits: int,
    classifiers: Sequence[str],
    limits: Limits,
    error_characters: int = 0,
) -> StepScore:
    """Scores the features that the steps `codes` make.

    The steps run once per split, without any label. All classifiers are fitted to the features in one more process,
    which the steps have not touched. `limits.seconds` covers all runs together. Raises EngineFailure if the sandbox
    fails.
    """
    rows = scoring.SplitRows(instance, splits)
    job: dict[str, object] = {"code": program(codes), "forbidden": (), "sealed": (), "output": instance.output}
    score, predictions = predict(pool, job, rows, limits, error_characters, classifiers)
    if score.verdict != "ok":
        return StepScore(score.verdict, score.message)
    return _summary(instance, len(classifiers), rows.parts, predictions, rows.y_held)


def predict(
    pool: Pool,
    job: Mapping[str, object],
    rows: scoring.SplitRows,
    limits: Limits,
    error_characters: int,
    classifiers: Sequence[str],
) -> tuple[scoring.Score, list[np.ndarray]]:
    """Runs `transform` on every split without labels, and fits the classifiers in a run that it has not touched.

    Returns the verdict and, per split and classifier, the values of test and held-out rows.
    """
    left, fits = limits.seconds, []
    for number, (x_train, y_train, _, _) in enumerate(rows.parts):
        tables = {
            "variant": "features",
            "x_train": scoring.plain_table(x_train),
            "x_test": scoring.plain_table(rows.seen(number)),
        }
        left_now = replace(limits, seconds=max(0.05, left))
        score, body, seconds = scoring.run_job(pool, {**job, **tables}, left_now, error_characters)
        left -= seconds
        if score.verdict != "ok":
            return score, []
        try:
            table = features.read(body, len(x_train) + len(rows.orders[number]))
        except ValueError as error:
            return scoring.Score("bad_return", str(error)), []
        fits.append((table.plain(slice(len(x_train))), y_train, table.plain(slice(len(x_train), None))))
    fixed: dict[str, object] = {"variant": "fixed", "splits": fits, "classifiers": list(classifiers)}
    score, body, _ = scoring.run_job(pool, {**job, **fixed}, replace(limits, seconds=max(0.05, left)), error_characters)
    if score.verdict != "ok":
        return score, []
    orders = [order for order in rows.orders for _ in classifiers]
    widths = [width for width in rows.widths for _ in classifiers]
    score, values = scoring.predictions_of(
        body, [(len(order), width) for order, width in zip(orders, widths, strict=True)]
    )
    if score.verdict != "ok":
        return score, []
    return score, [part[np.argsort(order)] for part, order in zip(values, orders, strict=True)]


def _summary(
    instance: Instance, classifiers: int, parts: Sequence[tuple], predictions: list[np.ndarray], y_held: np.ndarray
) -> StepScore:
    """Returns the scores of predictions, given for each split by each classifier, for its test half and the holdout."""
    aucs, accuracies, finals = [], [], []
    for number, values in enumerate(predictions):
        _, y_train, x_test, y_test = parts[number // classifiers]
        test, held = values[: len(x_test)], values[len(x_test) :]
        finals.append(instance.measure(y_train, y_held, held))
        if number % classifiers == 0:
            aucs.append(instance.measure(y_train, y_test, test))
            accuracies.append(float((np.unique(y_train)[test.argmax(axis=1)] == y_test).mean()))
    by_classifier = np.mean(np.reshape(finals, (len(parts), classifiers)), axis=0)
    final = float(by_classifier.mean())
    return StepScore(
        "ok", "", float(np.mean(aucs)), float(np.mean(accuracies)), final, tuple(map(float, by_classifier))
    )
