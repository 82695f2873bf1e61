"""Packs the episodes of a report: a small index that stays in memory, and chunks that are decoded on demand.

The index has one column per field and one entry per episode; repeated words are numbers into a list. A chunk is a JSON
list of episodes, gzipped and base64-encoded; browsers decode both (`DecompressionStream`).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envsuite.errors import UsageError
from envsuite.types import knobs_json
from harness.policies import members
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import as_text, assistant_message
from harness.records import THINKING, Record
from harness.report.transcripts import Replayer, StringTable, choose
from harness.stats.compare import Run
from harness.steps import reply_calls, reply_text

CHUNK = 300_000
"""characters of JSON after which a chunk is closed"""


@dataclass
class Packed:
    """Packed episodes of a report page, with counts."""

    index: str
    """compressed index, see `columns`"""
    chunks: list[str] = field(default_factory=list)
    episodes: int = 0
    replayed: int = 0
    picture_bytes: int = 0
    stale: int = 0
    """number of episodes whose replay differed from the record"""
    not_replayed: dict[str, str] = field(default_factory=dict)
    """run -> reason why it was not replayed"""


def pack(
    runs: Sequence[Run],
    replays: int,
    picture_bytes: int,
    limit: int,
    trusted: Mapping[str, Any] = {},
    show: Callable[[int], None] = lambda done: None,
) -> Packed:
    """Packs all episodes of `runs`, and replays up to `replays` episodes of each run.

    Pictures take at most `picture_bytes`; each run may use an equal share plus what earlier runs left. `show` receives
    the number of packed episodes after each one. Raises UsageError if the result would exceed `limit` bytes.
    """
    words: dict[str, StringTable] = {name: StringTable() for name in ("ending", "type", "objective", "game")}
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    packed = Packed("")
    pending: list[str] = []
    size = 0
    for number, run in enumerate(runs):
        room = picture_bytes * (number + 1) // len(runs)  # otherwise the first runs would use all of it
        for record, episode in _episodes(run, replays, room, packed, trusted):
            spelled = json.dumps(episode, ensure_ascii=False, separators=(",", ":"))
            for name, value in _row(record, number, words).items():
                columns[name].append(value)
            columns["chunk"].append(len(packed.chunks))
            columns["position"].append(len(pending))
            columns["replayed"].append(int("expert" in episode.get("replay", {})))
            pending.append(spelled)
            size += len(spelled)
            show(len(columns["run"]))
            if size > CHUNK:
                packed.chunks.append(compress("[" + ",".join(pending) + "]"))
                pending, size = [], 0
    if pending:
        packed.chunks.append(compress("[" + ",".join(pending) + "]"))
    packed.episodes = len(columns["run"])
    packed.index = compress(json.dumps({"columns": columns, "words": {k: w.items for k, w in words.items()}}))
    total = len(packed.index) + sum(map(len, packed.chunks))
    if total > limit:
        raise UsageError(
            f"The report would hold {total / 2**20:.0f} MB of episodes, more than {limit / 2**20:.0f} MB: give fewer "
            "runs, lower --replay, or raise --max-size."
        )
    return packed


COLUMNS = (
    *("run", "game", "seed", "attempt", "success", "reward", "progression", "turns", "ending", "type", "objective"),
    *("format", "invalid", "length", "tokens", "chunk", "position", "replayed"),
)


def _row(record: Record, run: int, words: dict[str, StringTable]) -> dict[str, Any]:
    return {
        "run": run,
        "game": words["game"].number(f"{record['task']} {knobs_json(record['knobs'])}"),
        "seed": record["seed"],
        "attempt": record["attempt"],
        "success": int(record["success"]),
        "reward": round(record["reward"], 6),
        "progression": round(record["progression"], 4),
        "turns": record["num_turns"],
        "ending": words["ending"].number(record["stop_reason"]),
        "type": words["type"].number(record["labels"].get("task_type", "")),
        "objective": words["objective"].number(record["objective"]),
        **{name: record["faults"][name] for name in ("format", "invalid")},
        "length": record["faults"]["length"] + record["faults"].get(THINKING, 0),
        "tokens": record["output_tokens"],
    }


def _episodes(
    run: Run, replays: int, picture_bytes: int, packed: Packed, trusted: Mapping[str, Any]
) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Every record of a run beside what the page shows of it."""
    prompting = Prompting(**run.config["prompting"]) if run.config.get("prompting") else None
    chosen = choose(run.records, replays)
    replayer = Replayer(run, trusted) if chosen else None
    if replayer is not None and replayer.refused:
        packed.not_replayed[f"{run.name} on {run.config['task']}"] = replayer.refused
        replayer = None
    for position, record in enumerate(run.records):
        episode = viewer_episode(record, prompting)
        if replayer is not None and position in chosen:
            again = episode["replay"] = replayer(record, pictures=packed.picture_bytes < picture_bytes)
            packed.picture_bytes += sum(map(len, again.get("images", ())))
            packed.replayed += 1
            packed.stale += bool(again["difference"])
        yield record, episode
    if replayer is not None:
        replayer.close()


def viewer_episode(record: Record, prompting: Prompting | None) -> dict[str, Any]:
    """Returns a record as the viewer reads it.

    Each step has `c` commands, `o` observation, `r` reward, `f` fault, and, if the reply is more than the command, `y`
    the reply and `t` its reasoning. In a game of several agents, `a` names the agent that acted and its player.
    """
    steps = []
    players = members(record["model"])
    for step in record["steps"]:
        packed_step = {"c": step["commands"], "o": step["observation"], "r": step["reward"], "f": step["fault"]}
        if agent := step.get("agent"):
            player = f": {players[agent - 1]}" if 0 < agent <= len(players) else ""
            packed_step["a"] = f"agent {agent}{player}"
        if "reply" in step or "reasoning" in step:
            packed_step["y"] = as_text(assistant_message(reply_text(step), reply_calls(step)))
            if prompting is not None and (thought := prompting.parse(reply_text(step)).thought):
                packed_step["t"] = thought
        steps.append(packed_step)
    return {
        "first": record["first_observation"],
        "error": record["error"],
        "labels": record["labels"],
        "metrics": record["metrics"],
        "steps": steps,
    }


def compress(text: str) -> str:
    """Gzip, then base64; the same bytes every time."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 9, mtime=0)).decode()
