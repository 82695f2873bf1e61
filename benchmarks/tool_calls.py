"""Compares episodes that a scripted player plays by text commands and by tool calls.

A local server speaks the chat-completions protocol and answers with the commands of an expert or a random
player: once as text, once as calls of the environment's tools. Observations, rewards, faults and outcomes
must be equal, and every transcript must answer each call with its id. All runs are replayed.

    python -m benchmarks.tool_calls -o benchmarks/tool_calls.md
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.tool_servers import HEADING
from envsuite import registry
from envsuite.tools import Tool, call_of
from harness.evaluate import Execution, RunConfig, evaluate, open_slots
from harness.policies import make_policy
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.provenance import replay
from harness.records import read_results
from harness.rollout.loop import rollout

TASKS = {
    "ALFWorld-generated-easy-v0": 6,
    "ALFWorld-generated-hard-v0": 6,
    "BabyAI-easy-v0": 6,
    "BabyAI-medium-v0": 6,
    "Overcooked-tomato_salad-v0": 6,
    "Overcooked-easy-v0": 6,
    "VirtualHome-easy-v0": 6,
    "VirtualHome-hard-v0": 6,
    "VirtualHome-food_preparation-v0": 1,
    "TextWorld-easy-v0": 6,
    "DataSciCoding-easy-v0": 2,
    "SWEGym-easy-v0": 2,
}
"""Number of games of each task that the expert plays; the random player plays half of them."""
MOST_TURNS = {"expert": None, "random": 8}
"""Turns of an episode by player; None: until it ends."""
COMPARED = ("observation", "reward", "fault")
OUTCOME = ("success", "reward", "progression", "stop_reason", "num_turns", "metrics", "labels", "first_observation")


@dataclass
class Script:
    """The commands of one episode after another, and the tools that express them."""

    commands: list[list[str]]
    tools: list[Sequence[Tool]]
    number: int = -1
    """position of the present episode"""
    calls: int = 0
    """tool calls that were answered with their result"""
    errors: list[str] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the message with which the server answers a request."""
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        self.number += not turn
        command = self.commands[self.number][turn]
        if "tools" not in body:
            return {"role": "assistant", "content": f"<action>{command}</action>"}
        self._check(body["messages"], turn)
        name, arguments = call_of(self.tools[self.number], command) or ("", {})
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call-{self.number}-{turn}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def _check(self, messages: Sequence[dict[str, Any]], turn: int) -> None:
        """Notes a transcript in which a call is not answered by the next message."""
        if not turn:
            return
        call, result = messages[-2:]
        expected = f"call-{self.number}-{turn - 1}"
        if result.get("tool_call_id") != expected or call["tool_calls"][0]["id"] != expected:
            self.errors.append(f"episode {self.number}, turn {turn}: the call {expected} has no result")
        self.calls += 1


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions with the server's script."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = self.server.script.answer(body)  # type: ignore[attr-defined]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        data = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Comparison:
    """Runs of one task by one player, as text and as tool calls."""

    records: int
    turns: int
    calls: int
    """tool calls whose result was sent back"""
    won: int
    differences: list[str]


def compare(task_id: str, player: str, games: int, out: Path) -> Comparison:
    """Plays games of a task both ways, compares the records, and replays both runs."""
    task = registry.TASKS[task_id]
    limit = MOST_TURNS[player]
    commands, tools = _scripted(RunConfig(task, player, episodes=games), limit)
    script = Script(commands, tools)
    results = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.script = True, script  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        for grammar in ("action", "tools"):
            script.number = -1
            prompting = Prompting(grammar, thinking=False)
            run = RunConfig(task, "openai:script", episodes=games, max_turns=limit, prompting=prompting)
            policy = OpenAIPolicy("script", base_url=f"http://127.0.0.1:{server.server_port}/v1")
            try:
                evaluate(run, out, lambda policy=policy: policy, Execution(max_concurrent=1, num_workers=0))
            finally:
                policy.close()
            results[grammar] = run.folder(out) / "results.jsonl"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    text, native = (read_results(file) for file in results.values())
    differences = [*script.errors, *_differences(text, native)]
    for grammar, file in results.items():
        verdicts = replay.check(file, num_workers=0)
        differences += [f"replay of {grammar}: {verdict.difference}" for verdict in verdicts if verdict.difference]
    turns = sum(record["num_turns"] for record in native)
    return Comparison(len(native), turns, script.calls, sum(record["success"] for record in native), differences)


def _scripted(config: RunConfig, limit: int | None) -> tuple[list[list[str]], list[Sequence[Tool]]]:
    """Plays the games of a player that follows advice; returns commands and tools of each game, in order."""
    policy = make_policy(config.model)
    executor = open_slots(config, Execution(max_concurrent=1, num_workers=0), len(config.seeds), policy.advice_kind)
    try:
        runs = sorted(
            rollout(policy, config.all_episodes(), executor, max_turns=limit), key=lambda run: run.episode.key
        )
    finally:
        executor.close()
    return [[command for turn in run.turns for command in turn.commands] for run in runs], [run.tools for run in runs]


def _differences(text: Sequence[dict[str, Any]], native: Sequence[dict[str, Any]]) -> list[str]:
    """Describes where two lists of records differ, besides in how commands are written."""
    differences = [] if len(text) == len(native) else [f"{len(text)} and {len(native)} records"]
    for record, counterpart in zip(text, native, strict=False):
        where = f"seed {record['seed']}"
        differences += [f"{where}: {name}" for name in OUTCOME if record[name] != counterpart[name]]
        for turn, (step, again) in enumerate(zip(record["steps"], counterpart["steps"], strict=False), 1):
            differences += [f"{where}, turn {turn}: {name}" for name in COMPARED if step[name] != again[name]]
    return differences


def page(rows: Sequence[str], totals: Comparison, servers: str) -> str:
    """Returns the Markdown page of the figures; `servers` is the section of `benchmarks.tool_servers`."""
    return f"""# Text commands against tool calls

Written by `python -m benchmarks.tool_calls`, Python {platform.python_version()}.

A scripted player plays the same games twice through a local chat-completions server: with `--action-grammar action`
and with `--action-grammar tools`. Compared are observations, rewards, faults, success, progression, ends and metrics.
A round trip is a call whose result the next request sends back with the call's id. Both runs are replayed with
`envsuite replay --check`. The random player plays at most {MOST_TURNS["random"]} turns.

| task | player | records | won | calls executed | round trips | differences |
|---|---|--:|--:|--:|--:|--:|
{chr(10).join(rows)}

In total {totals.records:,} records with {totals.turns:,} executed calls and {totals.calls:,} round trips; differences:
{len(totals.differences)}.

{servers}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="Markdown file to write")
    parser.add_argument("--task", action="append", help="only this task; may be repeated")
    args = parser.parse_args()
    _, heading, section = (args.output.read_text() if args.output.exists() else "").partition(HEADING)
    servers = heading + section
    rows: list[str] = []
    totals = Comparison(0, 0, 0, 0, [])
    for task, games in TASKS.items():
        for player in MOST_TURNS if not args.task or task in args.task else ():
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                result = compare(task, player, games if player == "expert" else -(-games // 2), Path(folder))
            totals.differences += result.differences
            totals.records += result.records
            totals.turns += result.turns
            totals.calls += result.calls
            row = f"| {task} | {player} | {result.records} | {result.won} | {result.turns} | {result.calls} "
            rows.append(row + f"| {len(result.differences)} |")
            print(rows[-1], f"{time.monotonic() - began:.1f} s", *result.differences[:3], flush=True)
            args.output.write_text(page(rows, totals, servers))


if __name__ == "__main__":
    main()
