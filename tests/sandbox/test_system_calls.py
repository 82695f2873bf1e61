"""Numbers of system calls in the sandbox's filter, against the headers of the kernel."""

import ctypes
import errno
import fcntl
import os
import queue
import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from envsuite.sandbox.inside import system_calls
from envsuite.sandbox.inside.attributes import AttributeGuard

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_refused_system_calls_have_the_numbers_of_the_kernels_headers(machine):
    if not HEADERS[machine].exists():
        pytest.skip("linux-libc-dev is not installed")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.MULTILINE)
    known = {name: int(number) for name, number in defined}
    tables = system_calls._REFUSED | system_calls._REFUSED_TO_SHARED_USER | system_calls._UNSUPPORTED_FOR_SHARED_USER
    tables |= system_calls._SENDERS | system_calls._SELF_KILLERS | system_calls._WATCHING
    newest = known["landlock_restrict_self"]
    numbers = {name: pair[list(HEADERS).index(machine)] for name, pair in tables.items()}
    for name, number in numbers.items():  # headers older than the call cannot know it
        assert number == known.get(name, number if name not in known and (number or 0) > newest else None), name
    assert sum(name in known for name in numbers) > 45


def answer(listeners) -> None:
    """Answers the calls that the filter hands over, as the zygote does."""
    guard = AttributeGuard(listeners.get(), [])
    while True:
        guard.answer()


def errors_of(actions, sockets="all", signals=True, shared_user=False, watches=True) -> list[str]:
    """Returns the errors of actions in a process with the filter, by name; '' for none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            listeners = queue.SimpleQueue()
            threading.Thread(target=answer, args=(listeners,), daemon=True).start()  # without the filter
            listeners.put(system_calls.seccomp(sockets, signals, shared_user, watches))
            for action in actions:
                try:
                    action()
                    os.write(write, b"\n")
                except OSError as error:
                    os.write(write, errno.errorcode[error.errno].encode() + b"\n")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as file:
        return file.read().splitlines()


def pair(kind):
    return lambda: socket.socketpair(socket.AF_UNIX, kind)


def test_only_sockets_that_a_namespace_isolates_can_be_opened():
    domains = (socket.AF_UNIX, socket.AF_INET, socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET)
    actions = [lambda domain=domain: socket.socket(domain, socket.SOCK_STREAM) for domain in domains]
    assert errors_of([*actions, pair(socket.SOCK_DGRAM)]) == ["", "", *["EAFNOSUPPORT"] * 3, ""]


def test_pairs_of_sockets_are_connected_or_refused():
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM, socket.SOCK_RAW)
    actions = [*map(pair, kinds), socket.socket]
    assert errors_of(actions, "pairs") == ["", "", "EPERM", "EPERM", "EPERM"]
    assert errors_of(actions, "none") == ["EPERM"] * 5


def test_pairs_are_of_the_same_domains_as_sockets():
    """AF_TIPC, for one, has pairs; the kernel itself reports for these that they have none."""
    domains = (socket.AF_PACKET, socket.AF_INET)
    actions = [lambda domain=domain: socket.socketpair(domain, socket.SOCK_STREAM) for domain in domains]
    assert errors_of(actions) == ["EAFNOSUPPORT", "ENOTSUP"]
    assert errors_of(actions, "pairs") == ["EAFNOSUPPORT"] * 2


@pytest.mark.parametrize(("signals", "shared_user"), [(False, False), (True, True), (True, False)])
def test_a_pipe_can_signal_others_only_where_a_process_can(signals, shared_user):
    handle, _ = os.pipe()
    commands = ((fcntl.F_SETOWN, os.getpid()), (fcntl.F_SETSIG, signal.SIGCONT), (fcntl.F_GETFD, 0))
    actions = [lambda pair=pair: fcntl.fcntl(handle, *pair) for pair in commands]
    refused = "" if signals and not shared_user else "EPERM"
    assert errors_of(actions, signals=signals, shared_user=shared_user) == [refused, refused, ""]


def test_a_user_who_owns_other_files_may_ask_but_not_change_by_ioctl(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    flags, verity, size = 0x80086601, 0x40806685, bytes(128)  # FS_IOC_GETFLAGS, FS_IOC_ENABLE_VERITY
    actions = [lambda: fcntl.ioctl(os.pipe()[0], 0x541B, bytes(4)), lambda: fcntl.ioctl(handle, verity, size)]
    assert errors_of(actions, shared_user=True) == ["", "ENOTTY"]
    assert errors_of([lambda: fcntl.ioctl(handle, flags, bytes(8))])[0] in {"", "ENOTTY", "EOPNOTSUPP"}


def test_reports_of_changes_to_files_can_be_switched_off():
    libc = ctypes.CDLL(None, use_errno=True)

    def watch():
        if libc.inotify_init1(0) < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    assert errors_of([watch]) == [""]
    assert errors_of([watch], watches=False) == ["ENOSYS"]
