"""Linux isolation primitives by ctypes: namespaces, mounts, capabilities, Landlock, seccomp,
subreaper. `system_calls` has the seccomp filter itself.

Every function raises OSError with the name of the failed call. Numbers are from the kernel's
headers (x86_64 and aarch64).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

NEW_MOUNT, NEW_IPC, NEW_USER, NEW_PID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
READ_SEARCH = 2  # CAP_DAC_READ_SEARCH

_NOSUID_NODEV, _NOEXEC, _BIND = 2 | 4, 8, 0x1000
_PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE | MS_REC
_SET_NO_NEW_PRIVS, _SET_SUBREAPER, _SET_DUMPABLE, _SET_KEEPCAPS, _SET_SECCOMP = 38, 36, 4, 8, 22
_SET_DEATH_SIGNAL, _DROP_BOUNDING, _AMBIENT, _GET_DUMPABLE = 1, 24, 47, 3

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


def die_first() -> None:
    """Makes this process the one that the kernel ends when memory runs out, before the zygote and the user's own."""
    inspectable = _libc.prctl(_GET_DUMPABLE, 0, 0, 0, 0)
    open_to_inspection()  # or the file would belong to root
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    _prctl("dumpable", _SET_DUMPABLE, inspectable)


def die_with_parent() -> None:
    _prctl("death signal", _SET_DEATH_SIGNAL, 9)


def become(uid: int | None, keep_search: bool = False) -> None:
    """Drops every privilege: switches to user and group `uid` (None keeps the user) and clears all
    capabilities for good.

    `keep_search` keeps CAP_DAC_READ_SEARCH, for an interpreter or a TMPDIR in a private folder of root: use it
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


def install_filter(code: bytes, call: int, listen: bool) -> int | None:
    """Installs a seccomp filter for good: `code`, instructions of 8 bytes.

    `listen`: returns the descriptor that receives the calls handed over. `call`: number of the call seccomp.
    """
    steps = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(steps)))
    _prctl("no_new_privs", _SET_NO_NEW_PRIVS, 1)
    if not listen:
        _prctl("seccomp", _SET_SECCOMP, 2, ctypes.addressof(header))
        return None
    flags = ctypes.c_uint(1 << 3)  # SECCOMP_FILTER_FLAG_NEW_LISTENER
    return _checked("seccomp", int(_libc.syscall(call, ctypes.c_uint(1), flags, header)))
