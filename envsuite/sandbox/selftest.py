"""Self-test of the sandbox drivers on this machine, behind `envsuite check --sandbox`.

`examine` runs small programs that try to break out of a driver's sandbox and yields what each driver stopped, for the
user who runs it: a driver may hold for root and not for an ordinary user, or the other way round.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from envsuite.errors import EnvsuiteError
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Fate, Limits, Session, Spec

LIMITS = Limits(seconds=20, memory_mb=256, disk_mb=16, processes=48, flood_mb=4)
WORKS = "does not work here"
"""name of the finding about a driver that does not work"""
PROGRAM = Path(__file__).with_name("inside") / "attack.py"


class Attack(NamedTuple):
    """One attack: Python code that ends with the value of `broken`, and the fates that stop it."""

    name: str
    code: str
    fates: tuple[Fate, ...] = (Fate.EXITED,)
    seconds: float = 20.0


class SandboxFinding(NamedTuple):
    """Result of one attack on one driver."""

    driver: str
    name: str
    holds: bool
    detail: str


_READ = "broken = bool(open(target).read())"
_WRITE = "broken = open(target, 'a').write('x') > 0"
_MODE = "import os\nos.chmod(target, 0o777)\nbroken = True"
_MODE_BY_HANDLE = "import os\nos.chmod(f'/proc/self/fd/{os.open(target, os.O_PATH)}', 0o777)\nbroken = True"
_TIMES = "import os\nos.utime(target, (1, 1))\nbroken = True"
_OWNER = "import os\nos.chown(target, os.getuid(), os.getgid())\nbroken = True"
_ATTRIBUTE = "import os\nos.setxattr(target, b'user.envsuite', b'x')\nbroken = True"
_CONNECT = "import socket\nbroken = socket.create_connection(('127.0.0.1', port), 2) is not None"
_SIGNAL = "import os\nos.kill(parent, 0)\nbroken = True"
_LIMIT = (
    "import resource\nresource.prlimit(parent, resource.RLIMIT_CORE, resource.prlimit(parent, resource.RLIMIT_CORE))\n"
    "broken = True"
)
_FORK = (
    "import os, time\nmade = 0\ntry:\n    while made < 300:\n        if os.fork() == 0: time.sleep(60)\n"
    "        made += 1\n"
    "except OSError: pass\nbroken = made > 64"
)
_DATAGRAM = (
    "import socket\nbroken = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', datagrams) > 0"
)
_MACHINE = "import socket\nbroken = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) is not None"
_UNTOUCHED = (
    "import mmap, os, time\nfor _ in range(8):\n    if os.fork() == 0: break\npart = mmap.mmap(-1, 80 << 20)\n"
    "for place in range(80):\n    part.write(b'x' * (1 << 20))\n    part.madvise(mmap.MADV_DONTNEED)\n"
    "time.sleep(3)\nbroken = True"
)
_NAMELESS = (
    "import os, time\nkeep = []\nfor _ in range(12):\n    keep.append(open(os.environ['HOME'] + '/x', 'wb', 0))\n"
    "    os.unlink(os.environ['HOME'] + '/x')\n    keep[-1].write(b'x' * (4 << 20))\ntime.sleep(3)\nbroken = True"
)
_MEMORY = "hoard = bytearray(600_000_000)\nhoard[::4096] = b'x' * len(hoard[::4096])\nbroken = True"
ATTACKS = (
    Attack("reads no file of the user", _READ),
    Attack("writes no file of the user", _WRITE),
    Attack("changes no mode of the user's files", _MODE),
    Attack("changes no mode through a file descriptor", _MODE_BY_HANDLE),
    Attack("changes no times of the user's files", _TIMES),
    Attack("changes no owner of the user's files", _OWNER),
    Attack("sets no extended attribute of the user's files", _ATTRIBUTE),
    Attack("connects to no server of this machine", _CONNECT),
    Attack("writes to no socket file of this machine", _DATAGRAM),
    Attack("opens no socket to the host of a virtual machine", _MACHINE),
    Attack("signals no process of the user", _SIGNAL),
    Attack("changes no limits of the user's processes", _LIMIT),
    Attack("the limit on processes holds", _FORK, (Fate.EXITED, Fate.PROCESSES)),
    Attack("the limit on memory holds", _MEMORY, (Fate.EXITED, Fate.MEMORY)),
    Attack("the limit on memory holds for shared memory", _UNTOUCHED, (Fate.EXITED, Fate.MEMORY)),
    Attack("the limit on disk holds for files without a name", _NAMELESS, (Fate.EXITED, Fate.DISK)),
    Attack("the limit on time holds", "while True: pass", (Fate.TIMEOUT,), 1.0),
    Attack("the limit on output holds", "while True: print('x' * 100000)", (Fate.OUTPUT,)),
)


def examine(names: tuple[str, ...] = drivers.DRIVERS) -> Iterator[SandboxFinding]:
    """Yields the result of every attack on every driver; a driver that does not work yields one finding."""
    for driver in names:
        if reason := drivers.probe(driver):
            yield SandboxFinding(driver, WORKS, False, reason)
            continue
        with tempfile.TemporaryDirectory(prefix="envsuite-selftest-") as folder:
            with drivers.open(Spec(program=PROGRAM, limits=LIMITS), driver) as session:
                for attack in ATTACKS:
                    yield _attack(driver, session, attack, Path(folder))


def _attack(driver: str, session: Session, attack: Attack, folder: Path) -> SandboxFinding:
    """Runs one attack on a fresh file and a fresh server."""
    target = folder / "file"
    target.unlink(missing_ok=True)
    target.write_text("secret")
    target.chmod(0o600)
    datagrams = folder / "datagrams"
    datagrams.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(datagrams))
        names = f"target, datagrams, port, parent = {str(target)!r}, {str(datagrams)!r}, "
        names += f"{server.getsockname()[1]}, {os.getpid()}\n"
        before = _state(target)
        try:
            limits = replace(LIMITS, seconds=attack.seconds)
            result = session.call((names + attack.code).encode(), limits)
        except EnvsuiteError as error:
            return SandboxFinding(driver, attack.name, False, str(error))
    broken = result.value == b"broken"
    detail = "the attack succeeded" if broken else result.value.decode(errors="replace") or str(result.fate)
    stopped = result.fate in attack.fates and not broken
    changed = _state(target) != before
    return SandboxFinding(driver, attack.name, stopped and not changed, "the file was changed" if changed else detail)


def _state(target: Path) -> tuple[object, ...]:
    status = target.stat()
    return status.st_mode, status.st_uid, status.st_mtime_ns, os.listxattr(target), target.read_bytes()
