"""Joining a Ray cluster, or starting one on this machine; what is missing is said at once, not after a hang."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterable
from typing import Any

from envsuite.errors import MissingExtra, UsageError

OURS = ("docker",)
"""what families ask of nodes: a cluster of this process has it from the start, as a later task of the call may need it"""
COMING_FREE = 15.0
"""seconds to wait for processors that others hold"""
KNOCKING = 30.0
"""seconds an address has to answer as a head does; a loaded one takes its time"""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""how a client of HTTP/2 (RFC 9113, 3.4), which gRPC is spoken over, begins; the server's SETTINGS frame answers it"""
SETTING_UP = 120.0
"""seconds for all workers together to start and say who they are"""


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtra(
            "--executor ray needs the package 'ray', which is not installed: pip install 'envsuite[ray]'"
        ) from None
    return ray


def connect(address: str = "", offers: dict[str, float] | None = None) -> Any:
    """The `ray` module, connected to `address` ("host:port", "auto", or "" for a cluster of this process).

    `offers`: custom resources that a cluster started here has, since all it needs is on this machine.
    A process has one connection: it serves whoever asks for "auto", for none, or for the same address again.
    Raises UsageError where nobody answers there, or another version of Ray or Python does, or the process is connected
    elsewhere.
    """
    ray = _ray()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in ("", "auto") and not _same(address, here, ray.util.get_node_ip_address()):
            raise UsageError(
                f"--ray-address {address}: this process is connected to {here}: call ray.shutdown() before it joins another."
            )
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if not address:
        try:
            # "local": also where another cluster runs on this machine, which Ray would join otherwise
            ray.init(address="local", resources={**dict.fromkeys(OURS, 1.0), **(offers or {})}, **quiet)
        except Exception as error:  # Ray gives its own parts so many seconds to start, and raises whatever it meets
            said = " ".join(str(error).split())[:300] or type(error).__name__
            raise UsageError(
                f"--executor ray: Ray did not start on this machine: {said} Is it very busy? Try again."
            ) from None
        return ray
    if address != "auto":
        _knock(address)
    try:
        quiet.pop("include_dashboard")  # the cluster's owner has decided
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        if address == "auto" and isinstance(error, ConnectionError):
            said = "no Ray runs on this machine: ray start --head, or give host:port."
        elif isinstance(error, ConnectionError):
            said += f": what listens there is no head that Ray {ray.__version__} can speak with: does `ray status` work on it?"
        if "ersion" in said:
            said += f" Here are Ray {ray.__version__} and Python {platform.python_version()}: install the same on all."
        raise UsageError(f"--ray-address {address}: {said}") from None
    return ray


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host.startswith("ray:"):
        raise UsageError(
            f"--ray-address takes the head's own host:port (6379 unless told otherwise), not Ray's client port: {address!r}."
        )
    if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise UsageError(f"--ray-address takes host:port or auto, not {address!r}.")
    return host.strip("[]"), int(port)


def _same(one: str, two: str, own_ip: str) -> bool:
    """Whether two addresses are one head's; a node of it is known by its own IP as well as by localhost."""

    def spelled(address: str) -> tuple[str, int]:
        host, port = _split(address)
        try:
            ip = socket.gethostbyname(host)
        except (OSError, UnicodeError):
            ip = host
        return own_ip if ip.startswith("127.") else ip, port

    return spelled(one) == spelled(two)


def _knock(address: str) -> None:
    """Ray itself tries a dead address, or one where something else listens, for minutes."""
    host, port = _split(address)
    try:
        with socket.create_connection((host, port), timeout=5) as line:
            if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
                _greet(line, address)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--ray-address {address}: nobody answers there ({getattr(error, 'strerror', None) or error}). Is it the head's address, "
            "and does `ray status` work on it?"
        ) from None


def _greet(line: socket.socket, address: str) -> None:
    """Raises UsageError where what listens there does not speak as Ray's head does."""
    line.settimeout(KNOCKING)
    try:
        line.sendall(HELLO)
        said = line.recv(4)
        while 0 < len(said) < 4 and (more := line.recv(4 - len(said))):
            said += more
        if said[3:] == b"\4":
            return
        what = f"says {said!r}" if said else "hangs up"
    except TimeoutError:
        what = f"says nothing for {KNOCKING:.0f} s"
    except OSError as error:
        what = f"hangs up ({error.strerror or error})"
    raise UsageError(
        f"--ray-address {address}: something listens there that {what}, which is not Ray's head: give the address "
        "that `ray start --head` printed (port 6379 unless told otherwise)."
    )


def check_room(ray: Any, count: int, needs: dict[str, float], what: str) -> None:
    """Raises UsageError where `count` actors that need `needs` each ("CPU", "GPU", or a custom resource) do not fit.

    An actor lives on one node, which must have all it needs. What others hold may come free: actors that were just ended
    give back theirs after a moment.
    """
    needed = " and ".join(f"{each:g} {name}" for name, each in needs.items())
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, each in needs.items():
        if not any(node.get(name, 0.0) >= each for node in nodes):
            cure = (
                f"start the nodes that have it with: ray start --resources '{{\"{name}\": 1}}'"
                if name not in ("CPU", "GPU")
                else "add a node that has it"
            )
            raise UsageError(f"{what} need {each:g} {name} each, and no node of the cluster offers it: {cure}.")
    ever = _places(nodes, needs)
    if not ever:
        raise UsageError(f"{what} need {needed} each on one node, and no node of the cluster has all of it: add one.")
    patience = time.monotonic() + (COMING_FREE if ever >= count else 0.0)
    while (now := _places(_free(ray), needs)) < count:
        if time.monotonic() > patience:
            all_of_it = " and ".join(f"{count * each:g} {name}" for name, each in needs.items())
            raise UsageError(
                f"{count} {what} need {all_of_it} ({needed} each on one node), and there is room for {now}, on an idle "
                f"cluster for {ever}: ask for fewer (--num-workers, --policy-replicas), or add nodes."
            )
        time.sleep(0.1)


def _places(nodes: Iterable[dict[str, float]], needs: dict[str, float]) -> int:
    """How many actors that need so much each fit on nodes that have so much."""
    return sum(min(int(node.get(name, 0.0) / each + 1e-6) for name, each in needs.items()) for node in nodes)


def _free(ray: Any) -> list[dict[str, float]]:
    """What each living node has left. Ray's public call adds them up, where a processor here hides the lack of one there."""
    from ray._private.state import available_resources_per_node

    return list(available_resources_per_node().values())


def versions() -> dict[str, str]:
    """What must be the same on every node for results to be."""
    import envsuite

    return {"envsuite": envsuite.__version__, "python": ".".join(platform.python_version_tuple()[:2])}


def check_versions(found: dict[str, str], node: str) -> None:
    """Raises UsageError where a node has other versions than this one."""
    for name, here in versions().items():
        if found.get(name) != here:
            raise UsageError(
                f"Node {node} has {name} {found.get(name)}, this one {here}: install the same on all nodes."
            )


def check_actor(ray: Any, born: Any, what: str) -> None:
    """Raises UsageError or MissingExtra where an actor's node is no place for it, RayError where it died otherwise.

    `born`: the answer to its `versions`.
    """
    try:
        check_versions(ray.get(born), f"of an {what}" if what[0] in "aeiou" else f"of a {what}")
    except ray.exceptions.RayError as error:
        lacks = [line.strip() for line in str(error).splitlines() if "ModuleNotFoundError" in line]
        if not lacks:
            raise
        raise MissingExtra(
            f"On a node, for the {what}: {lacks[-1]}: install envsuite and its extras on every node."
        ) from None


def last_line(error: BaseException) -> str:
    """What it comes to, of an error that Ray has dressed in a traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
