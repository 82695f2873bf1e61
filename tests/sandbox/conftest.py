"""Fixtures: targets for hostile programs, and a session of every driver that works on this machine."""

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

import envsuite
from envsuite import sandbox
from tests.conftest import need_driver
from tests.sandbox.hostile import TRY

PROGRAM = Path(__file__).with_name("program.py")
LIMITS = sandbox.Limits(seconds=20, memory_mb=512, disk_mb=32, processes=48, output_kb=16, flood_mb=8, value_mb=8)


def working(driver: str) -> str:
    """Returns the driver's name; skips the test where the driver does not work."""
    return need_driver(driver)


class World:
    """Targets outside the sandbox, a secret file and listening sockets, that record every access."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        for parent in folder.parents:  # file permissions alone must not stop a program
            if Path(tempfile.gettempdir()) in parent.parents and parent.stat().st_uid == os.geteuid():
                parent.chmod(0o755)
        self.secret = folder / "secret.csv"
        self.secret.write_text("label\n1\n")
        self.secret.chmod(0o644)
        self.tcp, self.udp, self.abstract, self.unix, self.datagrams = (
            socket.socket(family, kind)
            for family, kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
            )
        )
        self.tcp.bind(("127.0.0.1", 0))
        self.udp.bind(("127.0.0.1", 0))
        self.abstract.bind(f"\0envsuite-test-{os.getpid()}")
        self.unix.bind(str(folder / "socket"))
        self.datagrams.bind(str(folder / "datagrams"))
        for name in ("socket", "datagrams"):
            (folder / name).chmod(0o666)
        for listener in (self.tcp, self.abstract, self.unix):
            listener.listen()
        for listener in self.sockets:
            listener.setblocking(False)
        self.marker = f"{1_000_000 + os.getpid()}.25"

    @property
    def sockets(self) -> list[socket.socket]:
        return [self.tcp, self.udp, self.abstract, self.unix, self.datagrams]

    def names(self, session: sandbox.Session) -> dict[str, object]:
        return {
            "secret": str(self.secret),
            "parent": os.getpid(),
            "zygote": getattr(getattr(session, "_process", None), "pid", os.getpid()),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": f"envsuite-test-{os.getpid()}",
            "unix": str(self.secret.with_name("socket")),
            "datagrams": str(self.secret.with_name("datagrams")),
            "envsuite": str(Path(envsuite.__file__).parent),
            "others": f"{tempfile.gettempdir()}/envsuite-sandbox-*/workspace/*",
            "packages": str(Path(pytest.__file__).parents[1]),
            "program": str(PROGRAM),
            "marker": self.marker,
            "token": "token-in-the-memory-of-another-run-",
        }

    def visitors(self) -> list[str]:
        """Returns the connections and datagrams received since the last call."""
        received = []
        for listener in (self.tcp, self.abstract, self.unix):
            try:
                listener.accept()[0].close()
                received.append(f"a connection to {listener.getsockname()}")
            except BlockingIOError:
                pass
        for listener in (self.udp, self.datagrams):
            with contextlib.suppress(BlockingIOError):
                received.append(f"a datagram {listener.recv(100)!r}")
        return received

    def survivors(self) -> list[str]:
        """Returns the ids of processes whose command line contains the marker."""
        received = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if self.marker.encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                    received.append(path.parent.name)
            except OSError:
                continue
        return received


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    targets = World(tmp_path_factory.mktemp("world"))
    yield targets
    for listener in targets.sockets:
        listener.close()


@pytest.fixture(scope="module", params=sandbox.DRIVERS)
def session(request):
    """Opens a warm sandbox of each driver with a program that executes the code it receives."""
    spec = sandbox.Spec(program=PROGRAM, limits=LIMITS)
    with sandbox.open(spec, working(request.param)) as opened:
        yield opened


@pytest.fixture
def play(session, world):
    """Runs code in the session; returns the result and the breaches that the code reports."""

    def run(code: str, seconds: float = 60.0, disk_mb: int = LIMITS.disk_mb) -> tuple[sandbox.Result, list[str]]:
        payload = json.dumps({"code": TRY + code, "world": world.names(session)}).encode()
        limits = sandbox.Limits(**{**LIMITS.plain(), "seconds": seconds, "disk_mb": disk_mb})
        result = session.call(payload, limits)
        try:
            return result, json.loads(result.value)["breaches"]
        except (ValueError, KeyError, TypeError):
            return result, []

    return run
