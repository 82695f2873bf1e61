"""Verdicts on the cells of a table: does our number agree with the published one?

`judge` compares all cells of a table together. Holm's method adjusts both families of tests over the table, so at
most one table in twenty holds a false 'differs', and at most one in twenty a false 'agrees'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from harness.stats.compare import holm
from harness.stats.estimates import (
    Comparison,
    Estimate,
    GamesNeeded,
    compare,
    fewest_games_that_differ,
    games_needed,
)

AGREES, DIFFERS, CANNOT_TELL, NOT_COMPARABLE = "agrees", "differs", "cannot tell", "not comparable"
NOT_RUN = "not run"
REPRODUCED = "reproduced"
"""agrees, and the model read the published prompt"""
LEVEL = 0.05
"""chance of a false word of either kind in a whole table"""
MARGIN = 0.1
"""difference up to which two scores in [0, 1] count as equal, unless the table states another"""

Key = TypeVar("Key", bound=Hashable)


class Pair(NamedTuple):
    """Our estimate and the published one, and the reason why they cannot be compared, or ''."""

    ours: Estimate | None
    published: Estimate | None
    value: float
    """the published number"""
    obstacle: str = ""
    seeds: int = 1
    """our training seeds"""
    published_prompt: bool = False


class CellVerdict(NamedTuple):
    """The word on a cell, the reason for it, and the difference (ours minus published) where there is one."""

    word: str
    reason: str = ""
    difference: Comparison | None = None
    p_differs: float | None = None
    """adjusted by Holm over the table"""
    p_agrees: float | None = None
    """adjusted by Holm over the table"""
    needed: GamesNeeded | None = None

    def in_words(self) -> str:
        """Returns the difference with its 95 % interval, the word, and the reason in brackets."""
        parts = []
        if self.difference:
            value, low, high = self.difference[:3]
            parts.append(f"{value:+.3f} [{low:+.3f}, {high:+.3f}]")
        parts += [self.word, f"({self.reason})" if self.reason else ""]
        return " ".join(part for part in parts if part)


def judge(pairs: Mapping[Key, Pair], margin: float = MARGIN) -> dict[Key, CellVerdict]:
    """Returns a verdict for each cell of a table.

    'agrees': two one-sided tests show that the difference is smaller than `margin`; 'reproduced': it also was measured
    with the published prompt. 'differs': the difference is not 0,
    and the cell does not agree. 'not comparable': the cell has an obstacle. 'cannot tell': anything else.
    """
    compared = {
        key: compare(pair.ours, pair.published, margin)
        for key, pair in pairs.items()
        if not pair.obstacle and pair.ours and pair.published
    }
    differs = dict(zip(compared, holm([each.p_differs for each in compared.values()]), strict=True))
    agrees = dict(zip(compared, holm([each.p_agrees for each in compared.values()]), strict=True))
    level = LEVEL / max(1, len(compared))
    verdicts = {}
    for key, pair in pairs.items():
        if pair.obstacle:
            verdicts[key] = CellVerdict(NOT_COMPARABLE, pair.obstacle)
        elif key not in compared:
            verdicts[key] = CellVerdict(CANNOT_TELL, _without_likelihood(pair, level))
        else:
            ps = differs[key], agrees[key]
            word = AGREES if ps[1] <= LEVEL else DIFFERS if ps[0] <= LEVEL else CANNOT_TELL
            needed = None
            reason = ""
            if word == CANNOT_TELL and pair.ours and pair.published:
                seeds = pair.seeds > 1
                published = dataclasses.replace(pair.published, games=None) if seeds else pair.published
                needed = games_needed(pair.ours, published, margin, level)
                reason = _needs(needed, "seeds" if seeds else "")
            if word == AGREES and pair.published_prompt:
                word = REPRODUCED
            verdicts[key] = CellVerdict(word, reason, compared[key], *ps, needed)
    return verdicts


def _needs(needed: GamesNeeded | None, unit: str) -> str:
    if needed is None:
        return "no n of ours is enough: the printed error is too large"
    return " ".join(part for part in (f"needs n = {needed.games:,}", unit, "on both sides" * needed.both) if part)


def _without_likelihood(pair: Pair, level: float) -> str:
    """Returns what a comparison lacks, and the printed n from which on the numbers would differ."""
    if pair.ours is None or not 0 <= pair.value <= 1:
        return "a score outside [0, 1] has no likelihood here"
    reason = "the source gives neither n nor a spread"
    if games := fewest_games_that_differ(pair.ours, pair.value, level):
        reason += f"; differs if its n was {games:,} or more"
    return reason
