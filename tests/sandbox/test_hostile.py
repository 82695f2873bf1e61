"""Hostile programs against every driver: no breach, an allowed outcome, and the next run works."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import sandbox
from envsuite.sandbox import docker, local
from tests.sandbox.conftest import LIMITS, working
from tests.sandbox.hostile import CARRIED, HOSTILE

CALM = "said = 'calm'\nimport os\nassert os.listdir(os.environ['HOME']) == []"
ENDS_THE_CONTAINER = (
    "fork bomb",
    "memory bomb",
    "memory bomb in shared memory",
    "memory bomb in the shared memory of many processes",
    "crowd the processors to gain time",
    "loop in C",
    "deadlock",
    "ignore every signal",
)
"""Programs after which Docker starts another container, seconds each: `make sandbox-proof` runs them there.

`make test` runs them on the other drivers, and in Docker the infinite loop and the memory bomb of many processes.
"""
TOO_DANGEROUS_FOR_PROCESS = {
    "kill every process",
    "kill the zygote",
    "poison the interpreter",
    "write beside the scratch folder",
    "change the sandbox's own program",
}
"""programs that would harm the user's own processes and files"""


def is_the_user(session) -> bool:
    """Returns True if a run is the user who calls, whose files and processes it may therefore touch."""
    return session.driver == "process" and local.unused_uid(session._home) is None


@pytest.fixture(params=sandbox.DRIVERS)
def driver(request):
    return working(request.param)


def outcome(result) -> str:
    """Returns the outcome of a run as `hostile.py` names it."""
    if result.fate != "exited":
        return str(result.fate)
    return "answered" if result.exit_code == 0 and result.value else "failed"


def test_there_are_at_least_forty_hostile_programs():
    assert len(HOSTILE) + len(CARRIED) >= 40


def programs():
    """Yields every hostile program on every driver, marked slow where it ends a container."""
    for driver in sandbox.DRIVERS:
        for name in HOSTILE:
            slow = driver == "docker" and name in ENDS_THE_CONTAINER
            yield pytest.param(driver, name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("session", "name"), programs(), indirect=["session"])
def test_a_hostile_program_breaches_nothing_and_the_next_run_works(name, session, play, world, monkeypatch):
    if is_the_user(session) and name in TOO_DANGEROUS_FOR_PROCESS:
        pytest.skip("guards against accidents only: this program would harm the user's own processes and files")
    monkeypatch.setenv("ENVSUITE_TEST_SECRET", "x")
    secret = world.secret.read_bytes()
    hostile = HOSTILE[name]
    result, breaches = play(hostile.code, hostile.seconds, hostile.disk_mb)
    assert outcome(result) in hostile.outcomes, result
    visitors = world.visitors()
    if session.driver == "process" and hostile.open_to_process:
        assert breaches or visitors or hostile.open_to_process == "maybe", "stopped after all: correct the docstring"
    elif not is_the_user(session):
        assert not breaches
        assert not visitors
    assert is_the_user(session) or world.secret.read_bytes() == secret
    assert not world.survivors()
    calm, _ = play(CALM)
    assert (calm.fate, calm.exit_code) == ("exited", 0), calm
    assert b"calm" in calm.value


@pytest.mark.parametrize("name", CARRIED)
def test_no_state_is_carried_from_one_run_to_the_next(name, session, play):
    first, second, open_to_process = CARRIED[name]
    play(first)
    result, breaches = play(second)
    assert (result.fate, result.exit_code) == ("exited", 0), result
    if not is_the_user(session) and not (session.driver == "process" and open_to_process):
        assert not breaches


def test_the_docstring_of_the_process_driver_lists_what_it_cannot_stop():
    from envsuite.sandbox import process

    for word in ("reading any file", "network", "signalling", "accidents", "memory without a name", "world-writable"):
        assert word in " ".join(process.__doc__.split()), word


def test_a_session_leaves_no_folder_and_no_process_behind(driver):
    session = sandbox.open(sandbox.Spec(workspace="/testbed"), driver)
    session.run("touch a; mkdir -p b/c; chmod 0 b/c b; sleep 1000 & echo started")
    pid = getattr(session._process, "pid", None)
    home = session._home
    session.close()
    assert not home.exists()
    assert pid is None or not Path(f"/proc/{pid}").exists()


def test_folders_that_resist_removal_do_not_pile_up(driver):
    """Without root, folders must be made accessible before removal; leftovers would fill the next
    runs' disk.
    """
    with sandbox.open(sandbox.Spec(limits=LIMITS), driver) as session:
        for _ in range(4):
            result = session.run("cd; mkdir -p a/b; head -c 20000000 /dev/zero > a/b/big && chmod 0 a/b a && echo $?")
            assert (result.fate, result.stdout) == ("exited", b"0\n"), result


KILLED = """
import sys
from envsuite import sandbox
from envsuite.sandbox import leftovers
session = sandbox.open(sandbox.Spec(), sys.argv[1])
session.run("true")
print(session._home, leftovers.owner(), flush=True)
session.run(["sleep", sys.argv[2]], limits=sandbox.Limits(seconds=600))
"""


def test_a_caller_that_is_killed_leaves_no_process_and_no_container_behind(driver, tmp_path):
    mark = f"{2_000_000 + os.getpid()}.25"
    caller = subprocess.Popen([sys.executable, "-c", KILLED, driver, mark], stdout=subprocess.PIPE, text=True)
    home, owner = caller.stdout.readline().split()
    wait_for(lambda: len(marked(mark)) > 1, "the run has begun")  # the caller itself is marked too
    caller.kill()
    caller.wait()
    wait_for(lambda: not marked(mark), "the run has ended")
    if driver == "docker":
        client = docker.connect()
        look = {"all": True, "filters": {"label": f"{docker.LABEL}={owner}"}, "ignore_removed": True}
        wait_for(lambda: not client.containers.list(**look), "the container has gone")
        client.close()
    shutil.rmtree(home, ignore_errors=True)  # any other program that opens a sandbox may remove it, too
    caller.stdout.close()


def marked(mark: str) -> list[str]:
    """Returns the processes with `mark` in their command line."""
    results = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                results.append(path.parent.name)
    return results


def wait_for(condition, description: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {description}"
        time.sleep(0.05)
