"""Joining a Ray cluster, or starting one on this machine; what is missing is said at once, not after a hang."""

from __future__ import annotations

import platform
import socket
import time
from typing import Any

from envsuite.errors import MissingExtra, UsageError

OURS = ("docker",)
"""what families ask of nodes: a cluster of this process has it from the start, as a later task of the call may need it"""
COMING_FREE = 15.0
"""seconds to wait for processors that others hold"""
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
    Raises UsageError where nobody answers there, or another version of Ray or Python does.
    """
    ray = _ray()
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if not address:
        ray.init(resources={**dict.fromkeys(OURS, 1.0), **(offers or {})}, **quiet)
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
        if "ersion" in said:
            said += f" Here are Ray {ray.__version__} and Python {platform.python_version()}: install the same on all."
        raise UsageError(f"--ray-address {address}: {said}") from None
    return ray


def _knock(address: str) -> None:
    """Ray itself tries a dead address for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray-address takes host:port or auto, not {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise UsageError(
            f"--ray-address {address}: nobody answers there ({error.strerror or error}). Is it the head's address, "
            "and does `ray status` work on it?"
        ) from None


def check_room(ray: Any, count: int, needs: dict[str, float], what: str) -> None:
    """Raises UsageError where `count` actors that need `needs` each ("CPU", "GPU", or a custom resource) do not fit.

    What others hold may come free: actors that were just ended give back theirs after a moment.
    """
    whole = ray.cluster_resources()
    for name, each in needs.items():
        if whole.get(name, 0.0) < each:
            cure = (
                f"start the nodes that have it with: ray start --resources '{{\"{name}\": 1}}'"
                if name not in ("CPU", "GPU")
                else "add a node that has it"
            )
            raise UsageError(f"{what} need {each:g} {name} each, and no node of the cluster offers it: {cure}.")
        patience = time.monotonic() + (COMING_FREE if whole[name] >= count * each else 0.0)
        while (free := ray.available_resources().get(name, 0.0)) < count * each:
            if time.monotonic() > patience:
                raise UsageError(
                    f"{count} {what} need {count * each:g} {name}, and {free:g} of {whole[name]:g} are free: "
                    "ask for fewer (--num-workers, --policy-replicas), or add nodes."
                )
            time.sleep(0.1)


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
