"""What an ALFWorld engine answers."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """One turn as an engine tells it: the sentence, every command that would now have an effect, and the goal."""

    feedback: str
    admissible: list[str]
    won: bool
