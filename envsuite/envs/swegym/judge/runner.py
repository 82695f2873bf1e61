"""Program of the sandbox that runs tests of planted tasks, with a pytest that was imported before
the fork.

It sees no other part of envsuite. A job contains the complete tree of files, which is written into
the run's own empty temporary folder: no original and no file of an earlier run is there.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import threading
import types
from typing import Any

import pytest

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-c", "/dev/null"]
# These take time in every test and affect no result: nobody reads logs and unraised errors here.
FLAGS += ["-p", "no:logging", "-p", "no:unraisableexception", "-p", "no:threadexception"]
TEXT, WHOLE_TEXT = 2000, 40_000
"""characters recorded of a failure, and of one with whole values"""
WHOLE = ["-o", "verbosity_assertions=2"]
_SLOW = (
    "unittest.mock", "asyncio", "pdb", "concurrent.futures", "faulthandler", "packaging.version",
    "_pytest._argcomplete",
)  # fmt: skip
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
    (ids), `explain` ('', short or whole values of failures), `trace`, and `plugin` and `phases` of
    a run with phases.
    """
    job = json.loads(payload)
    root = os.path.join(os.environ["TMPDIR"], "testbed")
    write_files(job["files"], root)
    os.chdir(root)
    sys.path[:0] = dict.fromkeys([os.path.normpath(os.path.join(root, job["path"])), root])
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    whole = job["explain"] == "whole"
    reporter = Reporter(job["only"], WHOLE_TEXT if whole else TEXT)
    seal = module_of(job["seal"], "seal").Seal(reporter.tampered, Reporter)
    plugins: list[Any] = [reporter, seal]
    tracer = phases = None
    if "phases" in job:
        phases = phases_of(job, root, seal, reporter)
        plugins.append(phases)
    if job["trace"]:
        tracer = Tracer(root, tuple(job["code"]))
        plugins.append(tracer)
    flags = ["--tb=short"] if job["explain"] else ["--tb=no", "--assert=plain"]
    flags += WHOLE if whole else []
    code = pytest.main([*FLAGS, *flags, f"--rootdir={root}", f"--confcutdir={root}", *job["tests"]], plugins=plugins)
    if phases is not None and phases.answers and phases.number < 0:
        return bytes(phases.joined())
    answer = {"exit": int(code), "statuses": reporter.statuses, "uncollected": reporter.uncollected}
    if job["explain"]:
        answer["failures"] = reporter.failures
    if tracer is not None:
        answer["lines"] = tracer.results()
    if phases is not None and phases.number >= 0:
        phases.answer(answer)
    return json.dumps(answer).encode()


class Tracer:
    """Records which test executes which line of the code."""

    def __init__(self, root: str, code: tuple[str, ...]) -> None:
        self.root, self.code = root + "/", code
        self.lines: dict[str, dict[int, set[str]]] = {}
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
        lines = self.lines.setdefault(path, {})
        lines.setdefault(frame.f_lineno, set()).add(self.test)

        def each(frame: Any, event: str, _: Any) -> Any:
            lines.setdefault(frame.f_lineno, set()).add(self.test)
            return each

        return each

    def results(self) -> dict[str, dict[int, list[str]]]:
        """Ends the tracing and returns the tests that execute each line, by path and number."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return {path: {n: sorted(tests) for n, tests in per.items()} for path, per in self.lines.items()}
