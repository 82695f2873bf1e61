"""What runs the tests of generated tasks, inside the sandbox: a pytest that was imported before the fork.

It sees nothing of envsuite but this file. A job brings the whole tree of files, which is laid into the run's own empty
temporary folder: nothing of an original or of an earlier run is there to be found.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
from typing import Any

import pytest

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-c", "/dev/null"]
# These cost time in every test and decide none: of what is logged or left unraised nobody reads here.
FLAGS += ["-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception"]
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
            self.statuses[test] = "PASSED"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.uncollected[report.nodeid] = report.longreprtext[-TEXT:]


def lay(files: dict[str, str], root: str) -> None:
    for path, content in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8", newline="") as file:
            file.write(content)


def handle(payload: bytes) -> bytes:
    """Job: `files` (path -> text), `path` (for imports), `tests` (files, folders), `only` (ids), `explain`, `trace`."""
    job = json.loads(payload)
    root = os.path.join(os.environ["TMPDIR"], "testbed")
    lay(job["files"], root)
    os.chdir(root)
    sys.path[:0] = dict.fromkeys([os.path.normpath(os.path.join(root, job["path"])), root])
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    reporter = Reporter(job.get("only"))
    plugins: list[Any] = [reporter]
    tracer = None
    if job.get("trace"):
        tracer = Tracer(root, tuple(job["code"]))
        plugins.append(tracer)
    flags = ["--tb=short"] if job.get("explain") else ["--tb=no", "--assert=plain"]
    code = pytest.main([*FLAGS, *flags, f"--rootdir={root}", f"--confcutdir={root}", *job["tests"]], plugins=plugins)
    answer = {"exit": int(code), "statuses": reporter.statuses, "uncollected": reporter.uncollected}
    if job.get("explain"):
        answer["failures"] = reporter.failures
    if tracer is not None:
        answer["lines"], answer["hops"] = tracer.found()
    return json.dumps(answer).encode()


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
