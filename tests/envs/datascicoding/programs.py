"""Programs and instances that the tests of DataSciCoding share."""

from types import SimpleNamespace

from envsuite.core import check_knobs
from envsuite.envs.datascicoding import datasets, instances, pipelines
from envsuite.envs.datascicoding.env import DataSciCoding

PLAIN = check_knobs(DataSciCoding, {})
STUMP = pipelines._plain("tree", "DecisionTreeClassifier", "max_depth=1, random_state=0")


CONSTANT = pipelines._plain("dummy", "DummyClassifier")


def game(name="breast-cancer", seed=0, **knobs) -> instances.Instance:
    return instances.instance(datasets.load(name), SimpleNamespace(**{**PLAIN, **knobs}), seed)
