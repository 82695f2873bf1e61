"""Zygotes as local processes: the parts that bwrap, landlock and process share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.sandbox import packages
from envsuite.sandbox.inside import family
from envsuite.sandbox.protocol import Spec

BOOT = (
    "import sys, json; sys.path.insert(0, sys.argv[1]); sys.path.append(sys.argv[2]); "
    "from inside import zygote; zygote.main(json.loads(sys.argv[3]))"
)
PYTHON_FLAGS = ("-s", "-S", "-P", "-B")  # no site folders, no imports from the working directory, no .pyc files

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Forking is safe only in a single-threaded process, and libraries would start a thread per
    # core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LOKY_MAX_CPU_COUNT": "1",
}


def config(spec: Spec, **own: Any) -> dict[str, Any]:
    """Returns a zygote's configuration: `own`, with the settings of the driver `process` as defaults."""
    plain: dict[str, Any] = {
        "modules": list(spec.modules),
        "program": None,
        "fresh": spec.fresh,
        "environment": environment(spec),
        "parent": None,
        "kills": None,  # counts of processes killed for want of memory, see `inside.host_kills`
        "socket": None,  # Unix socket to connect to instead of stdin and stdout
        "namespaces": False,  # every run has its own /tmp, /proc, PID and IPC namespaces
        "uid": None,  # user that every run switches to
        "keep_search": False,
        "count_processes": False,  # the zygote ends a run with too many processes, because the kernel may not
        "own_user": False,  # the runs' user has no other processes, so that a plain process limit holds
        "shared_user": False,  # the runs' user owns other files: the zygote guards changes of attributes
        "rules": None,  # Landlock: {"listed", "read", "write"}
        "sealed": [],  # files that each run hides under an empty one, with `namespaces`
        "seccomp": False,
        "niceness": 0,  # of runs, beyond the zygote's
        "sockets": "all" if spec.sockets else "none",  # or "pairs"; see `inside.system_calls`
        "signals": True,
        "watches": True,  # the run may ask the kernel to report changes to files
        "scratch": None,  # parent of the runs' temporary folders if there are no mount namespaces
        "workspace": None,  # counted towards the disk limit
        "workspace_inside": "",
    }
    assert own.keys() <= plain.keys(), own.keys() - plain.keys()
    return {**plain, **own}


def environment(spec: Spec) -> dict[str, str]:
    """Returns the complete environment variables of a run: nothing is inherited."""
    return {**ENVIRONMENT, **dict(spec.environment)}


def unused_uid(home: Path) -> int | None:
    """Returns a user id that nobody else has, constant for a session.

    None if this process cannot change users: it is not root, or its user namespace has no such user (`unshare -Ur`).
    """
    if os.geteuid() != 0:
        return None
    number = home.stat().st_ino % 100_000_000
    for uid in (1_800_000_000 + number, 60_000 + number % 5_000):
        if all(_is_mapped(uid, kind) for kind in ("uid", "gid")):
            return uid
    return None


def is_only_root() -> bool:
    """Returns True if this process is root and cannot change users.

    If its user is the machine's root, too, the kernel does not limit the number of its processes.
    """
    return os.geteuid() == 0 and unused_uid(Path("/")) is None


def _is_mapped(number: int, kind: str) -> bool:
    """Returns True if this process's user namespace has the user or group `number`."""
    with open(f"/proc/self/{kind}_map") as file:
        ranges = [(int(first), int(count)) for first, _, count in map(str.split, file)]
    return any(first <= number < first + count for first, count in ranges)


class LocalProcess:
    """A zygote started by Popen, with its standard error in a file."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: str | None = None,
        handles: Iterable[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """The descriptors `handles` are passed on.

        `{parent}` in a word becomes the descriptor of a pidfd of this process, `{kills}` that of its `kill_counts`.
        """
        parent, kills = os.pidfd_open(os.getpid()), kill_counts()
        own = [parent] if kills is None else [parent, kills]
        numbers = {"{parent}": str(parent), "{kills}": "null" if kills is None else str(kills)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by kill
        try:
            self._popen = subprocess.Popen(
                [re.sub(r"\{parent\}|\{kills\}", lambda match: numbers[match[0]], word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=ENVIRONMENT if environment is None else environment,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
                pass_fds=[*own, *handles],
            )
        finally:
            for handle in own:
                os.close(handle)
        assert self._popen.stdin and self._popen.stdout
        self.commands, self.replies = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        os.set_blocking(self.commands, False)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """Closes the zygote's stdin, which makes it end its runs and exit; kills it if it does not."""
        assert self._popen.stdin and self._popen.stdout
        self._popen.stdin.close()
        try:
            self._popen.wait(2)
        except subprocess.TimeoutExpired:
            self.force()
            self._popen.wait()
        self._popen.stdout.close()
        self._errors.close()

    def force(self) -> None:
        """Kills it at once, without its cooperation, and every process below it."""
        family.end_tree(self._popen.pid)

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def link_farm(spec: Spec, home: Path) -> tuple[str, str]:
    """Creates folders of links for `sys.path` if nothing can be mounted: this package's code, and the
    Spec's packages.
    """
    code, site = home / "code", home / "packages"
    if not site.is_dir():
        code.mkdir(exist_ok=True)
        (code / "inside").symlink_to(packages.INSIDE)
        if spec.program:
            (code / "program.py").symlink_to(spec.program)
        site.mkdir()
        for name, path in packages.closure(spec.distributions).items():
            (site / name).symlink_to(path)
    return str(code), str(site)


def hidden_paths(spec: Spec) -> list[str]:
    """Returns the parts of packages that the Spec hides, as host paths."""
    entries = packages.closure(spec.distributions)
    roots = [(entries.get(name.split("/")[0]), name.partition("/")[2]) for name in spec.hidden]
    return [os.path.realpath(root / below) for root, below in roots if root is not None]


def sealed_paths(spec: Spec) -> list[tuple[str, str]]:
    """Returns the Python files that runs cannot read, and their compiled forms: (path in `packages`, host path)."""
    entries = packages.closure(spec.distributions)
    paths = []
    for name in spec.sealed:
        top, _, below = name.partition("/")
        source = entries[top] / below
        for path in (source, *sorted(source.parent.glob(f"__pycache__/{source.stem}.*"))):
            paths.append((f"{top}/{path.relative_to(entries[top])}", os.path.realpath(path)))
    return paths


def open_to_all(paths: Iterable[str]) -> bool:
    """Returns True if an unprivileged user can reach each path: every parent folder is searchable by
    others.
    """
    folders = {parent for path in paths for parent in Path(path).resolve().parents}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


PROCESSOR_FILES = tuple(
    f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
)
"""files in which libraries look up how many processors they may use"""


def boot(code: str, site: str, settings: dict[str, Any]) -> list[str]:
    """Returns the command line that starts a zygote."""
    words = [packages.interpreter(), *PYTHON_FLAGS, "-c", BOOT, code, site]
    return [*words, re.sub(r'"(\{parent\}|\{kills\})"', r"\1", json.dumps(settings))]


def kill_counts() -> int | None:
    """Opens the file that counts the processes of this control group that were killed for want of memory.

    It belongs to the nearest group that has one; None without.
    """
    entries: list[list[str]] = []
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        entries = [line.strip().split(":", 2) for line in file]
    groups = {name: path for _, names, path in entries for name in names.split(",")}
    root, name = Path("/sys/fs/cgroup"), "memory.events"
    if "memory" in groups:
        root, name = root / "memory", "memory.oom_control"
    place = root / groups.get("memory", groups.get("", "/")).lstrip("/")
    for folder in (place, *place.parents):
        if folder.is_relative_to(root):
            with contextlib.suppress(OSError):
                return os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    return None
