"""Connects to a Ray cluster or starts one on this machine, and reports missing resources before
work starts.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from envsuite.errors import MissingExtra, UsageError

OURS = ("docker",)
"""Custom resources that environments need; a cluster started by this process offers them for all
tasks of a call.
"""
COMING_FREE = 15.0
"""Seconds to wait for CPUs that are in use."""
KNOCKING = 30.0
"""Seconds that the head has to answer; a loaded one is slow."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""Preface of an HTTP/2 client (RFC 9113, 3.4), the transport of gRPC; a server answers with a
SETTINGS frame.
"""
SETTING_UP = 120.0
"""Seconds for all workers to start and report their versions."""


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtra(
            "--executor ray needs the package 'ray', which is not installed: pip install 'envsuite[ray]'"
        ) from None
    return ray


def connect(address: str = "", offers: dict[str, float] | None = None) -> Any:
    """Returns the `ray` module, connected to `address` ("host:port", "auto", or "" for a cluster of
    this process).

    `offers` lists custom resources of a cluster that is started here. A process has a single
    connection, which later calls with "auto", "" or the same address reuse. Raises UsageError if
    the address does not answer, runs another version of Ray or Python, or differs from the existing
    connection.
    """
    ray = _ray()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in ("", "auto") and not _same(address, here, ray.util.get_node_ip_address()):
            raise UsageError(
                f"--ray-address {address}: this process is already connected to {here}: call ray.shutdown() first."
            )
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if not address:
        try:
            # "local" prevents Ray from joining another cluster on this machine
            with _loopback():
                _init(ray, address="local", resources={**dict.fromkeys(OURS, 1.0), **(offers or {})}, **quiet)
        except Exception as error:  # Ray's processes have a time limit to start, and errors have many types
            message = " ".join(str(error).split())[:300] or type(error).__name__
            raise UsageError(
                f"--executor ray: Ray did not start on this machine: {message} Is it very busy? Try again."
            ) from None
        return ray
    if address != "auto":
        _knock(address)
    try:
        quiet.pop("include_dashboard")  # decided by the cluster's owner
        _init(ray, address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())[:300]
        if address == "auto" and isinstance(error, ConnectionError):
            message = "Ray is not running on this machine: run `ray start --head`, or give host:port."
        elif isinstance(error, ConnectionError):
            message += f": the process there is not a head of Ray {ray.__version__}: does `ray status` work on it?"
        if "ersion" in message:
            message += (
                f" This node has Ray {ray.__version__} and Python {platform.python_version()}: install the same "
                "versions on all nodes."
            )
        raise UsageError(f"--ray-address {address}: {message}") from None
    return ray


def _init(ray: Any, **options: Any) -> None:
    """Calls `ray.init`. SIGTERM keeps this process's handler, which Ray would replace by `sys.exit`."""
    before, interrupted = signal.getsignal(signal.SIGTERM), False
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        ray.init(**options)
        return
    try:
        ray.init(**options)
    except SystemExit as error:
        if error.code != signal.SIGTERM:
            raise
        interrupted = True
    finally:
        signal.signal(signal.SIGTERM, before)
    if interrupted:
        before(signal.SIGTERM, None)


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Lets a cluster that starts inside the block listen on 127.0.0.1 only, as Ray does on Windows and macOS."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _split(address: str) -> tuple[str, int]:
    """Splits host and port. Raises UsageError."""
    host, _, port = address.rpartition(":")
    if host.startswith("ray:"):
        raise UsageError(
            f"--ray-address takes the head's host:port (default port 6379), not Ray's client port: {address!r}."
        )
    if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise UsageError(f"--ray-address takes host:port or auto, not {address!r}.")
    return host.strip("[]"), int(port)


def _same(left: str, right: str, own_ip: str) -> bool:
    """Returns True if two addresses name the same head; localhost equals the node's own IP."""

    def resolved(address: str) -> tuple[str, int]:
        host, port = _split(address)
        try:
            ip = socket.gethostbyname(host)
        except (OSError, UnicodeError):
            ip = host
        return own_ip if ip.startswith("127.") else ip, port

    return resolved(left) == resolved(right)


def _knock(address: str) -> None:
    """Checks within seconds that a head answers; Ray itself tries a dead or wrong address for
    minutes.
    """
    host, port = _split(address)
    try:
        with socket.create_connection((host, port), timeout=5) as line:
            if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
                _greet(line, address)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--ray-address {address}: nobody answers there ({getattr(error, 'strerror', None) or error}). Is it the "
            "head's address, and does `ray status` work on it?"
        ) from None


def _greet(line: socket.socket, address: str) -> None:
    """Raises UsageError if the listening process does not answer like Ray's head."""
    line.settimeout(KNOCKING)
    try:
        line.sendall(HELLO)
        answer = line.recv(4)
        while 0 < len(answer) < 4 and (more := line.recv(4 - len(answer))):
            answer += more
        if answer[3:] == b"\4":
            return
        behaviour = f"answers {answer!r}" if answer else "hangs up"
    except TimeoutError:
        behaviour = f"says nothing for {KNOCKING:.0f} s"
    except OSError as error:
        behaviour = f"hangs up ({error.strerror or error})"
    raise UsageError(
        f"--ray-address {address}: the process there {behaviour}, so it is not Ray's head: give the address "
        "that `ray start --head` printed (default port 6379)."
    )


def check_room(ray: Any, count: int, needs: dict[str, float], noun: str) -> None:
    """Raises UsageError if `count` actors with the resources `needs` ("CPU", "GPU" or custom) do
    not fit.

    Each actor runs on a single node. Waits a moment for resources that actors which just ended
    still hold. `noun` names the actors in messages.
    """
    needed = " and ".join(f"{amount:g} {name}" for name, amount in needs.items())
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, amount in needs.items():
        if not any(node.get(name, 0.0) >= amount for node in nodes):
            cure = (
                f"start the nodes that have it with: ray start --resources '{{\"{name}\": 1}}'"
                if name not in ("CPU", "GPU")
                else "add a node that has it"
            )
            raise UsageError(f"{noun} need {amount:g} {name} each, and no node of the cluster offers it: {cure}.")
    capacity = _room(nodes, needs)
    if not capacity:
        raise UsageError(f"{noun} need {needed} each on one node, and no node of the cluster has all of it: add one.")
    deadline = time.monotonic() + (COMING_FREE if capacity >= count else 0.0)
    while (free := _room(_free(ray), needs)) < count:
        if time.monotonic() > deadline:
            total = " and ".join(f"{count * amount:g} {name}" for name, amount in needs.items())
            raise UsageError(
                f"{count} {noun} need {total} ({needed} each on one node), and there is room for {free}, on an idle "
                f"cluster for {capacity}: request fewer (--num-workers), or add nodes."
            )
        time.sleep(0.1)


def _room(nodes: Iterable[dict[str, float]], needs: dict[str, float]) -> int:
    """Returns the number of actors with resources `needs` that fit on `nodes`."""
    return sum(min(int(node.get(name, 0.0) / amount + 1e-6) for name, amount in needs.items()) for node in nodes)


def _free(ray: Any) -> list[dict[str, float]]:
    """Returns the free resources of each living node; Ray's public function only returns their sum."""
    from ray._private.state import available_resources_per_node

    return list(available_resources_per_node().values())


def versions() -> dict[str, str]:
    """Returns the versions that must be equal on all nodes."""
    import envsuite

    return {"envsuite": envsuite.__version__, "python": ".".join(platform.python_version_tuple()[:2])}


def check_versions(reported: dict[str, str], node: str) -> None:
    """Raises UsageError if a node reports other versions than this one."""
    for name, here in versions().items():
        if reported.get(name) != here:
            raise UsageError(
                f"Node {node} has {name} {reported.get(name)}, this one {here}: install the same on all nodes."
            )


def check_actor(ray: Any, started: Any, noun: str) -> None:
    """Checks an actor's answer to `versions`.

    Raises UsageError for other versions, MissingExtra for a missing package, RayError if the actor
    died.
    """
    try:
        check_versions(ray.get(started), f"of an {noun}" if noun[0] in "aeiou" else f"of a {noun}")
    except ray.exceptions.RayError as error:
        missing = [line.strip() for line in str(error).splitlines() if "ModuleNotFoundError" in line]
        if not missing:
            raise
        raise MissingExtra(
            f"On a node, for the {noun}: {missing[-1]}: install envsuite and its extras on every node."
        ) from None


def last_line(error: BaseException) -> str:
    """Returns the last line of an error's message, which Ray wraps in a traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
