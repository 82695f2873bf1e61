"""The Docker driver: one container per sandbox, for machines without bubblewrap and Landlock and for
custom images.

Stops: the network, reading or changing any file outside the allow-list, capabilities, other
processes. The daemon bounds the container's memory, processor time and processes; the root file
system is read-only and the user owns nothing. If the kernel has Landlock, each run is also locked
into its own folder; otherwise the files of a run are removed after it and seccomp refuses System V
segments, queues and keys. All processes of a run are ended after it.

Does not stop: attacks on the kernel, timing channels. Access to the daemon is equivalent to root on
its machine: this driver gives it to the caller only, the sandbox never sees the daemon's socket.

The daemon must run on this machine (`DOCKER_HOST` may name its socket), because interpreter and
packages are mounted from here into a 36 kB image that contains nothing else and is created on first
use. An image named by a Spec contains a complete system; only this package's code is mounted into it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import socket
import tarfile
import time
from pathlib import Path
from typing import Any

from envsuite.sandbox import bwrap, leftovers, local, packages
from envsuite.sandbox.inside import kernel, system_calls
from envsuite.sandbox.protocol import Spec

CURE = "Start a Docker daemon (`apt-get install docker.io`), or name its socket in DOCKER_HOST"
THIN = "envsuite-thin:3"
THIN_LABEL = "envsuite.thin"
"""label of images without a system: the host's /usr is mounted into them"""
LABEL = "envsuite.sandbox"
"""label of every container; its value is the owner, see `leftovers`"""
BASE_MB = 1024  # memory of the warm process
_START_SECONDS = 60.0


class Container:
    """A zygote in a container, reached over a socket in a mounted folder."""

    def __init__(self, container: Any, link: Path, listener: socket.socket) -> None:
        self._container, self._link = container, link
        listener.settimeout(0.2)
        deadline = time.monotonic() + _START_SECONDS
        try:
            container.start()
            while True:
                try:
                    self._socket, _ = listener.accept()
                    break
                except TimeoutError:
                    if time.monotonic() > deadline or not _running(container):
                        raise OSError(self.last_words() or "the container ended at once") from None
        except BaseException:
            _remove(container)
            raise
        finally:
            listener.close()  # accepts no second connection
            (link / "socket").unlink(missing_ok=True)
        self._socket.setblocking(False)
        self.commands = self.replies = self._socket.fileno()

    def kill(self) -> None:
        self._socket.close()
        _remove(self._container)
        self._container.client.close()
        shutil.rmtree(self._link, ignore_errors=True)

    def force(self) -> None:
        self._container.kill()

    def last_words(self) -> str:
        # Without Landlock, a run of the folder's owner could replace the file by a link to one of this machine.
        try:
            handle = os.open(self._link / "errors", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, errors="replace") as file:
                lines = file.read()[-4000:].strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


def available() -> str:
    """Returns '' if a daemon answers, otherwise what is missing."""
    try:
        client = connect()
    except ModuleNotFoundError:
        return "the Python package docker is not installed (pip install docker)"
    except OSError as error:
        return str(error)
    client.close()
    return "" if system_calls.seccomp_known() else "seccomp numbers are known for x86_64 and aarch64 only"


def connect() -> Any:
    """Returns a client of the daemon. Raises OSError if none answers."""
    import docker

    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise OSError(f"no Docker daemon answers ({str(error).splitlines()[0][:120]})") from error
    return client


def seen_workspace(spec: Spec, home: Path) -> str:
    return spec.workspace


def launch(spec: Spec, home: Path) -> Container:
    import docker

    client = connect()
    sweep(client)
    number = next(_counter)
    name = f"{home.name}-{number}"
    try:
        image = spec.image or thin(client)
        complete = THIN_LABEL not in (client.images.get(image).labels or {})
        uid = local.unused_uid(home)
        if spec.workspace and uid is not None:
            os.chown(home / "workspace", uid, uid)
        user = _own_user(client) if uid is None else uid
        link, listener = _link(home / f"link{number}")
        container = client.containers.create(
            image, _command(spec, complete), name=name, **_container_options(spec, home, link, user, complete)
        )
        return Container(container, link, listener)
    except docker.errors.DockerException as error:
        raise OSError(str(getattr(error, "explanation", None) or error).splitlines()[0][-300:]) from error
    except (KeyboardInterrupt, SystemExit):  # the daemon may have created a container without returning it
        with contextlib.suppress(docker.errors.DockerException, OSError):
            connect().api.remove_container(name, force=True)
        raise


def _own_user(client: Any) -> int:
    """Returns the id inside a container of the user who calls: under a daemon of that user it is 0, without rights."""
    options = client.info().get("SecurityOptions") or ()
    return 0 if "name=rootless" in options else os.getuid()


def thin(client: Any) -> str:
    """Returns the name of the image with an empty root; imports it on first use."""
    if not client.api.images(THIN):
        client.api.import_image_from_data(_thin_root(), THIN, changes=f"LABEL {THIN_LABEL}=1")
    return THIN


_counter = itertools.count(1)
_swept: set[str] = set()


def sweep(client: Any) -> None:
    """Removes the containers of processes that have ended, once per daemon and process.

    A container that ran ends by itself when its socket is closed; one that was never started does
    not.
    """
    import docker

    if client.api.base_url in _swept:
        return
    _swept.add(client.api.base_url)
    with contextlib.suppress(docker.errors.DockerException):
        for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
            if leftovers.gone(container.labels.get(LABEL, "")):
                _remove(container)


def _link(link: Path) -> tuple[Path, socket.socket]:
    """Creates the folder shared by host and container: a socket, and a file that the container can
    append to but not read.
    """
    link.mkdir()
    (link / "errors").touch()
    (link / "errors").chmod(0o622)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(link / "socket"))
    (link / "socket").chmod(0o666)
    listener.listen(1)
    return link, listener


_PYTHON = """exec 2>>/envsuite/link/errors
for python in /opt/miniconda3/bin/python /usr/local/bin/python3 /usr/bin/python3; do
  test -x $python && $python -c 'import sys; sys.exit(sys.version_info < (3, 9))' && exec $python -I -S -B "$@"
done
echo "the image has no Python of 3.9 or newer" >&2"""
"""starts the zygote with the image's first Python that is new enough; runs may use any other"""


def _command(spec: Spec, complete: bool) -> list[str]:
    """Returns the container's command. `complete`: the image contains a system with Python."""
    settings = local.config(
        spec,
        socket="/envsuite/link/socket",
        kills="container",
        own_user=True,
        rules=_rules(spec) if kernel.landlock_version() else None,
        seccomp=True,
        niceness=15,  # all share one processor, and the zygote must get it to hold the run to its limits
        signals=kernel.landlock_version() >= 6,
        program="/envsuite/code/program.py" if spec.program else None,
        scratch="/scratch",
        workspace=spec.workspace or None,
        workspace_inside=spec.workspace,
    )
    inner = local.boot("/envsuite/code", "/envsuite/packages", settings)
    if complete:
        return ["/bin/sh", "-c", _PYTHON, "zygote", *inner[inner.index("-c") :]]
    return ["/bin/sh", "-c", 'exec "$@" 2>>/envsuite/link/errors', "zygote", *inner]


def _rules(spec: Spec) -> dict[str, list[str]]:
    """Returns what a run may list, read and write inside the container.

    The folder shared with the host is not included. An image named by the Spec is readable as a
    whole, shared folder included, but by then the socket is gone and the error file is write-only.
    """
    workspace = [spec.workspace] if spec.workspace else []
    if spec.image:
        return {"listed": [], "read": ["/"], "write": ["/dev/null", "/tmp", *workspace]}
    read = ["/usr", packages.interpreter_root(), "/envsuite/code", "/etc", *_packages(spec)]
    read += [target for _, target in spec.read_only]
    read += ["/dev/urandom", "/dev/random", "/dev/zero", "/sys/devices/system/cpu", *local.PROCESSOR_FILES]
    return {"listed": ["/envsuite/packages"], "read": read, "write": ["/dev/null", *workspace]}


def _packages(spec: Spec) -> list[str]:
    """Returns paths that together cover the packages inside, without the sealed files."""
    sealed = [path for _, path in local.sealed_paths(spec)]
    if not sealed:
        return ["/envsuite/packages"]
    paths = []
    for name, path in packages.closure(spec.distributions).items():
        root, inside = os.path.realpath(path), f"/envsuite/packages/{name}"
        paths += [inside + allowed[len(root) :] for allowed in packages.allowed_around(root, sealed)]
    return paths


def _container_options(spec: Spec, home: Path, link: Path, user: int, complete: bool) -> dict[str, Any]:
    """Returns the options for creating the container."""
    limits = spec.limits
    mounts = _code(spec) if complete else bwrap.view(spec, home)
    binds = [f"{source}:{target}:ro" for source, target in mounts]
    binds.append(f"{link}:/envsuite/link:rw")
    if spec.workspace:
        binds.append(f"{home / 'workspace'}:{spec.workspace}:rw")
    # Podman does not know a uid option here; mode 1777 is safe because the container has one user.
    size = f"size={limits.disk_mb * 2}m,mode=1777,exec"
    memory = (limits.memory_mb + limits.disk_mb + BASE_MB) << 20
    return {
        "user": f"{user}:{user}",
        "environment": local.environment(spec),
        "volumes": binds,
        "tmpfs": {"/scratch": size, **({"/tmp": size} if complete else {})},
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": 10**9,
        "pids_limit": limits.processes + 16,
        "cap_drop": ["ALL"],
        # Podman's defaults exceed what root without CAP_SYS_RESOURCE may set. The limits of a run
        # are set inside.
        "ulimits": [
            {"Name": name, "Soft": limit, "Hard": limit}
            for name, limit in (("nofile", max(4096, limits.files)), ("nproc", max(4096, limits.processes)))
        ],
        "security_opt": ["no-new-privileges"],
        "auto_remove": True,
        "working_dir": "/scratch",
        "hostname": "sandbox",
        "labels": {LABEL: leftovers.owner()},
    }


def _code(spec: Spec) -> list[tuple[str, str]]:
    """Returns the mounts of this machine into an image with a complete system."""
    mounts = [(str(packages.INSIDE), "/envsuite/code/inside")]
    if spec.program:
        mounts.append((str(spec.program), "/envsuite/code/program.py"))
    return mounts + [(str(path), target) for path, target in spec.read_only]


def _thin_root() -> bytes:
    """Returns a tar archive of an empty root: mount points and the links into /usr."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "root", "scratch", "envsuite", "run", "opt"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "scratch" else 0o755
            tar.addfile(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/usr", name).is_dir():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
                tar.addfile(link)
    return stream.getvalue()


def _running(container: Any) -> bool:
    import docker

    try:
        container.reload()
    except docker.errors.NotFound:
        return False
    return bool(container.status in ("created", "running"))


def _remove(container: Any) -> None:
    import docker

    with contextlib.suppress(docker.errors.APIError, json.JSONDecodeError, OSError):  # requests raises OSError
        container.remove(force=True)
