"""What a run leaves on disk.

    {output_dir}/{task}--{model}/{run_id}/
        config.json     what was asked for, resolved, and where it ran; written first
        journal.jsonl   finished episodes, appended and flushed as they end
        results.jsonl   the same, sorted by key, broken attempts superseded; written atomically when the run ends
        timing.jsonl    how long each episode took
        weights.json    of a model on a server: what it said to a fixed question (harness.policies.server_weights)
        summary.json    the numbers

results.jsonl holds nothing of host, time, worker count or run id: for a deterministic policy it is the same to the byte
however the run went.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from array import array
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.types import StopReason, knobs_json
from harness.types import Trajectory

SCHEMA = "envsuite-record-1"

FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "model", "reward_mode", "stop_reason", "error", "objective", "first_observation"), str),
    **dict.fromkeys(("seed", "attempt", "num_turns", "input_tokens", "output_tokens", "dropped_turns"), int),
    **dict.fromkeys(("reward", "progression", "cost"), (int, float)),
    **dict.fromkeys(("success", "terminated", "truncated"), bool),
    **dict.fromkeys(("knobs", "faults", "labels", "metrics"), dict),
    "steps": list,
}
"""what every record holds: who reads one need not look again"""
FAULTS = ("format", "invalid", "length")
STEP: dict[str, type | tuple[type, ...]] = {"commands": list, "observation": str, "reward": (int, float), "fault": str}
"""what each of its steps holds"""

SPENT = ("input_tokens", "output_tokens", "cost")
"""what a budget counts of a record"""

Key = tuple[str, str, int, int]
T = TypeVar("T")
Record = dict[str, Any]


def record(run: Trajectory, model: str, reward_mode: str) -> Record:
    """One episode as one JSON object."""
    turns = run.turns
    return {
        "schema_version": SCHEMA,
        "task": run.episode.task.id,
        "knobs": json.loads(run.episode.knobs),
        "seed": run.episode.seed,
        "attempt": run.episode.attempt,
        "model": model,
        "reward_mode": reward_mode,
        "success": run.success,
        "reward": run.total_reward,
        "progression": run.progression,
        "stop_reason": str(run.stop_reason),
        "terminated": run.terminated,
        "truncated": run.truncated,
        "num_turns": len(turns),
        "faults": {kind: sum(turn.fault == kind for turn in turns) for kind in FAULTS},
        "labels": {name: str(label) for name, label in run.labels.items()},  # readers hold the fields to their types
        "metrics": run.metrics,
        "input_tokens": sum(turn.reply.input_tokens for turn in turns),
        "output_tokens": sum(turn.reply.output_tokens for turn in turns),
        "dropped_turns": sum(turn.reply.dropped_turns for turn in turns),
        "cost": sum(turn.reply.cost for turn in turns),
        "error": run.error,
        "objective": run.objective,
        "first_observation": turns[0].observation if turns else run.final_observation,
        "steps": [
            _step(turn, turns[index + 1].observation if index + 1 < len(turns) else run.final_observation)
            for index, turn in enumerate(turns)
        ],
    }


def _step(turn: Any, observation: str) -> dict[str, Any]:
    step = {"commands": list(turn.commands), "observation": observation, "reward": turn.reward, "fault": turn.fault}
    if list(turn.commands) != [turn.reply.text]:  # random and expert say the bare command: stored once
        step["reply"] = turn.reply.text
    return step


def reply_text(step: dict[str, Any]) -> str:
    """What was said at a stored step."""
    text: str = step.get("reply", step["commands"][0] if step["commands"] else "")
    return text


def key_of(record: Record) -> Key:
    """(task, canonical knobs, seed, attempt)."""
    return record["task"], knobs_json(record["knobs"]), record["seed"], record["attempt"]


def is_broken(record: Record) -> bool:
    """A fault of the infrastructure: neither scored nor kept once the episode has been replayed."""
    return record["stop_reason"] == StopReason.BROKEN


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def dump(record: Record) -> bytes:
    """One line, its newline included. A lone surrogate, which UTF-8 cannot hold, is written as JSON's own escape."""
    return _encode(record).encode("utf-8", "backslashreplace") + b"\n"


def results_file(folder: Path) -> Path:
    """A run folder's records: gzipped where they were kept so, else results.jsonl, which need not be there."""
    kept = folder / "results.jsonl.gz"
    return kept if kept.exists() else folder / "results.jsonl"


def read_results(path: Path) -> list[Record]:
    """All records of a finished file, also of a gzipped one (`.gz`). Raises DataError naming the file and line.

    Examples:
        >>> for record in read_results(Path("leaderboards/overcooked/results.jsonl.gz"))[:1]:
        ...     print(record["task"], record["model"], record["stop_reason"])
        Overcooked-easy-v0 expert solved
    """
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): fetch it again.") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    return [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        found: Record = json.loads(line)
        schema = found["schema_version"]  # of another version nothing else need be as it is here
        if schema == SCHEMA:
            _check(found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path}:{number} is not a record ({type(error).__name__}: {error}): remove that line to replay its episode, "
            "or the folder to start again."
        ) from error
    if schema != SCHEMA:
        raise DataError(f"{path}:{number} has schema_version {schema!r}: {schema_cure(schema)}.")
    return found


def _check(found: Record) -> None:
    """As `are`, of a whole record."""
    are(found, FIELDS)
    are(found["faults"], dict.fromkeys(FAULTS, int))
    are(found["labels"], dict.fromkeys(found["labels"], str))
    are(found["metrics"], dict.fromkeys(found["metrics"], (int, float)))
    for step in found["steps"]:
        are(step, STEP)
        if not all(isinstance(command, str) for command in step["commands"]):
            raise TypeError(f"commands are {step['commands']!r}"[:80])


def are(found: Any, kinds: Mapping[Any, type | tuple[type, ...]]) -> None:
    """Raises KeyError or TypeError where a field is not there or of another kind."""
    for name, kind in kinds.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {found[name]!r}"[:80])


LIGHT = ("steps", "first_observation", "objective", "schema_version")
"""what a record in memory is spared"""


def light(found: Record) -> Record:
    """A record without the texts of its turns: what the numbers need."""
    return {name: value for name, value in found.items() if name not in LIGHT}


def schema_cure(schema: Any) -> str:
    """How to migrate a file of another schema, in words."""
    kind, _, number = SCHEMA.rpartition("-")
    theirs, _, version = str(schema).rpartition("-")
    if theirs == kind and version.isdecimal() and int(version) > int(number):
        return f"this envsuite reads {SCHEMA!r}; to migrate, upgrade to the release that wrote it (pip install -U envsuite)"
    return (
        f"this envsuite reads {SCHEMA!r} and knows no way from there; to migrate, run the settings of its config.json "
        "again with envsuite-eval, or read it with the envsuite version that config.json names"
    )


def read_lines(path: Path, take: Callable[[Any], T], what: str, cure: str) -> list[T]:
    """What `take` makes of each line of JSON; a last line that a crash cut short is left out.

    Raises DataError naming file and line, where one is no `what`, with its `cure`; `take` says so by KeyError and the like.
    """
    found: list[T] = []
    written = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(written, 1):
        try:
            found.append(take(json.loads(line)))
        except (ValueError, LookupError, TypeError) as error:
            if number == len(written) and not line.endswith(b"\n"):
                break
            raise DataError(f"{path}:{number} is no {what} ({type(error).__name__}: {error}): {cure}.") from error
    return found


def read_journal(path: Path) -> Iterator[tuple[bytes, Record | None]]:
    """Lines with their records (None: an empty line), up to what a crash left half-written. Raises DataError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            yield line, _parse(path, number, line) if line.strip() else None


class Journal:
    """Append-only, flushed line by line; what a crash left half-written at its end is cut off when it is opened.

    Memory holds where each line lies, `ROW` numbers of 8 bytes, and nothing of what it says.
    """

    ROW = 6
    """kind (its number), seed, attempt, broken, offset, length"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spent: dict[str, float] = dict.fromkeys(SPENT, 0)
        self._kinds: dict[tuple[str, str], int] = {}  # (task, knobs), numbered
        self._rows = array("q")
        self._size = 0
        if path.exists():
            self._load()
        self._file = path.open("ab")

    def _load(self) -> None:
        for line, found in read_journal(self.path):
            if found is not None:
                self._keep(found, len(line))
            self._size += len(line)
        if self._size < self.path.stat().st_size:
            os.truncate(self.path, self._size)

    def _keep(self, found: Record, length: int) -> None:
        task, knobs, seed, attempt = key_of(found)
        kind = self._kinds.setdefault((task, knobs), len(self._kinds))
        self._rows.extend((kind, seed, attempt, is_broken(found), self._size, length))
        for name in SPENT:
            self.spent[name] += found[name]

    def append(self, found: Record) -> None:
        """Raises OSError where the disk is full; the half-written line is cut off by the next run."""
        line = dump(found)
        self._file.write(line)
        self._file.flush()
        self._keep(found, len(line))
        self._size += len(line)

    def _sorted(self) -> Iterator[tuple[Key, bool, int, int]]:
        """Key, broken, offset and length of each episode, by key. Of several lines the first that is whole counts, else the
        last."""
        rows = np.array(self._rows, np.int64).reshape(-1, self.ROW)
        kinds = sorted(self._kinds)
        rows[:, 0] = np.array([kinds.index(kind) for kind in self._kinds], np.int64)[rows[:, 0]]
        kind, seed, attempt, broken, offset, _ = rows.T
        rows = rows[np.lexsort((np.where(broken, -offset, offset), broken, attempt, seed, kind))]
        first = np.ones(len(rows), bool)
        first[1:] = (rows[1:, :3] != rows[:-1, :3]).any(axis=1)
        for number in np.flatnonzero(first):
            rank, seed, attempt, broken, offset, length = rows[number].tolist()
            yield (*kinds[rank], seed, attempt), bool(broken), offset, length

    def done(self) -> set[Key]:
        """The episodes that need not be played again."""
        return {key for key, broken, _, _ in self._sorted() if not broken}

    def lines(self, keys: Container[Key]) -> Iterator[bytes]:
        """The whole records of those of these episodes that it has, sorted by key, as they lie in the file."""
        with self.path.open("rb") as file:
            for key, _, offset, length in self._sorted():
                if key in keys:
                    file.seek(offset)
                    yield file.read(length)

    def close(self) -> None:
        self._file.close()


class Results:
    """The records of finished files without the texts of their turns, read anew whenever they are gone through: those of a
    million episodes need not fit in memory."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Record]:
        for path in self.paths:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    yield light(_parse(path, number, line))


def write_results(path: Path, journal: Journal, keys: Container[Key]) -> Results:
    """Writes the records of these episodes, sorted and whole."""
    write_atomically(path, journal.lines(keys))
    return Results(path)


def iterate_runs(folder: Path) -> Iterator[Path]:
    """The run folders below `folder`."""
    yield from sorted(path.parent for path in folder.glob("**/config.json"))
