"""Environments of DataSciCoding that share one warm sandbox."""

import pytest

from envsuite import registry
from envsuite.envs.datascicoding import scoring
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease


@pytest.fixture(scope="package")
def warm():
    """Keeps one pool warm for all tests of the folder, so that environments share it."""
    lease = Lease(scoring.spec(("GridSearchCV", "SVC")), drivers.choose("auto", (*drivers.SAFE, "process")))
    yield lease
    lease.close()


@pytest.fixture
def build(warm):
    made = []

    def _build(task="DataSciCoding-iris-v0", mode="dense", **knobs) -> DataSciCoding:
        made.append(registry.build(task, mode, sandbox=warm.driver, **knobs))
        return made[-1]

    yield _build
    for env in made:
        env.close()
