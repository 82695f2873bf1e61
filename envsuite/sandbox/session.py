"""Sessions of the drivers that keep a zygote: bwrap, landlock, docker, process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import tarfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.reading import check_tar
from envsuite.sandbox import leftovers
from envsuite.sandbox.dialogue import ZygoteDialogue
from envsuite.sandbox.inside import archive, wire
from envsuite.sandbox.protocol import Dialogue, Fate, HostKill, Limits, Result, Session, Spec

START_SECONDS = 120.0  # imports may take long on a cold disk
GRACE_SECONDS = 20.0  # beyond a run's own limit; after that the sandbox itself is considered hung
CLEAN_UP_SECONDS = 900.0  # for the removal of a run's files; some disks take milliseconds for each


class Process(Protocol):
    """Interface of a running zygote."""

    commands: int  # file descriptor to which jobs are written
    replies: int  # file descriptor from which frames are read

    def kill(self) -> None:
        """Ends it and everything inside."""

    def force(self) -> None:
        """Kills it at once, without its cooperation."""

    def last_words(self) -> str:
        """Returns the last line of its standard error, for a message."""


class Driver(Protocol):
    """Interface of a driver's module."""

    __name__: str

    def available(self) -> str:
        """Returns '' if the driver's parts are installed, otherwise what is missing."""

    def launch(self, spec: Spec, home: Path) -> Process:
        """Starts a zygote.

        `home` is a folder of this session; `home/workspace` exists if the Spec has a workspace.
        """

    def seen_workspace(self, spec: Spec, home: Path) -> str:
        """Returns the path of the workspace inside."""


class ZygoteSession(Session):
    """A session with one zygote, started on first use and restarted after a failure."""

    def __init__(self, name: str, driver: Driver, spec: Spec, spare: bool = False) -> None:
        """`spare` starts a second zygote while the first is used; it replaces the first on `reset`."""
        self.driver, self._module, self.spec = name, driver, spec
        leftovers.sweep()
        self._home = leftovers.folder("sandbox")
        self._home.chmod(0o755 if os.geteuid() == 0 else 0o700)  # as root, runs have another user
        if spec.workspace:
            (self._home / "workspace").mkdir()
        self.workspace = driver.seen_workspace(spec, self._home) if spec.workspace else ""
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._spare = Spare() if spare else None
        self._remains: list[Process | Spare] = (
            [self._spare] if self._spare else []
        )  # processes for the finalizer to end
        self._finalizer = weakref.finalize(self, _clean, self._remains, self._home, os.getpid())

    # ---- Session's interface ---------------------------------------------------------------------------------------

    def run(
        self,
        command: str | Sequence[str],
        stdin: bytes = b"",
        limits: Limits | None = None,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        words = ["/bin/bash", "-c", command] if isinstance(command, str) else list(command)
        job = {"kind": "exec", "command": words, "cwd": cwd, "environment": dict(environment or {})}
        return self._run_job(job, stdin, limits or self.spec.limits)

    def call(self, payload: bytes, limits: Limits | None = None) -> Result:
        if self.spec.program is None:
            raise UsageError("This sandbox was opened without a program: give Spec(program=FILE) to use call().")
        return self._run_job({"kind": "call"}, payload, limits or self.spec.limits)

    def dialogue(self, payload: bytes, limits: Limits | None = None) -> Dialogue:
        if self.spec.program is None:
            raise UsageError("This sandbox was opened without a program: give Spec(program=FILE) to use dialogue().")
        self._run_job({"kind": "dialogue"}, payload, limits or self.spec.limits)
        return ZygoteDialogue(self._run_job)

    def copy_in(self, source: Path, path: str = "") -> None:
        self._need_workspace()
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for item in sorted(source.iterdir()) if source.is_dir() else [source]:
                tar.add(item, arcname=item.name)
        result = self._run_job({"kind": "unpack", "path": path}, stream.getvalue(), self._copy_limits())
        if result.fate is not Fate.EXITED or result.exit_code:
            raise EngineFailure(f"Copying {source} into the sandbox failed ({result.fate}): {_tail(result.stderr)}")

    def copy_out(self, path: str, target: Path) -> None:
        self._need_workspace()
        result = self._run_job({"kind": "pack", "path": path}, b"", self._copy_limits())
        if result.fate is not Fate.EXITED or result.exit_code:
            raise DataError(f"{path!r} cannot be copied out of the workspace ({result.fate}, is it there?).")
        try:
            with tarfile.open(fileobj=io.BytesIO(result.value), mode="r:") as tar:
                check_tar(tar, path)
                archive.extract(tar, str(target))
        except (tarfile.TarError, OSError) as error:
            raise DataError(f"{path!r} cannot be copied out of the workspace: {error}.") from error

    def snapshot(self) -> None:
        self._need_workspace()
        with self._lock:
            archive.remove([str(self._home / "snapshot")])
            _copy_tree(self._home / "workspace", self._home / "snapshot")

    def reset(self, forget: bool = False) -> None:
        self._need_workspace()
        with self._lock:
            if forget:
                archive.remove([str(self._home / "snapshot")])
            if not self.spec.fresh:
                self._stop(
                    later=self._spare is not None
                )  # /tmp disappears with the sandbox, or is the folder `scratch`
                archive.remove([str(item) for item in (self._home / "scratch").glob("*")])
            workspace = self._home / "workspace"
            archive.remove([str(item) for item in workspace.iterdir()])
            if (self._home / "snapshot").is_dir():
                _copy_tree(self._home / "snapshot", workspace)

    def close(self) -> None:
        self._finalizer()

    # ---- communication with the zygote -----------------------------------------------------------------------------

    def _need_workspace(self) -> None:
        if not self.spec.workspace:
            raise UsageError("This sandbox was opened without a workspace: give Spec(workspace='/testbed').")

    def _copy_limits(self) -> Limits:
        return Limits(seconds=120, memory_mb=4096, disk_mb=4096, value_mb=1024)

    def _run_job(self, job: Mapping[str, object], payload: bytes, limits: Limits) -> Result:
        """Sends a job to the zygote and returns its result.

        Raises EngineFailure if the zygote fails.
        """
        message = wire.encode_job({**job, "limits": limits.plain()}, payload)
        with self._lock:
            if not self._finalizer.alive:
                raise UsageError("This sandbox is closed.")
            process = self._process or self._start()
            try:
                result = _exchange(process, message, limits)
                if self._spare and not self._spare.begun:
                    self._spare.begin(self._launch)
                return result
            except HostKill:
                raise
            except BaseException as error:
                words = process.last_words()
                self._stop()
                if isinstance(error, (OSError, EOFError, ValueError, KeyError, TypeError)):
                    raise EngineFailure(f"The {self.driver} sandbox broke down: {error}. {words}".strip()) from error
                raise

    def _start(self) -> Process:
        process = (self._spare and self._spare.take()) or self._launch()
        self._process = process
        self._remains.append(process)
        return process

    def _launch(self) -> Process:
        """Starts a zygote and waits until it is ready."""
        try:
            process = self._module.launch(self.spec, self._home)
        except OSError as error:
            raise EngineFailure(f"The {self.driver} sandbox cannot be started: {error}.") from error
        try:
            kind, data = _read_frame(process, time.monotonic() + START_SECONDS)
            if kind != b"r":
                raise EngineFailure(f"The {self.driver} sandbox did not start: {_tail(data)}")
        except BaseException as error:
            words = process.last_words()
            process.kill()
            if isinstance(error, (OSError, EOFError)):
                raise EngineFailure(f"The {self.driver} sandbox did not start ({error}). {words}".strip()) from error
            raise
        return process

    def _stop(self, later: bool = False) -> None:
        if self._process is not None:
            self._remains.remove(self._process)
            if later and self._spare:
                self._spare.retired.append(self._process)
            else:
                self._process.kill()
            self._process = None


class Spare:
    """At most one zygote that is started in a thread before it is needed.

    The thread also ends idle zygotes in `retired`.
    """

    def __init__(self) -> None:
        self.retired: list[Process] = []
        self._thread: threading.Thread | None = None
        self._process: Process | None = None

    @property
    def begun(self) -> bool:
        return self._thread is not None

    def begin(self, launch: Callable[[], Process]) -> None:
        def start() -> None:
            self._end_retired()
            with contextlib.suppress(EngineFailure):  # the caller that needs it tries again and reports the error
                self._process = launch()

        self._thread = threading.Thread(target=start, name="envsuite-spare", daemon=True)
        self._thread.start()

    def take(self) -> Process | None:
        """Returns the zygote when ready; None if none was begun or it failed to start.

        Afterwards the next one may begin.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        process, self._process = self._process, None
        return process

    def kill(self) -> None:
        if process := self.take():
            process.kill()
        self._end_retired()

    def _end_retired(self) -> None:
        while self.retired:
            with contextlib.suppress(OSError):
                self.retired.pop().kill()


def _exchange(process: Process, message: bytes, limits: Limits) -> Result:
    """Writes one job and reads frames until its end. Raises OSError or EOFError if the zygote fails."""
    deadline = time.monotonic() + limits.seconds * wire.BUSY + GRACE_SECONDS
    _write(process.commands, message, deadline)
    excerpts = {b"o": Excerpt(limits.output_kb * 1000), b"e": Excerpt(limits.output_kb * 1000)}
    value = bytearray()
    while True:
        kind, data = _read_frame(process, deadline)
        if kind == b"v":
            value += data
        elif kind in excerpts:
            excerpts[kind].add(data)
        elif kind == b"c":
            deadline = time.monotonic() + CLEAN_UP_SECONDS
        else:
            end = json.loads(data)
            break
    if end["fate"] == "fault":
        raise OSError(end["reason"].strip().splitlines()[-1])
    if end["fate"] == "killed":
        raise HostKill(
            f"The machine killed a run of the sandbox that had used {end['peak'] / 1e6:.0f} of {limits.memory_mb} MB. "
            "Free memory, or play fewer episodes at a time (--max-concurrent)."
        )
    out, err = excerpts[b"o"], excerpts[b"e"]
    return Result(
        fate=Fate(end["fate"]),
        exit_code=end["status"],
        stdout=out.text(),
        stderr=err.text(),
        value=bytes(value),
        seconds=end["seconds"],
        cut=out.cut or err.cut,
    )


class Excerpt:
    """The first and the last part of a stream that may be long, each half of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.half = max(1, size // 2)
        self.head, self.tail, self.dropped = bytearray(), bytearray(), 0

    @property
    def cut(self) -> bool:
        return self.dropped > 0

    def add(self, data: bytes) -> None:
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        excess = len(self.tail) - self.half
        if excess > 0:
            del self.tail[:excess]
            self.dropped += excess

    def text(self) -> bytes:
        middle = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return bytes(self.head) + middle + bytes(self.tail)


def _read_frame(process: Process, deadline: float) -> tuple[bytes, bytes]:
    kind, length = wire.decode_head(_read(process.replies, wire.FRAME_HEAD, deadline))
    return kind, _read(process.replies, length, deadline)


def _read(handle: int, count: int, deadline: float) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        if not _ready(handle, select.POLLIN, deadline):
            raise OSError("it has stopped answering")
        piece = os.read(handle, count - len(pieces))
        if not piece:
            raise EOFError("it has ended")
        pieces += piece
    return bytes(pieces)


def _write(handle: int, data: bytes, deadline: float) -> None:
    unsent = memoryview(data)
    while unsent:
        if not _ready(handle, select.POLLOUT, deadline):
            raise OSError("it accepts no job")
        unsent = unsent[os.write(handle, unsent[: 1 << 16]) :]


def _ready(handle: int, event: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(handle, event)
    return bool(poll.poll(max(0.0, (deadline - time.monotonic()) * 1e3)))


def _tail(data: bytes) -> str:
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _copy_tree(source: Path, target: Path) -> None:
    """Copies a folder like `cp -a`: links stay links, pipes and devices are not opened."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)], capture_output=True)
    if done.returncode:
        raise EngineFailure(f"The workspace cannot be copied: {_tail(done.stderr)}")


def _clean(remains: list[Process | Spare], home: Path, owner: int) -> None:
    if os.getpid() != owner:  # in a forked worker of envsuite: the sandbox belongs to the parent
        return
    try:
        while remains:
            with contextlib.suppress(OSError):  # one that cannot be ended must not keep the others
                remains.pop().kill()
    finally:
        archive.remove([str(home)])
