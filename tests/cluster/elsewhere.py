"""An environment whose engine is on the machine of the tests' process and on no node of the cluster."""

import os

from envsuite import Task, register
from examples.hilo import HiLo

if os.environ.get("ENVSUITE_TEST_DRIVER") != str(os.getpid()):
    import an_engine_that_no_node_has  # noqa: F401


class Elsewhere(HiLo):
    """HiLo."""


register(Task(id="Elsewhere-v0", entry_point="tests.cluster.elsewhere:Elsewhere", requires="babyai"))
