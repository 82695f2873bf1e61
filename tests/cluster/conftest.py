"""A real Ray cluster of several nodes' processes on this machine, of two processors each."""

import contextlib
import os

import pytest

pytest.importorskip("ray", reason="ray is not installed")


os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's workers give way to everything else on a busy machine: 15

TRIES = 3
"""Ray gives a node's helpers 15 s to start, which a loaded machine may not manage"""


def _start(cpus, options):
    from ray.cluster_utils import Cluster

    for left in reversed(range(TRIES)):
        cluster = Cluster(initialize_head=False)
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False, **options)
            cluster.workers = [cluster.add_node(num_cpus=each) for each in cpus]
            cluster.wait_for_nodes()
            return cluster
        except Exception:
            cluster.shutdown()
            if not left:
                raise


@contextlib.contextmanager
def nodes(*cpus, **options):
    """A head with no processor of its own, and a node for each of `cpus`; yields the cluster, connected."""
    import ray

    from harness.cluster.connect import connect

    ray.shutdown()  # of whatever cluster this process was connected to
    cluster = _start(cpus, options)
    try:
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def cluster():
    """One node with processors, beside the head."""
    with nodes(4) as found:
        yield found


@pytest.fixture(scope="module")
def two_nodes():
    with nodes(2, 2) as found:
        yield found
