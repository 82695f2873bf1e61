"""Hash chains: bind each reply of an episode to its prompt, to the model's weights and to the turn before.

Each step of a model's record has `prompt_hash`, the hash of the prompt, and `link`, the hash of the
link before it, the prompt's hash and the reply. The first link follows the hash of the episode's key,
the model's name and the weights. `envsuite replay --check` builds the prompts again and compares.

A chain belongs to one episode and not to the journal, whose lines are in the order in which episodes
end: it does not depend on timing, workers or interruptions. `results_hash` in summary.json covers the
ordered records of all episodes. The hashes have no key, so they do not stop a forger who computes them
anew. They show damage and careless edits, and a hash that was published earlier pins every reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from harness.policies import is_model, member
from harness.prompting.prompting import Prompting
from harness.records import Record, key_of
from harness.rollout.loop import next_prompt
from harness.steps import reply_calls, reply_text
from harness.types import HashChain, Prompt, ToolCall, Trajectory

DIGITS = 32
"""Hexadecimal digits of a hash, 128 bits."""


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


def _hash(value: Any) -> str:
    """Hashes a JSON value in its canonical form."""
    return hashlib.sha256(_encode(value).encode()).hexdigest()[:DIGITS]


def prompts(run: Trajectory, prompting: Prompting) -> Iterator[Prompt]:
    """Builds the prompts of a played or replayed episode again, one per turn."""
    key = "\0".join(map(str, run.episode.key))
    for index, turn in enumerate(run.turns):
        yield next_prompt(run, run.turns[:index], turn.observation, turn.admissible, prompting, key, turn.agent)


def prompt_hashes(run: Trajectory, prompting: Prompting) -> list[str]:
    """Returns the hash of each turn's messages and tools."""
    return [_hash([" ".join(map(_hash, prompt.messages)), list(prompt.tools)]) for prompt in prompts(run, prompting)]


def chain(run: Trajectory, prompting: Prompting, model: str, weights: str) -> HashChain:
    """Returns the hash chain of an episode that a model played."""
    hashes = prompt_hashes(run, prompting)
    replies = [_content(turn.reply.text, turn.reply.calls) for turn in run.turns]
    return HashChain(weights, hashes, _links(run.episode.key, model, weights, hashes, replies))


def _content(text: str, calls: Sequence[ToolCall]) -> Any:
    """Returns a reply as it is hashed: its text, with its tool calls if it has any."""
    return [text, *map(list, calls)] if calls else text


def _links(key: tuple[Any, ...], model: str, weights: str, hashes: list[str], replies: list[Any]) -> list[str]:
    link = _hash(["envsuite-chain-1", *key, model, weights])
    links = []
    for prompt, reply in zip(hashes, replies, strict=True):
        link = _hash([link, prompt, reply])
        links.append(link)
    return links


def has_chain(record: Record) -> bool:
    """Returns True if a record has a hash chain."""
    return "weights" in record


def broken_link(record: Record) -> str:
    """Describes the first link of a record that does not follow from its text; '' if all do."""
    steps = record["steps"]
    hashes, links = ([str(step.get(name)) for step in steps] for name in ("prompt_hash", "link"))
    replies = [_content(reply_text(step), reply_calls(step)) for step in steps]
    expected = _links(key_of(record), record["model"], str(record["weights"]), hashes, replies)
    for turn, (link, again) in enumerate(zip(links, expected, strict=True), 1):
        if link != again:
            return f"turn {turn}: the hash chain breaks: a reply, a prompt's hash, the weights or the key was changed"
    return ""


def restore_notes(run: Trajectory, prompting: Prompting, parses: bool, model: str) -> None:
    """Adds to a replayed episode the notes about replies without a command, which next prompts show.

    A replay does not parse replies. `parses` is False if the player, `model`, did not either; a team's members
    without a model never do.
    """
    for number, turn in enumerate(run.turns if parses else ()):
        if is_model(member(model, turn.agent)):
            turn.note = prompting.parse(turn.reply.text, turn.reply.calls, run.tools, number).note


def replayed_prompts(run: Trajectory, prompting: Prompting, parses: bool, model: str) -> list[Prompt]:
    """Returns the prompts of a replayed episode as its player, `model`, saw them."""
    restore_notes(run, prompting, parses, model)
    return list(prompts(run, prompting))


def wrong_prompt(record: Record, run: Trajectory, prompting: Prompting, parses: bool) -> str:
    """Describes the first prompt of a replayed episode with another hash than the record's; '' if there
    is none. `parses` is explained at `restore_notes`.
    """
    restore_notes(run, prompting, parses, record["model"])
    stored = [step.get("prompt_hash") for step in record["steps"]]
    for turn, (before, again) in enumerate(zip(stored, prompt_hashes(run, prompting), strict=False), 1):
        if before != again:
            return f"turn {turn}: the prompt has another hash than in the record"
    return ""
