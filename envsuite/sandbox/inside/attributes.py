"""File attributes: lets a run change modes and times of files in its own folders, and nowhere else.

Landlock does not restrict chmod, utimensat and the like, so a run with the user's own id could change the mode of any
file of the user. A seccomp filter (`system_calls.seccomp`) hands these calls to the zygote, and `AttributeGuard`
carries them out on its behalf if the file is below one of the run's folders. The run cannot move or link a foreign file
into its folders, because Landlock refuses that.

The same filter also hands over calls by which a run can bring SIGKILL upon itself, under every driver with a filter.
The guard notes them and lets the kernel carry them out (`host_kills`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct

from . import kernel, system_calls

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_*
_REQUEST = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, call, architecture, instruction pointer, arguments
_REPLY = struct.Struct("=QqiI")  # id, value, negative error number, flags
_CWD = -100  # AT_FDCWD
_NOFOLLOW, _EMPTY_PATH = 0x100, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_SET_ID_BITS = 0o6000
_TIMES_BYTES = 32  # two struct timespec
_PAGE = 4096


class AttributeGuard:
    """Answers the calls that the filter hands over. `roots`: the folders in which a run may change attributes."""

    def __init__(self, listener: int, roots: list[str]) -> None:
        self.listener = listener
        self.roots = [os.path.realpath(root) for root in roots]
        self.may_kill_itself = False
        """True once the run has made a call by which it can bring SIGKILL upon itself"""

    def answer(self) -> None:
        """Carries out or refuses one waiting call. The calling thread sleeps until then."""
        buffer = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, buffer, True)
        except OSError:  # the caller was killed in the meantime
            return
        number, pid, _, call, _, _, *arguments = _REQUEST.unpack(buffer)
        name, code, flags = system_calls.guarded_call(call), 0, 0
        if name is None:
            self.may_kill_itself, flags = True, _CONTINUE
        else:
            try:
                self._carry_out(number, pid, name, arguments)
            except OSError as error:
                code = error.errno or errno.EPERM
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.listener, _SEND, _REPLY.pack(number, 0, -code, flags))

    def close(self) -> None:
        os.close(self.listener)

    def _carry_out(self, number: int, pid: int, call: str, arguments: list[int]) -> None:
        times = b""
        if call == "chmod":
            folder, path, mode, flags = _CWD, arguments[0], arguments[1], 0
        elif call == "fchmod":
            folder, path, mode, flags = _signed(arguments[0]), 0, arguments[1], 0
        elif call == "fchmodat":
            folder, path, mode, flags = _signed(arguments[0]), arguments[1], arguments[2], 0
        elif call == "fchmodat2":
            folder, path, mode, flags = _signed(arguments[0]), arguments[1], arguments[2], arguments[3]
        else:  # utimensat
            folder, path, mode, flags = _signed(arguments[0]), arguments[1], 0, arguments[3]
            times = _memory(pid, arguments[2], _TIMES_BYTES) if arguments[2] else b""
        name = _text(pid, path) if path else ""
        fcntl.ioctl(self.listener, _IS_VALID, struct.pack("=Q", number))  # else `pid` may be another process by now
        if path and not name and not flags & _EMPTY_PATH:
            raise FileNotFoundError(errno.ENOENT, "empty path")
        handle = _open(pid, folder, name, bool(flags & _NOFOLLOW))
        try:
            self._require_inside(handle)
            if call == "utimensat":
                kernel.set_times(f"/proc/self/fd/{handle}", times)
            elif mode & _SET_ID_BITS:
                raise PermissionError(errno.EPERM, "set-user-ID and set-group-ID")
            else:
                os.chmod(f"/proc/self/fd/{handle}", mode & 0o7777)
        finally:
            os.close(handle)

    def _require_inside(self, handle: int) -> None:
        """Raises PermissionError unless the open file is below one of the roots."""
        place = os.readlink(f"/proc/self/fd/{handle}")
        if not any(place == root or place.startswith(f"{root}/") for root in self.roots):
            raise PermissionError(errno.EPERM, "not in a folder of this run")


def _open(pid: int, folder: int, name: str, nofollow: bool) -> int:
    """Opens the file that `name` means to the process `pid`, without reading or writing it."""
    for prefix in ("/proc/self/", "/proc/thread-self/"):
        if name.startswith(prefix):
            name = f"/proc/{pid}/{name[len(prefix) :]}"
    if not name.startswith("/"):
        base = f"/proc/{pid}/cwd" if folder == _CWD else f"/proc/{pid}/fd/{folder}"
        name = f"{base}/{name}" if name else base
    return os.open(name, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if nofollow else 0))


def _signed(argument: int) -> int:
    return ctypes.c_int(argument & 0xFFFFFFFF).value


def _memory(pid: int, address: int, count: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        file.seek(address)
        data = file.read(count)
    if len(data) < count:
        raise OSError(errno.EFAULT, "bad address")
    return data


def _text(pid: int, address: int) -> str:
    """Returns the NUL-terminated path at `address`, read page by page as the next page may not be mapped."""
    data = b""
    while b"\0" not in data:
        if len(data) > _PAGE:
            raise OSError(errno.ENAMETOOLONG, "path too long")
        data += _memory(pid, address + len(data), _PAGE - (address + len(data)) % _PAGE)
    return os.fsdecode(data.partition(b"\0")[0])
