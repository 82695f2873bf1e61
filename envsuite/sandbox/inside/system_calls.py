"""The seccomp filter of a run: system calls that it may not make, and those that the zygote answers.

The zygote carries out some calls itself (`attributes`). Others it only notes, before the kernel carries them out: those
by which a run can bring SIGKILL upon itself. A run that made none of them was killed by the host (`host_kills`).

Numbers are from the kernel's headers (x86_64, aarch64).
"""

from __future__ import annotations

import platform
import re
import socket
import struct
from collections.abc import Sequence

from . import kernel

# System calls that inspect other processes, outlive them, create namespaces, reach deep into the
# kernel, or use memory that no limit counts: x86_64 number, aarch64 number.
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),  # a pipe would keep whole huge pages alive that no process maps
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
}
# System calls that change attributes of files which the run's user owns, or other processes of that user.
_REFUSED_TO_SHARED_USER: dict[str, tuple[int, int | None]] = {
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "file_setattr": (469, 469),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
# Extended attributes, reported as not supported: `cp -a`, tar and the like then continue without them.
_UNSUPPORTED_FOR_SHARED_USER = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
# Calls that report what happens to files; reported as missing, so that programs look again and again instead.
_WATCHING: dict[str, tuple[int | None, int | None]] = {
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
}
# Calls whose first argument is a process id; refused unless it is 0, the caller itself.
_OF_A_PROCESS = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}
# Calls that the zygote carries out if the file is in a folder of the run; see `attributes`.
_GUARDED: dict[str, tuple[int, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utimensat": (280, 88),
}
_TRUNCATE_CALL = (76, 45)  # Landlock restricts it since ABI 3
_IOCTL_CALL = (16, 29)
# ioctl requests open to a run whose user owns other files; some of the others change files that are open for reading:
# TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FICLONE,
# FICLONERANGE, FS_IOC_FIEMAP.
_HARMLESS_REQUESTS = (
    *(0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451),
    *(0x80086601, 0x801C581F, 0x40049409, 0x4020940D, 0xC020660B),
)
_FCNTL_CALL = (72, 25)
_SIGNAL_COMMANDS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: a file descriptor that sends signals
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
# Domains of sockets that a network namespace isolates: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. AF_VSOCK, for one,
# reaches the host of a virtual machine from any namespace.
_ISOLATED_DOMAINS = (1, 2, 10, 16)
_CONNECTED_TYPES = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET; a datagram socket of a pair can write to any other socket
_TYPE_MASK = 0xF
_KILL_SIGNAL = 9
# Calls that can send SIGKILL: x86_64 number, aarch64 number, position of the signal among the arguments.
_SENDERS = {
    "kill": (62, 129, 1),
    "tkill": (200, 130, 1),
    "tgkill": (234, 131, 2),
    "rt_sigqueueinfo": (129, 138, 1),
    "rt_tgsigqueueinfo": (297, 240, 2),
    "pidfd_send_signal": (424, 424, 1),
}
# Other calls after which the kernel may kill the caller: numbers, and the value of an argument (position, value) that
# matters: RLIMIT_CPU, PR_SET_SECCOMP, SECCOMP_SET_MODE_STRICT, F_SETSIG; none for a timer, whose signal is in memory.
_SELF_KILLERS: dict[str, tuple[int, int, tuple[int, int] | None]] = {
    "setrlimit": (160, 164, (0, 0)),
    "prlimit64": (302, 261, (1, 0)),
    "prctl": (157, 167, (0, 22)),
    "seccomp": (317, 277, (0, 0)),
    "fcntl": (*_FCNTL_CALL, (1, 10)),
    "timer_create": (222, 107, None),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SECCOMP_CALL = (317, 277)
_NEW_NAMESPACES = 0x7E020080
_EXIT_SIGNAL = 0xFF  # bits of clone's flags: the signal that the parent gets at the end of the new process

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def seccomp_known() -> bool:
    """Returns True if the filter below has numbers for this processor."""
    return platform.machine() in _MACHINES


_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _NOTIFY = 0x7FFF0000, 0x80000000, 0x7FC00000
_REFUSE, _MISSING, _UNSUPPORTED = 0x00050001, 0x00050026, 0x0005005F  # EPERM, ENOSYS, EOPNOTSUPP
_NO_DOMAIN, _NO_REQUEST = 0x00050061, 0x00050019  # EAFNOSUPPORT, ENOTTY
_LOAD_CALL = (_LOAD, 0, 0, 0)
_FIRST_ARGUMENT, _SECOND_ARGUMENT = 16, 24  # offsets of the lower halves in struct seccomp_data
_ARGUMENT_BYTES = 8
Step = tuple[int, int, int, int]
"""an instruction of the filter: code, jump if true, jump if false, value"""


def guarded_call(number: int) -> str | None:
    """Returns the name of a call that the zygote carries out, by its number on this processor; None for others."""
    column, _ = _MACHINES[platform.machine()]
    return next((name for name, numbers in _GUARDED.items() if numbers[column] == number), None)


def can_note() -> bool:
    """Returns True if this kernel can continue a call that was handed over: Linux 5.5 or newer."""
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2]) >= (5, 5)


def seccomp(sockets: str, signals: bool, shared_user: bool = False, watches: bool = True) -> int | None:
    """Refuses (EPERM) the calls above, sockets as below, and every kill unless `signals`.

    `sockets`: "all" that a network namespace isolates, connected "pairs" only, or "none". `shared_user`: the run's user
    owns other files and processes. Then calls that would change them are refused too, and those in `_GUARDED` are
    handed over. `watches`: the run may ask for reports of changes to files. Returns the file descriptor that receives
    calls handed over; None if the kernel allows none (it is too old, or this process has such a filter already), and
    then no call is noted.
    """
    column, architecture = _MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    refused += [] if signals else [sender[column] for sender in _SENDERS.values()]
    program: list[Step] = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        _LOAD_CALL,
        (_AT_LEAST, 0, 1, 0x40000000),  # x32 uses other numbers
        (_RETURN, 0, 0, _KILL),
    ]
    for number in refused:
        program += _when(number, _REFUSE)
    watching = [] if watches else [calls[column] for calls in _WATCHING.values()]
    for watch in watching:
        program += _when(watch, _MISSING) if watch is not None else []
    program += _socket_steps(column, sockets)
    if shared_user or not signals:
        program += _refuse_values(_FCNTL_CALL[column], _SECOND_ARGUMENT, _SIGNAL_COMMANDS)
    if shared_user:
        program += _shared_user_steps(column)
    noted = _noted_steps(column, signals)
    try:
        if shared_user or can_note():
            steps = program + noted + _clone_steps(column, noted=True)
            return kernel.install_filter(_packed(steps), _SECCOMP_CALL[column], listen=True)
    except OSError:  # another filter above this process listens already
        if shared_user:
            raise
    steps = program + _clone_steps(column, noted=False)
    return kernel.install_filter(_packed(steps), _SECCOMP_CALL[column], listen=False)


def _packed(program: Sequence[Step]) -> bytes:
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _noted_steps(column: int, signals: bool) -> list[Step]:
    """Returns steps that hand over the calls by which a run can bring SIGKILL upon itself."""
    steps: list[Step] = []
    for sender in _SENDERS.values():
        steps += _note(sender[column], (sender[2], _KILL_SIGNAL)) if signals else []
    for killer in _SELF_KILLERS.values():
        steps += _note(killer[1] if column else killer[0], killer[2])
    return steps


def _clone_steps(column: int, noted: bool) -> list[Step]:
    """Returns the last steps of the filter: they refuse new namespaces and let all other calls pass.

    `noted`: a new process whose end sends SIGKILL to its parent is handed over.
    """
    steps: list[Step] = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *_any_bit(_NEW_NAMESPACES, _REFUSE)]
    if noted:
        steps += [(_AND, 0, 0, _EXIT_SIGNAL), *_when(_KILL_SIGNAL, _NOTIFY)]
    # clone3 passes its flags by pointer. Reported as missing, it makes the C library use clone, whose flags can be
    # checked.
    clone3 = _when(_CLONE3[column], _MISSING)
    return [*clone3, (_EQUAL, 0, len(steps), _CLONE[column]), *steps, (_RETURN, 0, 0, _ALLOW)]


def _note(call: int, value: tuple[int, int] | None) -> list[Step]:
    """Returns steps that hand over `call`, if the argument at a position has a value."""
    if value is None:
        return _when(call, _NOTIFY)
    position, number = value
    load: Step = (_LOAD, 0, 0, _FIRST_ARGUMENT + position * _ARGUMENT_BYTES)
    return [(_EQUAL, 0, 4, call), load, (_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY), _LOAD_CALL]


def _when(number: int, action: int) -> list[Step]:
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]


def _any_bit(mask: int, action: int) -> list[Step]:
    return [(_ANY_BIT, 0, 1, mask), (_RETURN, 0, 0, action)]


def _allow_values(call: int, argument: int, values: Sequence[int], otherwise: int, mask: int = 0) -> list[Step]:
    """Returns steps that let `call` pass if its argument, under `mask`, is one of `values`."""
    steps: list[Step] = [(_LOAD, 0, 0, argument), *([(_AND, 0, 0, mask)] if mask else [])]
    steps += [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    steps += [(_RETURN, 0, 0, otherwise), _LOAD_CALL]
    return [(_EQUAL, 0, len(steps), call), *steps]


def _refuse_values(call: int, argument: int, values: Sequence[int]) -> list[Step]:
    """Returns steps that refuse `call` if its argument is one of `values`."""
    steps: list[Step] = [(_LOAD, 0, 0, argument)]
    for value in values:
        steps += _when(value, _REFUSE)
    return [(_EQUAL, 0, len(steps) + 1, call), *steps, _LOAD_CALL]


def _socket_steps(column: int, sockets: str) -> list[Step]:
    """Returns steps for `sockets` "all", "pairs" or "none"; see `seccomp`."""
    if sockets == "all":
        steps = _allow_values(_SOCKET[column], _FIRST_ARGUMENT, _ISOLATED_DOMAINS, _NO_DOMAIN)
        return steps + _allow_values(_SOCKETPAIR[column], _FIRST_ARGUMENT, _ISOLATED_DOMAINS, _NO_DOMAIN)
    steps = _when(_SOCKET[column], _REFUSE)
    if sockets == "none":
        return steps + _when(_SOCKETPAIR[column], _REFUSE)
    steps += _allow_values(_SOCKETPAIR[column], _FIRST_ARGUMENT, (socket.AF_UNIX,), _NO_DOMAIN)
    return steps + _allow_values(_SOCKETPAIR[column], _SECOND_ARGUMENT, _CONNECTED_TYPES, _REFUSE, _TYPE_MASK)


def _shared_user_steps(column: int) -> list[Step]:
    steps: list[Step] = []
    refused = [numbers[column] for numbers in _REFUSED_TO_SHARED_USER.values()]
    refused += [_TRUNCATE_CALL[column]] if kernel.landlock_version() < 3 else []
    for number in refused:
        steps += _when(number, _REFUSE) if number is not None else []
    for pair in _UNSUPPORTED_FOR_SHARED_USER.values():
        steps += _when(pair[column], _UNSUPPORTED)
    for numbers in _GUARDED.values():
        guarded = numbers[column]
        steps += _when(guarded, _NOTIFY) if guarded is not None else []
    for pair in _OF_A_PROCESS.values():
        steps += [(_EQUAL, 0, 4, pair[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 1, 0, 0)]
        steps += [(_RETURN, 0, 0, _REFUSE), _LOAD_CALL]
    return steps + _allow_values(_IOCTL_CALL[column], _SECOND_ARGUMENT, _HARMLESS_REQUESTS, _NO_REQUEST)
