"""Faster parsers for textworld's files of rules and words.

Parsing took four fifths of the time before the first game of a process: every challenge brings
copies of the same files, and the general parser needs a second for 64 kB of words.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textworld.textgen import Alternative, TextGrammar

CACHE_SIZE = 128
"""Number of parsed documents that are cached; textworld uses the same number."""

# A grammar consists of lines `symbol: alternative; alternative`. An alternative is empty, words, `adjective | noun`, or
# two of these around `<->`. Words end before `; | < >` and at the end of a line, but brackets may contain anything.
_SKIPPED = re.compile(r"(?:[\t ]+|(?m:^)(?:#.*|\s*)\n)*")
_SYMBOL = re.compile(r"[\w()/!<>-]+")
_WORDS = re.compile(r"(?:[^;|<>\n\[\]()]|\[[^\[\]]*\]|\([^()]*\))+(?<!\s)")


def read_rules_once() -> None:
    """Shares parsed rules between files with equal contents, and with the copy in every game."""
    from textworld.generator.data import KB
    from textworld.logic import GameLogic

    load, parse = GameLogic.load.__func__, GameLogic.parse.__func__
    known: dict[str, Any] = {KB.logic.serialize(): KB.logic}  # parsed when textworld was imported

    def load_once(cls: type, paths: list[str]) -> Any:
        document = "".join(Path(path).read_text() + "\n" for path in paths)
        if document not in known:
            known[document] = load(cls, paths)
        return known[document]

    def parse_once(cls: type, document: str) -> Any:
        if document not in known:
            return parse(cls, document)
        read = copy.copy(known[document])
        read._document = document + "\n"  # as textworld does; the only difference
        return read

    remembered: Any = functools.lru_cache(CACHE_SIZE)(parse_once)
    GameLogic.load = classmethod(load_once)
    GameLogic.parse = classmethod(remembered)


def read_words_fast() -> None:
    """Replaces the grammar parser by `read_words`, with textworld's parser as the fallback."""
    from textworld.textgen import TextGrammar

    parse = TextGrammar.parse.__func__

    def parse_once(cls: type, grammar: str, filename: str | None = None) -> Any:
        return read_words(grammar) or parse(cls, grammar, filename)

    remembered: Any = functools.lru_cache(CACHE_SIZE)(parse_once)
    TextGrammar.parse = classmethod(remembered)


def read_words(text: str) -> TextGrammar | None:
    """Parses a grammar; returns None for invalid ones, for which textworld reports the error."""
    from textworld.textgen import ProductionRule, TextGrammar

    rules = []
    position = _skip(text, 0)
    while position < len(text):
        symbol = _SYMBOL.match(text, position)
        if symbol is None:
            return None
        position = _skip(text, symbol.end())
        separator, alternatives = ":", []
        while text.startswith(separator, position):
            alternative, position = _alternative(text, _skip(text, position + 1))
            alternatives += [alternative] if alternative else []
            separator = ";"
        if separator == ":" or (position < len(text) and text[position] != "\n"):
            return None
        rules.append(ProductionRule(symbol[0], alternatives))
        position = _skip(text, position + 1)
    return TextGrammar(rules)


def _alternative(text: str, position: int) -> tuple[Alternative | None, int]:
    """Parses an alternative (None: empty); returns it with the position after it and its blanks."""
    from textworld.textgen import MatchAlternative

    left, position = _entity(text, position)
    if left is not None and text.startswith("<->", position):
        right, after = _entity(text, _skip(text, position + 3))
        if right is not None:
            return MatchAlternative(left, right), after
    return left, position


def _entity(text: str, position: int) -> tuple[Alternative | None, int]:
    from textworld.textgen import AdjectiveNounAlternative, LiteralAlternative

    first = _WORDS.match(text, position)
    if first is None:
        return None, position
    position = _skip(text, first.end())
    if text.startswith("|", position) and (noun := _WORDS.match(text, _skip(text, position + 1))):
        return AdjectiveNounAlternative(_unescape(first[0]), _unescape(noun[0])), _skip(text, noun.end())
    return LiteralAlternative(_unescape(first[0])), position


def _skip(text: str, position: int) -> int:
    """Returns the position after blanks, comments and empty lines."""
    match = _SKIPPED.match(text, position)
    assert match is not None
    return match.end()


def _unescape(words: str) -> str:
    return words.replace("\\n", "\n")
