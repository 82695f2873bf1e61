"""The plain process driver: protects against accidents, not against adversaries.

Stops: running too long (wall clock and processor time), using up memory or disk, endless output,
crashing the caller. A run has a clean environment and folder and, if envsuite is root and can change
users, a user id of its own.

Does NOT stop: reading any file that the user may read (as root: any file at all if the interpreter
or TMPDIR is in a private folder), changing the user's own files without a user id of its own, the
network, looking up the labels of bundled data sets, leaving files in world-writable folders, signalling
the user's other processes, memory without a name (memfd), a daemon that outlives a killed zygote.

Never chosen automatically for model-written code: use `--set sandbox=process`. Its results are
marked `leaky`.
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
