"""A run that the machine kills is a fault of the machine; a run that kills itself is not."""

import os
import signal
import threading

import pytest

from envsuite import sandbox
from envsuite.sandbox import local
from envsuite.sandbox.inside.host_kills import KillCounter, Kills, blame
from tests.sandbox.conftest import LIMITS, working
from tests.sandbox.killing import kill_sleeper, new_marker

TIMER = """
import ctypes, time
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signal', ctypes.c_int), ('kind', ctypes.c_int), ('rest', ctypes.c_char * 48)]
timer, times = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 0, 1000)
libc = ctypes.CDLL(None)
assert libc.timer_create(0, ctypes.byref(Event(None, 9, 0)), ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, times, None) == 0
time.sleep(0.2)
"""
LAST_WORD = """
import ctypes, os, platform, time
clone = 56 if platform.machine() == 'x86_64' else 220
if ctypes.CDLL(None).syscall(clone, 9, 0, 0, 0, 0) == 0: os._exit(0)  # 9: the signal at its end
time.sleep(0.2)
"""
SUICIDES = {
    "a signal": "import os\nos.kill(os.getpid(), 9)",
    "a signal to its group": "import os\nos.kill(0, 9)",
    "a signal of its child": "import os, time\nif os.fork() == 0: os.kill(os.getppid(), 9)\ntime.sleep(0.2)",
    "the end of its child": LAST_WORD,
    "a timer": TIMER,
    "a limit on processor time": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "a filter of its own": "import ctypes\nctypes.CDLL(None).prctl(22, 1, 0, 0, 0)\nopen('/dev/null')",
}


@pytest.fixture(scope="module", params=sandbox.SAFE)
def safe(request):
    with sandbox.open(sandbox.Spec(workspace="/testbed", limits=LIMITS), working(request.param)) as session:
        yield session


def test_a_run_that_is_killed_from_outside_is_a_fault_and_the_next_run_works(safe):
    marker = new_marker()
    killer = threading.Thread(target=kill_sleeper, args=(marker,))
    killer.start()
    with pytest.raises(sandbox.HostKill, match=r"The machine killed a run .* of 512 MB\. Free memory"):
        safe.run(["sleep", marker])
    killer.join()
    assert safe.run("echo again").stdout == b"again\n"


def test_a_part_of_a_run_may_be_killed_without_a_fault(safe):
    result = safe.run("sleep 100 & kill -9 $!; wait $!; echo $?")
    assert (result.stdout, result.exit_code) == (b"137\n", 0)


@pytest.mark.parametrize("way", SUICIDES)
def test_a_run_that_brings_the_signal_upon_itself_is_no_fault(safe, way):
    result = safe.run(["python3", "-c", SUICIDES[way]], limits=sandbox.Limits(seconds=20))
    assert result.fate is sandbox.Fate.EXITED
    assert result.exit_code in {-signal.SIGKILL, 0}  # the first process of a namespace ignores signals from inside


def test_a_kill_for_want_of_memory_is_blamed_on_who_ran_out_of_it():
    kill, own = Kills(1, 0), Kills(1, 3)
    assert blame("exited", 137, True, kill) == blame("timeout", -9, False, kill) == "killed"
    assert blame("exited", 137, True, own) == "memory"
    assert blame("exited", 0, True, kill) == "exited"
    assert [blame(fate, -9, True, kill) for fate in ("memory", "disk", "output")] == ["memory", "disk", "output"]
    assert blame("exited", -9, True, Kills()) == "killed"
    assert blame("exited", -9, False, Kills()) == blame("exited", 1, True, Kills()) == "exited"
    assert blame("timeout", -9, True, Kills(0, 5)) == "timeout"


def test_the_kernels_counts_are_read(tmp_path):
    counts = tmp_path / "memory.events"
    counts.write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    counter = KillCounter(os.open(counts, os.O_RDONLY))
    assert counter.read() == Kills(1, 0)
    counts.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert counter.read() - Kills(1, 0) == Kills(2, 0)
    assert KillCounter(None).read() == Kills()
    handle = local.kill_counts()
    assert handle is None or KillCounter(handle).read().total >= 0
