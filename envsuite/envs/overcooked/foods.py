"""Foods that kitchens can have, and how texts list and read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

FOODS = {
    "tomato": "t",
    "lettuce": "l",
    "onion": "o",
    "carrot": "c",
    "cucumber": "u",
    "pepper": "p",
    "mushroom": "m",
    "radish": "r",
}
"""food -> its letter on maps"""


def listing(words: Sequence[str]) -> str:
    """Joins words as in "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def normalise(command: str) -> str:
    """Returns a command in lower case without extra spaces, quotes or a final full stop."""
    return re.sub(r"\s+", " ", command).strip(" .!\"'`").lower()
