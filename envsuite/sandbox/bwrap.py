"""The bubblewrap driver, the first choice for untrusted code.

Stops: reading or changing any file outside the allow-list, the network, other processes, inherited
environment variables, capabilities, new namespaces, and anything left from another run (each run
has its own PID and IPC namespaces and its own empty /tmp). Ends a complete process tree at once.

Sockets are limited to the kinds that the network namespace isolates: one of AF_VSOCK would reach the
host of a virtual machine.

Does not stop: attacks on the kernel, timing channels.

Root is exempt from the kernel's process limit, so as root the runs switch to an unused user, mapped
into the user namespace next to root; where no other user exists (`unshare -Ur`), the zygote counts the
processes. See docs/specs/swe.md, "Sandboxes".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from envsuite.sandbox import local, packages
from envsuite.sandbox.inside import kernel, system_calls
from envsuite.sandbox.protocol import Spec

CURE = "Install bubblewrap (`apt-get install bubblewrap`)"
INSIDE_UID = 1000
# Held by the zygote; runs have none.
_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE", "CAP_SYS_NICE")


class BubbleProcess(local.LocalProcess):
    """A zygote in bwrap.

    It keeps a pidfd of the first process of its PID namespace, which ends all others when killed.
    """

    def __init__(self, command: list[str], handles: list[int]) -> None:
        read, write = os.pipe()
        try:
            super().__init__([word.replace("{info}", str(write)) for word in command], handles=[*handles, write])
        finally:
            os.close(write)
        with os.fdopen(read) as file:
            info = file.read()
        self._first = os.pidfd_open(json.loads(info)["child-pid"]) if info.strip() else None

    def kill(self) -> None:
        super().kill()
        if self._first is not None:
            os.close(self._first)
            self._first = None

    def force(self) -> None:
        if self._first is not None:
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        super().force()


def available() -> str:
    """Returns '' if the driver's parts are installed, otherwise what is missing."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    return "" if system_calls.seccomp_known() else "seccomp numbers are known for x86_64 and aarch64 only"


def seen_workspace(spec: Spec, home: Path) -> str:
    return spec.workspace


def launch(spec: Spec, home: Path) -> BubbleProcess:
    uid = local.unused_uid(home)
    settings = local.config(
        spec,
        parent="{parent}",
        kills="{kills}",
        namespaces=True,
        uid=None if uid is None else INSIDE_UID,
        count_processes=local.is_only_root(),
        own_user=True,
        sealed=[f"/envsuite/packages/{name}" for name, _ in local.sealed_paths(spec)],
        seccomp=True,
        program="/envsuite/code/program.py" if spec.program else None,
        workspace=spec.workspace or None,
        workspace_inside=spec.workspace,
    )
    inner = local.boot("/envsuite/code", "/envsuite/packages", settings)
    descriptors = []
    if uid is None:
        user = ["--unshare-user", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
    else:
        descriptors.append(_user_namespace(uid))
        user = ["--userns", str(descriptors[0])]
        if spec.workspace:
            os.chown(home / "workspace", uid, uid)
    try:
        options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        options += ["--new-session", "--cap-drop", "ALL", "--clearenv", "--info-fd", "{info}"]
        for name in _CAPABILITIES:
            options += ["--cap-add", name]
        for name, value in local.environment(spec).items():
            options += ["--setenv", name, value]
        executable = os.path.abspath(shutil.which("bwrap") or "bwrap")  # runs do not inherit PATH
        return BubbleProcess([executable, *user, *options, *_mounts(spec, home), *inner], descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def view(spec: Spec, home: Path) -> list[tuple[str, str]]:
    """Returns the read-only mounts in order, as (host path, path inside).

    Creates /etc and an empty folder below `home`.
    """
    etc, empty = home / "etc", home / "empty"
    etc.mkdir(exist_ok=True)
    empty.mkdir(exist_ok=True)
    if not (etc / "group").exists():  # a spare may start while another sandbox reads these files
        (etc / "passwd").write_text(f"root:x:0:0::/:/bin/sh\nagent:x:{INSIDE_UID}:{INSIDE_UID}::/tmp:/bin/bash\n")
        (etc / "group").write_text(f"root:x:0:\nagent:x:{INSIDE_UID}:\n")
    for name in ("hostname", "hosts", "resolv.conf"):  # Docker mounts its own here
        (etc / name).touch()
    mounts = [("/usr", "/usr"), (str(etc), "/etc")]
    for name in ("ld.so.cache", "alternatives", "localtime"):
        path = Path("/etc", name).resolve()
        if path.is_dir():
            (etc / name).mkdir(exist_ok=True)
        elif path.exists():
            (etc / name).touch()
        if path.exists():
            mounts.append((str(path), f"/etc/{name}"))
    root = packages.interpreter_root()
    if not f"{root}/".startswith("/usr/"):
        mounts.append((root, root))
    shared = {str(Path(path).resolve()) for path, _ in spec.read_only}
    for foreign in packages.foreign_packages():
        if foreign.startswith(("/usr/", f"{root}/")) and foreign not in shared:
            mounts.append((str(empty), foreign))
    mounts.append((str(packages.INSIDE), "/envsuite/code/inside"))
    if spec.program:
        mounts.append((str(spec.program), "/envsuite/code/program.py"))
    entries = packages.closure(spec.distributions)
    mounts += [(str(path), f"/envsuite/packages/{name}") for name, path in entries.items()]
    mounts += [(str(empty), f"/envsuite/packages/{path}") for path in spec.hidden if _is_folder(entries, path)]
    return mounts + [(str(path), target) for path, target in spec.read_only]


def _is_folder(entries: dict[str, Path], path: str) -> bool:
    head, _, below = path.partition("/")
    return head in entries and (entries[head] / below).is_dir()


def _mounts(spec: Spec, home: Path) -> list[str]:
    """Returns bwrap's mount options. Only /tmp, /dev/shm and the workspace are writable."""
    options: list[str] = []
    created: set[str] = {"/"}
    sources = view(spec, home)
    mounted = [target for _, target in sources]
    # Mounted after /tmp and /dev/shm, which would hide them.
    below_tmp = [pair for pair in sources if pair[1].startswith(("/tmp/", "/dev/shm/"))]
    for source, target in sources:
        if (source, target) not in below_tmp:
            options += [*_folders_above(target, created, mounted), "--ro-bind", source, target]
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/usr", name).is_dir():
            options += ["--symlink", f"usr/{name}", f"/{name}"]
    options += ["--proc", "/proc", *_devices()]
    for folder in ("/dev/shm", "/tmp"):
        options += ["--perms", "1777", "--size", str(spec.limits.disk_mb << 20), "--tmpfs", folder]
    created |= {"/tmp", "/dev", "/dev/shm"}
    for source, target in below_tmp:
        options += [*_folders_above(target, created, mounted), "--ro-bind", source, target]
    if spec.workspace:
        options += [
            *_folders_above(spec.workspace, created, mounted),
            "--bind",
            str(home / "workspace"),
            spec.workspace,
        ]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", spec.workspace or "/tmp"]


def _devices() -> list[str]:
    """Returns options that create /dev with single devices.

    bwrap's own `--dev` mounts a terminal file system, for which it nests a second user namespace when an ordinary user
    starts it; the zygote in the inner one could not return to its PID namespace after a fork.
    """
    options = ["--perms", "0755", "--tmpfs", "/dev"]
    for name in ("null", "zero", "full", "random", "urandom"):
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        options += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    return [*options, "--symlink", "/proc/self/fd", "/dev/fd"]


def _folders_above(target: str, created: set[str], mounted: Iterable[str]) -> list[str]:
    """Returns options that create the folders above `target` as 0755: by default bwrap makes them
    private.
    """
    existing = created | set(mounted)
    options: list[str] = []
    for folder in reversed(Path(target).parents):
        if str(folder) not in existing and not any(str(folder).startswith(f"{path}/") for path in mounted):
            options += ["--perms", "0755", "--dir", str(folder)]
            created.add(str(folder))
    return options


_WAIT = "import ctypes, sys; e = ctypes.CDLL(None).unshare({}); print(e, flush=True); sys.stdin.read()"


def _user_namespace(uid: int) -> int:
    """Opens a new user namespace with two users: root as 0, and `uid` as INSIDE_UID."""
    code = _WAIT.format(kernel.NEW_USER)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as holder:
        assert holder.stdout and holder.stdin
        if holder.stdout.readline().strip() != b"0":
            raise OSError("no user namespace can be made here")
        for kind in ("uid", "gid"):
            Path(f"/proc/{holder.pid}/{kind}_map").write_text(f"0 0 1\n{INSIDE_UID} {uid} 1\n")
        handle = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        holder.stdin.close()
    os.set_inheritable(handle, True)
    return handle
