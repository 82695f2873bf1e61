"""Environments with sandboxes on Ray workers."""

import contextlib
import threading
import time
from pathlib import Path

import pytest

from tests.cluster.test_ray import config, on, results
from tests.conftest import need_driver

pytestmark = pytest.mark.timeout(900)  # a cluster may need three attempts to start


def sandboxes():
    """Returns the first processes of sandboxes that Ray workers have opened, with their worker's process id."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(path.name)] = (path / "cmdline").read_bytes()
    return {
        pid: parent
        for pid, parent in parents.items()
        if names[pid].startswith(b"bwrap") and b"ray::EnvWorker" in names.get(parent, b"")
    }


@pytest.mark.slow
@pytest.mark.parametrize("task", ["SWEGym-easy-v0", "DataSciCoding-easy-v0"])
def test_ray_workers_open_and_close_their_own_sandboxes(cluster, tmp_path, task):
    need_driver("bwrap")
    cfg = config(task, "expert", episodes=4, knobs={"sandbox": "bwrap"})
    seen: dict[int, int] = {}
    over = threading.Event()

    def watch():
        while not over.wait(0.1):
            seen.update(sandboxes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        played = results(cfg, tmp_path / "ray", **on(cluster))
    finally:
        over.set()
        watching.join()
    assert played == results(cfg, tmp_path / "local", num_workers=0)
    assert len(set(seen.values())) == 2, "both workers had sandboxes"
    deadline = time.monotonic() + 30
    while (left := sandboxes().keys() & seen.keys()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left
