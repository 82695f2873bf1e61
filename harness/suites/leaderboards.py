"""Leaderboards: the records of finished runs under a suite, stored so that anybody can check them.

    leaderboards/
        README.md           rendered: all families on one page
        {suite}/
            results.jsonl   every record of every entry; gzipped (.gz) if it is large
            metadata.json   for each entry the settings that `run_id` hashes
            README.md       rendered

`add` takes runs in, `read` reads a board, `faults` lists where a board contradicts its suite or itself.
`harness.provenance.replay.check` replays the records, and `harness.suites.leaderboard_pages` renders the pages.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import DataError, UsageError
from envsuite.reading import read_json
from envsuite.types import StopReason, Task, knobs_json
from harness import records
from harness.config_file import NOT_IDENTITY
from harness.evaluate import RunConfig, Sampling
from harness.policies import TEAM, is_computed, is_model, member, members, record_name
from harness.prompting import protocols
from harness.prompting.prompting import Prompting
from harness.records import Record, is_broken
from harness.rollout.hosts import check_expert
from harness.settings import omissions
from harness.stats.compare import check_config, read_run
from harness.stats.summary import Summary, summarise
from harness.steps import reply_text
from harness.suites import suites
from harness.suites.plan import prescribed

SCHEMA = "envsuite-board-1"

LARGE = 10**6
"""boards with more bytes of records are gzipped, which reduces them to a tenth or less"""

ENDS = ("random", "expert")
"""the floor and the ceiling of a table"""
IMPLIED = {"sampling": omissions(Sampling), "prompting": {**omissions(Prompting), "words": ""}}
"""settings that an identity omits at this value"""

EntryKey = tuple[str, str, str]
"""(task, canonical knobs, model): one entry, one row of a table"""


@dataclass(frozen=True)
class Board:
    """One suite's entries and all their records."""

    suite: str
    entries: dict[EntryKey, dict[str, Any]]
    """key -> {run_id, identity}"""
    records: list[Record]

    @property
    def computed(self) -> set[str]:
        """Names of the players without a language model, which have no sampling and no prompting."""
        return {model for _, _, model in self.entries if is_computed(model)}

    def of(self, key: EntryKey) -> list[Record]:
        """Returns the records of one entry."""
        return [record for record in self.records if entry_key(record) == key]

    @functools.cached_property
    def summaries(self) -> dict[EntryKey, Summary]:
        """The summary of each entry."""
        return {key: summarise(self.of(key)) for key in self.entries}


def read(folder: Path) -> Board:
    """Reads a board's folder. Raises DataError with the file's name."""
    path = folder / "metadata.json"
    try:
        metadata = read_json(path)
        if metadata["schema_version"] != SCHEMA:
            raise DataError(
                f"{path} has schema_version {metadata['schema_version']!r}, this envsuite reads {SCHEMA!r}: "
                "add its runs again with this version."
            )
        for entry in metadata["entries"]:
            records.check_types(entry, {"run_id": str, "identity": dict})
            check_config({**entry["identity"], "run_id": entry["run_id"]})
        records.check_types(metadata, {"suite": str})
        entries = {entry_key(entry["identity"]): entry for entry in metadata["entries"]}
        return Board(metadata["suite"], entries, records.read_results(records.results_file(folder)))
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} is not a board's metadata ({type(error).__name__}: {error}).") from error


def add(folder: Path, runs: Sequence[Path]) -> Board:
    """Adds finished runs to a board; each replaces an older run of the same model and task.

    Raises UsageError, and writes nothing, if a run does not follow the protocol of the suite that the folder is
    named for.
    """
    board = read(folder) if (folder / "metadata.json").exists() else Board(folder.name, {}, [])
    entries = dict(board.entries)
    rows = list(board.records)
    for path in runs:
        run = read_run(path, keep_broken=True)
        identity = {key: value for key, value in run.config.items() if key not in NOT_IDENTITY}
        key = entry_key(identity)
        entries[key] = {"run_id": run.config["run_id"], "identity": identity}
        rows = [record for record in rows if entry_key(record) != key] + run.records
    board = Board(folder.name, dict(sorted(entries.items())), sorted(rows, key=_sort_key))
    if wrong := list(faults(board)):
        raise UsageError(f"{folder}: {wrong[0]}.")
    metadata = {"schema_version": SCHEMA, "suite": board.suite, "entries": list(board.entries.values())}
    _write_records(folder, b"".join(map(records.dump, board.records)))
    write_atomically(folder / "metadata.json", json.dumps(metadata, indent=1) + "\n")
    return board


def _write_records(folder: Path, lines: bytes) -> None:
    """Writes the records plain or gzipped, depending on their size, and removes the other file."""
    plain, packed = folder / "results.jsonl", folder / "results.jsonl.gz"
    if len(lines) > LARGE:
        write_atomically(packed, gzip.compress(lines, mtime=0))  # without a time stamp equal records give equal bytes
        plain.unlink(missing_ok=True)
    else:
        write_atomically(plain, lines)
        packed.unlink(missing_ok=True)


def entry_key(settings: dict[str, Any]) -> EntryKey:
    """Returns the entry that a record or an identity belongs to."""
    return settings["task"], knobs_json(settings["knobs"]), settings["model"]


def _sort_key(record: Record) -> tuple[Any, ...]:
    return (*entry_key(record), record["seed"], record["attempt"])


# ---- checks ----------------------------------------------------------------------------------------------------------


def faults(board: Board) -> Iterator[str]:
    """Yields where a board contradicts its suite or itself: another protocol, missing, duplicate or foreign games.

    Only a replay can check that the commands lead to the recorded results. Nothing can prove which model wrote the
    replies.
    """
    published = suites.suite(board.suite).get("protocol", "")
    plans = {protocol: prescribed(board.suite, protocol) for protocol in dict.fromkeys(["", published])}
    for key, entry in board.entries.items():
        task, knobs, model = key
        name, identity = f"{model} on {task}", entry["identity"]
        hashed = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        if hashed != entry["run_id"]:
            yield f"{name}: run_id {entry['run_id']} is not the hash of the entry's identity"
        protocol = protocol_of(identity)
        if protocol not in plans:
            yield f"{name}: protocol is {protocol!r}, and suite {board.suite!r} has {published!r}"
            continue
        kinds = list(plans.values()) if is_computed(model) else [plans[protocol]]
        planned = [runs[task, knobs] for runs in kinds if (task, knobs) in runs]
        if not planned:
            yield f"{name}: suite {board.suite!r} has no such task with these knobs"
            continue
        config = planned[0].config
        if fault := misnamed(model, config.task, config.knobs):
            yield f"{name}: {fault}"
            continue
        for field, (expected, stated) in _protocol(config, identity).items():
            if expected != stated:
                yield f"{name}: {field} is {stated!r}, and suite {board.suite!r} fixes {expected!r}"
        rows = board.of(key)
        yield from _game_faults(name, config, identity, rows)
        if not is_computed(model):
            yield from _reply_faults(name, config, rows)
    for task, _, model in sorted({entry_key(record) for record in board.records} - board.entries.keys()):
        yield f"{model} on {task}: records without an entry"


def misnamed(model: str, task: Task, knobs: Mapping[str, Any]) -> str:
    """Says why no player of this name can have played a task; "" if one can, or if it is a model alone."""
    if not is_computed(model) and not model.startswith(TEAM):
        return ""
    cls, players = registry.env_class(task), members(model)
    try:
        record_name(model)
        check_expert(cls, "+".join(player for player in players if not is_model(player)))
        agents = registry.agents(task, knobs)
    except UsageError as error:
        return str(error)
    return "" if len(players) in (1, agents) else f"{len(players)} players are named, and the game has {agents}"


def protocol_of(identity: dict[str, Any]) -> str:
    """Returns the published prompt that an entry's model read; '' for our prompt and for players without a model."""
    return str((identity.get("prompting") or {}).get("protocol", ""))


def _words(identity: dict[str, Any], expected: str) -> str:
    """Returns the words that an entry of a published prompt may state: the pinned ones, or neutral ones."""
    stated = identity["prompting"].get("words")
    allowed = (protocols.NEUTRAL, protocols.load(protocol_of(identity)).published_id)
    return str(stated) if stated in allowed else expected


def _protocol(config: RunConfig, identity: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns field -> (value that the suite fixes, value that the entry states)."""
    panel = config.panel
    fields: dict[str, tuple[Any, Any]] = {
        "reward_mode": (config.reward_mode, identity["reward_mode"]),
        "max_turns": (config.max_turns, identity["max_turns"]),
        "panel": (panel and [panel.name, panel.digest, len(panel)], identity["panel"]),
        "first seed": (config.seeds[0], identity["seeds"][0]),
    }
    if is_computed(identity["model"]):
        return fields
    for group, expected in (("sampling", asdict(config.sampling)), ("prompting", asdict(config.prompting))):
        stated = identity.get(group)
        if stated is None:
            fields[group] = (expected, None)
            continue
        stated = {**IMPLIED[group], **stated}
        if group == "prompting" and protocol_of(identity):
            expected["words"] = _words(identity, expected["words"])
        fields.update({key: (expected.get(key), stated.get(key)) for key in expected | stated if key != "dtype"})
    return fields


def _reply_faults(name: str, config: RunConfig, rows: Sequence[Record]) -> Iterator[str]:
    """Yields records that no language model can have produced: without tokens, or with commands outside the replies."""
    # Calls of tools are compared with the commands by the replay, which knows the environment's tools.
    written = config.sampling.action_mode == "write" and not config.prompting.declares_tools
    for record in rows:
        where = f"{name}: seed {record['seed']}"
        if record["steps"] and not (record["input_tokens"] > 0 and record["output_tokens"] > 0):
            yield (
                f"{where}: a model's record cannot have {record['input_tokens']} prompt tokens and "
                f"{record['output_tokens']} reply tokens"
            )
            return
        for turn, step in enumerate(record["steps"], 1):
            if not is_model(member(record["model"], step.get("agent", 0))):
                continue
            parsed = list(config.prompting.parse(reply_text(step)).commands) if written else []
            if written and parsed[: len(step["commands"])] != step["commands"]:
                yield f"{where}, turn {turn}: the commands {step['commands']} are not in the reply"
                return


def _game_faults(name: str, config: RunConfig, identity: dict[str, Any], rows: Sequence[Record]) -> Iterable[str]:
    """Yields where an entry does not hold each of its games exactly once."""
    count, attempts = identity["seeds"][1], identity["attempts"]
    available = _available_seeds(config)
    if config.seed + count > len(available):
        yield f"{name}: {count} games are more than the {len(available)} that exist"
        return
    if not 0 < attempts <= len(rows):
        yield f"{name}: {attempts} attempts per game, but only {len(rows)} records"
        return
    seeds = available[config.seed : config.seed + count]
    expected = {(seed, attempt) for seed in seeds for attempt in range(attempts)}
    played = [(record["seed"], record["attempt"]) for record in rows]
    if missing := sorted(expected - set(played)):
        yield f"{name}: seed {missing[0][0]} is missing, {len(missing)} episodes in all"
    if surplus := sorted(set(played) - expected):
        yield f"{name}: seed {surplus[0][0]} does not belong to the entry"
    if len(played) != len(set(played)):
        yield f"{name}: an episode is there twice"
    if any(map(is_broken, rows)):
        yield f"{name}: broken episodes; finish the run with --resume"
    cap = identity["max_turns"]
    for record in rows:
        if record["stop_reason"] == StopReason.MAX_TURNS and record["num_turns"] != cap:
            turns = record["num_turns"]
            yield f"{name}: seed {record['seed']} was stopped after {turns} turns, the entry's cap is {cap}"
            break
    if any(record["reward_mode"] != identity["reward_mode"] for record in rows):
        yield f"{name}: records of another reward mode"


def _available_seeds(config: RunConfig) -> Sequence[int]:
    panel = config.panel
    if panel is not None:
        return range(len(panel))
    return config.task.splits[config.split or registry.default_split(config.task)]
