"""Fixtures: real Ray clusters whose nodes all run as processes on this machine."""

import contextlib
import os

import pytest

# Ray reads these when it is imported.
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves on a busy machine
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # no idle worker for each CPU of a node
# Ray ends this process, with all its tests, if the head does not answer for so long; its default is 60 s.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
os.environ.setdefault("RAY_health_check_timeout_ms", "60000")  # a starved node is not a lost one; the default is 10 s
pytest.importorskip("ray", reason="ray is not installed")

TRIES = 3
"""Attempts to start a cluster; Ray allows a node's processes 15 s, too little on a loaded machine."""


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
    """Starts a head without CPUs and one node per entry of `cpus`; yields the connected cluster."""
    import ray

    from harness.cluster.connect import connect

    ray.shutdown()  # disconnect from any earlier cluster
    cluster = _start(cpus, options)
    try:
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def cluster():
    """Starts a head and one node with four CPUs."""
    with nodes(4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_nodes():
    with nodes(2, 2) as cluster:
        yield cluster
