"""Export of records as ATIF (Agent Trajectory Interchange Format), one JSON document per episode.

The fields follow version 1.8 of the format: https://harborframework.com/docs/agents/trajectory-format
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import envsuite
from envsuite.cache import write_atomically
from harness.records import Record, key_of, reply_text
from harness.stats.compare import Run

VERSION = "ATIF-v1.8"


def document(record: Record, run_id: str = "") -> dict[str, Any]:
    """Converts an episode: the task becomes a user step, each turn an agent step with its calls and their results."""
    task, knobs, seed, attempt = key_of(record)
    first = "\n\n".join(filter(None, [record["objective"], record["first_observation"]]))
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": first}]
    for number, step in enumerate(record["steps"], 2):
        calls = [
            {"tool_call_id": f"{number}-{place}", "function_name": "act", "arguments": {"command": command}}
            for place, command in enumerate(step["commands"])
        ]
        # Several commands of one reply share an answer, which belongs to the last of them.
        answer: dict[str, Any] = {"content": step["observation"]}
        if calls:
            answer["source_call_id"] = calls[-1]["tool_call_id"]
        agent_step: dict[str, Any] = {"step_id": number, "source": "agent", "message": reply_text(step)}
        if calls:
            agent_step["tool_calls"] = calls
        agent_step["observation"] = {"results": [answer]}
        agent_step["extra"] = {"reward": step["reward"], "fault": step["fault"]}
        steps.append(agent_step)
    return {
        "schema_version": VERSION,
        "session_id": run_id or "run",
        "trajectory_id": f"{run_id or 'run'}-{task}-{seed}-{attempt}",
        "agent": {"name": "envsuite", "version": envsuite.__version__, "model_name": record["model"]},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": record["input_tokens"],
            "total_completion_tokens": record["output_tokens"],
            "total_cost_usd": record["cost"],
            "total_steps": len(steps),
        },
        "extra": {
            "task": task,
            "knobs": knobs,
            "seed": seed,
            "attempt": attempt,
            **{name: record[name] for name in ("reward_mode", "success", "reward", "progression", "stop_reason")},
            "labels": record["labels"],
            "metrics": record["metrics"],
        },
    }


def write_documents(run: Run, folder: Path) -> None:
    """Writes one file per episode, numbered in the order of results.jsonl."""
    for number, record in enumerate(run.records):
        text = json.dumps(document(record, run.config["run_id"]), indent=1)
        write_atomically(folder / f"{number:05}-seed{record['seed']}-{record['attempt']}.json", text + "\n")
