"""Text of the instructions: the task, the rules, what ends an episode and which score counts."""

from __future__ import annotations

from typing import Any

TASK = (
    "Write Python code that defines build_model(x_train, y_train). It gets a pandas DataFrame and a Series of class "
    "numbers, and returns a fitted scikit-learn classifier with predict_proba."
)
RULES = (
    "{answer} is run on {splits} random halves of the data and "
    "scored by ROC AUC on the other halves, with {seconds:g} seconds in all. numpy is there as np, pandas as pd; "
    "scikit-learn can be imported; there is no network.{forbidden}"
)
ANSWER = " Answer with the code alone, or with one fenced code block. It"
ENDINGS = {
    "first": " The first code that runs counts; you have {attempts} attempts.",
    "improve": " Your best score counts; you have {attempts} attempts, or say done to stop.",
}
_SHOWN = " You are shown the score on the other halves. What counts is the score"
HOLDOUT = {
    "first": _SHOWN + " on further rows, which is not shown.",
    "improve": _SHOWN + ", on further rows, of the program with the best score shown.",
}


def write(settings: Any, answer: str) -> str:
    """Returns the instructions. `answer`: how the player answers; the sentence goes on with "is run on"."""
    never = ", ".join(settings.forbidden)
    text = (TASK + RULES + ENDINGS[settings.mode]).format(
        splits=settings.splits,
        seconds=settings.seconds,
        attempts=settings.attempts,
        forbidden=f" Not allowed: {never}." if never else "",
        answer=answer,
    )
    return text + HOLDOUT[settings.mode] if settings.holdout else text
