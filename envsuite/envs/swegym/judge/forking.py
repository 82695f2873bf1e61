"""pytest plugin that runs a collected session in several forks: the tests as they are, then with sabotaged functions.

Importing a package and collecting its tests often costs more than running them, and forks share it. Each
phase is a fork of the process that has collected the tests and has run none. Its parent only waits,
ends what a phase has left running, and removes the files that it has left, so that no phase finds a
trace of an earlier one. If that is impossible, the remaining phases are skipped; the judge
(`sabotage`) then uses separate runs.

Its text is sent into the sandbox, so it imports nothing of envsuite and runs on Python 3.6 with
pytest 3.6 and later.
"""

import atexit
import contextlib
import gc
import os
import signal
import stat
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterable
from typing import Any

import pytest

STANDARD_OUTPUT = os.dup(1)
"""where a published record's log goes; pytest redirects descriptor 1 later"""
EXTRA_SECONDS = 5.0
"""a sabotaged phase may take twice as long as the first one, and this"""
SHARE, AT_LEAST = 0.15, 0.1
"""share of the first phase's time, and seconds, after which a sabotaged phase leaves out tests that were drawn"""
BECOME_REAPER = 36
"""prctl's PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of this one"""


class TestPhases:
    """Runs the phases of a plan, each in a fork.

    The plan has `folder` (the repository), `roots` (folders that the tests may write, besides that for temporary
    files), `mark` (a line
    between the phases' logs) and `phases`. A phase has `texts` (path -> sabotaged text),
    `functions` (path -> [[first line, first line in the sabotaged text, name]]), `statements` (id -> statement
    with which a test fails that is in no text), `required` and `drawn` (ids of the tests that run; drawn ones are
    left out when time is short).
    """

    def __init__(self, plan: "dict[str, Any]", seal: Any, verdicts: Any) -> None:
        """`seal`: the plugin that detects changes to pytest; `verdicts`: the one that reports these tests."""
        self.plan = plan
        self.seal = seal
        self.verdicts = verdicts
        self.number = -1
        """number of the phase that this process runs; -1 in the parent"""
        self.allowed = 0.0
        self.began = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> "bool | None":
        options = session.config.option
        workers = getattr(options, "numprocesses", None) or hasattr(session.config, "workerinput")
        alone = threading.active_count() == 1 and not workers
        if session.testsfailed or getattr(options, "collectonly", False) or not session.items or not alone:
            return None
        before = children()
        if (before is None and has_children()) or not become_reaper():
            return None
        files = FileState(self.plan["roots"] + [tempfile.gettempdir()])
        first_status, elapsed = 0, 0.0
        for number in range(len(self.plan["phases"]) + 1):
            flush(session.config)
            self.opened(number)
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                self.number, self.began = number, began
                if number:
                    self.enter(session, self.plan["phases"][number - 1])
                    self.allowed = max(AT_LEAST, SHARE * elapsed)
                return None  # pytest runs the tests of this process
            status = wait(child, 2 * elapsed + EXTRA_SECONDS if number else None)
            if number == 0:
                first_status, elapsed = status or 0, time.monotonic() - began
            alone = end_children(before)
            self.ended(number)
            if status is None or not alone or not files.restore():
                break
        return self.finish(first_status)

    def opened(self, number: int) -> None:
        """Is called before the fork of a phase."""

    def ended(self, number: int) -> None:
        """Is called when a phase has ended: writes the line between logs."""
        os.write(STANDARD_OUTPUT, f"\n{self.plan['mark']} {number}\n".encode())

    def finish(self, status: int) -> bool:
        """Ends this process with the exit code of the first phase."""
        os._exit(status)

    def enter(self, session: Any, phase: "dict[str, Any]") -> None:
        """Replaces this process's tests by the ones that a sabotaged phase runs."""
        gc.disable()  # it would copy every page that this process shares with its parent
        ids = set(phase["required"]), set(phase["drawn"])
        required, drawn = ([item for item in session.items if is_named(item, named)] for named in ids)
        session.items[:] = required + drawn
        for item in session.items:
            item.repr_failure = name_of_failure
        replace_code(self.plan["folder"], phase["texts"], phase["functions"], functions_of(session.items))
        for item in session.items:
            for test, statement in phase["statements"].items():
                if is_named(item, {test}):
                    replace_body(getattr(item, "obj", None), statement)
        self.required = set(required)
        self.seal.pytest_collection_finish(session)
        self.verdicts.tampered = set()  # a sabotaged test must fail by itself

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> "bool | None":
        """Leaves out a drawn test when the time is used up."""
        late = self.number > 0 and time.monotonic() - self.began > self.allowed
        return True if late and item not in self.required else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        self.status = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: Any) -> None:
        """Ends a phase as Python does, without the time for clearing its memory."""
        if self.number >= 0:
            with contextlib.suppress(Exception):
                config.pluginmanager.get_plugin("capturemanager").stop_global_capturing()
            flush(config)
            self.leave()

    def leave(self) -> None:
        """Ends the process of a phase."""
        atexit._run_exitfuncs()
        flush(None)
        os._exit(self.status)


class FileState:
    """Files below some folders, to find and remove new ones."""

    def __init__(self, roots: "list[str]") -> None:
        self.roots = roots
        self.before = self.scan()

    def scan(self) -> "dict[str, tuple[int, ...]]":
        """Returns what identifies the content of each file and the existence of each folder."""
        states: dict[str, tuple[int, ...]] = {}
        waiting = list(self.roots)
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                        states[entry.path] = (status.st_mode, status.st_ino)
                    else:
                        states[entry.path] = (status.st_mode, status.st_ino, status.st_size, status.st_ctime_ns)
        return states

    def restore(self) -> bool:
        """Removes new files and folders; returns False if that fails or an old one has changed."""
        now = self.scan()
        if now == self.before:
            return True
        for path in sorted((path for path in now if path not in self.before), reverse=True):
            with contextlib.suppress(OSError):
                (os.rmdir if stat.S_ISDIR(now[path][0]) else os.unlink)(path)
        return self.scan() == self.before


def replace_code(
    folder: str, texts: "dict[str, str]", places: "dict[str, list[Any]]", functions: "Iterable[Any]"
) -> None:
    """Gives each function of `functions` that `places` names its code in the sabotaged text of its file."""
    codes = {}
    for path, text in texts.items():
        place = os.path.join(folder, path)
        compiled = list(codes_in(compile(text, place, "exec", dont_inherit=True)))
        for before, after, name in places[path]:
            for code in compiled:
                if (code.co_firstlineno, code.co_name) == (after, name):
                    codes[os.path.realpath(place), before, name] = code
    for function in functions:
        code = function.__code__
        key = os.path.realpath(code.co_filename), code.co_firstlineno, code.co_name
        with contextlib.suppress(ValueError):  # other variables of an enclosing function
            function.__code__ = codes.get(key, code)


def name_of_failure(info: Any, style: Any = None) -> str:
    """Returns the name of a failure's exception: a description with its trace would cost more than the test."""
    return str(info.type.__name__)


def replace_body(thing: Any, statement: str) -> None:
    """Gives a test's function a body that is one statement. Its fixtures are known already."""
    function = getattr(thing, "__func__", thing)
    if type(function) is types.FunctionType:
        old = function.__code__
        free = ", ".join(old.co_freevars)  # the new code must use as many variables of enclosing functions
        text = f"def outer({free}):\n def test(*_arguments, **_options):\n  {free or None}\n  {statement}\n"
        compiled = compile(text, old.co_filename, "exec", dont_inherit=True)
        function.__code__ = next(code for code in codes_in(compiled) if code.co_name == "test")


def functions_of(items: "Iterable[Any]") -> "Iterable[Any]":
    """Yields the functions of tests, and the functions that their decorators wrap."""
    waiting, seen = [getattr(item, "obj", None) for item in items], set()
    while waiting:
        thing = waiting.pop()
        thing = getattr(thing, "__func__", thing)
        if type(thing) is types.FunctionType and id(thing) not in seen:
            seen.add(id(thing))
            yield thing
            waiting += list(vars(thing).values())
            for cell in thing.__closure__ or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    waiting.append(cell.cell_contents)


def codes_in(code: Any) -> Any:
    """Yields the code objects inside `code`, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from codes_in(constant)


def is_named(item: Any, ids: "set[str]") -> bool:
    """Returns True if a test is among `ids`; data sets cut an id at its first space."""
    return item.nodeid in ids or item.nodeid.partition(" ")[0] in ids


def flush(config: Any) -> None:
    """Writes buffered output, which each fork would write again. `config`: pytest's, or None."""
    reporter = config and config.pluginmanager.get_plugin("terminalreporter")
    streams: list[Any] = [getattr(getattr(reporter, "_tw", None), "_file", None), sys.stdout, sys.stderr]
    for stream in streams:
        with contextlib.suppress(Exception):
            stream.flush()


def wait(child: int, seconds: "float | None") -> "int | None":
    """Returns the exit code of a process, as a shell does; None if it took too long and was killed."""
    began, pause = time.monotonic(), 0.001
    while seconds is not None:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        if time.monotonic() - began > seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(0.02, 1.5 * pause)
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def become_reaper() -> bool:
    """Makes processes that a phase leaves behind children of this one; returns False if that is impossible."""
    try:
        import ctypes

        return int(ctypes.CDLL(None).prctl(BECOME_REAPER, 1, 0, 0, 0)) == 0
    except Exception:
        return False


def children() -> "list[int] | None":
    """Returns the processes whose parent is this one; None if the sandbox hides the list of processes."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    pids = []
    for name in names:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                    pids.append(int(name))
    return pids


def has_children() -> bool:
    """Returns True if this process has a child, ended or not."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def end_children(spared: "list[int] | None") -> bool:
    """Kills all children but `spared`, and theirs, which become children in turn; returns False if some are left.

    `spared`: None if there were none and they cannot be listed.
    """
    if spared is None:
        return not has_children()
    for _ in range(50):
        left = [pid for pid in children() or [] if pid not in spared]
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return False
