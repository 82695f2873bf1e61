"""Programs as text: the expert's for each data set, and a random player's."""

from __future__ import annotations

import numpy as np

from envsuite.envs.datascicoding import blend

TEMPLATE = """\
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
{imports}

def build_model(x_train, y_train):
    numeric = list(x_train.select_dtypes("number").columns)
    text = [name for name in x_train.columns if name not in numeric]
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore", max_categories=20)
    columns = ColumnTransformer([("numbers", numbers, numeric), ("words", words, text)])
    model = make_pipeline(columns, {model})
    return model.fit(x_train, y_train)
"""

_LINEAR = ("from sklearn.linear_model import LogisticRegression", "LogisticRegression(max_iter=500)")
_TREES = (
    "from sklearn.ensemble import ExtraTreesClassifier",
    "ExtraTreesClassifier(n_estimators=80, min_samples_leaf={leaf}, random_state=0)",
)
_FOREST = (
    "from sklearn.ensemble import RandomForestClassifier",
    "RandomForestClassifier(n_estimators=150, min_samples_leaf=5, random_state=0)",
)
_BOOST = (
    "from sklearn.ensemble import GradientBoostingClassifier",
    "GradientBoostingClassifier(n_estimators=60, learning_rate=0.1, max_depth=3, subsample=0.7, random_state=0)",
)
_POLYNOMIAL = (
    "from sklearn.linear_model import LogisticRegression\nfrom sklearn.preprocessing import PolynomialFeatures",
    "PolynomialFeatures(2, include_bias=False), LogisticRegression(C=100, max_iter=2000)",
)
EXPERTS: dict[str, tuple[str, str]] = {
    "breast-cancer": _LINEAR,
    "wine": _LINEAR,
    "iris": _LINEAR,
    "digits": (_TREES[0], _TREES[1].format(leaf=1)),
    "balance-scale": _POLYNOMIAL,  # torques are products of two columns
    "breast-w": _LINEAR,
    "pharyngitis": _FOREST,
    "health-insurance": (_TREES[0], _TREES[1].format(leaf=5)),
    "spaceship-titanic": _BOOST,
}

TRANSFORM = """\
def transform(df):
    made = df.copy()
    numeric = list(df.select_dtypes("number").columns)[:8]
    for i, first in enumerate(numeric):
        made[first + "_squared"] = df[first] ** 2
        for second in numeric[i + 1:]:
            made[first + "_x_" + second] = df[first] * df[second]
    return made
"""
UNCHANGED = "def transform(df):\n    return df\n"


def expert(dataset: str) -> str:
    """Returns the reference program, whose score defines the threshold of `success`."""
    imports, model = EXPERTS.get(dataset, _FOREST)
    return TEMPLATE.format(imports=imports, model=model)


_PLAIN_COLUMNS = """
def build_model(x_train, y_train):
    return Blend(y_train.nunique()).fit(x_train, y_train)
"""
_TORQUE = """
class OnTorques(BaseEstimator):
    def torques(self, x):
        values = x.to_numpy(dtype=float)
        difference = values[:, 0] * values[:, 1] - values[:, 2] * values[:, 3]
        return pd.DataFrame({"difference": difference, "size": np.abs(difference)})

    def fit(self, x, y):
        self.model_ = Blend(y.nunique()).fit(self.torques(x), y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, x):
        return self.model_.predict_proba(self.torques(x))


def build_model(x_train, y_train):
    return OnTorques().fit(x_train, y_train)
"""


def ceiling(dataset: str) -> str:
    """Returns the program of `expert:blend`: a cross-validated blend, of balance-scale on the torques of both sides."""
    return blend.BLEND + "\n" + (_TORQUE if dataset == "balance-scale" else _PLAIN_COLUMNS)


def random_program(rng: np.random.Generator) -> str:
    """Returns a random player's program: some of a dozen small programs are good, some poor, some do
    not run.
    """
    return _RANDOM_MODELS[int(rng.integers(len(_RANDOM_MODELS)))]


def random_transform(rng: np.random.Generator) -> str:
    """Returns a random step of feature engineering."""
    return _RANDOM_TRANSFORMS[int(rng.integers(len(_RANDOM_TRANSFORMS)))]


_PLAIN = """\
from sklearn.{module} import {name}

def build_model(x_train, y_train):
    return {name}({arguments}).fit(x_train, y_train)
"""


def _plain(module: str, name: str, arguments: str = "") -> str:
    return _PLAIN.format(module=module, name=name, arguments=arguments)


_RANDOM_MODELS = (
    TEMPLATE.format(imports=_LINEAR[0], model=_LINEAR[1]),
    _plain("naive_bayes", "GaussianNB"),
    _plain("tree", "DecisionTreeClassifier", "max_depth=1, random_state=0"),
    _plain("tree", "DecisionTreeClassifier", "random_state=0"),
    _plain("neighbors", "KNeighborsClassifier"),
    _plain("ensemble", "RandomForestClassifier", "n_estimators=20, random_state=0"),
    _plain("dummy", "DummyClassifier"),
    _plain("svm", "SVC", "probability=True"),  # forbidden
    _plain("linear_model", "RidgeClassifier"),  # no predict_proba
    _plain("linear_model", "LogisticRegresion"),  # no such class
    "def build_model(x_train, y_train)\n    return None\n",
    "def build_model(x_train, y_train):\n    return 0.5\n",
)
_RANDOM_TRANSFORMS = (
    UNCHANGED,
    TRANSFORM,
    "def transform(df):\n    return df.iloc[:, :2]\n",
    "def transform(df):\n    return df.fillna(0)\n",
    "def transform(df):\n    return df.dropna()\n",
    "def transform(df):\n    return df.rank(pct=True)\n",
    "def transform(df):\n    df['sum'] = df.sum(axis=1)\n",
    "def transform(df):\n    return df.assing(one=1)\n",
)
