"""bubblewrap: the first choice for code that nobody vouches for.

Stops: seeing or changing any file beside the allow-list, the network, other processes, the environment, capabilities,
new namespaces, leftovers between runs (each has its own PID and IPC namespace and its own empty /tmp). Ends a whole
tree of processes at once.
Does not stop: attacks on the kernel itself, timing channels.

As root, bwrap alone limits no number of processes, since root is exempt: the runs become an unused user, mapped into
the user namespace beside root. See docs/specs/swe.md, "Sandboxes".
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
from envsuite.sandbox.inside import kernel
from envsuite.sandbox.protocol import Spec

CURE = "Install bubblewrap (`apt-get install bubblewrap`)"
INSIDE_UID = 1000
_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")  # of the zygote; the runs have none


class BubbleProcess(local.LocalProcess):
    """A zygote in bwrap; the first process of its PID namespace is known, so that all of it can be killed."""

    def __init__(self, command: list[str], handles: list[int]) -> None:
        read, write = os.pipe()
        try:
            super().__init__([word.replace("{info}", str(write)) for word in command], handles=[*handles, write])
        finally:
            os.close(write)
        with os.fdopen(read) as file:
            said = file.read()
        self._first = os.pidfd_open(json.loads(said)["child-pid"]) if said.strip() else None

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
    """'' where the parts are there, else what is missing."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    return "" if kernel.seccomp_known() else "seccomp numbers are known for x86_64 and aarch64 only"


def seen_workspace(spec: Spec, home: Path) -> str:
    return spec.workspace


def launch(spec: Spec, home: Path) -> BubbleProcess:
    uid = local.unused_uid(home)
    settings = local.config(
        spec,
        parent="{parent}",
        namespaces=True,
        uid=None if uid is None else INSIDE_UID,
        own_user=True,
        seccomp=True,
        program="/envsuite/code/program.py" if spec.program else None,
        workspace=spec.workspace or None,
        workspace_inside=spec.workspace,
    )
    inner = local.boot("/envsuite/code", "/envsuite/packages", settings)
    handles = []
    if uid is None:
        user = ["--unshare-user", "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
    else:
        handles.append(_user_namespace(uid))
        user = ["--userns", str(handles[0])]
        if spec.workspace:
            os.chown(home / "workspace", uid, uid)
    try:
        walls = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        walls += ["--new-session", "--cap-drop", "ALL", "--clearenv", "--info-fd", "{info}"]
        for name in _CAPABILITIES:
            walls += ["--cap-add", name]
        for name, value in local.environment(spec).items():
            walls += ["--setenv", name, value]
        return BubbleProcess(["bwrap", *user, *walls, *_mounts(spec, home), *inner], handles)
    finally:
        for handle in handles:
            os.close(handle)


def view(spec: Spec, home: Path) -> list[tuple[str, str]]:
    """What is seen read-only, in the order of mounting: (path outside, path inside). Makes /etc and an empty folder."""
    etc, empty = home / "etc", home / "empty"
    etc.mkdir(exist_ok=True)
    empty.mkdir(exist_ok=True)
    if not (etc / "group").exists():  # a spare is started while another sandbox reads them
        (etc / "passwd").write_text(f"root:x:0:0::/:/bin/sh\nagent:x:{INSIDE_UID}:{INSIDE_UID}::/tmp:/bin/bash\n")
        (etc / "group").write_text(f"root:x:0:\nagent:x:{INSIDE_UID}:\n")
    for name in ("hostname", "hosts", "resolv.conf"):  # where Docker mounts its own
        (etc / name).touch()
    seen = [("/usr", "/usr"), (str(etc), "/etc")]
    for name in ("ld.so.cache", "alternatives", "localtime"):
        path = Path("/etc", name).resolve()
        if path.is_dir():
            (etc / name).mkdir(exist_ok=True)
        elif path.exists():
            (etc / name).touch()
        if path.exists():
            seen.append((str(path), f"/etc/{name}"))
    root = packages.interpreter_root()
    if not f"{root}/".startswith("/usr/"):
        seen.append((root, root))
    kept = {str(Path(path).resolve()) for path, _ in spec.read_only}
    for foreign in packages.foreign_packages():
        if foreign.startswith(("/usr/", f"{root}/")) and foreign not in kept:
            seen.append((str(empty), foreign))
    seen.append((str(packages.INSIDE), "/envsuite/code/inside"))
    if spec.program:
        seen.append((str(spec.program), "/envsuite/code/program.py"))
    found = packages.closure(spec.distributions)
    seen += [(str(path), f"/envsuite/packages/{name}") for name, path in found.items()]
    seen += [(str(empty), f"/envsuite/packages/{path}") for path in spec.hidden if _is_folder(found, path)]
    return seen + [(str(path), target) for path, target in spec.read_only]


def _is_folder(found: dict[str, Path], path: str) -> bool:
    head, _, rest = path.partition("/")
    return head in found and (found[head] / rest).is_dir()


def _mounts(spec: Spec, home: Path) -> list[str]:
    """The file system as bwrap is told. Nothing of it can be written but /tmp, /dev/shm and the workspace."""
    words: list[str] = []
    made: set[str] = {"/"}
    seen = view(spec, home)
    mounted = [target for _, target in seen]
    below_tmp = [pair for pair in seen if pair[1].startswith("/tmp/")]  # /tmp itself is mounted first, or hides them
    for source, target in seen:
        if (source, target) not in below_tmp:
            words += [*_folders_above(target, made, mounted), "--ro-bind", source, target]
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/usr", name).is_dir():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--perms", "1777", "--size", str(spec.limits.disk_mb << 20), "--tmpfs", folder]
    made.add("/tmp")
    for source, target in below_tmp:
        words += [*_folders_above(target, made, mounted), "--ro-bind", source, target]
    if spec.workspace:
        words += [*_folders_above(spec.workspace, made, mounted), "--bind", str(home / "workspace"), spec.workspace]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", spec.workspace or "/tmp"]


def _folders_above(target: str, made: set[str], mounted: Iterable[str]) -> list[str]:
    """Makes the folders on the way to `target` such that every user may pass: by itself bwrap makes them private."""
    there = made | set(mounted)
    words: list[str] = []
    for folder in reversed(Path(target).parents):
        if str(folder) not in there and not any(str(folder).startswith(f"{path}/") for path in mounted):
            words += ["--perms", "0755", "--dir", str(folder)]
            made.add(str(folder))
    return words


_WAIT = "import ctypes, sys; e = ctypes.CDLL(None).unshare({}); print(e, flush=True); sys.stdin.read()"


def _user_namespace(uid: int) -> int:
    """A handle of a new user namespace with two users: root as 0, and `uid` as INSIDE_UID."""
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
