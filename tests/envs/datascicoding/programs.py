"""Programs and instances that the tests of DataSciCoding share."""

from types import SimpleNamespace

from envsuite.envs.datascicoding import datasets, instances, pipelines

PLAIN = {
    "complete": False,
    "holdout": 0.0,
    "rows": 0,
    "imbalance": 1.0,
    "features": 0,
    "noise": 0,
    "missing": 0.0,
    "categorical": 0.0,
}


STUMP = pipelines._plain("tree", "DecisionTreeClassifier", "max_depth=1, random_state=0")


CONSTANT = pipelines._plain("dummy", "DummyClassifier")


def game(name="breast-cancer", seed=0, **knobs) -> instances.Instance:
    return instances.instance(datasets.load(name), SimpleNamespace(**{**PLAIN, **knobs}), seed)
