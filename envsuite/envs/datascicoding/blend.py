"""The program of `expert:blend`: a blend of linear models, forests and boosting, weighted by cross-validation."""

from __future__ import annotations

BLEND = '''\
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

ROUNDS, FOLDS = 20, 3
LARGE, HUGE = 3_000, 20_000  # rows above which there are fewer trees, and boosting alone
MORE = []  # functions of (x, y, classes) that return further models for the blend


def encoded(x, *steps):
    """Returns a pipeline: missing numbers imputed and marked, all scaled, text one-hot, then `steps`."""
    numeric = list(x.select_dtypes("number").columns)
    text = [name for name in x.columns if name not in numeric]
    imputer = SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True)
    words = OneHotEncoder(handle_unknown="ignore", max_categories=20, sparse_output=False)
    columns = [("numbers", make_pipeline(imputer, StandardScaler()), numeric), ("words", words, text)]
    return make_pipeline(ColumnTransformer(columns), *steps)


def candidates(x, y, classes):
    """Returns the models that may enter the blend."""
    boosting = {"max_iter": 80, "learning_rate": 0.06, "max_leaf_nodes": 8, "min_samples_leaf": 10, "random_state": 0}
    if len(x) > HUGE:
        boosted = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return [encoded(x, boosted(**boosting))]
    trees = 80 if len(x) <= LARGE else 40
    forest = {"n_estimators": trees, "bootstrap": True, "oob_score": True, "random_state": 0}
    squares = PolynomialFeatures(2, include_bias=False)
    squared = x.shape[1] <= min(20, len(x) / 15)  # with fewer rows per column, products overfit
    if classes:
        models = [[LogisticRegression(C=c, max_iter=1000)] for c in (0.1, 3)]
        models += [[ExtraTreesClassifier(min_samples_leaf=2, **forest)]]
        models += [[RandomForestClassifier(min_samples_leaf=5, **forest)]]
        models += [[HistGradientBoostingClassifier(**boosting)]] if classes <= 5 else []
        models += [[squares, LogisticRegression(C=0.1, max_iter=1000)]] if squared else []
    else:
        models = [[Ridge(alpha)] for alpha in (1, 30)]
        models += [[ExtraTreesRegressor(min_samples_leaf=2, **forest)]]
        models += [[RandomForestRegressor(min_samples_leaf=5, max_features=0.5, **forest)]]
        models += [[HistGradientBoostingRegressor(**boosting)]]
        models += [[squares, Ridge(30)]] if squared else []
    return [encoded(x, *steps) for steps in models] + [model for more in MORE for model in more(x, y, classes)]


def unseen(model, x, y, classes):
    """Fits a model; returns predictions for each row by a fit without it: out of bag, or by cross-validation."""
    model.fit(x, y)
    if hasattr(model[-1], "oob_score"):
        values = model[-1].oob_decision_function_ if classes else model[-1].oob_prediction_
        return np.nan_to_num(values, nan=1 / classes if classes else y.mean())
    if not classes:
        return cross_val_predict(model, x, y, cv=KFold(FOLDS, shuffle=True, random_state=0))
    count = max(2, min(FOLDS, y.value_counts().min()))
    folds = StratifiedKFold(count, shuffle=True, random_state=0)
    return cross_val_predict(model, x, y, cv=folds, method="predict_proba")


class Blend(BaseEstimator):
    """Weights models as Caruana et al. (2004) do: adds, again and again, the one that helps the average most.

    It starts from equal weights, which count for more rounds the fewer the rows are, as choices are noisy then.
    """

    def __init__(self, classes):
        self.classes = classes

    def fit(self, x, y):
        """Fits all candidates, chooses weights on unseen rows, and keeps the models with a weight."""
        if self.classes:
            self.classes_ = np.unique(y)
            truth = np.searchsorted(self.classes_, y)
        models = candidates(x, y, self.classes)
        if len(models) == 1:
            self.parts_ = [(1.0, models[0].fit(x, y))]
            return self
        values = [unseen(model, x, y, self.classes) for model in models]

        def loss(average):
            if self.classes:
                return -np.log(np.clip(average[np.arange(len(y)), truth], 1e-6, 1)).mean()
            return ((average - y.to_numpy()) ** 2).mean()

        weights = np.full(len(models), min(40, 4_000 / len(y)) / len(models))
        total = sum(weight * value for weight, value in zip(weights, values))
        for _ in range(ROUNDS):
            count = weights.sum() + 1
            best = min(range(len(models)), key=lambda n: loss((total + values[n]) / count))
            weights[best] += 1
            total = total + values[best]
        self.parts_ = list(zip(weights / weights.sum(), models))
        return self

    def predict_proba(self, x):
        return sum(weight * model.predict_proba(x) for weight, model in self.parts_)

    def predict(self, x):
        return sum(weight * model.predict(x) for weight, model in self.parts_)
'''
"""Program text that defines `Blend(classes)`: a classifier of that many classes, or a regressor for 0."""
