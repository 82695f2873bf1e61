"""The forked process of one run: sets up its descriptors, restricts itself, then does the job."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import archive, kernel, system_calls, wire
from .family import threads_of_this_user
from .limits import execute, set_limits

OUTPUT, ERROR, VALUE, FAULT, LINK, STDIN = b"o", b"e", b"v", b"f", b"l", b"i"
"""names of a run's descriptors; the first three are also kinds of frames"""


class Child:
    """One run, in its own process. `pipes`: this process's ends of the pipes to the zygote, by name."""

    def __init__(
        self,
        config: dict[str, Any],
        program: ModuleType | None,
        job: dict[str, Any],
        scratch: str | None,
        pipes: dict[bytes, int],
    ) -> None:
        self.config, self.program, self.job, self.scratch, self.pipes = config, program, job, scratch, pipes
        self.home = scratch or "/tmp"

    def be(self, commands: int) -> None:
        """Reads the payload from `commands`, restricts this process and does the job. Does not return."""
        status = 1
        try:
            try:
                os.setsid()
                action = self.prepare(wire.read_exactly(commands, self.job["payload"]))
                self.confine()
            except BaseException:
                os.write(self.pipes[FAULT], traceback.format_exc().encode()[-2000:])
                os._exit(1)
            os.close(self.pipes[FAULT])
            status = action()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def prepare(self, payload: bytes) -> Callable[[], int]:
        """Sets up descriptors 0 to 3 and the environment; returns the function to call after `confine`."""
        job, pipes = self.job, self.pipes
        command = job.get("command")
        if command is not None:
            source = os.memfd_create("stdin")
            wire.write_all(source, payload)
            os.lseek(source, 0, os.SEEK_SET)
        else:
            source = pipes[STDIN] if STDIN in pipes else os.open("/dev/null", os.O_RDONLY)
        names = [name for name in (FAULT, LINK) if name in pipes]
        copies = [os.dup(end) for end in (source, pipes[OUTPUT], pipes[ERROR], pipes[VALUE])]
        private_copies = [os.dup(pipes[name]) for name in names]
        for target, handle in enumerate(copies):
            os.dup2(handle, target, inheritable=target < 3 or command is None)
        for place, name in enumerate(names):
            pipes[name] = 4 + place
            os.dup2(private_copies[place], pipes[name], inheritable=False)
        os.closerange(4 + len(names), 4096)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(i, "w", buffering=1, closefd=False) for i in (1, 2))  # noqa: SIM115
        environment = {
            "HOME": self.home,
            "TMPDIR": self.home,
            **self.config["environment"],
            **job.get("environment", {}),
        }
        root = self.config["workspace_inside"]
        if command is not None:
            return lambda: execute(command, job.get("cwd") or root or self.home, environment)
        os.environ.clear()
        os.environ.update(environment)
        if job["kind"] == "pack":
            return lambda: archive.pack(root, job["path"], 3)
        if job["kind"] == "unpack":
            return lambda: archive.unpack(root, job["path"], payload)
        return lambda: self.call(payload)

    def call(self, payload: bytes) -> int:
        if self.program is None:
            raise RuntimeError("this sandbox was opened without a program")
        os.chdir(self.home)
        sys.argv[:] = [""]
        if self.job["kind"] == "dialogue":
            self.program.converse(payload, _messages(), _end_turn)
        else:
            wire.write_all(3, self.program.handle(payload))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return 0

    def confine(self) -> None:
        """Restricts this process.

        The order matters: each step needs rights that a later one removes.
        """
        config, limits, scratch, link = self.config, self.job["limits"], self.scratch, self.pipes.get(LINK)
        kernel.die_first()
        os.nice(config["niceness"])
        if config["namespaces"]:
            kernel.unshare(kernel.NEW_MOUNT | kernel.NEW_IPC)
            kernel.privatise_mounts()
            kernel.mount_proc()
            for path in config["sealed"]:
                kernel.hide_file(path)
            if config["fresh"]:
                kernel.mount_tmpfs("/tmp", int(limits["disk_mb"]))
                kernel.mount_tmpfs("/dev/shm", int(limits["disk_mb"]))
        existing = 0 if config["own_user"] else threads_of_this_user()
        set_limits(limits, warm=self.program is not None, existing_processes=existing)
        kernel.become(config["uid"], config["keep_search"])
        if config["uid"] is None and not config["namespaces"]:
            kernel.open_to_inspection()  # the zygote reads arguments of guarded calls, and looks for hidden memory
        if config["rules"] is not None:
            rules = config["rules"]
            write = [*rules["write"], *([scratch] if scratch else [])]
            own = [f"/proc/self/{name}" for name in ("maps", "stat", "statm", "status")]
            kernel.landlock([*rules["listed"], *write], [*rules["read"], *own], write)
        if config["seccomp"]:
            listener = system_calls.seccomp(
                config["sockets"], config["signals"], config["shared_user"], config["watches"]
            )
            if listener is not None and link is not None:
                with socket.socket(fileno=link) as channel:
                    socket.send_fds(channel, [b"l"], [listener])
                os.close(listener)
            elif link is not None:
                os.close(link)
        kernel.die_with_parent()


def _messages() -> Iterator[bytes]:
    """Yields the payload of each turn, until the zygote closes the pipe."""
    with contextlib.suppress(EOFError):
        while True:
            yield wire.read_message(0)


def _end_turn(mark: bytes) -> None:
    """Ends a turn: writes one byte, for the caller, after everything that was printed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    wire.write_all(3, mark[:1])
