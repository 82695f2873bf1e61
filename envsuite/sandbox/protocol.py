"""What every sandbox can do, whatever holds it together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Fate(StrEnum):
    """How a run ended: a closed set. What is the sandbox's own fault is not among them: that raises EngineFailure."""

    EXITED = "exited"  # by itself; see `exit_code`, negative for a signal
    TIMEOUT = "timeout"
    MEMORY = "memory"  # all its processes together
    OUTPUT = "output"  # endless printing
    DISK = "disk"  # its folder on disk; a full /tmp in memory is an ordinary error to the program


@dataclass(frozen=True)
class Limits:
    """What one run may take."""

    seconds: float = 30.0  # wall clock, less the time the first process waited for a processor (8 times at most)
    memory_mb: int = 2048
    disk_mb: int = 64  # /tmp and workspace, what lay there before included; and any one file
    processes: int = 64  # threads included
    files: int = 256  # open at once, per process
    output_kb: int = 64  # kept of each stream, half from its start and half from its end
    flood_mb: int = 32  # of one stream: more is OUTPUT
    value_mb: int = 64  # of a returned value

    def plain(self) -> dict[str, float]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Spec:
    """What a sandbox holds."""

    modules: tuple[str, ...] = ()  # imported once, before the runs
    program: Path | None = None  # a Python file with `handle(payload: bytes) -> bytes`, and maybe `warm_up()`
    distributions: tuple[str, ...] = ()  # pip distributions seen inside, with all that they require and nothing else
    hidden: tuple[str, ...] = ()  # parts of these to leave out, e.g. "sklearn/datasets/data"
    read_only: tuple[tuple[Path, str], ...] = ()  # further host folders: where they are seen
    workspace: str = ""  # a folder that outlives the runs, seen at this path ("" for none)
    fresh: bool = True  # every run starts with an empty /tmp
    image: str = ""  # docker alone: what the container is made of, instead of an empty root with the host's /usr
    environment: tuple[tuple[str, str], ...] = ()  # beside a small plain one: nothing is inherited
    limits: Limits = Limits()


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    fate: Fate
    exit_code: int
    stdout: bytes
    stderr: bytes
    value: bytes  # what the program returned, as the child wrote it: trust nothing in it
    seconds: float  # as Limits counts them
    cut: bool = False  # the middle of a stream was dropped


class Session(ABC):
    """A sandbox that is open. One run at a time; further callers wait their turn. Safe to use from many threads.

    Every method raises EngineFailure where the sandbox itself fails; the next call then starts it anew.
    """

    driver: str
    workspace: str
    """where the workspace is seen inside; a driver without mounts cannot put it where the Spec says"""

    @abstractmethod
    def run(
        self,
        command: str | Sequence[str],
        stdin: bytes = b"",
        limits: Limits | None = None,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Runs a command (a string goes to bash) in the workspace, and ends whatever it has started."""

    @abstractmethod
    def call(self, payload: bytes, limits: Limits | None = None) -> Result:
        """Runs the Spec's program on `payload` in a fork of the warm process."""

    @abstractmethod
    def copy_in(self, source: Path, path: str = "") -> None:
        """Copies a file, or what is in a folder, to `path` in the workspace."""

    @abstractmethod
    def copy_out(self, path: str, target: Path) -> None:
        """Copies `path` of the workspace into the folder `target`: plain files and safe links only."""

    @abstractmethod
    def snapshot(self) -> None:
        """Remembers the workspace as it is now."""

    @abstractmethod
    def reset(self, forget: bool = False) -> None:
        """Brings the workspace back to the last snapshot (empty where there was none, or with `forget`), and /tmp to
        nothing."""

    @abstractmethod
    def close(self) -> None:
        """Ends everything inside and removes it."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
