"""Dialogues of every driver: runs that keep their state between turns."""

import os
import signal
import time
from pathlib import Path

import pytest

from envsuite import sandbox
from envsuite.errors import UsageError
from envsuite.sandbox.inside import zygote
from tests.sandbox.conftest import working

PROGRAM = Path(__file__).with_name("interpreter.py")
LIMITS = sandbox.Limits(seconds=10, memory_mb=256, disk_mb=16, flood_mb=2)


@pytest.fixture(scope="module", params=sandbox.DRIVERS)
def session(request):
    with sandbox.open(sandbox.Spec(program=PROGRAM, limits=LIMITS), working(request.param)) as opened:
        yield opened


def test_a_dialogue_keeps_its_state_and_the_session_works_after_it(session):
    talk = session.dialogue(b"data")
    first = talk.ask(b"x = 1\nprint(start)", LIMITS)
    assert (first.fate, first.stdout, first.value) == ("paused", b"data\n", b"+")
    assert talk.ask(b"x += 1\nprint(x)", LIMITS).stdout == b"2\n"
    talk.close()
    with pytest.raises(UsageError, match="has ended"):
        talk.ask(b"", LIMITS)
    assert session.call(b"hello").value == b"hello"
    second = session.dialogue(b"other")
    assert second.ask(b"print(start, 'x' in globals())", LIMITS).stdout == b"other False\n"
    second.close()


WATCH = b"""
import os, threading, time
def watch(path):
    last, longest = time.monotonic(), 0.0
    while True:
        time.sleep(0.001)
        now = time.monotonic()
        longest = max(longest, now - last)
        last = now
        with open(path + '.new', 'w') as file: file.write(str(longest))
        os.rename(path + '.new', path)
threading.Thread(target=watch, args=('thread',), daemon=True).start()
if os.fork() == 0: watch('process')
while not (os.path.exists('thread') and os.path.exists('process')): time.sleep(0.001)
"""


def test_nothing_runs_between_two_turns(session):
    talk = session.dialogue(b"")
    assert talk.ask(WATCH, LIMITS).value == b"+"
    time.sleep(0.3)
    result = talk.ask(b"time.sleep(0.2)\nprint(open('thread').read(), open('process').read())", LIMITS)
    talk.close()
    assert all(float(pause) >= 0.3 for pause in result.stdout.split()), result


def test_an_interpreter_that_goes_on_between_two_turns_is_ended():
    """A stopped process can be continued, for example by a timer of its own."""
    with sandbox.open(sandbox.Spec(program=PROGRAM, limits=LIMITS), "process") as session:
        talk = session.dialogue(b"")
        pid = int(talk.ask(b"import os\nprint(os.getpid())", LIMITS).stdout)
        os.kill(pid, signal.SIGCONT)
        time.sleep(3 * zygote.LOOK)
        assert talk.ask(b"print(1)", LIMITS).fate == "exited"
        assert session.call(b"hello").value == b"hello"


ENDINGS = {
    "timeout": b"while True: pass",
    "memory": b"import mmap\nhoard = []\nwhile True:\n    hoard.append(mmap.mmap(-1, 1 << 24))\n"
    b"    hoard[-1].write(b'x' * (1 << 24))",
    "output": b"while True: print('x' * 100000)",
    "exited": b"import os\nos._exit(3)",
}


@pytest.mark.parametrize("fate", ENDINGS)
def test_a_turn_beyond_a_limit_ends_the_dialogue_and_not_the_sandbox(fate, session):
    talk = session.dialogue(b"")
    seconds = 0.3 if fate == "timeout" else 20
    result = talk.ask(ENDINGS[fate], sandbox.Limits(**{**LIMITS.plain(), "seconds": seconds}))
    assert result.fate in {fate, "paused"} if fate == "memory" else result.fate == fate
    talk.close()
    assert session.call(b"hello").value == b"hello"


HOSTILE = {
    "ends a turn early and goes on": b"import os\nos.write(3, b'+')\nwhile True: pass",
    "writes many ends": b"import os\nos.write(3, b'+' * 1000)",
    "closes its input": b"import os\nos.close(0)",
    "never reads its input": b"import os\nos.write(3, b'+')\nimport time\ntime.sleep(1000)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_turn_costs_its_own_dialogue_only(name, session):
    talk = session.dialogue(b"")
    short = sandbox.Limits(**{**LIMITS.plain(), "seconds": 0.5})
    first = talk.ask(HOSTILE[name], short).fate
    # Without input the interpreter ends, on a busy machine before the turn is counted as ended.
    assert first == "paused" or (name, first) == ("closes its input", "exited")
    if first == "paused":
        assert talk.ask(b"x" * 300_000, short).fate in {"paused", "timeout", "exited"}
    talk.close()
    assert session.call(b"hello").value == b"hello"


def test_a_closed_session_ends_its_dialogue(tmp_path):
    session = sandbox.open(sandbox.Spec(program=PROGRAM, limits=LIMITS), "process")
    talk = session.dialogue(b"")
    pid = int(talk.ask(b"import os\nprint(os.getpid())", LIMITS).stdout)
    session.close()
    assert not os.path.exists(f"/proc/{pid}")
