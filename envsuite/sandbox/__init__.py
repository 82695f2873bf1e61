"""Sandboxes for untrusted code: one protocol (`protocol.Session`) and four drivers.

    with sandbox.open(Spec(workspace="/testbed")) as session:
        session.copy_in(Path("repo"))
        result = session.run("python -m pytest -q", limits=Limits(seconds=60))

`choose` picks the first driver that works on this machine. The docstring of each driver's module
says what the driver stops and what it does not.
"""

from envsuite.sandbox.drivers import DRIVERS, SAFE, choose, open
from envsuite.sandbox.protocol import Fate, HostKill, Limits, Result, Session, Spec

__all__ = ["DRIVERS", "SAFE", "Fate", "HostKill", "Limits", "Result", "Session", "Spec", "choose", "open"]
