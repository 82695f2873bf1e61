"""Memory and disk space that processes try to hide."""

import ctypes
import mmap
import os
import signal
import time
from contextlib import contextmanager, suppress

import pytest

from envsuite.sandbox.inside.family import descendants
from envsuite.sandbox.inside.usage import (
    FILE_BYTES,
    FOLDER_BYTES,
    UncollectedTime,
    folder_bytes,
    ignores_children,
    memory_bytes,
    memory_of,
    unlinked_bytes,
)

MB = 1 << 20


@contextmanager
def children(count, action):
    """Yields the ids of processes that have carried out `action` and wait."""
    read, write = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            action()
            os.write(write, b"x")
            signal.pause()
        pids.append(pid)
    try:
        for _ in pids:
            os.read(read, 1)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


def test_shared_memory_counts_that_no_process_has_in_its_page_tables():
    baseline = memory_of(os.getpid())

    def hoard():
        part = mmap.mmap(-1, 16 * MB)
        for _ in range(16):  # the memory of a large text would stay with the process if it came from the heap
            part.write(b"x" * MB)
        part.madvise(mmap.MADV_DONTNEED)
        kept.append(part)

    kept = []
    with children(2, hoard) as pids:
        assert 32 * MB <= memory_bytes(pids, baseline, 20 * MB) < 64 * MB


def test_memory_counts_that_replaces_what_processes_share_with_the_zygote():
    shared = bytearray(b"x" * 32 * MB)
    baseline = memory_of(os.getpid())

    def replace():
        shared[::4096] = b"y" * len(shared[::4096])

    with children(8, replace) as pids:
        assert memory_bytes(pids, baseline, 100 * MB) > 100 * MB


def test_files_without_a_name_count_while_they_are_open_or_mapped(tmp_path):
    path = tmp_path / "file"

    def keep(mapped):
        file = path.open("w+b", buffering=0)
        path.unlink()
        file.write(b"x" * MB)
        kept.append(mmap.mmap(file.fileno(), MB) if mapped else file)
        if mapped:
            file.close()

    kept = []
    for mapped in (False, True):
        with children(1, lambda mapped=mapped: keep(mapped)) as pids:
            assert unlinked_bytes(pids, [str(tmp_path)]) == MB
    path.write_bytes(b"x" * MB)
    with children(1, lambda: kept.append(path.open())) as pids:
        assert unlinked_bytes(pids, [str(tmp_path)]) == 0


def test_only_a_process_that_ignores_the_signal_is_seen_to_do_so():
    for handler, hides in ((signal.SIG_DFL, False), (lambda *_: None, False), (signal.SIG_IGN, True)):
        with children(1, lambda handler=handler: signal.signal(signal.SIGCHLD, handler)) as (pid,):
            assert ignores_children(pid) == hides


class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int)]


def ignore_by_flag():
    assert ctypes.CDLL(None).sigaction(signal.SIGCHLD, ctypes.byref(Action(flags=2)), None) == 0  # SA_NOCLDWAIT


def have_children(prepare, seconds, count):
    """Has children that each use some processor time; waits for every one."""
    prepare()
    for _ in range(count):
        if os.fork() == 0:
            began = time.process_time()
            while time.process_time() - began < seconds:
                pass
            os._exit(0)
        with suppress(ChildProcessError):
            os.wait()
    time.sleep(0.02)


WAYS = {
    "nothing": (lambda: None, False),
    "a handler": (lambda: signal.signal(signal.SIGCHLD, lambda *_: None), False),
    "ignoring the signal": (lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), True),
    "a flag of the kernel": (ignore_by_flag, True),
}


@pytest.mark.parametrize("way", WAYS)
def test_processor_time_that_no_parent_collects_is_noticed(way):
    prepare, hides = WAYS[way]
    parent = os.fork()
    if parent == 0:
        try:
            have_children(prepare, 0.03, 12)
        finally:
            os._exit(0)
    uncollected, noticed = UncollectedTime(), False
    while os.waitpid(parent, os.WNOHANG) == (0, 0):
        noticed |= uncollected.look([parent, *descendants(parent)])
        time.sleep(0.002)
    assert noticed == hides


@pytest.mark.parametrize(("processes", "crowd"), [(4, False), (24, True)])
def test_a_crowd_of_processes_gives_way_and_a_few_do_not(session, play, processes, crowd):
    result, _ = play(
        f"import os, time\nfor _ in range({processes}):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "time.sleep(1.5)\nprint(os.getpriority(os.PRIO_PROCESS, 0), flush=True)\nos._exit(0)"
    )
    gives_way = crowd or session.driver == "docker"  # there, all runs give way to their zygote
    niceness = int(result.stdout)
    assert niceness >= 15 if gives_way else niceness == os.nice(0)


def test_a_crowd_goes_on_after_it_was_paused_for_a_look(session, play):
    result, _ = play(
        "import os, time\nends = []\nfor number in range(24):\n    ends.append(os.pipe())\n    if os.fork() == 0:\n"
        "        end = time.monotonic() + 0.5\n        while time.monotonic() < end: pass\n"
        "        os.write(ends[-1][1], bytes([number]))\n        os._exit(0)\n"
        "print(sum(os.read(read, 1)[0] for read, _ in ends), flush=True)\nos._exit(0)"
    )
    assert (result.fate, result.stdout) == ("exited", b"276\n")


@pytest.mark.parametrize("named", ["folder", "file"])
def test_every_folder_counts_four_files(tmp_path, named):
    for number in range(5):
        path = tmp_path / str(number)
        path.mkdir() if named == "folder" else path.touch()
    assert folder_bytes(str(tmp_path)) == 5 * (FOLDER_BYTES if named == "folder" else FILE_BYTES)
