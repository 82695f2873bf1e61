"""The swerex driver, against a real swe-rex server in its own environment, and against servers that lie.

`make sandbox-proof` installs the server in build/swerex; without it the tests that need it are skipped.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from envsuite import registry, sandbox
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.sandbox import Fate, Limits, Spec, drivers, swerex
from envsuite.sandbox.inside import wire

pytest.importorskip("httpx", reason="the api extra is not installed")
PYTHON = Path(
    os.environ.get("ENVSUITE_SWEREX_SERVER", Path(__file__).parents[2] / "build" / "swerex" / "bin" / "python")
)
needs_server = pytest.mark.skipif(not PYTHON.exists(), reason="no swe-rex server: make sandbox-proof installs one")
PROGRAM = Path(__file__).with_name("echo.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(port: int, log: Path) -> subprocess.Popen:
    words = [str(PYTHON), "-m", "swerex.server", "--host", "127.0.0.1", "--port", str(port), "--auth-token", "secret"]
    with log.open("ab") as file:
        server = subprocess.Popen(words, stdout=file, stderr=file)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.1)
    server.kill()
    raise RuntimeError(log.read_text())


@pytest.fixture
def address(monkeypatch):
    """Sets the variables for a server on a free port; returns the port."""
    port = free_port()
    monkeypatch.setenv("ENVSUITE_SWEREX", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("ENVSUITE_SWEREX_TOKEN", "secret")
    monkeypatch.setenv("ENVSUITE_SWEREX_PYTHON", sys.executable)
    drivers.probe.cache_clear()
    yield port
    drivers.probe.cache_clear()


@pytest.fixture
def server(address, tmp_path):
    server = start_server(address, tmp_path / "log")
    yield server
    server.send_signal(signal.SIGCONT)
    server.kill()
    server.wait()


@pytest.mark.slow
@needs_server
def test_commands_files_and_programs_work_as_in_other_drivers(server, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("hello")
    with sandbox.open(Spec(workspace="/work", program=PROGRAM), "swerex") as session:
        session.copy_in(tmp_path / "tree")
        session.snapshot()
        result = session.run("cat a.txt; echo oops >&2; rm a.txt; exit 3")
        assert (result.fate, result.exit_code, result.stdout, result.stderr) == (Fate.EXITED, 3, b"hello", b"oops\n")
        session.reset()
        session.copy_out("a.txt", tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").read_text() == "hello"
        with pytest.raises(DataError, match="cannot be copied out"):
            session.copy_out("b.txt", tmp_path / "out")
        assert session.call(b"\x00\xff" * 1000).value == b"\xff\x00" * 1000
        assert session.run("sleep 60", limits=Limits(seconds=0.3)).fate is Fate.TIMEOUT
        assert session.run("yes", limits=Limits(flood_mb=1)).fate is Fate.OUTPUT
        session.reset(forget=True)
        assert session.run("ls -A").stdout == b""
        with pytest.raises(UsageError, match="keeps no interpreter"):
            session.dialogue(b"")
        folder = Path(session.workspace).parent
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.slow
@needs_server
def test_a_lost_server_breaks_the_run_and_a_new_one_serves_the_next(server, address, tmp_path):
    with sandbox.open(Spec(workspace="/work"), "swerex") as session:
        assert session.run("true").exit_code == 0
        threading.Timer(0.7, server.kill).start()
        with pytest.raises(EngineFailure, match="cannot be reached"):
            session.run("sleep 5; echo never")
        with pytest.raises(EngineFailure, match="cannot be reached"):
            session.run("true")
        second = start_server(address, tmp_path / "log")
        try:
            assert session.run("echo again").stdout == b"again\n"
        finally:
            second.kill()
            second.wait()


@pytest.mark.slow
@needs_server
def test_a_wrong_token_is_a_fault_and_not_a_score(server, monkeypatch):
    monkeypatch.setenv("ENVSUITE_SWEREX_TOKEN", "guess")
    with pytest.raises(drivers.NoSandbox, match="refused"):
        sandbox.open(Spec(), "swerex")


@pytest.mark.slow
@needs_server
def test_datascicoding_scores_a_program_and_a_lost_server_breaks_the_episode(server):
    pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
    code = "from sklearn.dummy import DummyClassifier\ndef build_model(x, y):\n    return DummyClassifier().fit(x, y)"
    env = registry.build("DataSciCoding-iris-v1", "dense", sandbox="swerex", splits=1, margin=0.5)
    try:
        env.reset(seed=0)
        score = env._evaluate(code)
        assert (score.verdict, score.auc) == ("ok", 0.5)
        assert env.labels()["leaky"] == "true"
        server.kill()
        with pytest.raises(EngineFailure):
            env._evaluate(code)
    finally:
        env.close()


def test_without_a_server_the_cure_is_named(address, monkeypatch):
    with pytest.raises(drivers.NoSandbox, match=r"cannot be reached.*swerex-remote --auth-token TOKEN"):
        sandbox.open(Spec(), "swerex")
    monkeypatch.delenv("ENVSUITE_SWEREX")
    drivers.probe.cache_clear()
    with pytest.raises(drivers.NoSandbox, match=r"ENVSUITE_SWEREX is not set.*swerex-remote"):
        sandbox.open(Spec(), "swerex")


def frames(*parts: tuple[bytes, bytes]) -> str:
    return base64.b64encode(b"".join(wire._FRAME.pack(kind, len(data)) + data for kind, data in parts)).decode()


END = json.dumps({"fate": "exited", "status": 0, "seconds": 0.1, "peak_kb": 1}).encode()
ATTACK = {"message": "import pathlib; pathlib.Path('taken').touch()", "class_path": "builtins.exec", "traceback": ""}
LIES = {
    "an exception to create": (511, json.dumps({"swerexception": ATTACK}), "refused"),
    "an error page": (502, "<html>bad gateway</html>", "refused"),
    "no JSON": (200, "hello", "no JSON"),
    "a list": (200, "[]", "no JSON object"),
    "no exit code": (200, '{"stdout": ""}', "without an exit code"),
    "no base64": (200, '{"stdout": "%%%", "exit_code": 0}', "not in base64"),
    "no frames": (200, '{"stdout": "", "exit_code": 1, "stderr": "no such python"}', "no such python"),
    "an answer cut off": (200, json.dumps({"exit_code": 0, "stdout": frames((b"r", b"{}"), (b"o", b"hi"))}), "cut off"),
    "a fate that does not exist": (
        200, json.dumps({"exit_code": 0, "stdout": frames((b"r", b"{}"), (b"x", b'{"fate": "won", "status": 0, "seconds": 0}'))}),
        "broke down",
    ),
    "another first frame": (200, json.dumps({"exit_code": 0, "stdout": frames((b"x", END))}), "did not start"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_is_a_fault_and_runs_nothing_here(address, tmp_path, monkeypatch, lie):
    status, body, message = LIES[lie]
    monkeypatch.chdir(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            honest = b"< " not in sent  # only the command that runs a job gets the lie
            answer = b'{"stdout": "", "stderr": "", "exit_code": 0}' if honest else body.encode()
            self.send_response(200 if honest else status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", address), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    session = swerex.RemoteSession("swerex", swerex, Spec())
    try:
        with pytest.raises(EngineFailure, match=message) as caught:
            session.run("true")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "taken").exists()
    finally:
        session.close()
        server.shutdown()
        server.server_close()


def test_a_session_with_folders_of_this_machine_is_refused(address, tmp_path):
    session = swerex.RemoteSession("swerex", swerex, Spec(read_only=((tmp_path, "/x"),)))
    with session, pytest.raises(EngineFailure, match="shows no folders"):
        session.run("true")


def test_another_package_can_add_a_driver(tmp_path):
    (tmp_path / "plugin-1.dist-info").mkdir()
    (tmp_path / "plugin-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (tmp_path / "plugin-1.dist-info" / "entry_points.txt").write_text("[envsuite.sandboxes]\nmine = their_driver\n")
    (tmp_path / "their_driver.py").write_text(
        "from envsuite.sandbox.process import *\nfrom envsuite.sandbox.process import launch\nCURE = 'none'\n"
    )
    code = (
        "from envsuite import sandbox\n"
        "with sandbox.open(sandbox.Spec(), 'mine') as session:\n"
        "    print(session.driver, session.run('echo ran').stdout.decode(), end='')\n"
        "from envsuite.envs.datascicoding.env import DataSciCoding\n"
        "print({knob.name: knob for knob in DataSciCoding.knobs}['sandbox'].choices)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[:1] == ["mine ran"], done.stderr
    assert "'swerex', 'mine'" in done.stdout
