"""Plays by native tool calls against real model servers, and counts calls, results and faults.

    python -m benchmarks.tool_servers [vllm llamacpp] [--markdown benchmarks/tool_calls.md]

SmolLM2-135M writes no tool call by itself. Requests therefore have `tool_choice: required` and strict tools, so
that the server only samples tokens that make a call. The server returns `tool_calls`, and everything after that is as
with any model: calls are executed, results go back with the role `tool` and the call's id, and records keep the calls.
The bundled model's chat template has no tools, and another one replaces it. For vLLM it writes calls as Hermes does.
llama.cpp lets a model write text before a call in that format, which SmolLM2 never ends; with named_tools.jinja
a reply begins with the name of a tool.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from benchmarks.server_recipes import RECIPES
from envsuite import registry
from envsuite.errors import EnvsuiteError
from harness.evaluate import Execution, RunConfig, Sampling, evaluate
from harness.policies.chat_completions import body_of
from harness.policies.managed import ManagedPolicy
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.provenance import replay
from harness.records import read_results
from harness.types import Message, Prompt, Reply

MODEL = "smollm2-135m"
FOLDER = Path(__file__).parent
ARGS = {
    "vllm": f"--enforce-eager --chat-template {FOLDER / 'hermes_tools.jinja'}",
    "llamacpp": f"--jinja --chat-template-file {FOLDER / 'named_tools.jinja'}",
}
"""Further words of each server's command line."""
TASKS = {"BabyAI-easy-v0": (4, 5), "ALFWorld-generated-easy-v0": (2, 4), "SWEGym-easy-v0": (2, 4)}
"""Games of each task, and the most turns of a game. The tools of the last two take arguments."""
MAX_TOKENS = 64
HEADING = "## Real servers"


@dataclass
class Exchanges:
    """Requests and answers as they were sent: the messages of each request, and the message of its answer."""

    pairs: list[tuple[list[Message], Message]] = field(default_factory=list)

    def calls(self) -> Counter[tuple[str, str, str]]:
        """Returns id, name and arguments of each call that the server returned."""
        calls = [call for _, answer in self.pairs for call in answer.get("tool_calls") or ()]
        return Counter((call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls)

    def results(self) -> set[str]:
        """Returns the ids of calls whose result a request sends directly after the call."""
        return {
            message["tool_call_id"]
            for messages, _ in self.pairs
            for before, message in pairwise(messages)
            if message["role"] == "tool"
            and message["tool_call_id"] in [call["id"] for call in before.get("tool_calls") or ()]
        }

    def longest(self) -> int:
        """Returns the most results in one request."""
        return max((sum(message["role"] == "tool" for message in messages) for messages, _ in self.pairs), default=0)


class _Observed(OpenAIPolicy):
    """A policy that keeps its exchanges, and asks for strict tools."""

    exchanges: Exchanges

    def _body(self, prompt: Prompt, content: Any) -> dict[str, Any]:
        body = super()._body(prompt, content)
        functions = [{**tool["function"], "strict": True} for tool in body.get("tools", ())]
        return {**body, "tools": [{"type": "function", "function": function} for function in functions]}

    def _read(self, server: str, answer: httpx.Response, prompt: Prompt, content: Any) -> Reply | None:
        reply = super()._read(server, answer, prompt, content)
        if reply is not None:
            self.exchanges.pairs.append((list(content), body_of(answer)["choices"][0]["message"]))
        return reply


class _Managed(_Observed, ManagedPolicy):
    """An observed policy on a server that this process starts."""


def play(kind: str, task_id: str, size: tuple[int, int], base_url: str, served_name: str, out: Path) -> str:
    """Plays games of a task on a server, at most so many turns each, and returns the row of the table."""
    games, turns = size
    options: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": 1.0, "thinking": False}
    options["extra_body"] = '{"tool_choice": "required"}'
    if base_url:
        policy: _Observed = _Observed(MODEL, base_url=base_url, served_model_name=served_name, **options)
    else:
        options |= {"server_context": 4096, "max_concurrent": 2, "server_args": ARGS[kind]}
        policy = _Managed(kind, MODEL, _say, **options)
    policy.exchanges = exchanges = Exchanges()
    run = RunConfig(
        registry.TASKS[task_id],
        f"{kind}:{MODEL}",
        episodes=games,
        max_turns=turns,
        prompting=Prompting("tools", thinking=False),
        sampling=Sampling(max_tokens=MAX_TOKENS, temperature=1.0),
    )
    began = time.monotonic()
    try:
        evaluate(run, out, lambda: policy, Execution(max_concurrent=2, num_workers=0))
    finally:
        policy.close()
    seconds = time.monotonic() - began
    file = run.folder(out) / "results.jsonl"
    records = read_results(file)
    steps = [step for record in records for step in record["steps"]]
    recorded = Counter(
        (call["id"], call["name"], call["arguments"]) for step in steps for call in step.get("calls", ())
    )
    called = exchanges.calls()
    faults = Counter(step["fault"] for step in steps)
    different = (called - recorded).total() + (recorded - called).total()
    different += sum(bool(verdict.difference) for verdict in replay.check(file, num_workers=0))
    broken = sum(record["stop_reason"] == "broken" for record in records)
    figures = [
        len(exchanges.pairs),
        called.total(),
        sum(bool(step["commands"]) for step in steps),
        faults["format"],
        faults["invalid"],
        len(exchanges.results() & {identity for identity, _, _ in called}),
        exchanges.longest(),
        different,
        broken,
    ]
    cells = " | ".join(map(str, figures))
    return f"| {kind} | {task_id} | {len(records)} | {cells} | {seconds:.0f} | {os.getloadavg()[0]:.1f} |"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def section(rows: Sequence[str]) -> str:
    """Returns the section of the page."""
    return f"""{HEADING}

`python -m benchmarks.tool_servers`, of `make server-proof`, on {os.cpu_count()} cores without a GPU. SmolLM2-135M
plays with `--action-grammar tools`, `tool_choice: required`, strict tools, temperature 1 and at most {MAX_TOKENS}
tokens a reply. A round trip is a call of the server whose result a later request sends directly after it, with its id.
Unreadable calls name no tool or have wrong arguments; the environment refuses others, such as a walk into a wall. A
difference is a call that is not in the records as the server sent it, or a record that `envsuite replay --check` plays
otherwise.

| server | task | games | replies | calls | executed | unreadable | refused | round trips | most in a request | \
differences | broken | s | load |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(rows)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(ARGS), help="default: all")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="only this task; may be repeated")
    parser.add_argument("--size", type=int, nargs=2, metavar=("GAMES", "TURNS"), help="instead of each task's own")
    parser.add_argument("--base-url", default="", help="a server of that kind that runs already, with the same flags")
    parser.add_argument("--served-model-name", default=MODEL, help="the model's name on that server")
    parser.add_argument("--markdown", type=Path, help="write the section of this page")
    args = parser.parse_args()
    rows = []
    for kind in args.kinds:
        try:
            if not args.base_url:
                RECIPES[kind](_say)
            for task_id in args.task or TASKS:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(
                        play(
                            kind,
                            task_id,
                            tuple(args.size or TASKS[task_id]),
                            args.base_url,
                            args.served_model_name,
                            Path(folder),
                        )
                    )
                print(rows[-1], flush=True)
        except EnvsuiteError as error:
            print(f"{kind}: {error}", file=sys.stderr)
            return 1
    if args.markdown:
        before = args.markdown.read_text().partition(HEADING)[0].rstrip()
        args.markdown.write_text(f"{before}\n\n{section(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
