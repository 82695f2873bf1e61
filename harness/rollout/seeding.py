"""Random numbers for each turn of an episode, seeded for many turns at a time.

`numpy.random.default_rng(seed)` takes as long as a step of a native engine, mostly for seeding.
This module seeds many turns with one pass of array operations and sets a single generator to each
turn's state. The numbers are bit-identical to the numbers of `default_rng(episode.turn_seed(turn))`; NEP
19 keeps numpy's SeedSequence and PCG64 seeding stable. `Seeding.below` draws one number of a range,
which most random players need, without a generator.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.types import Episode

FEWEST, MOST = 64, 128
"""Bounds on the number of turns seeded in one pass; its time hardly depends on that number."""

_A, _B = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
"""Initial hash constant and multiplier for mixing entropy in and for generating output."""
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""Multiplier of PCG64's linear congruential step."""
_WRAP = (1 << 128) - 1


def _constants(first: int, multiplier: int, count: int) -> np.ndarray:
    constants = [first]
    for _ in range(count):
        constants.append(constants[-1] * multiplier & 0xFFFFFFFF)
    return np.array(constants, np.uint32)


_IN = _constants(*_A, 16)
_OUT = _constants(*_B, 8)
_ENTER = _IN[:4, None], _IN[1:5, None]
_LEAVE = _OUT[:8].reshape(2, 4, 1), _OUT[1:].reshape(2, 4, 1)
_MIX = []
"""Per source word: hash constants of the three other words, in numpy's order."""
for _source in range(4):
    _words = [word % 4 for word in range(_source + 1, _source + 4)]
    _places = np.array([4 + 3 * _source + sorted(_words).index(word) for word in _words])
    _MIX.append((_IN[_places, None], _IN[_places + 1, None]))


def _hashed(values: np.ndarray, constants: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Applies SeedSequence's hash function to an array of words."""
    values = values ^ constants[0]
    values *= constants[1]
    values ^= values >> _SHIFT
    return values


def seed_words(seeds: list[int]) -> list[list[int]]:
    """Returns `SeedSequence(seed).generate_state(4, np.uint64)` for each seed below 2**64."""
    entropy: npt.NDArray[np.uint64] = np.array(seeds, np.uint64)
    pool = np.zeros((8, len(seeds)), np.uint32)  # the pool of four words moves down one row per source
    pool[0], pool[1] = entropy & np.uint64(0xFFFFFFFF), entropy >> np.uint64(32)
    pool[:4] = _hashed(pool[:4], _ENTER)
    for source, constants in enumerate(_MIX):
        targets = pool[source + 1 : source + 4]
        targets *= _LEFT
        targets -= _RIGHT * _hashed(pool[source], constants)
        targets ^= targets >> _SHIFT
        pool[source + 4] = pool[source]
    drawn = _hashed(pool[4:], _LEAVE).reshape(8, -1).astype(np.uint64)
    words: list[list[int]] = (drawn[::2] | drawn[1::2] << np.uint64(32)).T.tolist()
    return words


def initial_state(words: list[int]) -> tuple[int, int]:
    """Returns the state and increment, 128 bits each, of a `PCG64` seeded with four words."""
    high, low, stream_high, stream_low = words
    increment = ((stream_high << 64 | stream_low) << 1 | 1) & _WRAP
    return ((increment + (high << 64 | low)) * _MULTIPLIER + increment) & _WRAP, increment


class Seeding:
    """Random numbers of one episode: a generator that is set to the state of each turn."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._first = 0
        self._states: list[list[int]] = []
        self._bits: np.random.PCG64 | None = None  # created when first needed
        self._generator: np.random.Generator

    def _state(self, turn: int) -> tuple[int, int]:
        if not 0 <= turn - self._first < len(self._states):
            self._first = turn
            count = max(FEWEST, min(turn, MOST))
            self._states = seed_words(self._episode.turn_seeds(range(turn, turn + count)))
        return initial_state(self._states[turn - self._first])

    def below(self, turn: int, count: int) -> int:
        """Returns `int(at(turn).integers(count))` for a count from 1 to 2**32 - 1.

        Multiplies the turn's first 32 bits by `count` (Lemire, 2019), like numpy for ranges of this
        size. The rare numbers that this method rejects to avoid bias are left to numpy.
        """
        if count == 1:
            return 0
        state, increment = self._state(turn)
        state = (state * _MULTIPLIER + increment) & _WRAP
        folded = (state >> 64 ^ state) & 0xFFFFFFFFFFFFFFFF  # XSL-RR (O'Neill, 2014)
        rotation = state >> 122
        bits = (folded >> rotation | folded << (64 - rotation)) & 0xFFFFFFFF
        scaled = bits * count
        if scaled & 0xFFFFFFFF < count:
            return int(self.at(turn).integers(count))
        return scaled >> 32

    def at(self, turn: int) -> np.random.Generator:
        """Returns a generator in the state of `default_rng(episode.turn_seed(turn))`; every call
        returns the same object.
        """
        state, increment = self._state(turn)
        if self._bits is None:
            self._bits = np.random.PCG64(0)
            self._generator = np.random.Generator(self._bits)
        self._bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator
