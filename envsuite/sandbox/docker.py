"""Docker: a container per sandbox, for where neither bubblewrap nor Landlock can be had, or an image is wanted.

Stops: the network, seeing or changing any file beside the allow-list, capabilities, other processes; memory, processor
and processes of the container are bounded by the daemon; the root file system is read-only and the user is nobody's.
Where the kernel has Landlock each run is locked into its own folder besides; otherwise what a run writes is removed
after it, and System V segments, queues and keys are refused by seccomp. All processes of a run are ended after it.
Does not stop: attacks on the kernel, timing channels. Whoever may speak to the daemon is root on its machine: this
driver is for the caller, the sandbox never sees the daemon's socket.

The daemon must be on this machine (`DOCKER_HOST` may name its socket): the interpreter and the packages are mounted
from here, into an image of 36 kB that holds nothing else and is made on first use. Into an image that a Spec names, with a
system of its own, only the code of this package is.
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
from envsuite.sandbox.inside import kernel
from envsuite.sandbox.protocol import Spec

CURE = "Start a Docker daemon (`apt-get install docker.io`), or name its socket in DOCKER_HOST"
THIN = "envsuite-thin:3"
THIN_LABEL = "envsuite.thin"
"""of images without a system of their own: the host's /usr is mounted into them"""
LABEL = "envsuite.sandbox"
"""of every container; its value is the owner, see `leftovers`"""
BASE_MB = 1024  # memory of the warm process itself
_START_SECONDS = 60.0


class Container:
    """A zygote in a container, spoken to over a socket that lies in a mounted folder."""

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
            listener.close()  # nobody else will be let in
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
        lines = (self._link / "errors").read_text(errors="replace")[-4000:].strip().splitlines()
        return lines[-1] if lines else ""


def available() -> str:
    """'' where a daemon answers, else what is missing."""
    try:
        client = connect()
    except ModuleNotFoundError:
        return "the Python package docker is not installed (pip install docker)"
    except OSError as error:
        return str(error)
    client.close()
    return "" if kernel.seccomp_known() else "seccomp numbers are known for x86_64 and aarch64 only"


def connect() -> Any:
    """A client of the daemon. Raises OSError where none answers."""
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
        whole = THIN_LABEL not in (client.images.get(image).labels or {})
        uid = local.unused_uid(home)
        if spec.workspace and uid is not None:
            os.chown(home / "workspace", uid, uid)
        user = os.getuid() if uid is None else uid
        link, listener = _link(home / f"link{number}")
        container = client.containers.create(
            image, _command(spec, whole), name=name, **_walls(spec, home, link, user, whole)
        )
        return Container(container, link, listener)
    except docker.errors.DockerException as error:
        raise OSError(str(getattr(error, "explanation", None) or error).splitlines()[0][-300:]) from error
    except (KeyboardInterrupt, SystemExit):  # the daemon may have made what we were not told of
        with contextlib.suppress(docker.errors.DockerException, OSError):
            connect().api.remove_container(name, force=True)
        raise


def thin(client: Any) -> str:
    """The image of an empty root, made on first use."""
    if not client.api.images(THIN):
        client.api.import_image_from_data(_thin_root(), THIN, changes=f"LABEL {THIN_LABEL}=1")
    return THIN


_counter = itertools.count(1)
_swept: set[str] = set()


def sweep(client: Any) -> None:
    """Removes the containers of processes that have ended, once per daemon in the life of this process.

    One that ran ends by itself, since nobody holds its socket any more; one that was never started does not.
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
    """The folder that joins inside and outside: a socket, and a file to which errors may be added but not read."""
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
"""starts the zygote with the first Python of an image that is new enough; what runs in it is not bound to that one"""


def _command(spec: Spec, whole: bool) -> list[str]:
    """`whole`: the image has a system and a Python of its own."""
    settings = local.config(
        spec,
        socket="/envsuite/link/socket",
        own_user=True,
        rules=_rules(spec) if kernel.landlock_version() else None,
        seccomp=True,
        signals=kernel.landlock_version() >= 6,
        program="/envsuite/code/program.py" if spec.program else None,
        scratch="/scratch",
        workspace=spec.workspace or None,
        workspace_inside=spec.workspace,
    )
    inner = local.boot("/envsuite/code", "/envsuite/packages", settings)
    if whole:
        return ["/bin/sh", "-c", _PYTHON, "zygote", *inner[inner.index("-c") :]]
    return ["/bin/sh", "-c", 'exec "$@" 2>>/envsuite/link/errors', "zygote", *inner]


def _rules(spec: Spec) -> dict[str, list[str]]:
    """What a run may read and write, of what the container shows. The link to the outside is not among it; an image that
    the Spec names is seen whole, but then the socket is gone since it was joined, and errors can be written alone."""
    workspace = [spec.workspace] if spec.workspace else []
    if spec.image:
        return {"listed": [], "read": ["/"], "write": ["/dev/null", "/tmp", *workspace]}
    read = ["/usr", packages.interpreter_root(), "/envsuite/code", "/envsuite/packages", "/etc"]
    read += [target for _, target in spec.read_only]
    read += ["/dev/urandom", "/dev/random", "/dev/zero", "/sys/devices/system/cpu"]
    return {"listed": [], "read": read, "write": ["/dev/null", *workspace]}


def _walls(spec: Spec, home: Path, link: Path, user: int, whole: bool) -> dict[str, Any]:
    """What the daemon is asked for."""
    limits = spec.limits
    seen = _code(spec) if whole else bwrap.view(spec, home)
    binds = [f"{source}:{target}:ro" for source, target in seen]
    binds.append(f"{link}:/envsuite/link:rw")
    if spec.workspace:
        binds.append(f"{home / 'workspace'}:{spec.workspace}:rw")
    # Its owner is not named, which Podman does not know: anybody may write there, and but one user is there.
    size = f"size={limits.disk_mb * 2}m,mode=1777,exec"
    memory = (limits.memory_mb + limits.disk_mb + BASE_MB) << 20
    return {
        "user": f"{user}:{user}",
        "environment": local.environment(spec),
        "volumes": binds,
        "tmpfs": {"/scratch": size, **({"/tmp": size} if whole else {})},
        "network_mode": "none",
        "ipc_mode": "none",
        "read_only": True,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": 10**9,
        "pids_limit": limits.processes + 16,
        "cap_drop": ["ALL"],
        # Podman's own are more than a root without CAP_SYS_RESOURCE may ask for. Those of a run are set inside.
        "ulimits": [
            {"Name": name, "Soft": most, "Hard": most}
            for name, most in (("nofile", max(4096, limits.files)), ("nproc", max(4096, limits.processes)))
        ],
        "security_opt": ["no-new-privileges"],
        "auto_remove": True,
        "working_dir": "/scratch",
        "hostname": "sandbox",
        "labels": {LABEL: leftovers.owner()},
    }


def _code(spec: Spec) -> list[tuple[str, str]]:
    """What a whole image is shown of this machine."""
    seen = [(str(packages.INSIDE), "/envsuite/code/inside")]
    if spec.program:
        seen.append((str(spec.program), "/envsuite/code/program.py"))
    return seen + [(str(path), target) for path, target in spec.read_only]


def _thin_root() -> bytes:
    """A tar of an empty root: folders to mount on, and the links that lead into /usr."""
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

    with contextlib.suppress(docker.errors.APIError, json.JSONDecodeError, OSError):  # OSError: what requests raises
        container.remove(force=True)
