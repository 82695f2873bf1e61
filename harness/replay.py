"""Is this file genuine, and is the environment still the one it was made with? Play it again and see.

Every stored command is carried out; observations, rewards, faults and endings must come out the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.errors import UnknownTask
from envsuite.types import StopReason, knobs_json
from harness import records
from harness.evaluate import Execution, RunConfig, open_slots
from harness.policies import make_policy
from harness.policies.recorded import ReplayPolicy
from harness.records import Record, is_broken
from harness.rollout.loop import rollout
from harness.types import Episode

HARNESS_ENDS = {StopReason.MAX_TURNS, StopReason.CONTEXT, StopReason.BUDGET, StopReason.MAX_TOKENS, StopReason.TIMEOUT}
"""Endings the environment knows nothing of: the game is checked up to there"""
SILENT = {"length": "format"}
"""faults that an environment cannot tell apart: no command was found in a reply, cut off or not"""


class Verdict(NamedTuple):
    """One episode: the first difference found, or ''."""

    record: Record
    difference: str


def check(
    file: Path,
    num_workers: int = -1,
    max_concurrent: int = 16,
    players: Container[str] = (),
    trusted: Mapping[str, Any] = {},
) -> Iterator[Verdict]:
    """Replays every record of a results file, which may hold several models; yields a verdict for each, as they end.

    Records of `players`, who need no text, are played by these anew: is the row theirs, and are they still who they were?
    The file may come from anybody: knobs that name files or choose the sandbox come from `trusted`, the user's own
    settings. Raises UntrustedKnob if one of them is missing.
    """
    registry.tasks("*")  # plugins too
    registry.check_trusted(trusted)
    by_run: dict[tuple[str, str, str, str], dict[records.Key, Record]] = {}
    for one in records.read_results(file):
        if not is_broken(one):
            key = records.key_of(one)
            run = by_run.setdefault((one["task"], key[1], one["reward_mode"], one["model"]), {})
            if key in run:
                yield Verdict(one, "the same episode stands in the file twice")
            run[key] = one
    for (task_id, _, mode, model), stored in sorted(by_run.items()):
        if task_id not in registry.TASKS:
            raise UnknownTask(f"{file}: no task {task_id!r} is registered here; name its module with --module.")
        task = registry.TASKS[task_id]
        knobs = registry.replay_knobs(task, next(iter(stored.values()))["knobs"], trusted)
        stored = {(task_id, knobs_json(knobs), one["seed"], one["attempt"]): one for one in stored.values()}
        group = [{**one, "knobs": knobs} for one in stored.values()]
        policy = make_policy(model) if model in players else ReplayPolicy(str(file), group, HARNESS_ENDS)
        config = RunConfig(task, "replay", knobs=knobs, reward_mode=mode)
        episodes = [Episode(task, knobs_json(knobs), one["seed"], one["attempt"]) for one in group]
        slots = open_slots(config, Execution(max_concurrent, num_workers), len(episodes), policy.advice_kind)
        turns = {key: one["num_turns"] + (one["stop_reason"] not in HARNESS_ENDS) for key, one in stored.items()}
        try:
            for again in rollout(policy, episodes, slots, max_turns=lambda played, turns=turns: turns[played.key]):  # type: ignore[misc]
                one = stored[again.episode.key]
                yield Verdict(one, first_difference(one, records.record(again, one["model"], mode)))
        finally:
            slots.close()


def first_difference(stored: Record, again: Record) -> str:
    """What differs first, in words; '' where the episode came out the same."""
    if is_broken(again):
        return f"it broke on replay: {again['error']}"
    for field in ("objective", "first_observation", "labels"):
        if stored[field] != again[field]:
            return f"{field}: stored {_short(stored[field])}, replayed {_short(again[field])}"
    for turn, (one, other) in enumerate(zip(stored["steps"], again["steps"]), 1):
        for field in ("commands", "observation", "reward"):
            if one[field] != other[field]:
                return f"turn {turn}, {field}: stored {_short(one[field])}, replayed {_short(other[field])}"
        if SILENT.get(one["fault"], one["fault"]) != other["fault"]:
            return f"turn {turn}, fault: stored {one['fault']!r}, replayed {other['fault']!r}"
    if len(stored["steps"]) != len(again["steps"]):
        return f"steps: stored {len(stored['steps'])}, replayed {len(again['steps'])}"
    counted = {kind: sum(step["fault"] == kind for step in stored["steps"]) for kind in records.FAULTS}
    if stored["faults"] != counted:
        return f"faults: stored {stored['faults']}, its turns have {counted}"
    fields = ["num_turns", "success", "reward", "progression", "metrics"]
    if stored["stop_reason"] not in HARNESS_ENDS:
        fields += ["stop_reason", "terminated", "truncated"]
    for field in fields:
        if stored[field] != again[field]:
            return f"{field}: stored {stored[field]!r}, replayed {again[field]!r}"
    return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
