"""Programs for generated tables: the expert's, simple baselines, the blind player's, and a random player's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from envsuite.envs.datascicoding import blend
from envsuite.envs.datascicoding.generated import themes
from envsuite.envs.datascicoding.generated.columns import AMOUNT, NUMBER_CODE, TEXT_CODE, CausalColumn, levels_of
from envsuite.envs.datascicoding.generated.world import World

PREPARED = '''\

class Prepared(BaseEstimator):
    """Applies what the notes say about the columns, then a model."""

    def __init__(self, model):
        self.model = model

    def prepared(self, x):
        made = x.drop(columns=LEFT_OUT)
        for name, value in MISSING_MARKS.items():
            made[name] = made[name].where(made[name] != value)
        for name in TEXT_CODES:
            made[name] = made[name].str.split("-").str[1]
        for name in NUMBER_CODES:
            made[name] = made[name].map(lambda kind: f"{kind:g}", na_action="ignore").astype(object)
        for name, (marks, total, divided) in TURNED.items():
            readings = total / made[name] if divided else total - made[name]
            made[name] = made[name].where(~x[MARKER].isin(marks), readings)
        for name, (marks, meant) in EXCHANGED.items():
            made[name] = made[name].where(~x[MARKER].isin(marks), made[name].map(meant, na_action="ignore"))
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


JOINED = '''\
from sklearn.preprocessing import SplineTransformer


class Joined(BaseEstimator):
    """Takes logarithms of skewed amounts and adds features of pairs that act together, then applies a model."""

    def __init__(self, model):
        self.model = model

    def joined(self, x):
        made = x.copy()
        for name in self.skewed_:
            made[name] = np.log(made[name].clip(lower=1e-9))
        even = ((made[self.numeric_] - self.center_) / self.scale_).fillna(0)
        for a, b in PAIRS:
            if a in self.words_ and b in self.words_:
                made[f"{a} and {b}"] = (made[a].astype(str) + "/" + made[b].astype(str)).astype(object)
            elif a in self.words_ or b in self.words_:
                number, words = (b, a) if a in self.words_ else (a, b)
                for word in self.words_[words]:
                    made[f"{number} if {words} is {word}"] = even[number].where(made[words] == word, 0.0)
            else:
                made[f"{a} times {b}"] = even[a] * even[b]
                made[f"{a} plus {b}"] = even[a] + even[b]
                made[f"{a} from {b}"] = (even[a] - even[b]).abs()
        return made

    def fit(self, x, y):
        self.numeric_ = list(x.select_dtypes("number").columns)
        self.words_ = {name: sorted(x[name].dropna().unique()) for name in x.columns if name not in self.numeric_}
        numbers = x[self.numeric_]
        self.skewed_ = [name for name in numbers if numbers[name].min() > 0 and numbers[name].skew() > 1]
        numbers = numbers.assign(**{name: np.log(numbers[name]) for name in self.skewed_})
        self.center_, self.scale_ = numbers.median(), numbers.std().clip(lower=1e-9)
        self.model.fit(self.joined(x), y)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict_proba(self, x):
        return self.model.predict_proba(self.joined(x))

    def predict(self, x):
        return self.model.predict(self.joined(x))


def smooth(x, y, classes):
    """Returns additive models of splines."""
    numeric = list(x.select_dtypes("number").columns)
    curves = SplineTransformer(n_knots=6, knots="quantile", extrapolation="constant")
    curves = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), curves)
    columns = ColumnTransformer([("curves", curves, numeric), ("plain", encoded(x), list(x.columns))])
    linear = [LogisticRegression(C=c, max_iter=1000) for c in (0.03, 0.3)] if classes else [Ridge(3), Ridge(30)]
    return [make_pipeline(columns, model) for model in linear]


MORE.append(smooth)

'''


def expert(world: World) -> str:
    """Returns the expert's program, a blend of models on prepared columns and on features that the notes suggest.

    The expert has read the notes: it leaves out columns that are known too late or have no bearing, reads entries as
    the notes say, and adds features of pairs that act together. It does not know which other columns are causes, nor
    the mechanism.
    """
    model = f"Prepared(Joined(Blend({0 if world.numeric else 2})))"
    return blend.BLEND + "\n" + _known(world) + PREPARED + JOINED + FIT.format(model=model)


def _known(world: World) -> str:
    """Returns what the notes say about the columns, as assignments."""
    columns = [column for column in world.node_columns if not _has(column, themes.UNRELATED_NOTES)]
    used = {column.name for column in columns}
    words = world.marker.words if world.marker else ()
    turned = {column.name: ([words[k] for k in column.turned], column) for column in columns if column.turned}
    facts: dict[str, Any] = {
        "LEFT_OUT": sorted(set(world.order) - used),
        "MISSING_MARKS": {column.name: column.sentinel for column in columns if column.sentinel is not None},
        "TEXT_CODES": [column.name for column in columns if column.kind == TEXT_CODE],
        "NUMBER_CODES": [column.name for column in columns if column.kind == NUMBER_CODE],
        "MARKER": world.marker.name if world.marker else "",
        "TURNED": {
            name: [marks, column.total, int(column.kind == AMOUNT)]
            for name, (marks, column) in turned.items()
            if not column.swapped
        },
        "EXCHANGED": {
            name: [marks, dict(zip(levels_of(column), (levels_of(column)[k] for k in column.swapped), strict=True))]
            for name, (marks, column) in turned.items()
            if column.swapped
        },
        "PAIRS": [
            [column.name, partner]
            for column in columns
            for partner in sorted(used)
            if _has(column, (themes.TOGETHER_NOTE.format(other=partner),))
        ],
    }
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items())


def _has(column: CausalColumn, notes: Sequence[str]) -> bool:
    """Returns True if the column's note contains one of these parts."""
    return any(part in notes for part in column.note.split("; "))


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
    return blend.BLEND + "\n" + GUARDED.format(**names) + FIT.format(model=f"Guarded(Blend({0 if numeric else 2}))")


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
