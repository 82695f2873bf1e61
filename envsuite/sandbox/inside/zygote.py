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
import select
import socket
import traceback
from types import ModuleType
from typing import Any

from . import archive, kernel, wire
from .attributes import AttributeGuard
from .child import ERROR, FAULT, LINK, OUTPUT, STDIN, VALUE, Child
from .family import descendants, end_family, is_awake, pause_family
from .host_kills import KillCounter, blame
from .limits import processor_limit
from .run import Channel, SandboxRun
from .usage import memory_of

LOOK = 0.25  # seconds between looks at the processes of a paused run


class Zygote:
    """Server of one sandbox. `config` comes from `local.config` outside."""

    def __init__(self, config: dict[str, Any], commands: int, replies: int) -> None:
        self.config = config
        self.channel = Channel(commands, replies, config["parent"])
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY) if config["namespaces"] else None
        self.program: ModuleType | None = None
        self.kills = KillCounter(config["kills"])
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
            self.program = module
            getattr(module, "warm_up", lambda: None)()
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            raise RuntimeError(
                f"{threads} threads after the imports, but only a single-threaded process can fork safely"
            )

    def serve(self) -> None:
        """Runs jobs until envsuite closes stdin or ends."""
        while job := self.next_job():
            self.do(job)

    def next_job(self, paused: SandboxRun | None = None) -> dict[str, Any] | None:
        """Returns the next job; None if envsuite has closed stdin or ended.

        Kills a `paused` run whose processes have gone on: a timer can continue a stopped process.
        """
        commands = self.channel.commands
        while True:
            ready = select.select([commands, *self.channel.endings], [], [], LOOK if paused else None)[0]
            if ready:
                return wire.read_job(commands) if commands in ready else None
            if paused and any(map(is_awake, descendants())):
                self.end(paused)

    def pause(self, run: SandboxRun) -> None:
        if not pause_family():
            self.end(run)

    def end(self, run: SandboxRun) -> None:
        """Kills all processes of a run except its first, which is left to be waited for."""
        run.ended = True
        end_family(run.child, self.config["uid"], namespaced=self.pid_namespace is not None)

    # ---- one run ---------------------------------------------------------------------------------------------------

    def do(self, job: dict[str, Any]) -> None:
        """Forks a child for one job, forwards its output, ends all its processes and writes the result frame."""
        self.channel.buffer[:] = bytes(len(self.channel.buffer))
        self.runs += 1
        scratch = self.make_scratch()
        before = self.kills.read()
        run, fault = self.begin(job, scratch)
        if fault:
            ending: dict[str, Any] = {"fate": "fault", "reason": fault}
        elif job["kind"] == "dialogue":
            ending = self.converse(run)
        else:
            ending = run.watch(job["limits"])
        innocent = not run.ended
        self.end(run)
        run.close()
        _, code, used = os.wait4(run.child, 0)
        if ending["fate"] == "abandoned":
            raise SystemExit(0)
        if not fault:
            run.drain()
        for handle in run.outputs.values():
            os.close(handle)
        if scratch and self.config["fresh"]:
            wire.write_frame(self.channel.replies, b"c", b"")  # a flood of folders takes some disks minutes
            archive.remove([entry.path for entry in os.scandir(self.config["scratch"])])
        if not fault:
            status = os.waitstatus_to_exitcode(code)
            innocent = innocent and run.guard is not None and not run.guard.may_kill_itself
            innocent = innocent and used.ru_utime + used.ru_stime < processor_limit(job["limits"])
            ending["fate"] = blame(ending["fate"], status, innocent, self.kills.read() - before)
            ending.update(status=status, seconds=run.seconds, peak=run.peak)
        self.report(ending)

    def begin(self, job: dict[str, Any], scratch: str | None) -> tuple[SandboxRun, str]:
        """Forks the child of a run; returns the run, and the error that prevented it, normally ''."""
        link = socket.socketpair() if self.config["seccomp"] else None
        pipes = {name: os.pipe() for name in (OUTPUT, ERROR, VALUE, FAULT)}
        stdin = os.pipe() if job["kind"] == "dialogue" else None
        if self.pid_namespace is not None:
            kernel.unshare(kernel.NEW_PID)
        baseline = memory_of(os.getpid())
        child = os.fork()
        if child == 0:
            written = {name: ends[1] for name, ends in pipes.items()}
            if link:
                written[LINK] = link[1].fileno()
            if stdin:
                written[STDIN] = stdin[0]
            Child(self.config, self.program, job, scratch, written).be(self.channel.commands)
        if self.pid_namespace is not None:
            kernel.return_to_pid_namespace(self.pid_namespace)
        for _, end in pipes.values():
            os.close(end)
        if stdin:
            os.close(stdin[0])
            os.set_blocking(stdin[1], False)
        outputs = {name: pipes[name][0] for name in (OUTPUT, ERROR, VALUE)}
        for handle in outputs.values():
            os.set_blocking(handle, False)
        fault = self.read_fault(pipes[FAULT][0])
        guard = self.receive_guard(link, scratch, bool(fault)) if link else None
        folders = [folder for folder in (scratch, self.config["workspace"]) if folder]
        counted = self.config["count_processes"]
        turns = stdin[1] if stdin else None
        return SandboxRun(self.channel, child, outputs, folders, baseline, guard, turns, counted=counted), fault

    def converse(self, run: SandboxRun) -> dict[str, Any]:
        """Serves the turns of a dialogue; between two turns all its processes are stopped. Returns its fate."""
        self.pause(run)
        self.report({"fate": "paused", "status": 0, "seconds": 0.0})
        while True:
            turn = self.next_job(run)
            if turn is None:
                return {"fate": "abandoned"}
            if turn["kind"] != "turn":
                self.end(run)
                return {"fate": "exited"}
            message = wire.relay_message(self.channel.commands, turn["payload"])
            run.resume()
            ending = run.watch(turn["limits"], message)
            message[:] = bytes(len(message))
            if ending["fate"] != "paused":
                return ending
            self.pause(run)
            run.drain()
            self.report({"fate": "paused", "status": 0, "seconds": run.seconds})

    def report(self, ending: dict[str, Any]) -> None:
        wire.write_frame(self.channel.replies, b"x", json.dumps(ending).encode())

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
        """Receives the listener of the child's filter over `link`; None if it has none or the run did not begin."""
        with link[0]:
            link[1].close()
            listeners = [] if failed else socket.recv_fds(link[0], 1, 1)[1]
        if not listeners:
            return None
        return AttributeGuard(listeners[0], [folder for folder in (scratch, self.config["workspace"]) if folder])

    def read_fault(self, handle: int) -> str:
        """Waits until the run begins; returns the error that prevented it, normally ''."""
        text = b""
        while chunk := os.read(handle, 4096):
            text += chunk
        os.close(handle)
        return text.decode(errors="replace")


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
