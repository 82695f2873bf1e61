"""First process inside a sandbox: imports slow modules once, then forks for every run.

A driver starts it as `python -I -S -c ... CONFIG` and talks to it over stdin and stdout
(`inside.wire`). The zygote is trusted: it never holds a payload or a result, so that no run can
find another run's data in inherited memory. The forked child reads its payload from stdin itself,
and its output passes through one buffer that is cleared before the next fork. The zygote stays
single-threaded, because only a single-threaded process can fork safely.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import resource
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from . import archive, kernel, wire
from .attributes import AttributeGuard
from .family import (
    descendants,
    end_family,
    folder_bytes,
    memory_bytes,
    processor_seconds,
    threads_of_this_user,
    waited,
)
from .limits import execute, set_limits

TICK = 0.05  # seconds between checks of clock, memory and disk
ERROR, VALUE, LINK = b"e", b"v", b"l"


class Zygote:
    """Server of one sandbox. `config` comes from `local.config` outside."""

    def __init__(self, config: dict[str, Any], commands: int, replies: int) -> None:
        self.config = config
        self.commands, self.replies = commands, replies
        self.buffer = bytearray(1 << 16)
        self.parent: int | None = config["parent"]  # a pidfd, readable once envsuite's process has ended
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY) if config["namespaces"] else None
        self.handle: Callable[[bytes], bytes] | None = None
        self.runs = 0

    def warm_up(self) -> None:
        """Imports the modules that runs need. Raises any error of an import."""
        for module in self.config["modules"]:
            importlib.import_module(module)
        if self.config["program"]:
            spec = importlib.util.spec_from_file_location("program", self.config["program"])
            if spec is None or spec.loader is None:
                raise ImportError(self.config["program"])
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.handle = module.handle
            getattr(module, "warm_up", lambda: None)()
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            raise RuntimeError(
                f"{threads} threads after the imports, but only a single-threaded process can fork safely"
            )

    def serve(self) -> None:
        """Runs jobs until envsuite closes stdin or ends."""
        while True:
            ready = select.select([self.commands] + ([] if self.parent is None else [self.parent]), [], [])[0]
            job = wire.read_job(self.commands) if self.commands in ready else None
            if job is None:
                return
            self.run(job)

    # ---- one run ---------------------------------------------------------------------------------------------------

    def run(self, job: dict[str, Any]) -> None:
        """Forks a child for one job, forwards its output, ends all its processes and writes the result
        frame.
        """
        self.buffer[:] = bytes(len(self.buffer))
        self.runs += 1
        scratch = self.make_scratch()
        link = socket.socketpair() if self.config["shared_user"] else None
        pipes = {name: os.pipe() for name in (b"o", ERROR, VALUE, b"f")}
        if self.pid_namespace is not None:
            kernel.unshare(kernel.NEW_PID)
        baseline = memory_bytes(os.getpid())
        child = os.fork()
        if child == 0:
            written = {name: ends[1] for name, ends in pipes.items()}
            if link:
                written[LINK] = link[1].fileno()
            self.be_child(job, scratch, written)
        if self.pid_namespace is not None:
            kernel.return_to_pid_namespace(self.pid_namespace)
        for _, end in pipes.values():
            os.close(end)
        outputs = {name: pipes[name][0] for name in pipes}
        fault = self.read_fault(outputs.pop(b"f"))
        guard = self.receive_guard(link, scratch, bool(fault)) if link else None
        started, queued = time.monotonic(), waited(child)
        ending: dict[str, Any] = (
            {"fate": "fault"} if fault else self.watch(child, job["limits"], outputs, scratch, baseline, queued, guard)
        )
        seconds = time.monotonic() - started - (waited(child) - queued)
        end_family(child, self.config["uid"], namespaced=self.pid_namespace is not None)
        if guard:
            guard.close()
        if ending["fate"] == "abandoned":
            raise SystemExit(0)
        _, status = os.waitpid(child, 0)
        for name, handle in outputs.items():
            os.set_blocking(handle, False)
            while not fault and self.forward(name, handle):
                pass
            os.close(handle)
        if scratch and self.config["fresh"]:
            archive.remove([entry.path for entry in os.scandir(self.config["scratch"])])
        if not fault:
            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            ending.update(status=os.waitstatus_to_exitcode(status), seconds=max(0.0, seconds), peak_kb=used)
        else:
            ending["reason"] = fault
        wire.write_frame(self.replies, b"x", json.dumps(ending).encode())

    def make_scratch(self) -> str | None:
        """Creates a folder for this run if there are no mount namespaces for a private /tmp; returns
        its path.
        """
        if not self.config["scratch"]:
            return None
        path = os.path.join(self.config["scratch"], str(self.runs) if self.config["fresh"] else "tmp")
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
            if self.config["uid"] is not None:
                os.chown(path, self.config["uid"], self.config["uid"])
        return path

    def receive_guard(
        self, link: tuple[socket.socket, socket.socket], scratch: str | None, failed: bool
    ) -> AttributeGuard | None:
        """Receives the listener of the child's filter over `link`; None if the run did not begin."""
        with link[0], link[1]:
            if failed:
                return None
            _, (listener, *_), _, _ = socket.recv_fds(link[0], 1, 1)
        return AttributeGuard(listener, [folder for folder in (scratch, self.config["workspace"]) if folder])

    def read_fault(self, handle: int) -> str:
        """Waits until the run begins; returns the error that prevented it, normally ''."""
        text = b""
        while chunk := os.read(handle, 4096):
            text += chunk
        os.close(handle)
        return text.decode(errors="replace")

    def watch(
        self,
        child: int,
        limits: dict[str, float],
        outputs: dict[bytes, int],
        scratch: str | None,
        baseline: int,
        queued: float,
        guard: AttributeGuard | None,
    ) -> dict[str, Any]:
        """Forwards output until the child ends or exceeds a limit; returns its fate."""
        began = time.monotonic()
        deadline, latest = began + limits["seconds"], began + limits["seconds"] * wire.BUSY
        written = dict.fromkeys(outputs, 0)
        allowed = {b"o": limits["flood_mb"], ERROR: limits["flood_mb"], VALUE: limits["value_mb"]}
        handle = os.pidfd_open(child)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self.commands, 0)  # reports only hang-up: envsuite has closed the session
        if self.parent is not None:
            poll.register(self.parent, select.POLLIN)
        for output in outputs.values():
            poll.register(output, select.POLLIN)
        names = {output: name for name, output in outputs.items()}
        listener = guard.listener if guard else -1
        if guard:
            poll.register(listener, select.POLLIN)
        next_look = time.monotonic() + TICK
        next_disk = next_look
        try:
            while True:
                now = time.monotonic()
                if now >= deadline and (now >= latest or self.had_its_time(child, began, queued, limits["seconds"])):
                    return {"fate": "timeout"}
                events = poll.poll(max(1.0, (min(next_look, latest) - now) * 1e3))
                for ready, event in events:
                    if ready in names:
                        count = self.forward(names[ready], ready)
                        written[names[ready]] += count
                        if not count:
                            poll.unregister(ready)
                        if written[names[ready]] > allowed[names[ready]] * 1e6:
                            return {"fate": "output"}
                    elif guard and ready == listener:
                        if event & select.POLLIN:
                            guard.answer()
                        else:  # every process with the filter has ended
                            poll.unregister(listener)
                    elif ready == handle:
                        return {"fate": "exited"}
                    else:
                        return {"fate": "abandoned"}
                looked = time.monotonic()
                if looked >= next_look:
                    family = descendants()
                    used = sum(max(0, memory_bytes(pid) - baseline) for pid in family)
                    if used > limits["memory_mb"] * 1e6:
                        return {"fate": "memory"}
                    # On a busy machine the check itself is slow and takes processor time from the
                    # run.
                    next_look = time.monotonic() + max(TICK, 4 * (time.monotonic() - looked))
                looked = time.monotonic()
                if looked >= next_disk:
                    folders = [folder for folder in (scratch, self.config["workspace"]) if folder]
                    allowed_bytes = limits["disk_mb"] * 1e6
                    if sum(folder_bytes(folder, allowed_bytes) for folder in folders) > allowed_bytes:
                        return {"fate": "disk"}
                    next_disk = looked + max(10 * TICK, 4 * (time.monotonic() - looked))
        finally:
            os.close(handle)

    def had_its_time(self, child: int, began: float, queued: float, seconds: float) -> bool:
        """Returns True if a run past its deadline was not held up by others.

        Time for which the child waited for a processor does not count, unless the run's own processes used the
        processors meanwhile.
        """
        ran = time.monotonic() - began - (waited(child) - queued)
        return ran >= seconds or processor_seconds(descendants()) >= seconds

    def forward(self, name: bytes, handle: int) -> int:
        """Forwards one buffer of a pipe to envsuite; returns its size, 0 if there is none."""
        try:
            count = os.readv(handle, [self.buffer])
        except BlockingIOError:
            return 0
        if count:
            wire.write_frame(self.replies, name, memoryview(self.buffer)[:count])
        return count

    # ---- in the child ----------------------------------------------------------------------------------------------

    def be_child(self, job: dict[str, Any], scratch: str | None, pipes: dict[bytes, int]) -> None:
        """Restricts this process, then does the job. Does not return."""
        status = 1
        try:
            try:
                os.setsid()
                payload = wire.read_exactly(self.commands, job["payload"])
                home = scratch or "/tmp"
                action = self.prepare(job, payload, home, pipes)
                self.confine(job["limits"], scratch, pipes.get(LINK))
            except BaseException:
                os.write(pipes[b"f"], traceback.format_exc().encode()[-2000:])
                os._exit(1)
            os.close(pipes[b"f"])
            status = action()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def prepare(self, job: dict[str, Any], payload: bytes, home: str, pipes: dict[bytes, int]) -> Callable[[], int]:
        """Sets up descriptors 0 to 3 and the environment; returns the function to call after
        `confine`.
        """
        command = job.get("command")
        if command is None:
            source = os.open("/dev/null", os.O_RDONLY)
        else:
            source = os.memfd_create("stdin")
            wire.write_all(source, payload)
            os.lseek(source, 0, os.SEEK_SET)
        names = [name for name in (b"f", LINK) if name in pipes]
        copies = [os.dup(end) for end in (source, pipes[b"o"], pipes[ERROR], pipes[VALUE])]
        private_copies = [os.dup(pipes[name]) for name in names]
        for target, handle in enumerate(copies):
            os.dup2(handle, target, inheritable=target < 3 or command is None)
        for target, (name, handle) in enumerate(zip(names, private_copies, strict=True), 4):
            os.dup2(handle, target, inheritable=False)
            pipes[name] = target
        os.closerange(4 + len(names), 4096)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(i, "w", buffering=1, closefd=False) for i in (1, 2))  # noqa: SIM115
        environment = {"HOME": home, "TMPDIR": home, **self.config["environment"], **job.get("environment", {})}
        if command is not None:
            return lambda: execute(command, job.get("cwd") or self.config["workspace_inside"] or home, environment)
        os.environ.clear()
        os.environ.update(environment)
        kind = job["kind"]
        root = self.config["workspace_inside"]
        if kind == "pack":
            return lambda: archive.pack(root, job["path"], 3)
        if kind == "unpack":
            return lambda: archive.unpack(root, job["path"], payload)
        return lambda: self.call(payload, home)

    def call(self, payload: bytes, home: str) -> int:
        if self.handle is None:
            raise RuntimeError("this sandbox was opened without a program")
        os.chdir(home)
        sys.argv[:] = [""]
        value = self.handle(payload)
        wire.write_all(3, value)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return 0

    def confine(self, limits: dict[str, float], scratch: str | None, link: int | None) -> None:
        """Restricts this process.

        The order matters: each step needs rights that a later one removes.
        """
        config = self.config
        if config["namespaces"]:
            kernel.unshare(kernel.NEW_MOUNT | kernel.NEW_IPC)
            kernel.privatise_mounts()
            kernel.mount_proc()
            if config["fresh"]:
                kernel.mount_tmpfs("/tmp", int(limits["disk_mb"]))
                kernel.mount_tmpfs("/dev/shm", int(limits["disk_mb"]))
        set_limits(
            limits, warm=self.handle is not None, existing_processes=0 if config["own_user"] else threads_of_this_user()
        )
        kernel.become(config["uid"], config["keep_search"])
        if config["rules"] is not None:
            rules = config["rules"]
            write = [*rules["write"], *([scratch] if scratch else [])]
            own = [f"/proc/self/{name}" for name in ("maps", "stat", "statm", "status")]
            kernel.landlock([*rules["listed"], *write], [*rules["read"], *own], write)
        if config["seccomp"]:
            listener = kernel.seccomp(config["sockets"], config["signals"], shared_user=link is not None)
            if listener is not None and link is not None:
                kernel.open_to_inspection()  # the zygote reads the arguments of guarded calls
                with socket.socket(fileno=link) as channel:
                    socket.send_fds(channel, [b"l"], [listener])
                os.close(listener)
        kernel.die_with_parent()


def main(config: dict[str, Any]) -> None:
    """Takes over stdin and stdout, warms up, reports ready and serves."""
    replies, commands = os.dup(1), os.dup(0)
    if config["socket"]:
        link = socket.socket(socket.AF_UNIX)
        link.connect(config["socket"])
        replies = commands = link.detach()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(2, 1)  # output of an import must not be read as a frame
    kernel.close_to_inspection() if config["uid"] is None else None
    kernel.adopt_orphans()
    zygote = Zygote(config, commands, replies)
    try:
        zygote.warm_up()
    except BaseException:
        wire.write_frame(replies, b"f", traceback.format_exc().encode()[-2000:])
        raise SystemExit(1) from None
    gc.collect()
    gc.freeze()  # garbage collection in a fork would copy every page
    wire.write_frame(replies, b"r", json.dumps({"landlock": kernel.landlock_version()}).encode())
    zygote.serve()
