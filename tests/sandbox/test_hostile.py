"""Every hostile program against every driver: nothing it wants, a known ending, and the next run works."""

import os
from pathlib import Path

import pytest

from tests.sandbox.hostile import CARRIED, HOSTILE

CALM = "said = 'calm'\nimport os\nassert os.listdir(os.environ['HOME']) == []"
TOO_DANGEROUS_FOR_PROCESS = {"kill every process", "kill the zygote"}  # without root they hit the user's own processes


def outcome(result) -> str:
    """How a run came out, in the words of `hostile.py`."""
    if result.fate != "exited":
        return str(result.fate)
    return "answered" if result.exit_code == 0 and result.value else "failed"


def test_there_are_at_least_forty_hostile_programs():
    assert len(HOSTILE) + len(CARRIED) >= 40


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_gets_nothing_and_the_next_run_works(name, session, play, world, monkeypatch):
    if session.driver == "process" and name in TOO_DANGEROUS_FOR_PROCESS and os.geteuid() != 0:
        pytest.skip("the process driver cannot stop it, and it would end the user's own processes")
    monkeypatch.setenv("ENVSUITE_TEST_SECRET", "x")
    secret = world.secret.read_bytes()
    hostile = HOSTILE[name]
    result, breaches = play(hostile.code, hostile.seconds)
    assert outcome(result) in hostile.outcomes, result
    visitors = world.visitors()
    if session.driver == "process" and hostile.open_to_process:
        assert breaches or visitors or hostile.open_to_process == "maybe", "stopped after all: correct the docstring"
    else:
        assert not breaches
        assert not visitors
    assert world.secret.read_bytes() == secret
    assert not world.survivors()
    calm, _ = play(CALM)
    assert (calm.fate, calm.exit_code) == ("exited", 0), calm
    assert b"calm" in calm.value


@pytest.mark.parametrize("name", CARRIED)
def test_nothing_is_carried_from_one_run_to_the_next(name, session, play):
    first, second, open_to_process = CARRIED[name]
    play(first)
    result, breaches = play(second)
    assert (result.fate, result.exit_code) == ("exited", 0), result
    if not (session.driver == "process" and open_to_process):
        assert not breaches


def test_what_the_process_driver_cannot_stop_is_said_in_its_docstring():
    from envsuite.sandbox import process

    for word in ("reading any file", "network", "signals", "accidents", "memory that has no name", "world-writable"):
        assert word in " ".join(process.__doc__.split()), word


def test_a_session_leaves_no_folder_and_no_process_behind(tmp_path):
    from envsuite import sandbox
    from tests.sandbox.conftest import working

    for driver in sandbox.DRIVERS:
        try:
            working(driver)
        except pytest.skip.Exception:
            continue
        session = sandbox.open(sandbox.Spec(workspace="/testbed"), driver)
        session.run("touch a; sleep 1000 & echo started")
        pid = getattr(session._process, "pid", None)
        home = session._home
        session.close()
        assert not home.exists()
        assert pid is None or not Path(f"/proc/{pid}").exists()
