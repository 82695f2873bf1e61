"""Linux isolation primitives by ctypes: namespaces, mounts, capabilities, Landlock, seccomp,
subreaper.

Every function raises OSError with the name of the failed call. Numbers are from the kernel's
headers (x86_64 and aarch64).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

NEW_MOUNT, NEW_IPC, NEW_USER, NEW_PID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
READ_SEARCH = 2  # CAP_DAC_READ_SEARCH

_NOSUID_NODEV, _NOEXEC, _BIND = 2 | 4, 8, 0x1000
_PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE | MS_REC
_SET_NO_NEW_PRIVS, _SET_SUBREAPER, _SET_DUMPABLE, _SET_KEEPCAPS, _SET_SECCOMP = 38, 36, 4, 8, 22
_SET_DEATH_SIGNAL, _DROP_BOUNDING, _AMBIENT = 1, 24, 47

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _prctl(name: str, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:5]]
    _checked(name, _libc.prctl(*padded))


# ---- namespaces ---------------------------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Moves this process (for `NEW_PID`: its next children) into new namespaces."""
    _checked("unshare", _libc.unshare(flags))


def return_to_pid_namespace(handle: int) -> None:
    """Makes further children belong to the PID namespace of `handle`, after `unshare(NEW_PID)` and a
    fork.
    """
    _checked("setns", _libc.setns(handle, NEW_PID))


def privatise_mounts() -> None:
    """Keeps later mounts inside this mount namespace."""
    _checked("mount", _libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None))


def mount_tmpfs(path: str, megabytes: int) -> None:
    """Mounts an empty folder in memory, with limited size and number of files, at `path`."""
    options = f"size={megabytes}m,nr_inodes={max(1024, megabytes * 64)},mode=1777".encode()
    _checked("tmpfs", _libc.mount(b"tmpfs", path.encode(), b"tmpfs", ctypes.c_ulong(_NOSUID_NODEV), options))


def hide_file(path: str) -> None:
    """Mounts /dev/null over a file."""
    _checked("bind", _libc.mount(b"/dev/null", path.encode(), None, ctypes.c_ulong(_BIND), None))


def mount_proc() -> None:
    """Mounts a /proc that shows only this PID namespace."""
    _checked("proc", _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_NOSUID_NODEV | _NOEXEC), None))


# ---- privileges ---------------------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that they can be listed and ended."""
    _prctl("subreaper", _SET_SUBREAPER, 1)


def close_to_inspection() -> None:
    """Prevents processes of the same user from reading this process's memory or file descriptors."""
    _prctl("dumpable", _SET_DUMPABLE, 0)


def open_to_inspection() -> None:
    """Lets the parent read this process's memory again, after `close_to_inspection`."""
    _prctl("dumpable", _SET_DUMPABLE, 1)


def set_times(path: str, times: bytes) -> None:
    """Sets access and modification time of `path` from two packed `struct timespec`; b"" means now."""
    _checked("utimensat", _libc.utimensat(-100, path.encode(), times or None, 0))


def die_with_parent() -> None:
    _prctl("death signal", _SET_DEATH_SIGNAL, 9)


def become(uid: int | None, keep_search: bool = False) -> None:
    """Drops every privilege: switches to user and group `uid` (None keeps the user) and clears all
    capabilities for good.

    `keep_search` keeps CAP_DAC_READ_SEARCH, for an interpreter in a private folder of root: use it
    only if Landlock restricts what may be read.
    """
    keep_search = keep_search and uid is not None
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        if keep_search:
            _prctl("keepcaps", _SET_KEEPCAPS, 1)
    for capability in range(64):
        if capability == READ_SEARCH and keep_search:
            continue
        if _libc.prctl(_DROP_BOUNDING, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # beyond the last capability, or no right to drop: then there is nothing to lose
    if uid is not None:
        os.setresuid(uid, uid, uid)
    mask = 1 << READ_SEARCH if keep_search else 0
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    sets = ctypes.create_string_buffer(struct.pack("=6I", mask, mask, mask, 0, 0, 0), 24)
    _checked("capset", _libc.capset(header, sets))
    if keep_search:
        _prctl("ambient", _AMBIENT, 2, READ_SEARCH)  # so that a command started by exec can read its interpreter
    _prctl("no_new_privs", _SET_NO_NEW_PRIVS, 1)


# ---- Landlock -----------------------------------------------------------------------------------------------------

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR


def landlock_version() -> int:
    """Returns the kernel's Landlock ABI version; 0 without Landlock (too old, or disabled)."""
    return max(0, int(_libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def landlock(listed: Iterable[str], read: Iterable[str], write: Iterable[str]) -> None:
    """Restricts this process for good: list folders under `listed`, read and execute under `read`,
    everything under `write`.

    Also refuses TCP (ABI 4) and signals to and abstract sockets of processes outside (ABI 6). Paths
    that do not exist are skipped. Further calls add restrictions.
    """
    version = landlock_version()
    rights = (1 << 13) - 1
    for since, right in ((2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL)):
        rights |= right if version >= since else 0
    fields = [rights] + ([3] if version >= 4 else []) + ([3] if version >= 6 else [])
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields))
    size = ctypes.c_size_t(8 * len(fields))
    ruleset = _checked("landlock", int(_libc.syscall(444, attributes, size, ctypes.c_uint32(0))))
    for paths, requested in ((listed, _READ_DIR), (read, _READ), (write, rights)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = requested & rights
            if not os.path.isdir(path):
                allowed &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
            if allowed:
                rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, handle), 12)
                _checked("landlock rule", int(_libc.syscall(445, ruleset, 1, rule, ctypes.c_uint32(0))))
            os.close(handle)
    _prctl("no_new_privs", _SET_NO_NEW_PRIVS, 1)
    _checked("landlock", int(_libc.syscall(446, ruleset, ctypes.c_uint32(0))))
    os.close(ruleset)


# ---- seccomp ------------------------------------------------------------------------------------------------------

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
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820)  # FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR
_SOCKET = (41, 198)
_SIGNALS = (
    (62, 129),
    (200, 130),
    (234, 131),
    (129, 138),
    (297, 240),
    (424, 424),
)  # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SECCOMP_CALL = (317, 277)
_NEW_NAMESPACES = 0x7E020080

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def seccomp_known() -> bool:
    """Returns True if the filter below has numbers for this processor."""
    return platform.machine() in _MACHINES


_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _NOTIFY = 0x7FFF0000, 0x80000000, 0x7FC00000
_REFUSE, _MISSING, _UNSUPPORTED = 0x00050001, 0x00050026, 0x0005005F  # EPERM, ENOSYS, EOPNOTSUPP
_LOAD_CALL = (_LOAD, 0, 0, 0)
_FIRST_ARGUMENT, _SECOND_ARGUMENT = 16, 24  # offsets of the lower halves in struct seccomp_data
Step = tuple[int, int, int, int]
"""an instruction of the filter: code, jump if true, jump if false, value"""


def guarded_call(number: int) -> str:
    """Returns the name of a call that the filter hands to the zygote, by its number on this processor."""
    column, _ = _MACHINES[platform.machine()]
    return next(name for name, numbers in _GUARDED.items() if numbers[column] == number)


def seccomp(sockets: bool, signals: bool, shared_user: bool = False) -> int | None:
    """Refuses (EPERM) the calls above, every socket unless `sockets`, and every kill unless `signals`.

    `shared_user`: the run's user owns other files and processes. Then calls that would change them are refused too, and
    those in `_GUARDED` are handed to the returned file descriptor; otherwise returns None.
    """
    column, architecture = _MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    refused += [] if sockets else [_SOCKET[column]]
    refused += [] if signals else [numbers[column] for numbers in _SIGNALS]
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
    if shared_user:
        program += _shared_user_steps(column)
    # clone3 passes its flags by pointer. Reported as missing, it makes the C library use clone, whose flags can be
    # checked.
    program += _when(_CLONE3[column], _MISSING)
    program += [(_EQUAL, 0, 3, _CLONE[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    program += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return _install(program, listen=shared_user)


def _when(number: int, action: int) -> list[Step]:
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]


def _shared_user_steps(column: int) -> list[Step]:
    steps: list[Step] = []
    refused = [numbers[column] for numbers in _REFUSED_TO_SHARED_USER.values()]
    refused += [_TRUNCATE_CALL[column]] if landlock_version() < 3 else []
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
    steps += [(_EQUAL, 0, len(_SET_FLAGS) + 3, _IOCTL_CALL[column]), (_LOAD, 0, 0, _SECOND_ARGUMENT)]
    for index, request in enumerate(_SET_FLAGS):
        last = index == len(_SET_FLAGS) - 1
        steps.append((_EQUAL, len(_SET_FLAGS) - 1 - index, 1 if last else 0, request))
    return [*steps, (_RETURN, 0, 0, _REFUSE), _LOAD_CALL]


def _install(program: list[Step], listen: bool) -> int | None:
    """Installs a filter for good; `listen`: returns the descriptor that receives the calls handed over."""
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    steps = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(steps)))
    _prctl("no_new_privs", _SET_NO_NEW_PRIVS, 1)
    if not listen:
        _prctl("seccomp", _SET_SECCOMP, 2, ctypes.addressof(header))
        return None
    number = _SECCOMP_CALL[_MACHINES[platform.machine()][0]]
    flags = ctypes.c_uint(1 << 3)  # SECCOMP_FILTER_FLAG_NEW_LISTENER
    return _checked("seccomp", int(_libc.syscall(number, ctypes.c_uint(1), flags, header)))
