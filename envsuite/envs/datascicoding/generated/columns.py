"""Columns of a generated table: how the value of a node is recorded and described."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envsuite.envs.datascicoding.generated import themes
from envsuite.envs.datascicoding.generated.streams import Stream

NUMBER, AMOUNT, CATEGORY, NUMBER_CODE, TEXT_CODE = "number", "amount", "category", "number code", "text code"
KINDS_OF_LEVELS = (CATEGORY, NUMBER_CODE, TEXT_CODE)
GRID = 0.01
"""Nodes are rounded to this step before anything depends on them, so that a recorded number stands for one value."""
LARGEST = 4.0
"""Nodes are cut off at this absolute value."""


@dataclass(frozen=True)
class CausalColumn:
    """One column: its name and note, and the way from the value of a node to a cell.

    The outcome depends on the recorded cell alone: on `effects` of the level of a category, and on `when_missing` where
    nothing was recorded. So the chance of each outcome is an exact function of a row as the player sees it.
    """

    name: str
    kind: str
    note: str
    center: float = 0.0
    scale: float = 1.0
    digits: int = 0
    cuts: tuple[float, ...] = ()
    effects: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    missing: float = 0.0
    when_missing: float = 0.0
    sentinel: float | None = None
    turned: tuple[int, ...] = ()
    """words of the marker column, by number, on whose rows entries are turned round"""
    turn: float = 0.0
    """a turned number is entered as if the node had the value `turn` - z"""
    swapped: tuple[int, ...] = ()
    """[levels] number of the level that is entered in place of each on turned rows"""

    def seen(self, z: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """Returns the values on which the outcome depends [rows], from node values and the mask of missing cells."""
        values = np.asarray(self.effects)[np.searchsorted(self.cuts, z)] if self.effects else z
        return np.where(absent, self.when_missing, values)

    @property
    def total(self) -> float:
        """Sum (for an amount: product) of a reading and its entry on a turned row."""
        if self.kind == AMOUNT:
            return float(np.round(self.center**2 * np.exp(self.scale * self.turn), self.digits))
        return float(np.round(2 * self.center + self.scale * self.turn, self.digits))

    def entered(self, z: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """Returns node values [rows], turned round where they are so entered. `marks` [rows]: words of the marker."""
        return np.where(np.isin(marks, self.turned), self.turn - z, z)

    def cells(self, z: np.ndarray, absent: np.ndarray, marks: np.ndarray, stream: Stream) -> np.ndarray:
        """Returns the cells [rows]: float, or objects with None for a missing text."""
        turned = np.isin(marks, self.turned)
        if not self.effects:
            if self.kind == AMOUNT:
                readings = self.center * np.exp(self.scale * z)
                entries = np.where(turned, self.total / readings, readings)
            else:
                readings = np.round(self.center + self.scale * z, self.digits)
                entries = np.where(turned, self.total - readings, readings)
            return np.where(absent, np.nan if self.sentinel is None else self.sentinel, np.round(entries, self.digits))
        level = np.searchsorted(self.cuts, z)
        if self.swapped:
            level = np.where(turned, np.asarray(self.swapped)[level], level)
        if self.kind == NUMBER_CODE:
            return np.where(absent, np.nan, level + 1.0)
        if self.kind == CATEGORY:
            texts = [self.words[k] for k in level]
        else:
            letters, serials = stream.uniform(len(z)) * 5, stream.uniform(len(z)) * 10_000
            parts = zip(letters, level, serials, strict=True)
            texts = [f"{'GHKRT'[int(a)]}-{self.words[k]}-{int(b):04d}" for a, k, b in parts]
        return np.array([None if gone else text for text, gone in zip(texts, absent, strict=True)], object)


def draw_column(name: str, kind: str, missing: float, stream: Stream) -> CausalColumn:
    """Returns a random column of a kind; `missing` is the share of cells in which nothing is recorded."""
    when_missing = stream.between(0.7, 1.5) * stream.sign() if missing else 0.0
    column = CausalColumn(name, kind, stream.pick(themes.ON_TIME_NOTES), missing=missing, when_missing=when_missing)
    if kind in KINDS_OF_LEVELS:
        return _with_levels(column, stream)
    if kind == AMOUNT:
        center, scale = 10.0 ** stream.between(0, 3), stream.between(0.5, 0.9)
        return replace(column, center=center, scale=scale, digits=5 - int(np.log10(center)))
    magnitude = stream.below(4) - 1
    scale = 10.0**magnitude * stream.between(1.0, 5.0)
    column = replace(column, center=scale * stream.between(3.0, 12.0), scale=scale, digits=3 - magnitude)
    if missing and stream.below(2):
        return with_sentinel(column, stream)
    return column


def turned_round(column: CausalColumn, marker: CausalColumn, stream: Stream) -> CausalColumn:
    """Returns a column whose entries are turned round on the rows with two of the marker's words, as its note says.

    Each level is entered as the one whose effect is opposite, so that without the note no entry says anything alone.
    """
    turned = tuple(sorted(stream.sample(range(len(marker.words)), 2)))
    rows = f"on rows where {marker.name} is {' or '.join(marker.words[k] for k in turned)}"
    if not column.effects:
        column = replace(column, turned=turned, turn=round(stream.sign() * stream.between(0.5, 0.9), 2))
        how = "divided by" if column.kind == AMOUNT else "minus"
        total = np.format_float_positional(column.total, trim="-")
        return replace(column, note=f"{column.note}; {rows} it holds {total} {how} the reading")
    ranks = np.argsort(np.argsort(column.effects))
    swapped = tuple(int(np.flatnonzero(ranks == len(ranks) - 1 - rank)[0]) for rank in ranks)
    words = levels_of(column)
    pairs = [f"{words[k]} and {words[entry]} are exchanged" for k, entry in enumerate(swapped) if k < entry]
    note = f"{column.note}; {rows}, {', '.join(pairs)}"
    return replace(column, turned=turned, swapped=swapped, note=note)


def levels_of(column: CausalColumn) -> tuple[str, ...]:
    """Returns the names of a column's levels: words, or for a code of numbers its digits."""
    return tuple(str(k + 1) for k in range(len(column.effects))) if column.kind == NUMBER_CODE else column.words


def with_sentinel(column: CausalColumn, stream: Stream) -> CausalColumn:
    """Returns a column of numbers that marks missing cells with a special number instead of an empty cell."""
    outside = [value for value in (-1.0, -9.0, -99.0, -999.0, -9999.0) if value < column.center - 5 * column.scale]
    value = stream.pick(outside)
    note = f"{column.note}; {themes.SENTINEL_NOTE.format(value=f'{value:g}')}"
    return replace(column, sentinel=value, note=note)


def _with_levels(column: CausalColumn, stream: Stream) -> CausalColumn:
    levels = 3 + stream.below(4)
    cuts = tuple(float(cut) for cut in np.linspace(-1.1, 1.1, levels - 1))
    effects = tuple(stream.shuffled([float(effect) for effect in np.linspace(-1.5, 1.5, levels)]))
    if column.kind == TEXT_CODE:
        words = tuple(stream.sample("BCDFJLMNPQSVWXZ", levels))
        note = f"{column.note}; {stream.pick(themes.CODE_NOTES)}"
    else:
        words = tuple(stream.sample(stream.pick(themes.LEVEL_WORDS), levels))
        note = f"{column.note}; {themes.NUMBER_CODE_NOTE}" if column.kind == NUMBER_CODE else column.note
    return replace(column, cuts=cuts, effects=effects, words=words, note=note)
