"""The episodes of a run that come from the store and were not played for it: `reused.jsonl` in its folder."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from harness import records
from harness.episodes.store import Series
from harness.records import Journal, Key, Record
from harness.types import Episode


class ReusedEpisodes:
    """Keys of the reused episodes of a run, with the dates on which they were played."""

    def __init__(self, path: Path) -> None:
        """Reads the file, if it exists. Raises DataError if it is damaged."""
        cure = "remove the run's folder, or choose another --output-dir"
        self.dates: dict[Key, str] = {}
        self._path = path
        if path.exists():
            self.dates = dict(records.read_lines(path, _parse, "reused episode", cure))

    def forget(self, done: Container[Key]) -> None:
        """Removes the episodes that are not in `done`, and a half-written last line: a crash came before
        they were in the journal.
        """
        lost = [key for key in self.dates if key not in done]
        for key in lost:
            del self.dates[key]
        if lost or (self._path.exists() and not self._path.read_bytes().endswith(b"\n")):
            write_atomically(self._path, "".join(_line(*entry) for entry in self.dates.items()))

    def take(self, series: Series, episodes: Sequence[Episode], journal: Journal) -> Iterator[Record]:
        """Adds the stored ones of `episodes`, which belong to one task, to the journal; yields their records."""
        keys = {(episode.seed, episode.attempt): episode.key for episode in episodes}
        with contextlib.ExitStack() as files:
            file = None
            for record, ended in series.read(keys):
                file = file or files.enter_context(self._path.open("a"))
                key = keys[record["seed"], record["attempt"]]
                self.dates[key] = time.strftime("%Y-%m-%d", time.gmtime(ended))
                file.write(_line(key, self.dates[key]))
                file.flush()  # before the journal has the record, so that it never counts as played
                journal.append(record)
                yield record
        if series.damaged:
            warnings.warn(f"{series.damaged} damaged or foreign lines of {series.path} were ignored.", stacklevel=2)

    def summary(self) -> dict[str, Any]:
        """Returns their number and the first and last date on which they were played."""
        return {"episodes": len(self.dates), "played": [min(self.dates.values()), max(self.dates.values())]}


def _line(key: Key, date: str) -> str:
    return json.dumps({"key": list(key), "played": date}) + "\n"


def _parse(values: Any) -> tuple[Key, str]:
    records.check_types(values, {"key": list, "played": str})
    task, knobs, seed, attempt = values["key"]
    records.check_types(dict(enumerate(values["key"])), {0: str, 1: str, 2: int, 3: int})
    return (task, knobs, seed, attempt), values["played"]
