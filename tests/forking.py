"""Runs commands in forks of one process that has imported the large packages, torch and transformers.

Importing them takes each command longer than what the tests have it do. The project's own modules are imported anew in
every fork. `Forks` starts the process; `Forks.python` is a program that hands it its arguments, folder, environment and
streams.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "peft",
    "tokenizers",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "transformers.generation",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)
PROGRAM = """#!{python} -IS
import json, os, socket, sys
sender = socket.socket(socket.AF_UNIX)
sender.connect({address!r})
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(sender, [b"!"], [0, 1, 2])
sender.sendall(json.dumps(request).encode())
sender.shutdown(socket.SHUT_WR)
code = int(sender.recv(16) or 1)
sys.exit(code if code >= 0 else 128 - code)
"""


class Forks:
    """A process that runs commands in forks. It ends with `close`, and also if the process that started it dies."""

    def __init__(self, folder: Path) -> None:
        address = folder / "s"  # short: a socket's path has room for 107 characters
        self.python = folder / "python"
        """a program for `python -m MODULE ...` and `python FILE ...`"""
        self.python.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
        self.python.chmod(0o755)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.forking", str(address)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT)
        while not address.exists():
            assert self._process.poll() is None, "the process that forks has ended"
            time.sleep(0.05)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)


def run(request: dict) -> None:
    """Runs `python -m MODULE ...` or `python FILE ...` in this process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    if request["arguments"][0] == "-m":
        sys.argv = request["arguments"][1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = request["arguments"]
        runpy.run_path(sys.argv[0], run_name="__main__")


def wait(child: int, connection: socket.socket) -> int:
    """Waits until a fork ends, and kills it if its caller dies; returns its exit code."""
    hangup = select.poll()
    hangup.register(connection, 0)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if hangup.poll(20):
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(ended[1])


def serve(listener: socket.socket) -> tuple[dict, list[int]]:
    """Forks for each connection, one at a time; returns the request and its streams in the forks alone."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        if any(key.fileobj is sys.stdin for key, _ in selector.select()):  # closed: nothing is ever written to it
            sys.exit()
        connection, _ = listener.accept()
        _, streams, *_ = socket.recv_fds(connection, 1, 3)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        child = os.fork()
        if not child:
            connection.close()
            selector.close()
            return json.loads(b"".join(parts)), streams
        for stream in streams:
            os.close(stream)
        code = wait(child, connection)
        with connection, contextlib.suppress(OSError):  # the caller has gone
            connection.sendall(str(code).encode())


def main() -> None:
    for package in PACKAGES:
        importlib.import_module(package)
    address = sys.argv[1]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen()
        os.rename(f"{address}.new", address)
        request, streams = serve(listener)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The former objects know whether the former files had a position.
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    run(request)


if __name__ == "__main__":
    main()
