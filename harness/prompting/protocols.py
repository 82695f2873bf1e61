"""Protocols: the prompt, parser and settings of a published set-up, as data.

Each file in `published/` is a protocol: a table of flags of `envsuite-eval` that it fixes, the
structure of its conversation, its parser, where its words come from, and a neutral wording of ours
that takes their place while the published words are not on this machine (`harness.prompting.words`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from envsuite.errors import DataError, UsageError, did_you_mean
from harness.prompting import words as published
from harness.prompting.grammars import Parsed
from harness.prompting.layouts import Conversation, EpisodeView
from harness.prompting.reply_parsers import PARSERS
from harness.prompting.words import SourceFiles, Words
from harness.types import Message

NEUTRAL = "neutral"
"""value of `Prompting.words` for our own wording; the published words have the first digits of their SHA-256"""


@dataclass(frozen=True)
class Protocol:
    """A published set-up; see the module's docstring."""

    name: str
    summary: str
    source: str
    families: tuple[str, ...]
    flags: Mapping[str, Any]
    conversation: Conversation
    parser: str
    commands: tuple[str, ...]
    """commands that the parser accepts; empty: any"""
    default: str
    """command that is played for a reply that is not understood"""
    stop: tuple[str, ...]
    """strings that end a reply"""
    lead: str
    """text between the prompt and a command that is chosen by its likelihood"""
    neutral: Words
    source_files: SourceFiles | None
    """where the published words are; None if the prompt has no words"""

    @property
    def published_id(self) -> str:
        """Value of `Prompting.words` for the published words."""
        return self.source_files.sha256[:12] if self.source_files else NEUTRAL

    def fetch(self, local: Path | None = None) -> Path:
        """Stores the published words in the cache and returns their file. Raises DataError, UsageError."""
        if self.source_files is None:
            raise UsageError(f"The protocol {self.name} has no words to get.")
        return published.fetch(self.name, self.source_files, local)

    def available(self) -> str:
        """Returns the value of `Prompting.words` for the best words on this machine."""
        files = self.source_files
        return NEUTRAL if files is None or published.stored(self.name, files.sha256) is None else self.published_id

    def messages(self, words: str, history: int, view: EpisodeView) -> list[Message]:
        """Returns the conversation that asks for the next command. Raises DataError if the words are missing."""
        texts = self.neutral if words == NEUTRAL or self.source_files is None else _published(self.name)
        return self.conversation.messages(texts, history, view)

    def knobs(self, family: str) -> dict[str, str]:
        """Returns the settings of a family's tasks that this protocol fixes, by name."""
        settings = self.flags.get("set", [])
        words = settings.get(family, []) if isinstance(settings, dict) else settings
        return dict(word.split("=", 1) for word in words)

    def parse(self, text: str) -> Parsed:
        """Returns the command that the protocol plays for a reply, which may be a substitute."""
        return PARSERS[self.parser](text, self.commands, self.default)


@cache
def _published(name: str) -> Words:
    """Returns the published words of a protocol, which are read once. Raises DataError if they are missing."""
    files = load(name).source_files
    words = published.stored(name, files.sha256) if files else None
    if words is None:
        raise DataError(
            f"The words of the protocol {name} are not on this machine: run `envsuite data get prompts/{name}`."
        )
    return words


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all protocols."""
    folder = resources.files("harness.prompting").joinpath("published")
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


@cache
def load(name: str) -> Protocol:
    """Returns a protocol by name. Raises UsageError."""
    if name not in names():
        raise UsageError(f"Unknown protocol {name!r}: {', '.join(names())}.{did_you_mean(name, names())}")
    folder = resources.files("harness.prompting").joinpath("published")
    table = tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
    form: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table["conversation"].items()
    }
    reply = table["reply"]
    return Protocol(
        name=name,
        summary=table["summary"],
        source=table["source"],
        families=tuple(table["families"]),
        flags=table["flags"],
        conversation=Conversation(**form),
        parser=reply["parser"],
        commands=tuple(reply.get("commands", ())),
        default=reply.get("default", ""),
        stop=tuple(reply.get("stop", ())),
        lead=reply.get("lead", ""),
        neutral=table.get("neutral", {}),
        source_files=SourceFiles(**table["words"]) if "words" in table else None,
    )
