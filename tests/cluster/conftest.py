"""A real Ray cluster of several nodes' processes on this machine, of two processors each."""

import contextlib

import pytest

pytest.importorskip("ray", reason="ray is not installed")


@contextlib.contextmanager
def nodes(*cpus, **options):
    """A head with no processor of its own, and a node for each of `cpus`; yields the cluster, connected."""
    import ray
    from ray.cluster_utils import Cluster

    from harness.cluster.connect import connect

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **options})
    try:
        cluster.workers = [cluster.add_node(num_cpus=each) for each in cpus]
        cluster.wait_for_nodes()
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def cluster():
    with nodes(2, 2) as found:
        yield found
