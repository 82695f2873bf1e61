"""The same game in other words: what a model reads is reworded, and what it says is worded back.

A wording swaps pairs of words in everything a model is shown and in every command it gives. Swapping both ways makes it
its own inverse, whatever else a text says: no command becomes unsayable and none changes its meaning. The environment,
the expert and the random player notice nothing. (GLAM's tests of synonym actions and of invented words, Carta et al.,
ICML 2023, section 4.3.)
"""

from __future__ import annotations

import re
from collections.abc import Callable

_SYNONYMS = {
    "take": "grab", "put": "place", "open": "unshut", "close": "shut", "go": "walk", "move": "shift", "use": "employ",
    "turn": "rotate", "pick": "lift", "drop": "release", "toggle": "switch", "look": "gaze", "examine": "inspect",
    "heat": "warm", "cool": "chill", "clean": "scrub", "cook": "prepare", "cut": "slice", "chop": "dice",
    "insert": "stick", "forward": "ahead", "fetch": "retrieve", "see": "notice", "room": "chamber",
}  # fmt: skip
_INVENTED = {
    "take": "dax", "put": "wug", "open": "zup", "close": "blick", "go": "fep", "move": "toma", "use": "kiv", "turn": "lorp",
    "pick": "mib", "drop": "snarf", "toggle": "quell", "look": "plim", "examine": "vost", "heat": "greb", "cool": "nalp",
    "clean": "tarm", "cook": "yorn", "cut": "jund", "chop": "hisp", "insert": "clabe", "forward": "obly",
}  # fmt: skip


def _swap(pairs: dict[str, str]) -> Callable[[str], str]:
    table = pairs | {other: one for one, other in pairs.items()}
    if len(table) != 2 * len(pairs):
        raise ValueError("a wording pairs each word once")
    pattern = re.compile(r"\b(" + "|".join(sorted(table, key=len, reverse=True)) + r")\b", re.IGNORECASE)

    def reword(match: re.Match[str]) -> str:
        word = match.group()
        other = table[word.lower()]
        if word.isupper() and len(word) > 1:
            return other.upper()
        return other.capitalize() if word[0].isupper() else other

    return lambda text: pattern.sub(reword, text)


WORDINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "synonyms": _swap(_SYNONYMS),
    "invented": _swap(_INVENTED),
}
"""name -> a function that rewords a text, and undoes itself"""
