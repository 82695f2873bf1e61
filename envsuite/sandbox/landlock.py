"""The Landlock and seccomp driver, for machines without user namespaces (containers, stock Ubuntu
24.04).

Stops: reading and writing outside the allow-list, every socket but connected pairs, ptrace and other
inspection of processes, System V and POSIX message queues, keyrings, new namespaces, reports of changes
to files (inotify). Each run has its own folder, which is removed after it, and all its processes are
ended. As root the runs of each session have their own user, so that the process limit holds. Without
root, or where no other user exists (`unshare -Ur`), a run may change modes and times of files in its own
folders only (`inside.attributes`), and cannot change owners, extended attributes, file flags, or limits
and priorities of other processes.

Does not stop: seeing that a path exists, how large it is and when it was last read (stat), locks on
files that all may read (flock), by which runs at the same time can talk to each other, reading the clock.
Servers on localhost do not work. Without root the process limit counts the processes that the user runs already.
"""

from __future__ import annotations

import os
from pathlib import Path

from envsuite.sandbox import local, packages
from envsuite.sandbox.inside import kernel, system_calls
from envsuite.sandbox.protocol import Spec

CURE = "Use a Linux kernel of 5.13 or newer with Landlock switched on"


def available() -> str:
    """Returns '' if the driver's parts are installed, otherwise what is missing."""
    if not kernel.landlock_version():
        return "the kernel has no Landlock"
    return "" if system_calls.seccomp_known() else "seccomp numbers are known for x86_64 and aarch64 only"


def seen_workspace(spec: Spec, home: Path) -> str:
    return str(home / "workspace")


def launch(spec: Spec, home: Path) -> local.LocalProcess:
    return launch_here(spec, home, locked=True)


def launch_here(spec: Spec, home: Path, locked: bool) -> local.LocalProcess:
    """Starts a zygote directly on this machine, with locks on its runs (`landlock`) or without
    (`process`).
    """
    uid = local.unused_uid(home)
    code, site = local.link_farm(spec, home)
    scratch, workspace = home / "scratch", home / "workspace"
    scratch.mkdir(exist_ok=True)
    scratch.chmod(0o711)
    if spec.workspace and uid is not None:
        os.chown(workspace, uid, uid)
    entries = packages.closure(spec.distributions).values()
    needed = [packages.interpreter(), str(packages.INSIDE), str(scratch), *map(str, entries)]
    settings = local.config(
        spec,
        parent="{parent}",
        kills="{kills}",
        uid=uid,
        count_processes=local.is_only_root(),
        own_user=uid is not None,
        shared_user=locked and uid is None,
        keep_search=not local.open_to_all(needed),
        rules=_rules(spec, home, code, site) if locked else None,
        seccomp=locked,
        sockets=("pairs" if locked else "all") if spec.sockets else "none",
        watches=not locked,
        signals=uid is not None or kernel.landlock_version() >= 6,
        program=f"{code}/program.py" if spec.program else None,
        scratch=str(scratch),
        workspace=str(workspace) if spec.workspace else None,
        workspace_inside=str(workspace) if spec.workspace else "",
    )
    command = local.boot(code, site, settings)
    return local.LocalProcess(command, cwd=str(scratch), environment=local.environment(spec))


def _rules(spec: Spec, home: Path, code: str, site: str) -> dict[str, list[str]]:
    """Returns which paths runs may list, read and write."""
    hidden = [*packages.foreign_packages(), *local.hidden_paths(spec)]
    hidden += [path for _, path in local.sealed_paths(spec)]
    # Landlock cannot mount a folder over another path; it hides the path instead.
    hidden += [target for path, target in spec.read_only if str(path) != target]
    entries = packages.closure(spec.distributions).values()
    roots = ["/usr", packages.interpreter_root(), *(os.path.realpath(path) for path in entries)]
    if spec.program:
        roots.append(os.path.realpath(spec.program))
    roots += [str(packages.INSIDE), *(str(path) for path, _ in spec.read_only)]
    roots += ["/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"]
    roots += ["/sys/devices/system/cpu", *local.PROCESSOR_FILES]
    roots += ["/dev/urandom", "/dev/random", "/dev/zero"]
    own = [path for path in hidden if path not in {os.path.realpath(item) for item in entries}]
    read = [path for root in roots if os.path.lexists(root) for path in packages.allowed_around(root, own)]
    write = ["/dev/null"] + ([str(home / "workspace")] if spec.workspace else [])
    listed = [root for root in [*roots, code, site] if os.path.isdir(root)]
    return {"listed": listed, "read": read, "write": write}
