"""Reads run folders while they grow: settings, the journal's new lines, and the counters in
progress.json.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.errors import DataError
from envsuite.escaping import one_line
from harness import records
from harness.prompting.prompting import Prompting
from harness.records import Record
from harness.report.pack import viewer_episode

ALIVE = 15.0
"""Seconds without a heartbeat after which a run counts as stopped."""
MOST_ROWS = 300
"""Number of episodes in one answer; the page lists as many."""
MOST_ERRORS = 20
MOST_WORDS = 300
"""Characters of an error or an objective in a list."""
SMALL = 2**20
"""Bytes of config.json and progress.json that are read."""

CONFIG: dict[str, type] = {"task": str, "model": str, "seeds": list, "attempts": int, "run_id": str, "knobs": dict}
COUNTERS = (
    *("time", "episodes", "ended", "turns", "tokens", "in_flight", "turns_per_second", "tokens_per_second"),
    *("retrying", "pause"),
)
IN_PLAY: dict[str, type | tuple[type, ...]] = {
    "task": str,
    "seed": int,
    "attempt": int,
    "turns": int,
    "seconds": (int, float),
    "command": str,
}


class RunTail:
    """A run folder that may still grow. `refresh` reads what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        """one per line of the journal"""
        self.problem = ""
        """why the folder cannot be read further"""
        self._offsets: list[tuple[int, int]] = []
        self._latest: dict[records.Key, int] = {}  # the line that counts
        self._done = self._read = 0
        self._identity: tuple[int, ...] = ()
        self._config_written = 0.0

    @property
    def changed(self) -> float:
        """Time of the latest change, to find the run that is played."""
        paths = (self.folder / "progress.json", self.folder / "journal.jsonl", self.folder / "config.json")
        return max((path.stat().st_mtime for path in paths if path.is_file()), default=0.0)

    def refresh(self) -> None:
        """Reads the settings and the new lines of the journal; `problem` names what is damaged."""
        try:
            self._read_config()
            self._read_journal()
            self.problem = ""
        except (DataError, OSError) as error:
            self.problem = one_line(error)[:1000]

    def _read_config(self) -> None:
        path = self.folder / "config.json"
        written = path.stat().st_mtime
        if written == self._config_written:
            return
        try:
            config = reading.read_json(path, SMALL)
            records.check_types(config, CONFIG)
            first, count = config["seeds"]
            if not (isinstance(first, int) and isinstance(count, int) and 0 <= count * config["attempts"] <= 10**9):
                raise ValueError(f"seeds are {config['seeds']!r}"[:80])
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"{path} is not the settings of a run ({type(error).__name__}: {error}).") from error
        self.config, self._config_written = config, written

    def _read_journal(self) -> None:
        path = self.folder / "journal.jsonl"
        if not path.is_file():
            return
        status = path.stat()
        identity = status.st_dev, status.st_ino
        if identity != self._identity or status.st_size < self._read:  # the run was started again
            self.rows, self._offsets, self._latest = [], [], {}
            self._done = self._read = 0
            self._identity = identity
        with path.open("rb") as file:
            file.seek(self._read)
            while (line := file.readline(reading.MOST_LINE + 1)).endswith(b"\n"):
                if line.strip():
                    self._add(records.parse_record(path, len(self.rows) + 1, line), len(line))
                self._read += len(line)
            if len(line) > reading.MOST_LINE:
                raise DataError(f"{path}:{len(self.rows) + 1} is longer than {reading.MOST_LINE / 2**20:.0f} MB.")

    def _add(self, record: Record, length: int) -> None:
        key, broken = records.key_of(record), records.is_broken(record)
        row = {
            "line": len(self.rows),
            **{name: record[name] for name in ("task", "seed", "attempt", "success", "stop_reason")},
            "broken": broken,
            "reward": record["reward"] if math.isfinite(record["reward"]) else None,
            "turns": record["num_turns"],
            "faults": sum(record["faults"].values()),
            "tokens": record["output_tokens"] + int(record.get("estimated", {}).get("output_tokens", 0)),
            "cost": record["cost"] if math.isfinite(record["cost"]) else 0.0,
            "error": record["error"].partition("\n")[0][:MOST_WORDS],
            "objective": record["objective"][:MOST_WORDS],
        }
        if key not in self._latest or self.rows[self._latest[key]]["broken"]:
            self._latest[key] = len(self.rows)
            self._done += not broken
        self.rows.append(row)
        self._offsets.append((self._read, length))

    @property
    def episodes(self) -> int:
        """Number of episodes of the run."""
        return int(self.config["seeds"][1] * self.config["attempts"]) if self.config else 0

    def counted(self) -> list[dict[str, Any]]:
        """Returns the row of each episode; a broken line is superseded by a later one."""
        return [self.rows[number] for number in self._latest.values()]

    def heartbeat(self) -> dict[str, Any] | None:
        """Returns the counters of the process that plays this run; None if there is none."""
        try:
            beat = reading.read_json(self.folder / "progress.json", SMALL)
            checked: dict[str, Any] = {name: _number(beat[name]) for name in COUNTERS}
            left = beat["seconds_left"]
            checked["seconds_left"] = None if left is None else _number(left)
            checked["at_most"] = bool(beat["at_most"])
            checked["reason"] = str(beat["reason"])[:MOST_WORDS]
            for each in beat["playing"]:
                records.check_types(each, IN_PLAY)
            checked["playing"] = [{name: each[name] for name in IN_PLAY} for each in beat["playing"][:MOST_ROWS]]
        except (DataError, OSError, ValueError, LookupError, TypeError):
            return None
        return checked if abs(time.time() - checked["time"]) < ALIVE else None

    def _playing(self, beat: dict[str, Any] | None, scored: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Returns a heartbeat without episodes that the journal already has."""
        if beat is not None:
            ended = {(row["seed"], row["attempt"]) for row in scored}
            beat["playing"] = [each for each in beat["playing"] if (each["seed"], each["attempt"]) not in ended]
        return beat

    def _state(self, beat: dict[str, Any] | None) -> str:
        """Returns playing, finished or stopped."""
        if beat is not None:
            return "playing"
        return "finished" if self._done >= self.episodes and (self.folder / "summary.json").is_file() else "stopped"

    def overview(self) -> dict[str, Any]:
        """Returns what the list of runs shows."""
        return self._overview(self.heartbeat())

    def _overview(self, beat: dict[str, Any] | None) -> dict[str, Any]:
        names = {name: self.config.get(name, "") for name in ("task", "model", "run_id")}
        return {**names, "state": self._state(beat), "ended": self._done, "episodes": self.episodes}

    def details(self, after: int) -> dict[str, Any]:
        """Returns the counters of the run, and the rows from line `after` on, at most the last
        `MOST_ROWS`.
        """
        beat = self.heartbeat()
        rows = self.counted()
        scored = [row for row in rows if not row["broken"]]
        errors = Counter(row["error"] for row in rows if row["broken"])
        return {
            **self._overview(beat),
            "folder": str(self.folder),
            "knobs": self.config.get("knobs", {}),
            "problem": self.problem,
            "scored": len(scored),
            "wins": sum(row["success"] for row in scored),
            "broken": len(rows) - len(scored),
            **{name: sum(row[name] for row in rows) for name in ("turns", "faults", "tokens", "cost")},
            "endings": Counter(row["stop_reason"] for row in rows).most_common(),
            "errors": errors.most_common(MOST_ERRORS),
            "beat": self._playing(beat, scored),
            "lines": len(self.rows),
            "rows": self.rows[max(0, after, len(self.rows) - MOST_ROWS) :],
        }

    def episode(self, line: int) -> dict[str, Any]:
        """Returns an episode for the viewer. Raises DataError if the journal has no such line."""
        if not 0 <= line < len(self._offsets):
            raise DataError(f"The journal has no line {line}.")
        path = self.folder / "journal.jsonl"
        offset, length = self._offsets[line]
        with path.open("rb") as file:
            file.seek(offset)
            record = records.parse_record(path, line + 1, file.read(length))
        try:
            prompting = Prompting(**self.config["prompting"]) if self.config.get("prompting") else None
        except (TypeError, ValueError):  # another version's settings: the reply is shown as written
            prompting = None
        return {**self.rows[line], **viewer_episode(record, prompting)}


def _number(value: Any) -> float:
    """Returns a finite number. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a number"[:80])
    return value
