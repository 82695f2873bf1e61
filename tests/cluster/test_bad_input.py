"""Invalid cluster settings raise at once: wrong addresses, and cluster flags without a cluster."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envsuite.errors import MissingExtra, UsageError
from harness.cli import data as data_cli
from harness.cli import eval as eval_cli
from harness.cluster import connect
from tests import toys  # noqa: F401  registers HiLo

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (eval_cli, "-m random -e hilo --ray-address auto --dry-run"),
        (data_cli, "demos -e hilo -o demos.jsonl --ray-address auto"),
    ],
)
def test_cluster_flags_without_a_cluster_are_refused(command, words, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words.split())
    out = capsys.readouterr()
    assert ended.value.code == 2 and out.err.count("\n") == 1
    assert "needs --executor ray" in out.err


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs the package 'ray'.*pip install 'envsuite\[ray\]'"):
        connect.connect("127.0.0.1:9")


@pytest.mark.parametrize("says", [b"", b"220 mail ready\r\n", None])
def test_a_port_of_another_service_is_refused_in_bounded_time(monkeypatch, says):
    """Connects to a silent service, a service that greets first, and one that closes the connection."""
    monkeypatch.setattr(connect, "KNOCKING", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            line, _ = listener.accept()
            if says is None:
                line.close()
            else:
                line.sendall(says)
                lines.append(line)

        lines = []
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(UsageError, match=r"the process there .* not Ray's head: give the address"):
            connect._knock(f"127.0.0.1:{listener.getsockname()[1]}")
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("somewhere", "takes host:port or auto, not 'somewhere'"),
        ("127.0.0.1:", "takes host:port or auto"),
        ("127.0.0.1:99999", "takes host:port or auto"),
        ("127.0.0.1:\u00b2", "takes host:port or auto"),
        ("http://127.0.0.1:6379", "takes host:port or auto"),
        ("ray://127.0.0.1:10001", "not Ray's client port"),
        ("127.0.0.1:9", r"nobody answers there \(Connection refused\)\. Is it the head's address"),
        ("[::1]:9", "nobody answers there"),
        ("no-such-host.invalid:6379", "nobody answers there"),
        ("a..b:6379", "nobody answers there"),
    ],
)
def test_an_invalid_head_address_is_refused_at_once(address, message):
    began = time.monotonic()
    with pytest.raises(UsageError, match=message) as caught:
        connect._knock(address)
    assert "\n" not in str(caught.value) and time.monotonic() - began < 10


def test_an_address_without_a_cluster_raises_a_one_line_error(tmp_path):
    words = "-m harness.cli.eval --module tests.toys -m random -e hilo -n 2 --executor ray --ray-address 127.0.0.1:9"
    command = [sys.executable, *words.split(), "-o", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "nobody answers there" in done.stderr


@pytest.mark.parametrize(
    ("address", "raised", "message"),
    [
        (
            "",
            Exception("The current node timed out\nduring startup."),
            "Ray did not start on this machine: The .* out during",
        ),
        (
            "auto",
            ConnectionError("Could not find any running Ray instance."),
            "Ray is not running on this machine: run `ray start --head`",
        ),
        ("10.0.0.1:6379", ConnectionError("Failed to connect"), "Failed to connect: the process there is not a head"),
        (
            "10.0.0.1:6379",
            RuntimeError("Version mismatch:\n  Ray: 2.0\n"),
            r"Ray: 2\.0 This node has Ray .* the same versions on all nodes\.",
        ),
    ],
)
def test_connection_errors_of_ray_become_one_line_with_a_remedy(monkeypatch, address, raised, message):
    """Raises Ray's errors from a replaced `ray.init`, as a matching faulty head is hard to create."""
    import ray

    def init(**options):
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(connect, "_knock", lambda address: None)
    with pytest.raises(UsageError, match=message) as caught:
        connect.connect(address)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(
        f"--ray-address {address}: " if address else "--executor ray: "
    )


def test_an_actor_that_lacks_a_package_names_it_and_another_error_of_ray_stays_as_it_is():
    exceptions = pytest.importorskip("ray.exceptions", reason="ray is not installed: make dev")

    class Cluster:
        """A cluster whose actor fails while it starts."""

        def __init__(self, text: str) -> None:
            self.exceptions, self.text = exceptions, text

        def get(self, started: object) -> object:
            raise exceptions.RayError(self.text)

    missing = Cluster("RayTaskError\n  ModuleNotFoundError: No module named 'minigrid'\n")
    with pytest.raises(MissingExtra, match=r"for the environment worker: ModuleNotFoundError: .* on every node"):
        connect.check_actor(missing, None, "environment worker")
    with pytest.raises(exceptions.RayError, match="the actor died"):
        connect.check_actor(Cluster("the actor died"), None, "environment worker")
