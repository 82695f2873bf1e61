"""Program of the sandbox that runs tests of generated tasks, with a pytest that was imported before
the fork.

It sees no other part of envsuite. A job contains the complete tree of files, which is written into
the run's own empty temporary folder: no original and no file of an earlier run is there.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-c", "/dev/null"]
# These take time in every test and affect no result: nobody reads logs and unraised errors here.
FLAGS += ["-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception"]
NOWHERE = ".nowhere"
TEXT, WHOLE_TEXT = 2000, 40_000
"""characters recorded of a failure, and of one with whole values"""
WHOLE = ["-o", "verbosity_assertions=2"]
_SLOW = (
    "unittest.mock",
    "asyncio",
    "pdb",
    "concurrent.futures",
    "faulthandler",
    "packaging.version",
    "_pytest._argcomplete",
)
"""modules that pytest imports during every run: about a third of the time of a run of few tests"""


def warm_up() -> None:
    for name in _SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Reporter:
    """Collects one status per test, by exact id."""

    def __init__(self, only: list[str] | None, characters: int = TEXT) -> None:
        self.only = None if only is None else set(only)
        self.characters = characters
        self.statuses: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.uncollected: dict[str, str] = {}
        self.tampered: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.only is not None:
            items[:] = [item for item in items if item.nodeid in self.only]

    def pytest_runtest_logreport(self, report: Any) -> None:
        test, before = report.nodeid, self.statuses.get(report.nodeid)
        if report.failed:
            self.statuses[test] = "FAILED" if report.when == "call" else "ERROR"
            self.failures[test] = report.longreprtext[-self.characters :]
        elif report.skipped:
            self.statuses[test] = "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED"
        elif report.when == "call" and before is None:
            self.statuses[test] = "TAMPERED" if test in self.tampered else "PASSED"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.uncollected[report.nodeid] = report.longreprtext[-TEXT:]


def module_of(text: str, name: str) -> Any:
    """Returns a module made from the text of a plugin of `envsuite.envs.swegym`."""
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def phases_of(job: dict[str, Any], root: str, seal: Any, reporter: Reporter) -> Any:
    """Returns the plugin that runs the job's phases in forks, whose answers it collects in `answers`."""
    phases: Any = module_of(job["plugin"], "phases").TestPhases

    class AnsweredPhases(phases):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__({"folder": root, "roots": [], "phases": job["phases"]}, seal, reporter)
            self.answers: list[bytes] = []

        def opened(self, number: int) -> None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `ended`

        def leave(self) -> None:
            """Does nothing: the answer is written after pytest has ended."""

        def answer(self, answer: dict[str, Any]) -> None:
            """Ends the process of a phase with its answer."""
            self.file.write(json.dumps(answer).encode())
            self.file.flush()
            os._exit(0)

        def ended(self, number: int) -> None:
            self.file.seek(0)
            self.answers.append(self.file.read())
            self.file.close()

        def finish(self, status: int) -> bool:
            return True

        def joined(self) -> bytes:
            """Returns the first phase's answer, with the statuses of the others; empty if that phase gave none."""
            first, *later = self.answers
            if not first:
                return first
            statuses = [json.loads(answer)["statuses"] if answer else {} for answer in later]
            return json.dumps({**json.loads(first), "later": statuses}).encode()

    return AnsweredPhases()


def write_files(files: dict[str, str], root: str) -> None:
    for path, content in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8", newline="") as file:
            file.write(content)


def handle(payload: bytes) -> bytes:
    """Runs one job: `files` (path -> text), `path` (for imports), `tests` (files, folders), `only`
    (ids), `explain`, `whole` (failures with whole values), `trace`.

    With `variants` the job is a batch: see `TestBatch`.
    """
    job = json.loads(payload)
    root = os.path.join(os.environ["TMPDIR"], "testbed")
    write_files(job["files"], root)
    os.chdir(root)
    sys.path[:0] = dict.fromkeys([os.path.normpath(os.path.join(root, job["path"])), root])
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    reporter = Reporter(job.get("only"), WHOLE_TEXT if job.get("whole") else TEXT)
    seal = module_of(job["seal"], "seal").Seal(reporter.tampered, Reporter)
    plugins: list[Any] = [reporter, seal]
    tests = job["tests"]
    tracer = batch = phases = None
    if "phases" in job:
        phases = phases_of(job, root, seal, reporter)
        plugins.append(phases)
    if job.get("trace"):
        tracer = Tracer(root, tuple(job["code"]))
        plugins.append(tracer)
    if "variants" in job:
        batch = TestBatch(root, job, reporter)
        plugins.append(batch)
        tests = [NOWHERE]
        os.mkdir(NOWHERE)
    flags = ["--tb=short"] if job.get("explain") else ["--tb=no", "--assert=plain"]
    flags += WHOLE if job.get("whole") else []
    code = pytest.main([*FLAGS, *flags, f"--rootdir={root}", f"--confcutdir={root}", *tests], plugins=plugins)
    if batch is not None and batch.pipe is None:
        return json.dumps(batch.answers).encode()
    if phases is not None and phases.answers and phases.number < 0:
        return bytes(phases.joined())
    answer = {"exit": int(code), "statuses": reporter.statuses, "uncollected": reporter.uncollected}
    if job.get("explain"):
        answer["failures"] = reporter.failures
    if tracer is not None:
        answer["lines"], answer["hops"] = tracer.results()
    if batch is not None:
        batch.end(answer)
    if phases is not None and phases.number >= 0:
        phases.answer(answer)
    return json.dumps(answer).encode()


class TestBatch:
    """Variants of one tree, tested one after another, each in a fork of a pytest that is about to
    collect tests.

    A variant has `files` (changed ones), `tests` and `only`. Nothing of the tree is imported
    before the fork, so that a variant is imported as in a separate run; only the compiled code of
    unchanged files is shared.
    """

    def __init__(self, root: str, job: dict[str, Any], reporter: Reporter) -> None:
        self.root, self.job, self.reporter = root, job, reporter
        self.answers: list[dict[str, Any] | str] = []
        self.pipe: int | None = None
        """where a fork writes its answer; None in the parent"""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> bool | None:
        if any(str(getattr(module, "__file__", "")).startswith(self.root) for module in list(sys.modules.values())):
            raise RuntimeError("a module of the tree was imported before the fork")
        remember_code(self.job["files"], self.root)
        if self.job["explain"]:
            test_files = {test for variant in self.job["variants"] for test in variant["tests"] if test.endswith(".py")}
            remember_rewritten([os.path.join(self.root, test) for test in sorted(test_files)], session.config)
        gc.freeze()  # garbage collection in a fork would copy every page
        for variant in self.job["variants"]:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                self.pipe = write
                os.setpgid(0, 0)
                write_files(variant["files"], self.root)
                self.reporter.only = set(variant["only"]) if variant["only"] is not None else None
                session.config.args = variant["tests"]
                return None  # pytest continues to collect and run
            os.close(write)
            self.answers.append(self.wait(child, read))
            write_files({path: self.job["files"][path] for path in variant["files"]}, self.root)
        return True

    def wait(self, child: int, read: int) -> dict[str, Any] | str:
        """Returns the answer of a fork, or how it ended.

        Its limit counts the time it runs or sleeps, not the time it waits for a processor.
        """
        from inside.usage import waited  # type: ignore[import-not-found]  # loaded in every sandbox, by its zygote

        data, began, expired = b"", time.monotonic(), False
        while not expired:
            if not select.select([read], [], [], 0.2)[0]:
                expired = time.monotonic() - began - waited(child) > self.job["seconds"]
                continue
            chunk = os.read(read, 1 << 16)
            if not chunk:
                break
            data += chunk
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            return "timeout" if expired else dict(json.loads(data))
        except ValueError:  # the process ended before pytest did
            return "crash"

    def end(self, answer: dict[str, Any]) -> None:
        assert self.pipe is not None
        with open(self.pipe, "wb") as file:
            file.write(json.dumps(answer).encode())
        os._exit(0)


def remember_code(files: dict[str, str], root: str) -> None:
    """Compiles the tree's modules once for all forks: later imports of the same text at the same path
    reuse the code.
    """
    compiled: dict[tuple[str, bytes], Any] = {}
    for path, text in files.items():
        if path.endswith(".py"):
            with contextlib.suppress(SyntaxError, ValueError):
                place, data = os.path.join(root, path), text.encode()
                compiled[place, data] = compile(data, place, "exec", dont_inherit=True)
    original = SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **more: Any) -> Any:
        return compiled.get((str(path), bytes(data))) or original(self, data, path, **more)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]


def remember_rewritten(places: list[str], config: Any) -> None:
    """Rewrites the assertions of unchanged test files once for all forks."""
    original = rewrite._rewrite_test
    rewritten = {}
    for place in places:
        with contextlib.suppress(SyntaxError, ValueError):
            rewritten[place] = original(Path(place), config)
    rewrite._rewrite_test = lambda fn, config: rewritten.get(str(fn)) or original(fn, config)


class Tracer:
    """Records which test executes which line of the code, and how many functions of the package are on
    the way.
    """

    def __init__(self, root: str, code: tuple[str, ...]) -> None:
        self.root, self.code = root + "/", code
        self.lines: dict[str, dict[int, set[str]]] = {}
        self.hops: dict[str, dict[int, dict[str, int]]] = {}
        self.test = ""
        self.known: dict[str, str | None] = {}
        sys.settrace(self.calls)
        threading.settrace(self.calls)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.test = item.nodeid
        sys.settrace(self.calls)
        yield
        self.test = ""

    def own(self, name: str) -> str | None:
        if name not in self.known:
            path = name.removeprefix(self.root)
            mine = path != name and any(path == prefix or path.startswith(prefix + "/") for prefix in self.code)
            self.known[name] = path if mine and "/tests/" not in path else None
        return self.known[name]

    def calls(self, frame: Any, event: str, _: Any) -> Any:
        path = self.own(frame.f_code.co_filename)
        if path is None:
            return None
        depth, above = 1, frame.f_back
        while above is not None and self.own(above.f_code.co_filename) is not None:
            depth, above = depth + 1, above.f_back
        per_test = self.hops.setdefault(path, {}).setdefault(frame.f_code.co_firstlineno, {})
        per_test[self.test] = min(depth, per_test.get(self.test, depth))
        lines = self.lines.setdefault(path, {})
        lines.setdefault(frame.f_lineno, set()).add(self.test)

        def each(frame: Any, event: str, _: Any) -> Any:
            lines.setdefault(frame.f_lineno, set()).add(self.test)
            return each

        return each

    def results(self) -> tuple[Any, Any]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        lines = {path: {n: sorted(tests) for n, tests in per.items()} for path, per in self.lines.items()}
        return lines, self.hops
