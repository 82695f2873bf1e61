"""The swe-rex driver: runs on another machine or in a container, through a swe-rex server there.

The server (`pip install swe-rex`, then `swerex-remote --auth-token TOKEN`) and a Python with the
packages that runs need are on the remote side. Here: `ENVSUITE_SWEREX=http://HOST:PORT`,
`ENVSUITE_SWEREX_TOKEN=TOKEN`, and `ENVSUITE_SWEREX_PYTHON=/path/to/python` unless it is `python3`.

Stops: everything that would harm this machine, because nothing runs here. Limits on time, memory,
processes, disk and output hold as in the driver `process`.

Does NOT stop, on the remote side: reading and changing what the server's user may, the network,
other processes, the server and its token, other runs on that server, labels of bundled data sets.
Use one container per session for code that is not trusted. Never chosen automatically; its results
are marked `leaky`.

Each run starts a new interpreter, because the server runs one command after another: imports are
paid again in every run. A lost connection, a refused token, or a server that fails raises
EngineFailure, so the episode is broken and not scored. The answers of the server are read as data:
its own client package would create whichever exception class a server names, so it is not used.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import os
import shlex
import struct
import threading
import weakref
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.errors import EngineFailure, UsageError
from envsuite.reading import parse_json
from envsuite.sandbox import local, packages
from envsuite.sandbox.inside import wire
from envsuite.sandbox.protocol import Dialogue, Limits, Spec
from envsuite.sandbox.session import ZygoteSession

if TYPE_CHECKING:
    import httpx

ADDRESS, TOKEN, PYTHON = "ENVSUITE_SWEREX", "ENVSUITE_SWEREX_TOKEN", "ENVSUITE_SWEREX_PYTHON"
CURE = f"Start `swerex-remote --auth-token TOKEN` on the other machine and set {ADDRESS}=http://HOST:PORT and {TOKEN}"
CONNECT_SECONDS = 10.0
START_SECONDS = 60.0
"""for the remote interpreter and its imports, in addition to a run's own time"""
REPLY_BYTES = 400_000_000

LINKS = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); import packages; "
    "[os.symlink(path, os.path.join(sys.argv[2], name)) "
    "for name, path in packages.closure(tuple(sys.argv[3:])).items() "
    "if not os.path.lexists(os.path.join(sys.argv[2], name))]"
)
"""program that links the distributions of a Spec and their requirements, and nothing else, into a folder"""


def available() -> str:
    """Returns '' if a server is named and httpx is installed, otherwise what is missing."""
    if not os.environ.get(ADDRESS):
        return f"{ADDRESS} is not set"
    try:
        import httpx  # noqa: F401
    except ModuleNotFoundError:
        return "the package 'httpx' is not installed (pip install 'envsuite[api]')"
    return ""


class Server:
    """A swe-rex server: its `execute` and `upload` over HTTP."""

    def __init__(self) -> None:
        import httpx

        self.address = os.environ[ADDRESS].rstrip("/")
        self.python = os.environ.get(PYTHON) or "python3"
        try:
            self.http = httpx.Client(
                base_url=self.address,
                headers={"X-API-Key": os.environ.get(TOKEN, "")},
                timeout=httpx.Timeout(60.0, connect=CONNECT_SECONDS),
                trust_env=False,
            )
            self.http.build_request("POST", "/execute")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:
            raise UsageError(f"{ADDRESS}={self.address!r} is no address of a server: {error}.") from None

    def execute(self, command: str, seconds: float) -> dict[str, Any]:
        """Runs a shell command; returns `stdout`, `stderr` and `exit_code`. Raises EngineFailure."""
        body = {"command": ["/bin/sh", "-c", command], "timeout": seconds}
        # The server runs one command at a time, so this one may wait for those of other sessions.
        answer = self._post("/execute", seconds * 2 + START_SECONDS, json=body)
        if not isinstance(answer.get("exit_code"), int) or not isinstance(answer.get("stdout"), str):
            raise EngineFailure(f"The swe-rex server at {self.address} gave an answer without an exit code.")
        return answer

    def shell(self, command: str, seconds: float = 120.0) -> str:
        """Runs a shell command that must succeed; returns its output. Raises EngineFailure."""
        answer = self.execute(command, seconds)
        if answer["exit_code"]:
            reason = str(answer.get("stderr", "")).strip().splitlines()[-1:] or [f"exit {answer['exit_code']}"]
            raise EngineFailure(f"A command failed on the swe-rex server at {self.address}: {reason[0][:300]}.")
        return str(answer["stdout"])

    def upload(self, content: bytes, path: str, unpack: bool = False) -> None:
        """Writes a file on the server, or with `unpack` the files of a ZIP archive below `path`."""
        fields = {"target_path": path, "unzip": "true" if unpack else "false"}
        self._post("/upload", 600.0, data=fields, files={"file": ("content", content)})

    def _post(self, path: str, seconds: float, **content: Any) -> dict[str, Any]:
        import httpx

        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            with self.http.stream("POST", path, timeout=timeout, **content) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > REPLY_BYTES:
                        raise EngineFailure(f"The swe-rex server at {self.address} answered with too many bytes.")
        except httpx.HTTPError as error:
            raise EngineFailure(f"The swe-rex server at {self.address} cannot be reached: {_reason(error)}.") from error
        if response.status_code != 200:
            raise EngineFailure(
                f"The swe-rex server at {self.address} refused {path} ({response.status_code}): {_detail(bytes(body))}."
            )
        try:
            answer = parse_json(bytes(body))
        except (ValueError, RecursionError) as error:
            raise EngineFailure(f"The swe-rex server at {self.address} answered with no JSON.") from error
        if not isinstance(answer, dict):
            raise EngineFailure(f"The swe-rex server at {self.address} answered with no JSON object.")
        return answer


def _reason(error: httpx.HTTPError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def _detail(body: bytes) -> str:
    """Returns the message in a server's error, shortened."""
    try:
        answer = parse_json(body)
        transfer = answer.get("swerexception", answer)
        message = str(transfer.get("message") or transfer.get("detail") or "no reason given")
    except (ValueError, RecursionError, AttributeError):
        message = body[:100].decode(errors="replace") or "no reason given"
    return " ".join(message.split())[:200].rstrip(".")


class RemoteProcess:
    """A process that looks like a zygote here; each job starts a zygote for one run on the server."""

    def __init__(self, server: Server, folder: str, settings: dict[str, Any]) -> None:
        self.server, self.folder, self.settings = server, folder, settings
        jobs, self.commands = os.pipe()
        self.replies, answers = os.pipe()
        os.set_blocking(self.commands, False)
        self._error = ""
        self._thread = threading.Thread(target=self._serve, args=(jobs, answers), name="envsuite-swerex", daemon=True)
        self._thread.start()
        self._ends = [self.commands, self.replies]

    def _serve(self, jobs: int, answers: int) -> None:
        """Forwards jobs until the commands' end is closed; closes the replies after a failure."""
        try:
            wire.write_frame(answers, b"r", b"{}")
            while (job := wire.read_job(jobs)) is not None:
                payload = wire.read_exactly(jobs, job["payload"])
                self._run(job, payload, answers)
        except (EngineFailure, UsageError) as error:
            self._error = str(error)
        except (OSError, EOFError) as error:  # the session was closed meanwhile
            self._error = str(error)
        finally:
            os.close(jobs)
            os.close(answers)

    def _run(self, job: dict[str, Any], payload: bytes, answers: int) -> None:
        limits = job["limits"]
        head = {name: value for name, value in job.items() if name != "payload"}
        self.server.upload(wire.encode_job(head, payload), f"{self.folder}/job")
        command = _command(self.server.python, self.folder, self.settings)
        result = self.server.execute(command, limits["seconds"] * wire.BUSY + START_SECONDS)
        try:
            frames = base64.b64decode(result["stdout"], validate=True)
        except (binascii.Error, ValueError):
            raise EngineFailure("the swe-rex server's output is not in base64") from None
        kind, length = wire.decode_head(frames[: wire.FRAME_HEAD]) if len(frames) >= wire.FRAME_HEAD else (b"", 0)
        if kind == b"f":
            raise EngineFailure(_last_line(frames[wire.FRAME_HEAD :]))
        if kind != b"r":
            raise EngineFailure(_last_line(str(result.get("stderr", "")).encode()) or "the remote Python did not start")
        _check_frames(frames)
        wire.write_all(answers, frames[wire.FRAME_HEAD + length :])

    def kill(self) -> None:
        """Closes the connection's ends; a run that is under way ends by its own limits."""
        while self._ends:
            os.close(self._ends.pop())

    force = kill

    def last_words(self) -> str:
        self._thread.join(1.0)
        return self._error


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _check_frames(frames: bytes) -> None:
    """Raises EngineFailure unless the bytes are whole frames that end with the frame of the end."""
    position, kind = 0, b""
    while position + wire.FRAME_HEAD <= len(frames):
        try:
            kind, length = wire.decode_head(frames[position : position + wire.FRAME_HEAD])
        except struct.error:
            break
        position += wire.FRAME_HEAD + length
    if position != len(frames) or kind != b"x":
        raise EngineFailure("the run's answer is cut off")


def _command(python: str, folder: str, settings: dict[str, Any]) -> str:
    """Returns the shell command that runs the uploaded job and prints its frames in base64."""
    variables = {**local.ENVIRONMENT, "HOME": folder}
    words = ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), python, "-s", "-S", "-B", "-c"]
    words += [local.BOOT, f"{folder}/code", f"{folder}/packages", json.dumps(settings)]
    place = shlex.quote(folder)
    return (
        f"cd {place}/scratch && {shlex.join(words)} < {place}/job > {place}/reply; status=$?; "
        f"base64 -w0 {place}/reply; rm -rf {place}/job {place}/reply; exit $status"
    )


def _folder(home: Path) -> str:
    """Returns a session's folder on the server, named like its folder here."""
    return f"/tmp/remote-{home.name}"


def seen_workspace(spec: Spec, home: Path) -> str:
    """Returns the workspace's path on the server, which a session's own folder names."""
    return f"{_folder(home)}/workspace"


def launch(spec: Spec, home: Path) -> RemoteProcess:
    """Uploads what runs need to the server; returns the connection."""
    if spec.read_only or spec.image:
        raise EngineFailure("The swerex sandbox shows no folders and starts no images: its server has its own files.")
    server = Server()
    folder = _folder(home)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(packages.INSIDE.glob("*.py")):
            file.write(path, f"inside/{path.name}")
        file.write(packages.__file__, "packages.py")
        if spec.program:
            file.write(spec.program, "program.py")
    place = shlex.quote(folder)
    # The first command creates the folder, and fails if another user made it.
    server.shell(f"umask 077 && mkdir -p {place}/scratch {place}/workspace && test -O {place}")
    server.upload(archive.getvalue(), f"{folder}/code", unpack=True)
    names = shlex.join([f"{folder}/code", f"{folder}/packages", *spec.distributions])
    server.shell(f"mkdir -p {place}/packages && {shlex.quote(server.python)} -c {shlex.quote(LINKS)} {names}")
    settings = local.config(
        spec,
        program=f"{folder}/code/program.py" if spec.program else None,
        scratch=f"{folder}/scratch",
        workspace=f"{folder}/workspace" if spec.workspace else None,
        workspace_inside=f"{folder}/workspace" if spec.workspace else "",
    )
    return RemoteProcess(server, folder, settings)


class RemoteSession(ZygoteSession):
    """A session whose workspace and snapshot are on the server."""

    def __init__(self, name: str, driver: Any, spec: Spec, spare: bool = False) -> None:
        super().__init__(name, driver, spec)
        self._place = shlex.quote(_folder(self._home))
        weakref.finalize(self, _forget, self._place, os.getpid())

    def dialogue(self, payload: bytes, limits: Limits | None = None) -> Dialogue:
        """Raises UsageError: a server runs whole commands, so no state lasts from turn to turn."""
        raise UsageError("The swerex sandbox keeps no interpreter between turns: use another sandbox for explore.")

    def snapshot(self) -> None:
        self._need_workspace()
        place = self._place
        Server().shell(f"rm -rf {place}/snapshot && cp -a {place}/workspace {place}/snapshot")

    def reset(self, forget: bool = False) -> None:
        self._need_workspace()
        place = self._place
        drop = f"rm -rf {place}/snapshot; " if forget else ""
        Server().shell(
            f"{drop}rm -rf {place}/workspace {place}/scratch; mkdir -p {place}/scratch; "
            f"if test -d {place}/snapshot; then cp -a {place}/snapshot {place}/workspace; "
            f"else mkdir {place}/workspace; fi"
        )

    def close(self) -> None:
        super().close()
        _forget(self._place, os.getpid())

    def _copy_limits(self) -> Limits:
        return Limits(seconds=300, memory_mb=4096, disk_mb=4096, value_mb=200)


def _forget(place: str, owner: int) -> None:
    """Removes a session's folder from the server, if the server still answers."""
    if os.getpid() != owner or not os.environ.get(ADDRESS):
        return
    with contextlib.suppress(EngineFailure, UsageError):  # a lost server keeps its folder below /tmp
        Server().shell(f"rm -rf {place}", 30.0)


session = RemoteSession
