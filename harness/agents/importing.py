"""Import of agents' trajectories: records that can be replayed, and predictions that can be graded.

`import_trajectories` writes a folder:

    results.jsonl   a record per trajectory, with its commands, of the task that is named
    preds.jsonl     the patches that the agents submitted

The records have no score, because another judge may have seen other tests: they are marked broken until they
are played again with `envsuite-eval -m replay:FOLDER/results.jsonl`, which grades what the commands do here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import StopReason, Task
from harness import records
from harness.agents.trajectories import SUBMIT, AgentTrajectory

UNGRADED = "imported from another harness and not graded here: play it again with -m replay:FILE"


class ImportResult(NamedTuple):
    """Counts of an import."""

    episodes: int
    steps: int
    skipped: int
    """actions that SWE-Gym has no command for"""
    patches: int
    knobs: dict[str, Any]
    """knobs of the records"""


def import_trajectories(
    trajectories: Sequence[AgentTrajectory], task: Task, knobs: Mapping[str, Any], folder: Path
) -> ImportResult:
    """Writes records and predictions of trajectories for a task of SWE-Gym.

    The panel is limited to the imported instances, and `max_steps` covers the longest trajectory. Raises UsageError
    if the folder holds records, if the task lacks an instance, for several models, and for two trajectories of one
    instance.
    """
    if (folder / "results.jsonl").exists():
        raise UsageError(f"{folder} contains records: name another folder with -o.")
    if len(models := sorted({trajectory.model for trajectory in trajectories})) > 1:
        raise UsageError(
            f"The trajectories are of {len(models)} models, {models[0]} and {models[1]}: import one model."
        )
    names = tuple(trajectory.instance_id for trajectory in trajectories)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"There are two trajectories of {twice[0]}: import one attempt at a time.")
    longest = max(sum(len(step.commands) for step in trajectory.steps) for trajectory in trajectories) + 1
    chosen = registry.overrides(task, {"max_steps": longest, **knobs})
    panel = registry.panel(task, **chosen)
    known = () if panel is None else panel.games
    if missing := [name for name in names if name not in known]:
        raise UsageError(
            f"{task.id} has no instance {missing[0]!r} with these knobs: name its records with --set records=FILE."
            f"{did_you_mean(missing[0], known)}"
        )
    chosen = registry.overrides(task, {**chosen, "instances": names})
    seeds = {name: seed for seed, name in enumerate(registry.panel(task, **chosen).games)}  # type: ignore[union-attr]
    lines, patches = [], []
    for trajectory in sorted(trajectories, key=lambda trajectory: seeds[trajectory.instance_id]):
        name, model = trajectory.instance_id, trajectory.model
        lines.append(records.dump(_record(trajectory, task, chosen, seeds[name])))
        if trajectory.patch.strip():
            row = {"instance_id": name, "model_name_or_path": model, "model_patch": trajectory.patch}
            patches.append(json.dumps(row).encode() + b"\n")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "preds.jsonl", patches)
    write_atomically(folder / "results.jsonl", lines)
    steps = sum(len(trajectory.steps) for trajectory in trajectories)
    skipped = sum(trajectory.skipped for trajectory in trajectories)
    return ImportResult(len(lines), steps, skipped, len(patches), chosen)


def _record(trajectory: AgentTrajectory, task: Task, knobs: Mapping[str, Any], seed: int) -> records.Record:
    """Returns a record that is not scored yet. It ends with `submit`, so that a replay is graded."""
    steps: list[dict[str, Any]] = [
        {
            "commands": list(step.commands),
            "observation": step.observation,
            "reward": 0.0,
            "fault": "",
            "reply": step.text,
        }
        for step in trajectory.steps
        if step.commands
    ]
    if not steps or SUBMIT not in steps[-1]["commands"]:
        steps.append({"commands": [SUBMIT], "observation": "", "reward": 0.0, "fault": "", "reply": SUBMIT})
    return {
        "schema_version": records.SCHEMA,
        "task": task.id,
        "knobs": json.loads(json.dumps(dict(knobs))),
        "seed": seed,
        "attempt": 0,
        "model": trajectory.model,
        "reward_mode": "sparse",
        "success": False,
        "reward": 0.0,
        "progression": 0.0,
        "stop_reason": str(StopReason.BROKEN),
        "terminated": False,
        "truncated": False,
        "num_turns": len(steps),
        "faults": records.count_faults([]),
        "labels": {"instance": trajectory.instance_id, "exit_status": trajectory.exit_status},
        "metrics": {"skipped": float(trajectory.skipped)},
        "input_tokens": 0,
        "output_tokens": 0,
        "dropped_turns": 0,
        "cost": 0.0,
        "artifacts": {"patch": trajectory.patch},
        "error": UNGRADED,
        "objective": "",
        "first_observation": "",
        "steps": steps,
    }
