"""What runs the tests of generated tasks, inside the sandbox: a pytest that was imported before the fork.

It sees nothing of envsuite but this file. A job brings the whole tree of files, which is laid into the run's own empty
temporary folder: nothing of an original or of an earlier run is there to be found.
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
import threading
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-c", "/dev/null"]
# These cost time in every test and decide none: of what is logged or left unraised nobody reads here.
FLAGS += ["-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception"]
RUNNER = (
    "_pytest.runner", "_pytest.reports", "_pytest.python", "_pytest.unittest", "_pytest.main", "_pytest.nodes", "_pytest.outcomes",
    "_pytest.skipping", "_pytest._code.code", "_pytest.assertion.util", "_pytest.config", "pluggy._hooks", "pluggy._callers",
    "pluggy._manager", "pluggy._result", "unittest.case", "json",
)  # fmt: skip
"""modules whose functions and classes decide a verdict"""
WORLD = ("builtins", "time", "datetime")
"""modules that tests may replace parts of, and the code under test may not"""
NOWHERE = ".nowhere"
TEXT = 2000
"""characters kept of a failure"""
_SLOW = (
    "unittest.mock",
    "asyncio",
    "pdb",
    "concurrent.futures",
    "faulthandler",
    "packaging.version",
    "_pytest._argcomplete",
)
"""what pytest imports in the middle of every run: about a third of the time of a run of few tests"""


def warm_up() -> None:
    for name in _SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Reporter:
    """Collects one status per test, by exact id."""

    def __init__(self, only: list[str] | None) -> None:
        self.only = None if only is None else set(only)
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
            self.failures[test] = report.longreprtext[-TEXT:]
        elif report.skipped:
            self.statuses[test] = "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED"
        elif report.when == "call" and before is None:
            self.statuses[test] = "TAMPERED" if test in self.tampered else "PASSED"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.uncollected[report.nodeid] = report.longreprtext[-TEXT:]


class Seal:
    """Sees whether what judges is still what it was before the code under test was imported.

    It looks at pytest and `unittest` when a test has run, before that is reported; and at the clocks and the built-in
    functions before each test, since a test may replace those for itself (monkeypatch).
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self.runner = [*_parts(Reporter), *_parts(Seal), *(part for name in RUNNER for part in _parts_of_module(name))]
        self.world = [part for name in WORLD for part in _parts_of_module(name)]
        self.manager = session.config.pluginmanager
        self.plugins = {id(one) for one in self.manager.get_plugins()}

    def stranger(self) -> bool:
        """Whether there is a plugin that neither pytest nor the tests' own conftest.py brought."""
        new = (one for one in self.manager.get_plugins() if id(one) not in self.plugins)
        return any(not str(getattr(one, "__file__", "")).endswith("conftest.py") for one in new)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        if not _whole(self.world):
            self.reporter.tampered.add(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.when == "call" and (self.stranger() or not _whole(self.runner)):
            self.reporter.tampered.add(item.nodeid)


Part = tuple[Any, str, Any, Any]
"""where it is, its name, itself, its code"""


def _parts(owner: Any) -> list[Part]:
    """The functions and classes of a module or class."""
    kinds = (property, classmethod, staticmethod)
    found = [(name, one) for name, one in vars(owner).items() if callable(one) or isinstance(one, kinds)]
    return [(vars(owner), name, one, getattr(one, "__code__", None)) for name, one in found]


def _parts_of_module(name: str) -> list[Part]:
    module = sys.modules.get(name)
    if module is None:
        return []
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
    return [part for owner in (module, *classes) for part in _parts(owner)]


def _whole(parts: list[Part]) -> bool:
    return all(place.get(name) is one and getattr(one, "__code__", None) is code for place, name, one, code in parts)


def lay(files: dict[str, str], root: str) -> None:
    for path, content in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8", newline="") as file:
            file.write(content)


def handle(payload: bytes) -> bytes:
    """Job: `files` (path -> text), `path` (for imports), `tests` (files, folders), `only` (ids), `explain`, `trace`.

    With `variants` the job is a batch: see `Batch`.
    """
    job = json.loads(payload)
    root = os.path.join(os.environ["TMPDIR"], "testbed")
    lay(job["files"], root)
    os.chdir(root)
    sys.path[:0] = dict.fromkeys([os.path.normpath(os.path.join(root, job["path"])), root])
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    reporter = Reporter(job.get("only"))
    plugins: list[Any] = [reporter, Seal(reporter)]
    tests = job["tests"]
    tracer = batch = None
    if job.get("trace"):
        tracer = Tracer(root, tuple(job["code"]))
        plugins.append(tracer)
    if "variants" in job:
        batch = Batch(root, job, reporter)
        plugins.append(batch)
        tests = [NOWHERE]
        os.mkdir(NOWHERE)
    flags = ["--tb=short"] if job.get("explain") else ["--tb=no", "--assert=plain"]
    code = pytest.main([*FLAGS, *flags, f"--rootdir={root}", f"--confcutdir={root}", *tests], plugins=plugins)
    if batch is not None and batch.pipe is None:
        return json.dumps(batch.answers).encode()
    answer = {"exit": int(code), "statuses": reporter.statuses, "uncollected": reporter.uncollected}
    if job.get("explain"):
        answer["failures"] = reporter.failures
    if tracer is not None:
        answer["lines"], answer["hops"] = tracer.found()
    if batch is not None:
        batch.end(answer)
    return json.dumps(answer).encode()


class Batch:
    """Variants of one tree, tested one after the other, each in a fork of a pytest that has got as far as collecting.

    A variant is `files` (what differs), `tests` and `only`. Nothing of the tree is imported before the fork, so that a
    variant is imported as in a run of its own; only the compiled code of files that do not differ is there already.
    """

    def __init__(self, root: str, job: dict[str, Any], reporter: Reporter) -> None:
        self.root, self.job, self.reporter = root, job, reporter
        self.answers: list[dict[str, Any] | str] = []
        self.pipe: int | None = None
        """where a fork writes its answer; None in the process that forks"""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> bool | None:
        if any(str(getattr(module, "__file__", "")).startswith(self.root) for module in list(sys.modules.values())):
            raise RuntimeError("a module of the tree was imported before the fork")
        remember_code(self.job["files"], self.root)
        if self.job["explain"]:
            asked = {test for variant in self.job["variants"] for test in variant["tests"] if test.endswith(".py")}
            remember_rewritten([os.path.join(self.root, test) for test in sorted(asked)], session.config)
        gc.freeze()  # a fork that collects garbage would copy every page
        for variant in self.job["variants"]:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                self.pipe = write
                os.setpgid(0, 0)
                lay(variant["files"], self.root)
                self.reporter.only = set(variant["only"]) if variant["only"] is not None else None
                session.config.args = variant["tests"]
                return None  # and pytest goes on to collect and run
            os.close(write)
            self.answers.append(self.wait(child, read))
            lay({path: self.job["files"][path] for path in variant["files"]}, self.root)
        return True

    def wait(self, child: int, read: int) -> dict[str, Any] | str:
        """The answer of a fork, or what became of it. Its limit is of time that it runs or sleeps, not of time for which
        it waits for a processor."""
        said, began, late = b"", time.monotonic(), False
        while not late:
            if not select.select([read], [], [], 0.2)[0]:
                late = time.monotonic() - began - waited(child) > self.job["seconds"]
                continue
            piece = os.read(read, 1 << 16)
            if not piece:
                break
            said += piece
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            return "timeout" if late else dict(json.loads(said))
        except ValueError:  # it ended before pytest did
            return "crash"

    def end(self, answer: dict[str, Any]) -> None:
        assert self.pipe is not None
        with open(self.pipe, "wb") as file:
            file.write(json.dumps(answer).encode())
        os._exit(0)


def waited(pid: int) -> float:
    """Seconds for which `pid` was ready to run and no processor was free; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def remember_code(files: dict[str, str], root: str) -> None:
    """Compiles the tree's modules once for all forks: later imports of the same text at the same place take that."""
    known: dict[tuple[str, bytes], Any] = {}
    for path, text in files.items():
        if path.endswith(".py"):
            with contextlib.suppress(SyntaxError, ValueError):
                place, data = os.path.join(root, path), text.encode()
                known[place, data] = compile(data, place, "exec", dont_inherit=True)
    plain = SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **more: Any) -> Any:
        return known.get((str(path), bytes(data))) or plain(self, data, path, **more)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]


def remember_rewritten(places: list[str], config: Any) -> None:
    """Rewrites the assertions of test files once for all forks, in which they are the same."""
    plain = rewrite._rewrite_test
    known = {}
    for place in places:
        with contextlib.suppress(SyntaxError, ValueError):
            known[place] = plain(Path(place), config)
    rewrite._rewrite_test = lambda fn, config: known.get(str(fn)) or plain(fn, config)


class Tracer:
    """Which test runs which line of the code, and over how many functions of the package it gets there."""

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
            mine = path != name and any(path == one or path.startswith(one + "/") for one in self.code)
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

    def found(self) -> tuple[Any, Any]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        lines = {path: {n: sorted(tests) for n, tests in per.items()} for path, per in self.lines.items()}
        return lines, self.hops
