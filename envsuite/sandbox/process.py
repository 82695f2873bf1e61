"""A plain process group: it guards against accidents, not against adversaries.

Stops: running on (wall clock, processor time), taking all memory, filling the disk, endless output, a crash of the
caller; a run has a clean environment and folder and, where envsuite is root, a user id of its own.
Does NOT stop: reading any file the user may read (as root: any file at all where the interpreter lies in a private
folder), the network, looking for the labels of bundled data sets, leaving things in world-writable folders, signals to
the user's other processes, memory that has no name (memfd), a daemon that outlives a killed zygote.

Never chosen by itself for code a model wrote: ask for it with `--set sandbox=process`. Its results are marked `leaky`.
"""

from __future__ import annotations

from pathlib import Path

from envsuite.sandbox import landlock, local
from envsuite.sandbox.protocol import Spec

CURE = ""
seen_workspace = landlock.seen_workspace


def available() -> str:
    return ""


def launch(spec: Spec, home: Path) -> local.LocalProcess:
    return landlock.launch_here(spec, home, locked=False)
