"""Interface of every sandbox: `Spec`, `Limits`, `Session` and `Result`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from envsuite.errors import EngineFailure


class Fate(StrEnum):
    """Reasons for the end of a run: a closed set.

    A failure of the sandbox itself raises EngineFailure instead.
    """

    EXITED = "exited"  # ended by itself; see `exit_code`, negative for a signal
    TIMEOUT = "timeout"
    MEMORY = "memory"  # all its processes together
    OUTPUT = "output"  # endless printing
    PROCESSES = "processes"  # more than allowed, where the kernel does not refuse them
    PAUSED = "paused"  # a dialogue's turn has ended; its processes are stopped until the next one
    DISK = "disk"  # its folder on disk; a full /tmp in memory is an ordinary error inside the program


class HostKill(EngineFailure):
    """The machine killed a run that had broken no limit, for example because memory ran out."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of one run."""

    seconds: float = 30.0  # wall clock without the time the first process waited for a processor (8 times at most)
    memory_mb: int = 2048
    disk_mb: int = 64  # /tmp and workspace, including earlier content; also the maximum size of one file
    processes: int = 64  # threads included
    files: int = 256  # open at the same time, per process
    output_kb: int = 64  # recorded of each stream, half from its start and half from its end
    flood_mb: int = 32  # of one stream before the run ends with OUTPUT
    value_mb: int = 64  # of a returned value

    def plain(self) -> dict[str, float]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Spec:
    """Contents of a sandbox."""

    modules: tuple[str, ...] = ()  # imported once before the runs
    program: Path | None = None  # a Python file with `handle(payload: bytes) -> bytes` and an optional `warm_up()`
    distributions: tuple[
        str, ...
    ] = ()  # pip distributions visible inside, with all their requirements and nothing else
    hidden: tuple[str, ...] = ()  # parts of these to hide, e.g. "sklearn/datasets/data"
    sealed: tuple[str, ...] = ()  # Python files of these that only the warm process may read
    read_only: tuple[tuple[Path, str], ...] = ()  # further host folders: (host path, path inside)
    workspace: str = ""  # path inside of a folder that persists between runs ("" for none)
    fresh: bool = True  # every run starts with an empty /tmp
    sockets: bool = True  # runs may open sockets; the landlock driver allows connected pairs only
    image: str = ""  # docker only: the container's image, instead of an empty root with the host's /usr
    environment: tuple[tuple[str, str], ...] = ()  # added to a small default environment: nothing is inherited
    limits: Limits = Limits()


@dataclass(frozen=True)
class Result:
    """Outcome of a run."""

    fate: Fate
    exit_code: int
    stdout: bytes
    stderr: bytes
    value: bytes  # the program's return value as the child wrote it: do not trust it
    seconds: float  # as `Limits.seconds` counts them
    cut: bool = False  # the middle of a stream was dropped


class Dialogue(ABC):
    """A run that keeps its state between turns."""

    @abstractmethod
    def ask(self, payload: bytes, limits: Limits) -> Result:
        """Runs one turn.

        The result's fate is PAUSED if the dialogue goes on; otherwise all its processes have ended. Raises
        EngineFailure if the sandbox itself fails, and UsageError once the dialogue has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends its processes, so that the session takes other jobs again."""


class Session(ABC):
    """An open sandbox. It runs one job at a time; other callers wait. Safe to use from many threads.

    Every method raises EngineFailure if the sandbox itself fails; the next call then restarts it. HostKill is the kind
    of EngineFailure for a run that the machine killed.
    """

    driver: str
    workspace: str
    """path of the workspace inside; a driver without mounts cannot use the Spec's path"""

    @abstractmethod
    def run(
        self,
        command: str | Sequence[str],
        stdin: bytes = b"",
        limits: Limits | None = None,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Runs a command (a string goes to bash) in the workspace, and ends every process it started."""

    @abstractmethod
    def call(self, payload: bytes, limits: Limits | None = None) -> Result:
        """Runs the Spec's program on `payload` in a fork of the warm process."""

    @abstractmethod
    def dialogue(self, payload: bytes, limits: Limits | None = None) -> Dialogue:
        """Starts the Spec's program as a run that keeps its state between turns. No other job may run meanwhile.

        `limits.seconds` is for all turns together [processor time]. The program defines `converse(payload, messages,
        end_turn)`: it takes each turn's payload from `messages` and ends the turn by `end_turn(mark)`, one byte.
        """

    @abstractmethod
    def copy_in(self, source: Path, path: str = "") -> None:
        """Copies a file, or a folder's content, to `path` in the workspace."""

    @abstractmethod
    def copy_out(self, path: str, target: Path) -> None:
        """Copies `path` of the workspace into the folder `target`: plain files and safe links only."""

    @abstractmethod
    def snapshot(self) -> None:
        """Saves the present state of the workspace for `reset`."""

    @abstractmethod
    def reset(self, forget: bool = False) -> None:
        """Restores the workspace's last snapshot (empty if there is none, or with `forget`) and
        empties /tmp.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends everything inside and removes its files."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
