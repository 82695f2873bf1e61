"""Renders the figures of `benchmarks.servers` as the page benchmarks/servers.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import records
from harness.records import Record
from harness.steps import reply_text

Figures = dict[str, Any]
PAIRS = (
    ("undisturbed", "repeated"),
    ("undisturbed", "killed"),
    ("undisturbed", "one-by-one"),
    ("one-by-one", "one-by-one-killed"),
)
"""Steps whose records are compared."""
HEAD = """# Real model servers

`make server-proof` (`python -m benchmarks.servers`): SmolLM2-135M plays {episodes} episodes of {task}
(`benchmarks/server_task.py`) against each server, greedily (turns per episode: at most {max_turns}, tokens per reply:
at most {max_tokens}, threads per server: {threads}). Every run starts the server anew. vLLM and `transformers serve`
hold the weights in float32; llama.cpp holds the original 4-bit file.
"""


def render(output: Path) -> str:
    """Returns the page for all steps that are finished in the folder `output`."""
    servers = [
        {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
        for folder in sorted(output.glob("*/"))
    ]
    servers = [steps for steps in servers if steps]
    if not servers:
        return "no step is finished\n"
    first = next(iter(servers[0].values()))
    sections = (
        ("Speed", "", SPEED, [_speed(figures) for steps in servers for figures in steps.values()]),
        ("Killed and resumed", KILLED_TEXT, KILLED, _kills(servers)),
        ("The same records", SAME_TEXT, SAME, _comparisons(servers)),
        ("Between servers", BETWEEN_TEXT, BETWEEN, _between(servers)),
    )
    parts = [HEAD.format(**first["settings"])]
    parts += [f"## {title}\n\n{text}{_table(head, rows)}" for title, text, head, rows in sections if rows]
    return "\n".join(parts)


SPEED = (
    "server", "run", "at once", "start, s", "requests", "prompt tokens", "cached", "reply tokens", "s", "requests/s",
    "reply tokens/s", "load",
)  # fmt: skip
KILLED = (
    "server", "at once", "episodes before", "broken then", "run ended after, s", "exit code",
    "episodes after --resume", "broken at the end",
)  # fmt: skip
KILLED_TEXT = """SIGKILL to the server and its children after a third of the episodes. The run ends with one line that
names `--resume`. A second call, after a restart of the server, plays what is missing.

"""
SAME = ("server", "records of", "compared with", "equal records", "replies to equal prompts", "of these differ")
SAME_TEXT = """A record is equal if all of its bytes are. From the first different reply on, an episode's prompts
differ too, so the last two columns count the replies up to that point: they measure the server, not the harness.

"""
BETWEEN = ("server", "first replies equal to transformers serve")
BETWEEN_TEXT = """The first prompt of an episode is the same for all servers (one request at a time).

"""


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [" | ".join(head), "|".join(["---"] + ["--:"] * (len(head) - 1))]
    lines += [" | ".join(map(str, row)) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def _speed(figures: Figures) -> Sequence[object]:
    seconds = figures["seconds"]
    rates = [f"{figures[name] / seconds:.1f}" for name in ("requests", "reply_tokens")]
    if figures["killed"]:  # the time includes the server's absence
        rates = ["", ""]
    cached = f"{figures['cached_tokens'] / max(1, figures['prompt_tokens']):.0%}"
    start = f"{figures['start_seconds']:.0f}"
    return [
        f"{figures['server']} ({figures['version']})",
        figures["name"],
        figures["concurrent"],
        start,
        figures["requests"],
        f"{figures['prompt_tokens']:,}",
        cached,
        f"{figures['reply_tokens']:,}",
        f"{seconds:.0f}",
        *rates,
        f"{figures['load']:.1f}",
    ]


def _kills(servers: Sequence[dict[str, Figures]]) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for figures in (figures for steps in servers for figures in steps.values() if figures["killed"]):
        then = figures["interrupted"]
        row = [figures["server"], figures["concurrent"], then["finished"], then["broken"], f"{then['seconds']:.0f}"]
        rows.append([*row, then["code"], figures["episodes"], figures["broken"]])
    return rows


def _comparisons(servers: Sequence[dict[str, Figures]]) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for steps in servers:
        for reference, compared in PAIRS:
            if reference in steps and compared in steps:
                first, second = (records.read_results(Path(steps[name]["results"])) for name in (reference, compared))
                equal = sum(map(_is_equal, first, second))
                replies, differ = same_prompts(first, second)
                server = steps[reference]["server"]
                rows.append([server, compared, reference, f"{equal} of {len(first)}", replies, differ])
    return rows


def _is_equal(first: Record, second: Record) -> bool:
    return records.dump(first) == records.dump(second)


def same_prompts(run: Sequence[Record], rerun: Sequence[Record]) -> tuple[int, int]:
    """Returns the number of replies to equal prompts in two runs of the same episodes, and how many of
    these replies differ.
    """
    replies = differ = 0
    for first, second in zip(run, rerun, strict=True):
        for step, again in zip(first["steps"], second["steps"], strict=False):
            replies += 1
            if reply_text(step) != reply_text(again):
                differ += 1
                break
    return replies, differ


def _between(servers: Sequence[dict[str, Figures]]) -> list[Sequence[object]]:
    single = [steps["one-by-one"] for steps in servers if "one-by-one" in steps]
    replies = {figures["server"]: _first_replies(Path(figures["results"])) for figures in single}
    reference = replies.get("transformers serve")
    if reference is None:
        return []
    rows: list[Sequence[object]] = []
    for name, texts in replies.items():
        if texts is not reference:
            rows.append([name, f"{sum(map(str.__eq__, texts, reference))} of {len(texts)}"])
    return rows


def _first_replies(path: Path) -> list[str]:
    return [reply_text(record["steps"][0]) for record in records.read_results(path)]
