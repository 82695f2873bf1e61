"""Leftovers of runs: none after an interrupt, and none after the next start when a run was killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import sandbox
from envsuite.sandbox import docker, leftovers
from tests.processes import obey_interrupts
from tests.sandbox.conftest import working

WATCHED = """
import os, sys, time
from envsuite import sandbox
from envsuite.sandbox import docker, leftovers
session = sandbox.open(sandbox.Spec(workspace="/testbed", fresh=False), sys.argv[1], spare=True)
session.run("true")
session._spare._thread.join()
passing = leftovers.passing("swegym")
if sys.argv[1] == "docker":  # killed between making a container and starting it
    client = docker.connect()
    client.containers.create(docker.THIN, ["true"], labels={docker.LABEL: leftovers.owner()})
print(leftovers.owner(), flush=True)
session.run("sleep 1000")
"""


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    """Yields a folder for temporary files of this test; its path is short, as a socket's path must be."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="ev-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert subprocess.run(["rm", "-rf", folder]).returncode == 0


def start(driver):
    running = subprocess.Popen(
        [sys.executable, "-c", WATCHED, driver],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=obey_interrupts,
    )
    return running, running.stdout.readline().strip()


def containers(owner):
    client = docker.connect()
    results = client.containers.list(all=True, filters={"label": f"{docker.LABEL}={owner}"}, ignore_removed=True)
    client.close()
    return results


def processes(place):
    """Returns processes whose command line names a folder in `place`: zygotes and their runs."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(place).encode() in _content(path)]


def _content(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def eventually(nothing, seconds=60.0):
    deadline = time.monotonic() + seconds
    while nothing() and time.monotonic() < deadline:
        time.sleep(0.2)
    return nothing()


@pytest.mark.parametrize("driver", sandbox.DRIVERS)
def test_the_next_start_removes_what_a_killed_run_left(driver, place):
    working(driver)
    running, owner = start(driver)
    assert leftovers.gone(owner) is False
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert leftovers.gone(owner) is True
    assert [path for path in place.iterdir() if owner in path.name]  # otherwise this test proves nothing
    mine = leftovers.folder("swegym")
    leftovers.sweep.cache_clear()
    docker._swept.clear()
    with sandbox.open(sandbox.Spec(), driver) as session:
        session.run("true")
    if driver == "docker":
        assert not eventually(lambda: containers(owner))
    assert not eventually(lambda: processes(place))
    assert list(place.iterdir()) == [mine]
    assert owner not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize(
    "driver", [pytest.param(name, marks=[pytest.mark.slow] * (name == "docker")) for name in sandbox.DRIVERS]
)
def test_an_interrupted_run_leaves_nothing(driver, place):
    working(driver)
    running, owner = start(driver)
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    running.wait()
    if driver == "docker":
        # The daemon removes containers with a delay; the one created but never started stays.
        assert not eventually(lambda: [first for first in containers(owner) if first.status != "created"])
        (left,) = containers(owner)
        left.remove()
    assert not eventually(lambda: processes(place))
    assert list(place.iterdir()) == []


def descendants(pid):
    """Returns a process and all below it, by id."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        if stat := _content(path).decode(errors="replace"):
            parents[int(path.parent.name)] = int(stat.rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def owners_of(family):
    """Returns the owners of running containers that these processes have started."""
    with contextlib.closing(docker.connect()) as client:
        running = client.containers.list(filters={"label": docker.LABEL}, ignore_removed=True)
    owners = {container.labels[docker.LABEL] for container in running}
    return {owner for owner in owners if int(owner.split("-")[1], 16) in family}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_evaluation_leaves_no_container(number, place):
    working("docker")
    words = [
        "-m",
        "random",
        "-e",
        "SWEGym-easy",
        "-n",
        "50",
        "-c",
        "2",
        "--num-workers",
        "2",
        "--set",
        "sandbox=docker",
    ]
    running = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.eval", *words, "-o", place / "runs"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=obey_interrupts,
    )
    owners: set[str] = set()
    deadline = time.monotonic() + 120
    while len(owners) < 2 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.2)
        owners |= owners_of(descendants(running.pid))
    assert len(owners) == 2, running.communicate()[1] if running.poll() is not None else "too few containers"
    if number == signal.SIGINT:
        os.killpg(running.pid, number)  # a terminal sends Ctrl-C to the whole group
    else:
        running.terminate()
    _, complaint = running.communicate(timeout=60)
    assert running.returncode == 128 + number, complaint
    assert not eventually(lambda: [each for owner in owners for each in containers(owner)])
    assert not eventually(lambda: processes(place))


def test_folders_of_other_machines_pid_namespaces_or_running_processes_are_kept(place):
    second = place / f"envsuite-sandbox-1-{os.getpid():x}-1-abc"
    mine = place / f"envsuite-sandbox-{leftovers.owner()}-abc"
    namespace, pid, started = leftovers.owner().split("-")
    reused = place / f"envsuite-sandbox-{namespace}-{pid}-{int(started, 16) - 1:x}-abc"
    foreign = place / "envsuite-sandbox-of-somebody-abc"
    for folder in (second, mine, reused, foreign):
        folder.mkdir()
    leftovers.sweep.cache_clear()
    leftovers.sweep()
    assert sorted(place.iterdir()) == sorted([second, mine, foreign])
