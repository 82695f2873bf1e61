"""Where the golden data lies, one word for its absence, and the proof that a fault changed nothing."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("ENVSUITE_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))
USERS_CACHE = os.environ.get("ENVSUITE_CACHE", "")
"""the cache that the tests were told to use; '' for one of their own"""


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden traces and real games; its tests are skipped, visibly, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no golden data: ENVSUITE_SHARED={SHARED} is not a folder")
    return SHARED


GOLDEN = Path(__file__).parent / "golden"
"""committed numbers and digests"""
REFERENCE = SHARED / "golden" / "algorithms"


@pytest.fixture(scope="module", params=[GOLDEN / "algorithms", *([REFERENCE] if REFERENCE.is_dir() else [])])
def algorithm_cases(request) -> Path:
    """A folder of numeric cases: the committed ones, and those of reference codes where they are at hand."""
    return request.param


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The bundled model's folder: fetched once into the user's own cache, as `make` does."""
    from harness.lm import model_files

    with pytest.MonkeyPatch.context() as patch:
        if not USERS_CACHE:
            patch.delenv("ENVSUITE_CACHE", raising=False)
        return model_files.fetch("smollm2-135m")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Tests, and the fixtures of whole modules, share one cache folder of this run and never touch the user's."""
    with pytest.MonkeyPatch.context() as patch:
        if not USERS_CACHE:
            base = tmp_path_factory.getbasetemp()  # each worker's own lies in that of the run
            root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setenv("ENVSUITE_CACHE", str(root / "envsuite-cache"))
        yield


@pytest.fixture
def proved():
    """`proved(fault, whole, found)`: the results of a run that a fault befell are those of one that was left alone, to the byte.

    Where ENVSUITE_FAULTS names a file, what was counted is added to it (`benchmarks.faults`).
    """

    def prove(fault, whole, found):
        parse = lambda data: [json.loads(line) for line in data.splitlines()]
        key = lambda one: (one["task"], json.dumps(one["knobs"]), one["seed"], one["attempt"])
        wanted, got = {key(one): one for one in parse(whole)}, Counter(key(one) for one in parse(found))
        count = {
            "fault": fault,
            "episodes": len(wanted),
            "lost": len(wanted.keys() - got.keys()),
            "twice": sum(times > 1 for times in got.values()),
            "otherwise": sum(wanted.get(key(one)) != one for one in parse(found)),
            "broken": sum(one["stop_reason"] == "broken" for one in parse(found)),
            "bytes": found == whole,
        }
        if place := os.environ.get("ENVSUITE_FAULTS"):
            with open(place, "a") as file:
                file.write(json.dumps(count) + "\n")
        assert found == whole, count

    return prove


ALLOWED_SKIPS = (
    "no golden data",  # ENVSUITE_SHARED points nowhere
    "is not installed",  # an optional engine or extra
    "docker",  # no daemon to talk to
    "landlock",  # a kernel without it
    "no CUDA",
    "guards against accidents",  # what the process driver does not promise
)
"""reasons for which a test may be skipped on CI; any other skip there is a failure"""


def pytest_sessionfinish(session, exitstatus):
    """On CI a skip nobody foresaw fails the run: a test that is never run cannot fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(word.lower() in reason.lower() for word in ALLOWED_SKIPS):
            reporter.write_line(f"skipped for a reason that is not on the list: {report.nodeid}: {reason}", red=True)
            session.exitstatus = 1
