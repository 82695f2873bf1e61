"""The texts of a game as Inform prints them: descriptions with conditions, and lists of things."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

PIECES = re.compile(r"\[([^\]]*)\]")
CONDITION = re.compile(r"(?:the )?(\w+) (is open|is closed|is locked|contains nothing)")
SOMETHING = re.compile(r"there is (something|nothing) (?:in|on) the (\w+)")
CONTENTS = re.compile(r"(a )?list of things (?:in|on) the (\w+)", re.IGNORECASE)
IS_ARE_CONTENTS = re.compile(r"is-are a list of things (?:in|on) the (\w+)")

SHIFT = "_"
"""Stands for the code that comes before characters other than letters in a dictionary."""
QUOTE = re.compile(r"(?!\A's )(?:(?<![A-Za-z0-9])'|'(?![A-Za-z0-9]))")
QUOTE_AT_BRACKET = re.compile(r"\]'|'\[")

Test = Callable[[Any], bool]
Part = Callable[[Any], str]


class NotCovered(Exception):
    """Raised for a game or text that only the interpreter can play exactly."""


def dictionary_word(word: str) -> str:
    """Returns what Inform's dictionary keeps of a word: nine letters, of which other characters take two."""
    return "".join(char if char.isalpha() else f"{SHIFT}{char}" for char in word)[:9]


def with_article(name: str) -> str:
    """Returns a name after its indefinite article, which Inform chooses by the first letter."""
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def in_sentence(names: Sequence[str]) -> str:
    """Joins names by commas and 'and'; returns 'nothing' without names."""
    if not names:
        return "nothing"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def plain(text: str) -> str:
    """Returns a text without the blanks that Inform drops at the ends of lines of its source."""
    if set(text) & set("\\{}~^@\t") or not text.isascii():
        raise NotCovered(f"text {text[:60]!r}")
    return re.sub(r" *\n *", "\n", text)


def quoted(text: str) -> str:
    """Returns a text with single quotes as Inform prints them: double, except within words and in a leading `'s `."""
    if '"' in text or QUOTE_AT_BRACKET.search(text):
        raise NotCovered(f"text {text[:60]!r}")
    return QUOTE.sub('"', text)


def quoted_in_parts(text: str, size: int) -> str:
    """Returns a text that TextWorld hands to Inform in parts of `size` characters."""
    return "".join(quoted(text[start : start + size]) for start in range(0, len(text), size))


def parse_text(text: str, subject: str) -> list[str | Part]:
    """Returns a description as strings and functions of the game. Raises NotCovered."""
    tokens = PIECES.split(quoted(text))
    position = 0

    def block(stops: tuple[str, ...]) -> list[str | Part]:
        nonlocal position
        parts: list[str | Part] = []
        while position < len(tokens):
            token = tokens[position]
            if position % 2 == 0:
                if token:
                    parts.append(plain(token))
                position += 1
                continue
            if token.startswith(stops):
                return parts
            position += 1
            if token.lower().startswith("if "):
                parts.append(branches(token))
            else:
                parts.append(listing(token))
        return parts

    def branches(token: str) -> Part:
        nonlocal position
        cases: list[tuple[Test | None, list[str | Part]]] = []
        condition: Test | None = parse_condition(token[3:], subject)
        while True:
            cases.append((condition, block(("else if ", "otherwise", "end if"))))
            if position >= len(tokens):
                raise NotCovered("a condition without an end")
            token = tokens[position]
            position += 1
            if token == "end if":
                break
            condition = None if token == "otherwise" else parse_condition(token[len("else if ") :], subject)

        def choose(game: Any) -> str:
            for test, parts in cases:
                if test is None or test(game):
                    return render(parts, game)
            return ""

        return choose

    def listing(token: str) -> Part:
        if found := IS_ARE_CONTENTS.fullmatch(token):
            key = found[1]

            def is_are(game: Any) -> str:
                verb = "is" if len(game.contents[key]) == 1 else "are"
                return f"{verb} {game.listed(key)}"

            return is_are
        found = CONTENTS.fullmatch(token)
        if found is None or not found[1]:
            raise NotCovered(f"substitution [{token}]")
        key = found[2]
        return lambda game: game.listed(key)

    parts = block(())
    return parts


def parse_condition(text: str, subject: str) -> Test:
    """Returns a test of the game. Raises NotCovered."""
    tests: list[Test] = []
    for clause in text.split(" and "):
        if clause in ("open", "closed", "locked"):
            clause = f"{subject} is {clause}"
        if found := SOMETHING.fullmatch(clause):
            tests.append(_has_something(found[2], found[1] == "something"))
        elif found := CONDITION.fullmatch(clause):
            tests.append(_property(found[1], found[2]))
        else:
            raise NotCovered(f"condition [{text}]")
    return lambda game: all(test(game) for test in tests)


def _has_something(key: str, wanted: bool) -> Test:
    return lambda game: bool(game.contents[key]) == wanted


def _property(key: str, name: str) -> Test:
    if name == "contains nothing":
        return lambda game: not game.contents[key]
    if name == "is closed":  # to Inform, what is locked is closed too
        return lambda game: game.status[key] != "open"
    status = name.removeprefix("is ")
    return lambda game: game.status[key] == status


def render(parts: list[str | Part], game: Any) -> str:
    """Returns the text of parsed parts in the game's present state."""
    return "".join(part if isinstance(part, str) else part(game) for part in parts)
