"""Programs for generated tables: the expert's, simple baselines, the blind player's, and a random player's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from envsuite.envs.datascicoding.blending.blend import BLEND
from envsuite.envs.datascicoding.generated.columns import NUMBER_CODE, TEXT_CODE
from envsuite.envs.datascicoding.generated.world import World
from envsuite.envs.datascicoding.pipelines import TEMPLATE

PREPARED = '''\

class Prepared(BaseEstimator):
    """Applies what the notes say about the columns, then a model."""

    def __init__(self, model):
        self.model = model

    def prepared(self, x):
        made = x.drop(columns=TRAPS)
        for name, value in MISSING_MARKS.items():
            made[name] = made[name].where(made[name] != value)
        for name in TEXT_CODES:
            made[name] = made[name].str.split("-").str[1]
        for name in NUMBER_CODES:
            made[name] = made[name].map(lambda kind: f"kind {kind:g}", na_action="ignore").astype(object)
        return made

    def fit(self, x, y):
        self.model.fit(self.prepared(x), y)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict_proba(self, x):
        return self.model.predict_proba(self.prepared(x))

    def predict(self, x):
        return self.model.predict(self.prepared(x))

'''
FIT = """
def build_model(x_train, y_train):
    return {model}.fit(x_train, y_train)
"""


def expert(world: World) -> str:
    """Returns the expert's program, a blend of models on prepared columns.

    The expert has read the notes: it leaves out columns that are known too late, splits text codes, and treats marks as
    missing cells. It does not know which columns are causes, nor the mechanism.
    """
    return BLEND + "\n" + _known(world) + PREPARED + FIT.format(model=f"Prepared(Blend({0 if world.numeric else 2}))")


def _known(world: World) -> str:
    """Returns what the notes say about the columns, as assignments."""
    columns = world.node_columns
    facts: dict[str, Any] = {
        "TRAPS": [trap.column.name for trap in world.traps],
        "MISSING_MARKS": {column.name: column.sentinel for column in columns if column.sentinel is not None},
        "TEXT_CODES": [column.name for column in columns if column.kind == TEXT_CODE],
        "NUMBER_CODES": [column.name for column in columns if column.kind == NUMBER_CODE],
    }
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items())


GUARDED = '''\
from sklearn.model_selection import cross_val_score
from sklearn.tree import {tree}


class Guarded(BaseEstimator):
    """Leaves out columns that predict suspiciously well alone, then applies a model."""

    def __init__(self, model):
        self.model = model

    def fit(self, x, y):
        numbers = x.select_dtypes("number").fillna(0)
        tree = {tree}(max_depth=3, min_samples_leaf=20, random_state=0)

        def score(name):
            return cross_val_score(tree, numbers[[name]], y, cv=4, scoring="{scoring}").mean()

        self.kept_ = [name for name in x.columns if name not in numbers.columns or score(name) < {limit}]
        self.model.fit(x[self.kept_], y)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict_proba(self, x):
        return self.model.predict_proba(x[self.kept_])

    def predict(self, x):
        return self.model.predict(x[self.kept_])

'''


def blind(numeric: bool) -> str:
    """Returns the blind player's program: the expert's blend, without columns that alone predict too well.

    It reads no notes. Without its guard it scores lower.
    """
    names = {"tree": "DecisionTreeRegressor", "scoring": "r2", "limit": 0.4} if numeric else {}
    names = names or {"tree": "DecisionTreeClassifier", "scoring": "roc_auc", "limit": 0.8}
    return BLEND + "\n" + GUARDED.format(**names) + FIT.format(model=f"Guarded(Blend({0 if numeric else 2}))")


def informed(name: str, world: World) -> str:
    """Returns the program of a simple baseline on columns prepared as the notes say."""
    program = baseline(name, world.numeric).replace(
        "def build_model(x_train, y_train):", "def plain(x_train, y_train):"
    )
    known = "from sklearn.base import BaseEstimator\n\n" + _known(world) + PREPARED
    late = (
        "class Late(BaseEstimator):\n    def fit(self, x, y):\n        self.model = plain(x, y)\n        return self\n"
    )
    late += "    def predict(self, x):\n        return self.model.predict(x)\n"
    late += "    def predict_proba(self, x):\n        return self.model.predict_proba(x)\n"
    return program + "\n" + known + late + FIT.format(model="Prepared(Late())")


def baseline(name: str, numeric: bool) -> str:
    """Returns the program of a simple baseline, which uses all columns as they are."""
    module, classifier, regressor, arguments = BASELINES[name]
    model = regressor if numeric else classifier
    return TEMPLATE.format(imports=f"from sklearn.{module} import {model}", model=f"{model}({arguments})")


BASELINES = {
    "majority": ("dummy", "DummyClassifier", "DummyRegressor", ""),
    "linear": ("linear_model", "LogisticRegression", "Ridge", ""),
    "tree": ("tree", "DecisionTreeClassifier", "DecisionTreeRegressor", "min_samples_leaf=10, random_state=0"),
    "forest": (
        "ensemble", "RandomForestClassifier", "RandomForestRegressor",
        "n_estimators=100, min_samples_leaf=5, random_state=0",
    ),
}  # fmt: skip
"""name -> module, class for classes, class for numbers, arguments"""

_BROKEN = (
    "def build_model(x_train, y_train)\n    return None\n",
    "def build_model(x_train, y_train):\n    return 0.5\n",
    "from sklearn.linear_model import LogisticRegresion\n",
    "def build_model(x_train, y_train):\n    return x_train.mean()\n",
)


def random_program(numeric: bool, rng: np.random.Generator) -> str:
    """Returns a random player's program: half of them do not run, the others predict from one random column."""
    if rng.integers(2):
        return _BROKEN[int(rng.integers(len(_BROKEN)))]
    column = int(rng.integers(1000))
    model = "DecisionTreeRegressor" if numeric else "DecisionTreeClassifier"
    return _ONE_COLUMN.format(model=model, column=column)


_ONE_COLUMN = """\
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import {model}

def one_column(x):
    column = x.iloc[:, {column} % x.shape[1]]
    return pd.to_numeric(column, errors="coerce").fillna(0).to_frame()

def build_model(x_train, y_train):
    model = make_pipeline(FunctionTransformer(one_column), {model}(max_depth=2))
    return model.fit(x_train, y_train)
"""
