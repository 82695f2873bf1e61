"""Export of records as ATIF (Agent Trajectory Interchange Format), one JSON document per episode.

The fields follow version 1.8 of the format: https://harborframework.com/docs/agents/trajectory-format
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import envsuite
from envsuite.cache import write_atomically
from harness.prompting.tool_calls import assistant_message, for_template, read_text, result_messages
from harness.records import Record, key_of
from harness.stats.compare import Run
from harness.steps import Step, answer_text, reply_calls

VERSION = "ATIF-v1.8"


def document(record: Record, run_id: str = "") -> dict[str, Any]:
    """Converts an episode: the task becomes a user step, each turn an agent step with its calls and their results."""
    task, knobs, seed, attempt = key_of(record)
    first = "\n\n".join(filter(None, [record["objective"], record["first_observation"]]))
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": first}]
    for number, step in enumerate(record["steps"], 2):
        agent_step: dict[str, Any] = {"step_id": number, "source": "agent", "message": _message(step)}
        if "reasoning" in step:
            agent_step["reasoning_content"] = step["reasoning"]
        calls, results = _calls(number, step)
        if calls:
            agent_step["tool_calls"] = calls
        agent_step["observation"] = {"results": results}
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


def _message(step: Step) -> str:
    """Returns the reply of a step without its reasoning, and without calls that a model wrote as text."""
    text = answer_text(step)
    return read_text(text)[0] if reply_calls(step) else text


def _calls(number: int, step: Step) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the calls of a step and their results. A command that is no tool call becomes a call of `act`."""
    if made := reply_calls(step):
        message = for_template([assistant_message("", made)])[0]
        functions = [call["function"] for call in message["tool_calls"]]
        pairs = [
            (call.id, function["name"], function["arguments"]) for call, function in zip(made, functions, strict=True)
        ]
        results = [
            {"source_call_id": result["tool_call_id"], "content": result["content"]}
            for result in result_messages(made, step["observation"])
        ]
    else:
        pairs = [(f"{number}-{place}", "act", {"command": command}) for place, command in enumerate(step["commands"])]
        # Several commands of one reply share an answer, which belongs to the last of them.
        last = {"source_call_id": pairs[-1][0]} if pairs else {}
        results = [{"content": step["observation"], **last}]
    names = ("tool_call_id", "function_name", "arguments")
    return [dict(zip(names, pair, strict=True)) for pair in pairs], results


def write_documents(run: Run, folder: Path) -> None:
    """Writes one file per episode, numbered in the order of results.jsonl."""
    for number, record in enumerate(run.records):
        text = json.dumps(document(record, run.config["run_id"]), indent=1)
        write_atomically(folder / f"{number:05}-seed{record['seed']}-{record['attempt']}.json", text + "\n")
