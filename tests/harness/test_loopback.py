"""A Ray cluster that a run starts for itself cannot be reached from the network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed")

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import os
from pathlib import Path
from harness.cluster.connect import connect

def children(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield child
            yield from children(child)

if __name__ == "__main__":
    ray = connect()
    listening = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[f"socket:[{fields[9]}]"] = fields[1].partition(":")[0]
    for pid in [str(os.getpid()), *children(os.getpid())]:
        try:
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                if (address := listening.get(os.readlink(handle))) is not None:
                    print(address)
        except OSError:
            pass
    ray.shutdown()
"""


@pytest.mark.timeout(600)
def test_a_cluster_of_this_process_listens_on_loopback_only(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) >= 3
    assert set(addresses) <= {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}
