"""Checks that the files of a run folder agree with each other: config, journal, results and summary.

`RunFolder.check` needs no environment. `harness.provenance.replay` plays the episodes again as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import reading
from envsuite.errors import DataError, EnvsuiteError
from envsuite.types import StopReason, knobs_json
from harness import records
from harness.config_file import NOT_IDENTITY
from harness.policies import is_model, member
from harness.prompting.prompting import Prompting
from harness.records import Key, Record, is_broken
from harness.settings import types_of
from harness.stats.summary import summarise
from harness.steps import reply_text

MOST_MISSING = 100_000
"""Largest number of episodes that a config may list beyond those in the file."""
UNREADABLE = ("format", "length", "thinking")
"""Faults of replies without a command."""
COUNTS = ("episodes", "broken", "turns", "stop_reasons", "input_tokens", "output_tokens", "dropped_turns", "cost")
"""Entries of summary.json that follow from the records."""
MEANS = ("success", "reward", "progression")
"""Intervals in summary.json. Only value and n are compared: another version may compute other bounds."""


class Verdict(NamedTuple):
    """Result for one episode: the first difference, or ''."""

    record: Record
    """{} for a difference that belongs to no single episode"""
    difference: str

    @property
    def name(self) -> str:
        """Names the episode, or the files of the run."""
        record = self.record
        return f"{record['task']} seed {record['seed']} attempt {record['attempt']}" if record else "the run's files"


@dataclass(frozen=True)
class RunFolder:
    """Files of a run folder that its results must agree with."""

    folder: Path
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> RunFolder:
        """Reads config.json. Raises DataError."""
        path = folder / "config.json"
        try:
            config = reading.read_json(path)
            records.check_types(config, {"task": str, "knobs": dict, "model": str, "seeds": list, "attempts": int})
            records.check_types(config["seeds"], {0: int, 1: int})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{path} is not a valid config ({type(error).__name__}: {error}).") from error
        return cls(folder, config)

    @property
    def parses(self) -> bool:
        """True if commands were parsed from a model's replies."""
        sampling = self.config.get("sampling")
        return isinstance(sampling, dict) and sampling.get("action_mode") == "write"

    def prompting(self) -> Prompting:
        """Returns the run's prompting settings. Raises DataError."""
        try:
            settings = self.config["prompting"]
            types = {**types_of(Prompting), "words": str}
            records.check_types(settings, {name: types[name] for name in settings})
            return Prompting(**settings)
        except (KeyError, TypeError, EnvsuiteError) as error:
            raise DataError(f"{self.folder / 'config.json'} has no valid prompting settings: {error}.") from error

    def check(self, stored: Sequence[Record], file: Path) -> Iterator[Verdict]:
        """Yields a verdict for every disagreement of `stored`, the records of `file`, with the folder's
        files.
        """
        yield from self._settings()
        if file == records.results_file(self.folder):
            yield from self._summary(stored, file)
        yield from self._episodes(stored)
        yield from self._names(stored)
        yield from self._lengths(stored)
        yield from self._journal(stored)
        yield from self._replies(stored)

    def _settings(self) -> Iterator[Verdict]:
        """Compares the settings with their hash, `run_id`."""
        expected = self.config.get("run_id")
        identity = {name: value for name, value in self.config.items() if name not in NOT_IDENTITY}
        text = json.dumps(identity, sort_keys=True)
        if expected is not None and expected != hashlib.sha256(text.encode()).hexdigest()[:12]:
            yield Verdict({}, f"the settings in config.json do not have the hash {expected!r}, its run_id")

    def _summary(self, stored: Sequence[Record], file: Path) -> Iterator[Verdict]:
        """Compares summary.json with the config and with the records, from which it was computed; names the first
        entry that differs.
        """
        path = self.folder / "summary.json"
        if not path.exists():
            return
        try:
            summary = reading.read_json(path)
            expected = summary.get("results_hash", "")
            before = _facts(summary)
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise DataError(f"{path} is not a valid summary ({type(error).__name__}: {error}).") from error
        if expected and expected != records.results_hash(file):
            yield Verdict({}, "one record or more: the hash of the records differs from summary.json")
        for name in summary:
            if name in self.config and summary[name] != self.config[name]:
                yield Verdict({}, f"{name}: config.json and summary.json differ")
        again = _facts(summarise(stored))
        for name, value in before.items():
            if not _equal(value, again[name]):
                difference = f"summary.json has {shortened(value)}, the records give {shortened(again[name])}"
                yield Verdict({}, f"{name}: {difference}")
                return  # the other entries follow from the same records

    def _episodes(self, stored: Sequence[Record]) -> Iterator[Verdict]:
        first, count = self.config["seeds"]
        task, knobs = self.config["task"], knobs_json(self.config["knobs"])
        keys = {records.key_of(record) for record in stored}
        if not 0 <= count * self.config["attempts"] <= len(stored) + MOST_MISSING:
            yield Verdict({}, "config.json lists far more episodes than the file")
            return
        expected = {
            (task, knobs, seed, attempt)
            for seed in range(first, first + count)
            for attempt in range(self.config["attempts"])
        }
        for _, _, seed, attempt in sorted(expected - keys):
            listed = {"task": task, "seed": seed, "attempt": attempt}
            yield Verdict(listed, "missing: config.json lists this episode")
        for record in stored:
            if records.key_of(record) not in expected:
                yield Verdict(record, "config.json does not list this episode")

    def _names(self, stored: Sequence[Record]) -> Iterator[Verdict]:
        for record in stored:
            for field in ("model", "reward_mode"):
                expected = self.config.get(field, record[field])
                if record[field] != expected:
                    yield Verdict(record, f"{field}: stored {record[field]!r}, config.json has {expected!r}")

    def _lengths(self, stored: Sequence[Record]) -> Iterator[Verdict]:
        """Checks that no episode is longer than the limit on turns, and that none was cut before it."""
        limit = self.config.get("max_turns")
        for record in stored:
            turns = record["num_turns"]
            if isinstance(limit, int) and turns > limit:
                yield Verdict(record, f"it has {turns} turns, and config.json allows {limit}")
            elif record["stop_reason"] == StopReason.MAX_TURNS and turns != limit:
                yield Verdict(record, f"it ends by max_turns after {turns} turns, and config.json has {limit}")

    def _journal(self, stored: Sequence[Record]) -> Iterator[Verdict]:
        """Compares complete records with the journal, from which results.jsonl was written."""
        path = self.folder / "journal.jsonl"
        if not path.exists():
            return
        played: dict[Key, list[Record]] = {}
        for _, record in records.read_journal(path):
            if record is not None:
                played.setdefault(records.key_of(record), []).append(record)
        for record in stored:
            attempts = played.get(records.key_of(record), [])
            if not attempts:
                yield Verdict(record, "journal.jsonl does not have this episode")
            elif is_broken(record) and not all(map(is_broken, attempts)):
                yield Verdict(record, "marked broken, but journal.jsonl has a score for this episode")
            elif record not in attempts:
                last = attempts[-1]
                field = next(name for name in {**record, **last} if record.get(name) != last.get(name))
                yield Verdict(record, f"{field}: differs from journal.jsonl")

    def _replies(self, stored: Iterable[Record]) -> Iterator[Verdict]:
        """Checks that a model's stored replies, parsed again, give the stored commands."""
        if not is_model(self.config["model"]) or not self.parses:
            return
        prompting = self.prompting()
        if prompting.declares_tools:  # `harness.provenance.replay` compares them: it knows the environment's tools
            return
        for record in stored:
            for turn, step in enumerate(record["steps"], 1):
                if not is_model(member(self.config["model"], step.get("agent", 0))):
                    continue
                parsed = prompting.parse(reply_text(step))
                commands = list(parsed.commands)
                executed = step["commands"]
                if commands[: len(executed)] != executed or bool(commands) != bool(executed):
                    yield Verdict(record, unlike_commands(turn, commands, executed))
                    break
                if parsed.substitute != bool(executed and step["fault"] in UNREADABLE):
                    yield Verdict(record, f"turn {turn}: fault {step['fault']!r} contradicts the reply")
                    break


def _facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the counts and means of a summary that follow from its records."""
    facts = {name: summary[name] for name in COUNTS if name in summary}
    for name in MEANS:
        facts |= {f"{name}.{field}": summary[name][field] for field in ("value", "n")}
    return facts


def _equal(first: Any, second: Any) -> bool:
    """Returns True for equal values; sums in another order may differ in the last digits."""
    if isinstance(first, float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
    return bool(first == second)


def shortened(value: object) -> str:
    """Returns the text of a value, cut after 120 characters."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def unlike_commands(turn: int, parsed: list[str], executed: list[str]) -> str:
    """Describes a turn whose commands differ from its reply."""
    return f"turn {turn}: the reply gives {shortened(parsed)}, the commands are {shortened(executed)}"
