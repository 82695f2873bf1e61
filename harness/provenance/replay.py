"""Replay check: plays the stored commands of a results file again and reports every difference.

`check` compares observations, rewards, faults and endings with a new rollout. For the results of a
run folder it also compares them with the folder's other files (`harness.provenance.run_folder`). The check
cannot prove which model wrote the replies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import UnknownTask
from envsuite.types import StopReason, knobs_json
from harness import hash_chain, records
from harness.evaluate import Execution, RunConfig, open_slots
from harness.policies import advice_kind, is_model, make_policy, member
from harness.policies.recorded import ReplayPolicy
from harness.provenance.run_folder import UNREADABLE, RunFolder, Verdict, shortened, unlike_commands
from harness.records import Key, Record, is_broken
from harness.rollout.loop import rollout
from harness.steps import reply_calls, reply_text
from harness.suites.leaderboards import misnamed
from harness.types import Episode, Trajectory

HARNESS_ENDS = {StopReason.MAX_TURNS, StopReason.CONTEXT, StopReason.BUDGET, StopReason.MAX_TOKENS, StopReason.TIMEOUT}
"""Stop reasons of the harness. The environment does not know them, so the check ends with the last
stored turn.
"""
RunKey = tuple[str, str, str, str]
"""(task, canonical knobs, reward mode, model)"""

SAME_FAULT = {"length": "format", "thinking": "format"}
"""Faults that a replay cannot tell apart: a reply without a command, cut off or not."""


def check(
    file: Path,
    num_workers: int = -1,
    max_concurrent: int = 16,
    players: Container[str] = (),
    trusted: Mapping[str, Any] = {},
    sample: int | None = None,
    only: Callable[[str], bool] = lambda task_id: True,
) -> Iterator[Verdict]:
    """Replays every record of a results file, which may have several models; yields verdicts as
    episodes end.

    With `sample`, replays at most that many records, always the same ones. Replays only records of tasks for whose id
    `only` returns True. Records of `players`,
    which need no replies, are compared with new episodes of these players. The file may come from a
    stranger: knobs that name files or choose the sandbox come from `trusted`, the user's own
    settings. Raises UntrustedKnob if one of them is missing.
    """
    registry.tasks("*")  # loads plugins
    registry.check_trusted(trusted)
    stored = records.read_results(file)
    folder = RunFolder.read(file.parent) if (file.parent / "config.json").exists() else None
    if folder is not None:
        yield from folder.check(stored, file)
    by_run: dict[RunKey, dict[Key, Record]] = {}
    for record in stored:
        key = records.key_of(record)
        run = by_run.setdefault((record["task"], key[1], record["reward_mode"], record["model"]), {})
        if key in run:
            yield Verdict(record, "the file contains this episode twice")
        run[key] = record
    for (task_id, _, mode, model), group in sorted(_sampled(by_run, sample).items()):
        if not only(task_id):
            continue
        if task_id not in registry.TASKS:
            raise UnknownTask(f"{file}: no task {task_id!r} is registered here; name its module with --module.")
        task = registry.TASKS[task_id]
        knobs = registry.replay_knobs(task, next(iter(group.values()))["knobs"], trusted)
        if (model in players or advice_kind(model)) and (fault := misnamed(model, task, knobs)):
            yield from (Verdict(record, f"model: {fault}") for record in group.values())
            continue
        config = RunConfig(task, model, knobs=knobs, reward_mode=mode)
        execution = Execution(max_concurrent, num_workers)
        for record, played in replayed(file, config, list(group.values()), execution, again=model in players):
            difference = _verdict(record, played, mode) or _call_difference(record, played, folder)
            yield Verdict(record, difference or _chain_difference(record, played, folder))


def runs_programs(task_id: str) -> bool:
    """Returns True if the commands of a task are programs, which run in a sandbox; False for an unknown task."""
    task = registry.TASKS.get(task_id)
    return task is not None and "sandbox" in registry.declared_knobs(registry.env_class(task))


def _sampled(by_run: dict[RunKey, dict[Key, Record]], sample: int | None) -> dict[RunKey, dict[Key, Record]]:
    """Returns at most `sample` records, drawn without replacement with a fixed seed, or all if it is None."""
    episodes = [(run, key) for run in sorted(by_run) for key in sorted(by_run[run])]
    if sample is None or sample >= len(episodes):
        return by_run
    chosen: dict[RunKey, dict[Key, Record]] = {}
    for run, key in random.Random(0).sample(episodes, sample):
        chosen.setdefault(run, {})[key] = by_run[run][key]
    return chosen


def replayed(
    file: Path, config: RunConfig, group: Sequence[Record], execution: Execution, again: bool = False
) -> Iterator[tuple[Record, Trajectory]]:
    """Replays records of one task and model; with `again`, the policy itself plays new episodes.

    Players without a model that play beside one in a team always play anew.
    """
    knobs = knobs_json(config.knobs)
    by_key = {(config.task.id, knobs, record["seed"], record["attempt"]): record for record in group}
    stored = [{**record, "knobs": config.knobs} for record in by_key.values()]
    advised = advice_kind(group[0]["model"])
    policy = make_policy(config.model) if again else ReplayPolicy(str(file), stored, HARNESS_ENDS, advised)
    episodes = [Episode(config.task, knobs, record["seed"], record["attempt"]) for record in stored]
    turns = {}
    for key, record in by_key.items():
        cut = is_broken(record) or record["stop_reason"] in HARNESS_ENDS
        turns[key] = record["num_turns"] + (not cut)
    executor = open_slots(config, execution, len(episodes), policy.advice_kind)
    try:
        for run in rollout(policy, episodes, executor, max_turns=lambda episode: turns[episode.key]):
            yield by_key[run.episode.key], run
    finally:
        executor.close()


def _chain_difference(record: Record, run: Trajectory, folder: RunFolder | None) -> str:
    """Describes where a record's hash chain breaks; '' if it holds, or if the record has none.

    The prompts are only known if the results are in their run folder.
    """
    if not hash_chain.has_chain(record):
        return ""
    difference = hash_chain.broken_link(record)
    if difference or folder is None:
        return difference
    return hash_chain.wrong_prompt(record, run, folder.prompting(), folder.parses)


def _call_difference(record: Record, run: Trajectory, folder: RunFolder | None) -> str:
    """Describes the first tool calls of a record that do not give its commands; '' if all do.

    The grammar is only known if the results are in their run folder.
    """
    if folder is None or not folder.parses:
        return ""
    prompting = folder.prompting()
    if not prompting.declares_tools:
        return ""
    for number, step in enumerate(record["steps"]):
        if not is_model(member(record["model"], step.get("agent", 0))):
            continue
        text, calls = reply_text(step), reply_calls(step)
        written = prompting.parse(text, (), run.tools, number).calls
        apart = calls and not {call.id for call in calls} & {call.id for call in written}  # the server's own ids
        if written and not apart and [call[1:] for call in written] != [call[1:] for call in calls]:
            return f"turn {number + 1}: the reply has other tool calls than the record"
        parsed = prompting.parse(text, calls, run.tools, number)
        if list(parsed.commands) != step["commands"]:
            return unlike_commands(number + 1, list(parsed.commands), step["commands"])
    return ""


def _verdict(record: Record, run: Trajectory, reward_mode: str) -> str:
    replayed = records.record(run, record["model"], reward_mode)
    if not is_broken(record):
        return first_difference(record, replayed)
    if not is_broken(replayed) and replayed["stop_reason"] not in HARNESS_ENDS and record["steps"]:
        return f"marked broken, but its replies end the episode with {replayed['stop_reason']!r}"
    return "broken, so it has no score: finish the run with --resume"


def first_difference(stored: Record, again: Record) -> str:
    """Describes the first difference between a stored record and its replay; '' if there is none."""
    if is_broken(again):
        return f"it broke on replay: {again['error']}"
    for field in ("objective", "first_observation", "labels"):
        if stored[field] != again[field]:
            return f"{field}: stored {shortened(stored[field])}, replayed {shortened(again[field])}"
    for turn, (step, replayed) in enumerate(zip(stored["steps"], again["steps"], strict=False), 1):
        for field in ("agent", "commands", "observation", "reward"):
            before, after = step.get(field), replayed.get(field)
            if before != after:
                return f"turn {turn}, {field}: stored {shortened(before)}, replayed {shortened(after)}"
        # A protocol substitutes a command for a reply that it cannot read; the replay receives it as a valid command.
        substitute = "reply" in step and step["commands"] and step["fault"] in UNREADABLE
        if not substitute and SAME_FAULT.get(step["fault"], step["fault"]) != replayed["fault"]:
            return f"turn {turn}, fault: stored {step['fault']!r}, replayed {replayed['fault']!r}"
    if len(stored["steps"]) != len(again["steps"]):
        return f"steps: stored {len(stored['steps'])}, replayed {len(again['steps'])}"
    counted = records.count_faults([step["fault"] for step in stored["steps"]])
    if stored["faults"] != counted:
        return f"faults: stored {stored['faults']}, its turns have {counted}"
    fields = ["num_turns", "success", "reward", "progression", "metrics"]
    if stored["stop_reason"] not in HARNESS_ENDS:
        fields += ["stop_reason", "terminated", "truncated"]
    for field in fields:
        if stored[field] != again[field]:
            return f"{field}: stored {stored[field]!r}, replayed {again[field]!r}"
    return ""
