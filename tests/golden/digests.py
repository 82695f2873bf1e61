"""Digests of recorded games: short enough to commit, and enough to notice any difference.

A reference environment was recorded with its actions and all that it answered. What is committed of a record is the
actions and four hexadecimal digits for each answer, and of an episode sixteen more. `make_traces.py` computes them
from the records, and the tests from what our environments answer.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
LETTERS = string.digits + string.ascii_lowercase
"""an action is written as one of these characters"""
STEP = 4


def plain(value: Any) -> Any:
    """A value as JSON has it, with numbers as floats of nine decimals, so that equal values have one spelling."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    return round(float(value), 9) + 0.0


def digest(value: Any) -> str:
    """64 hexadecimal digits for a value of dicts, lists, texts and numbers."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


class Episode(NamedTuple):
    """The actions of an episode, by number, and the digests of its reset and of each step."""

    actions: list[int]
    digests: list[str]
    whole: str

    def agrees(self, answers: Sequence[Any]) -> None:
        """Raises AssertionError at the first answer that has another digest."""
        found = [digest(answer) for answer in answers]
        for step, (ours, recorded) in enumerate(zip(found, self.digests, strict=True)):
            assert ours[:STEP] == recorded, f"step {step}: {answers[step]}"
        assert digest(found)[:16] == self.whole


def spelled(actions: Sequence[int], answers: Sequence[Any]) -> str:
    """One line of a file of episodes."""
    found = [digest(answer) for answer in answers]
    codes = "".join(code[:STEP] for code in found)
    return f"{''.join(LETTERS[action] for action in actions) or '-'} {codes} {digest(found)[:16]}"


def episodes(name: str) -> Iterator[Episode]:
    """The episodes of a committed file, such as `overcooked/v4_tomato_salad_uniform`."""
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        actions, codes, whole = line.split()
        steps = [codes[i : i + STEP] for i in range(0, len(codes), STEP)]
        yield Episode([LETTERS.index(letter) for letter in actions.strip("-")], steps, whole)


def states(name: str) -> list[str]:
    """The digests of all states of a committed graph, in alphabetical order."""
    return (FOLDER / f"{name}.txt").read_text().split()


def graph(views: Sequence[Any], edges: Sequence[Sequence[tuple[int, Any]]]) -> list[str]:
    """Returns the digests of the states of a graph: of each state, and of everything within four steps of it.

    An edge is the number of the next state and what was answered. The digests are in alphabetical order, each once, so
    that two graphs are equal however their states are numbered and however often one is listed.
    """
    codes = [digest(view) for view in views]
    answers = [[digest(answer) for _, answer in row] for row in edges]
    for _ in range(4):
        later = [[codes[to] for to, _ in row] for row in edges]
        codes = [digest([codes[i], later[i], answers[i]]) for i in range(len(codes))]
    return sorted({code[:16] for code in codes})
