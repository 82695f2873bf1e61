"""Records of episodes, and the files of a run.

    {output_dir}/{task}--{model}/{run_id}/
        config.json     resolved settings and the host; written first
        journal.jsonl   finished episodes, appended and flushed one by one
        results.jsonl   the journal's records sorted by key, without superseded broken attempts;
                        written when the run ends
        timing.jsonl    duration of each episode
        reused.jsonl    episodes that come from the store and were not played (harness.episodes)
        weights.json    a served model's answer to a fixed question (harness.policies.connections.server_weights)
        summary.json    aggregated results
        progress.json   while the run lasts: counters and episodes in play, for envsuite watch

results.jsonl does not depend on host, time, worker count or run id: for a deterministic policy it
is byte-identical after every run, interrupted or not.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from envsuite import reading
from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.types import StopReason, knobs_json
from harness import steps
from harness.types import ToolCall, Trajectory, Turn

SCHEMA = "envsuite-record-1"

FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "model", "reward_mode", "stop_reason", "error", "objective", "first_observation"), str),
    **dict.fromkeys(("seed", "attempt", "num_turns", "input_tokens", "output_tokens", "dropped_turns"), int),
    **dict.fromkeys(("reward", "progression", "cost"), (int, float)),
    **dict.fromkeys(("success", "terminated", "truncated"), bool),
    **dict.fromkeys(("knobs", "faults", "labels", "metrics"), dict),
    "steps": list,
}
"""Fields required in every record, with their types; validated on read."""
FAULTS = ("format", "invalid", "length")
THINKING = "thinking"
"""Fault of a reply that was cut off before its reasoning ended; counted only in records that have it."""
SPENT = ("input_tokens", "output_tokens", "cost")
"""Fields of a record that count towards a budget."""

Key = tuple[str, str, int, int]
T = TypeVar("T")
Record = dict[str, Any]


def record(run: Trajectory, model: str, reward_mode: str) -> Record:
    """Converts a played episode to its record, a JSON object."""
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
        "faults": count_faults([turn.fault for turn in turns]),
        "labels": {name: str(label) for name, label in run.labels.items()},  # readers check types
        "metrics": {name: value for name, value in run.metrics.items() if math.isfinite(value)},
        "input_tokens": sum(turn.reply.input_tokens for turn in turns),
        "output_tokens": sum(turn.reply.output_tokens for turn in turns),
        "dropped_turns": sum(turn.reply.dropped_turns for turn in turns),
        "cost": sum(turn.reply.cost for turn in turns),
        **_reasoning(turns),
        **_estimated(turns),
        **({"artifacts": run.artifacts} if run.artifacts else {}),
        **({"weights": run.chain.weights} if run.chain else {}),
        "error": run.error,
        "objective": run.objective,
        "first_observation": turns[0].observation if turns else run.final_observation,
        "steps": [
            {
                **steps.step(turn, turns[index + 1].observation if index + 1 < len(turns) else run.final_observation),
                **_hashes(run, index),
            }
            for index, turn in enumerate(turns)
        ],
    }


def _hashes(run: Trajectory, index: int) -> dict[str, str]:
    """Returns the fields of a step that belong to the episode's hash chain."""
    return {} if run.chain is None else {"prompt_hash": run.chain.prompts[index], "link": run.chain.links[index]}


def count_faults(faults: Sequence[str]) -> dict[str, int]:
    """Returns the number of turns with each kind of fault."""
    kinds = (*FAULTS, THINKING) if THINKING in faults else FAULTS
    return {kind: sum(fault == kind for fault in faults) for kind in kinds}


def _reasoning(turns: Sequence[Turn]) -> Record:
    """Returns the tokens of reasoning; an empty dict if the server reports none."""
    tokens = sum(turn.reply.reasoning_tokens for turn in turns)
    return {"reasoning_tokens": tokens} if tokens else {}


def _estimated(turns: Sequence[Turn]) -> Record:
    """Returns the estimated tokens and cost of replies without usage; an empty dict if there are
    none.
    """
    estimates = [turn.reply.estimated for turn in turns if turn.reply.estimated is not None]
    if not estimates:
        return {}
    return {"estimated": {name: sum(column) for name, column in zip(SPENT, zip(*estimates, strict=True), strict=True)}}


def key_of(record: Record) -> Key:
    """Returns (task, canonical knobs, seed, attempt)."""
    return record["task"], knobs_json(record["knobs"]), record["seed"], record["attempt"]


def is_broken(record: Record) -> bool:
    """Returns True if the infrastructure failed: such a record is not scored, and replaying the
    episode replaces it.
    """
    return record["stop_reason"] == StopReason.BROKEN


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def dump(record: Record) -> bytes:
    """Encodes a record as one line of JSON. Lone surrogates, which UTF-8 cannot encode, become JSON
    escapes.
    """
    return _encode(record).encode("utf-8", "backslashreplace") + b"\n"


def results_file(folder: Path) -> Path:
    """Returns the path of a run's records: results.jsonl.gz if it exists, else results.jsonl."""
    compressed = folder / "results.jsonl.gz"
    return compressed if compressed.exists() else folder / "results.jsonl"


def read_results(path: Path) -> list[Record]:
    """Reads all records of a results file, plain or gzipped. Raises DataError naming the file and
    line.

    Examples:
        >>> for record in read_results(Path("leaderboards/overcooked/results.jsonl.gz"))[:1]:
        ...     print(record["task"], record["model"], record["stop_reason"])
        Overcooked-easy-v0 expert solved
    """
    return [parse_record(path, number, line) for number, line in reading.read_lines(path) if line.strip()]


def parse_record(path: Path, number: int, line: bytes) -> Record:
    """Parses and checks a line of a results file. Raises DataError naming the file and line."""
    try:
        record: Record = reading.parse_json(line)
        schema = record["schema_version"]  # another schema may differ in every other field
        if schema == SCHEMA:
            _check(record)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}:{number} is not a record ({type(error).__name__}: {error}): {_cure(path)}.") from error
    if schema != SCHEMA:
        raise DataError(f"{path}:{number} has schema_version {schema!r}: {schema_cure()}.")
    return record


def _cure(path: Path) -> str:
    """Returns the advice for a damaged line; results.jsonl without that line would be a smaller sample."""
    if path.name == "journal.jsonl":
        return "remove that line to replay its episode, or the folder to start again"
    if (path.parent / "journal.jsonl").exists():
        return "repeat the run's command with --resume, which writes the file again from journal.jsonl"
    return "without that line the sample is smaller, so get an intact copy of the file"


def _check(record: Record) -> None:
    """Raises KeyError or TypeError if a record lacks a field or a field has the wrong type."""
    check_types(record, FIELDS)
    check_types(record["faults"], dict.fromkeys({*FAULTS, *record["faults"]}, int))
    check_types(record["labels"], dict.fromkeys(record["labels"], str))
    check_types(record["metrics"], dict.fromkeys(record["metrics"], (int, float)))
    check_types(record, {"reasoning_tokens": int} if "reasoning_tokens" in record else {})
    if "estimated" in record:
        check_types(record["estimated"], {name: FIELDS[name] for name in SPENT})
    check_types(record, {"artifacts": dict} if "artifacts" in record else {})
    for step in record["steps"]:
        check_types(step, steps.REQUIRED)
        check_types(step, {name: kind for name, kind in steps.OPTIONAL.items() if name in step})
        for call in step.get("calls", ()):
            check_types(call, dict.fromkeys(ToolCall._fields, str))
        if not all(isinstance(command, str) for command in step["commands"]):
            raise TypeError(f"commands are {step['commands']!r}"[:80])


def check_types(values: Any, types: Mapping[Any, type | tuple[type, ...]]) -> None:
    """Raises KeyError or TypeError if a field of `values` is missing or has the wrong type."""
    for name, expected in types.items():
        if not isinstance(values[name], expected):
            raise TypeError(f"{name} is {values[name]!r}"[:80])


LIGHT = ("steps", "first_observation", "objective", "schema_version")
"""Fields that records in memory omit."""


def light(record: Record) -> Record:
    """Returns a record without its texts, which statistics do not need."""
    return {name: value for name, value in record.items() if name not in LIGHT}


def schema_cure() -> str:
    """Returns the advice for a file with another schema version."""
    return (
        f"this envsuite reads {SCHEMA!r}; use the version of envsuite that wrote the file, or run the settings of its "
        "config.json again"
    )


def read_lines(path: Path, parse: Callable[[Any], T], noun: str, cure: str) -> list[T]:
    """Applies `parse` to each line of a JSON Lines file; skips a last line that a crash left
    incomplete.

    Raises DataError with file, line and `cure` if a line is not a valid `noun`: `parse` raises
    ValueError, LookupError or TypeError for those.
    """
    values: list[T] = []
    lines = list(reading.read_lines(path))
    for number, line in lines:
        try:
            values.append(parse(reading.parse_json(line, nan_as_none=True)))
        except (ValueError, LookupError, TypeError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise DataError(f"{path}:{number} is not a {noun} ({type(error).__name__}: {error}): {cure}.") from error
    return values


def read_journal(path: Path) -> Iterator[tuple[bytes, Record | None]]:
    """Yields each complete line with its record, None for an empty line. Raises DataError."""
    for number, line in reading.read_lines(path):
        if not line.endswith(b"\n"):
            break
        yield line, parse_record(path, number, line) if line.strip() else None


class Journal:
    """Append-only file of records, flushed after each line. Opening it removes a half-written last
    line.

    Memory holds only an index of the lines: `ROW` integers of 8 bytes per line.
    """

    ROW = 6
    """number of (task, knobs), seed, attempt, broken, offset, length"""

    def __init__(self, path: Path, reused: Container[Key] = ()) -> None:
        """`reused` has the keys of episodes that were not played for this run; it may grow."""
        self.path = path
        self.spent: dict[str, float] = dict.fromkeys(SPENT, 0)
        """tokens and cost of all played records, estimates included"""
        self.estimated = False
        """a record has estimated tokens"""
        self._kinds: dict[tuple[str, str], int] = {}  # numbers of (task, knobs)
        self._rows = array("q")
        self._size = 0
        self._reused = reused
        if path.exists():
            self._load()
        self._file = path.open("ab")

    def _load(self) -> None:
        for number, line in reading.resume_lines(self.path):
            if line.strip():
                self._index(parse_record(self.path, number, line), len(line))
            self._size += len(line)

    def _index(self, record: Record, length: int) -> None:
        task, knobs, seed, attempt = key_of(record)
        kind = self._kinds.setdefault((task, knobs), len(self._kinds))
        self._rows.extend((kind, seed, attempt, is_broken(record), self._size, length))
        if (task, knobs, seed, attempt) in self._reused and not is_broken(record):
            return
        estimated = record.get("estimated")
        self.estimated = self.estimated or estimated is not None
        for name in SPENT:
            self.spent[name] += record[name] + (estimated[name] if estimated is not None else 0)

    def append(self, record: Record) -> None:
        """Writes and flushes a record. Raises OSError if the disk is full; the next run removes the
        partial line.
        """
        line = dump(record)
        self._file.write(line)
        self._file.flush()
        self._index(record, len(line))
        self._size += len(line)

    def _sorted(self) -> Iterator[tuple[Key, bool, int, int]]:
        """Yields key, broken, offset and length of each episode, sorted by key.

        If an episode has several lines, its first unbroken line counts, or else its last line.
        """
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
        """Returns the keys of episodes with an unbroken record."""
        return {key for key, broken, _, _ in self._sorted() if not broken}

    def lines(self, keys: Container[Key]) -> Iterator[bytes]:
        """Yields the stored lines of the episodes in `keys`, sorted by key."""
        with self.path.open("rb") as file:
            for key, _, offset, length in self._sorted():
                if key in keys:
                    file.seek(offset)
                    yield file.read(length)

    def close(self) -> None:
        self._file.close()


class Results:
    """An iterable over the records of results files, without their texts.

    Every iteration reads the files again, so that memory does not grow with the number of episodes.
    """

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Record]:
        for path in self.paths:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    yield light(parse_record(path, number, line))


def write_results(path: Path, journal: Journal, keys: Container[Key]) -> Results:
    """Writes the records of the episodes in `keys` atomically, sorted by key."""
    write_atomically(path, journal.lines(keys))
    return Results(path)


def results_hash(path: Path) -> str:
    """Returns the SHA-256 of the ordered records of a results file, plain or gzipped."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def iterate_runs(folder: Path) -> Iterator[Path]:
    """Yields the run folders below `folder`."""
    yield from sorted(path.parent for path in folder.glob("**/config.json"))
