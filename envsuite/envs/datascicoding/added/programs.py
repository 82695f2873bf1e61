"""Programs for added tables: the reference's, and a random player's for targets of numbers."""

from __future__ import annotations

import numpy as np

from envsuite.envs.datascicoding import blend, pipelines


def reference(classes: int) -> str:
    """Returns the reference program: a cross-validated blend for that many classes, or for numbers (0)."""
    return f"{blend.BLEND}\n\ndef build_model(x_train, y_train):\n    return Blend({classes}).fit(x_train, y_train)\n"


def linear(output: str) -> str:
    """Returns a program of one linear model: a simple baseline."""
    name, arguments = ("LogisticRegression", "max_iter=200") if output == "classes" else ("RidgeCV", "")
    return pipelines.TEMPLATE.format(imports=f"from sklearn.linear_model import {name}", model=f"{name}({arguments})")


def random_program(output: str, rng: np.random.Generator) -> str:
    """Returns a random player's program for an output of `classes` or `numbers`: good, poor, or broken."""
    if output == "classes":
        return pipelines.random_program(rng)
    return _RANDOM_REGRESSIONS[int(rng.integers(len(_RANDOM_REGRESSIONS)))]


def _tree(arguments: str) -> str:
    model = f"DecisionTreeRegressor({arguments}, random_state=0)"
    return pipelines.TEMPLATE.format(imports="from sklearn.tree import DecisionTreeRegressor", model=model)


_RANDOM_REGRESSIONS = (
    linear("numbers"),
    _tree("max_depth=1"),
    _tree("min_samples_leaf=5"),
    pipelines.TEMPLATE.format(
        imports="from sklearn.neighbors import KNeighborsRegressor", model="KNeighborsRegressor()"
    ),
    pipelines.TEMPLATE.format(imports="from sklearn.dummy import DummyRegressor", model="DummyRegressor()"),
    pipelines.TEMPLATE.format(imports="from sklearn.linear_model import Lasso", model="Laso()"),
    "def build_model(x_train, y_train):\n    return y_train.mean()\n",
    "def build_model(x_train, y_train)\n    return None\n",
)


# ---- scripts of competitions: they read train.csv and test.csv, and write submission.csv -------------------------

SCRIPT = """\
import numpy as np
import pandas as pd

header = pd.read_csv("test.csv", nrows=0).columns
target = next(name for name in pd.read_csv("train.csv", nrows=0).columns if name not in header)
sample = pd.read_csv("sample_submission.csv")
key = sample.columns[0]
{reading}
{program}
model = build_model(train.drop(columns=[key, target]), train[target])
{predicting}
sample[key] = test[key]
sample.to_csv("submission.csv", index=False)
"""
_READING = {
    "classes": 'train = pd.read_csv("train.csv", converters={target: str})\ntest = pd.read_csv("test.csv")\n',
    "numbers": 'train = pd.read_csv("train.csv")\ntest = pd.read_csv("test.csv")\n',
}
_PREDICTING = {
    "classes": (
        "values = model.predict_proba(test.drop(columns=key))\n"
        "if len(model.classes_) == 2:\n"
        "    sample[target] = values[:, 1]\n"
        "else:\n"
        "    sample[list(model.classes_)] = values"
    ),
    "numbers": "sample[target] = model.predict(test.drop(columns=key))",
}
SAMPLE = """\
import shutil
shutil.copy("sample_submission.csv", "submission.csv")
"""


def script(output: str, program: str) -> str:
    """Returns a competition's script around a program that defines `build_model`."""
    return SCRIPT.format(reading=_READING[output], program=program, predicting=_PREDICTING[output])


def random_script(output: str, rng: np.random.Generator) -> str:
    """Returns a random player's script for a competition."""
    if rng.random() < 0.25:
        return SAMPLE if rng.random() < 0.5 else 'print("done")\n'
    return script(output, random_program(output, rng))
