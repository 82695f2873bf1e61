"""textworld's files of rules and of words, read once in a process, and the words without its general parser.

Four fifths of what a process spent before its first game: every challenge brings copies of the same files, and the words'
own parser takes a second for 64 kB.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textworld.textgen import Alternative, TextGrammar

KEPT = 128
"""documents whose rules are remembered, the latest used; textworld itself remembers as many"""

# A grammar is lines `symbol: alternative; alternative`; an alternative is words, `adjective | noun`, or two of these
# around `<->`, or nothing. Words end before `; | < >` and the line's end, but hold anything in brackets.
_SKIPPED = re.compile(r"(?:[\t ]+|(?m:^)(?:#.*|\s*)\n)*")
_SYMBOL = re.compile(r"[\w()/!<>-]+")
_WORDS = re.compile(r"(?:[^;|<>\n\[\]()]|\[[^\[\]]*\]|\([^()]*\))+(?<!\s)")


def read_rules_once() -> None:
    """Lets files of the same contents, and the copy of them that every game holds, share what was read."""
    from textworld.generator.data import KB
    from textworld.logic import GameLogic

    load, parse = GameLogic.load.__func__, GameLogic.parse.__func__
    known: dict[str, Any] = {KB.logic.serialize(): KB.logic}  # read when textworld was imported

    def load_once(cls: type, paths: list[str]) -> Any:
        document = "".join(Path(path).read_text() + "\n" for path in paths)
        if document not in known:
            known[document] = load(cls, paths)
        return known[document]

    def parse_once(cls: type, document: str) -> Any:
        if document not in known:
            return parse(cls, document)
        read = copy.copy(known[document])
        read._document = document + "\n"  # as textworld has it: the one thing in which the two differ
        return read

    remembered: Any = functools.lru_cache(KEPT)(parse_once)
    GameLogic.load = classmethod(load_once)
    GameLogic.parse = classmethod(remembered)


def read_words_fast() -> None:
    """Lets grammars be read by `read_words`, and by textworld's own parser what that one does not understand."""
    from textworld.textgen import TextGrammar

    parse = TextGrammar.parse.__func__

    def parse_once(cls: type, grammar: str, filename: str | None = None) -> Any:
        return read_words(grammar) or parse(cls, grammar, filename)

    remembered: Any = functools.lru_cache(KEPT)(parse_once)
    TextGrammar.parse = classmethod(remembered)


def read_words(text: str) -> TextGrammar | None:
    """The grammar in `text`; None where it is not one, which textworld's parser then says better."""
    from textworld.textgen import ProductionRule, TextGrammar

    rules = []
    place = _skip(text, 0)
    while place < len(text):
        symbol = _SYMBOL.match(text, place)
        if symbol is None:
            return None
        place = _skip(text, symbol.end())
        separator, found = ":", []
        while text.startswith(separator, place):
            alternative, place = _alternative(text, _skip(text, place + 1))
            found += [alternative] if alternative else []
            separator = ";"
        if separator == ":" or (place < len(text) and text[place] != "\n"):
            return None
        rules.append(ProductionRule(symbol[0], found))
        place = _skip(text, place + 1)
    return TextGrammar(rules)


def _alternative(text: str, place: int) -> tuple[Alternative | None, int]:
    """What stands at `place` (None: nothing), and the place after it and the blanks that follow."""
    from textworld.textgen import MatchAlternative

    left, place = _entity(text, place)
    if left is not None and text.startswith("<->", place):
        right, after = _entity(text, _skip(text, place + 3))
        if right is not None:
            return MatchAlternative(left, right), after
    return left, place


def _entity(text: str, place: int) -> tuple[Alternative | None, int]:
    from textworld.textgen import AdjectiveNounAlternative, LiteralAlternative

    first = _WORDS.match(text, place)
    if first is None:
        return None, place
    place = _skip(text, first.end())
    if text.startswith("|", place) and (noun := _WORDS.match(text, _skip(text, place + 1))):
        return AdjectiveNounAlternative(_spelled(first[0]), _spelled(noun[0])), _skip(text, noun.end())
    return LiteralAlternative(_spelled(first[0])), place


def _skip(text: str, place: int) -> int:
    """The place after blanks, comments and empty lines."""
    found = _SKIPPED.match(text, place)
    assert found is not None
    return found.end()


def _spelled(words: str) -> str:
    return words.replace("\\n", "\n")
