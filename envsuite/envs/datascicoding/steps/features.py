"""Features that a submission of the variant `features` computed, as plain arrays checked outside its sandbox.

The fixed classifier is fitted to them in another process, which no submission has touched. Only these arrays cross
over: numbers, and columns of text as lists of words with each row's word number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envsuite.reading import parse_json

MOST_COLUMNS = 10_000
MOST_TEXT = 8_000_000  # bytes of all words

Text = tuple[list[str], np.ndarray]
"""distinct words of a column, and the word number of each row [rows]"""


@dataclass(frozen=True)
class Features:
    """A table: `numbers` [rows, columns] float64 with NaN for missing values, and columns of text."""

    numbers: np.ndarray
    texts: list[Text]

    def plain(self, rows: slice) -> tuple[np.ndarray, list[Text]]:
        """Returns some of the rows as the sandbox's program takes them."""
        return self.numbers[rows], [(words, codes[rows]) for words, codes in self.texts]


def read(body: bytes, rows: int) -> Features:
    """Returns the table of `rows` rows that a run wrote. Trusts nothing.

    Raises ValueError, with a message for the player, if it has no columns, too many, too much text, or is malformed.
    """
    first, _, arrays = body.partition(b"\n")
    if len(first) > MOST_TEXT:
        raise ValueError(f"the words in the columns of text have more than {MOST_TEXT // 1_000_000} MB")
    try:
        head = parse_json(first)
        count, texts = head["numbers"], head["texts"]
        valid = type(count) is int and count >= 0 and type(texts) is list and all(map(_are_words, texts))
    except (ValueError, RecursionError, KeyError, TypeError):
        valid = False
    if not valid:
        raise ValueError("the answer is garbled")
    if not 0 < count + len(texts) <= MOST_COLUMNS:
        raise ValueError(f"transform gave {count + len(texts)} columns, not 1 to {MOST_COLUMNS}")
    size = rows * count * 8
    if len(arrays) != size + rows * len(texts) * 4:
        raise ValueError("the answer is garbled")
    numbers = np.frombuffer(arrays[:size], "<f8").reshape(count, rows).T
    codes = np.frombuffer(arrays[size:], "<i4").reshape(len(texts), rows)
    for column, words in zip(codes, texts, strict=True):
        if rows and not 0 <= column.min() <= column.max() < len(words):
            raise ValueError("the answer is garbled")
    return Features(np.where(np.isfinite(numbers), numbers, np.nan), list(zip(texts, codes, strict=True)))


def _are_words(value: object) -> bool:
    return type(value) is list and all(type(word) is str for word in value)
