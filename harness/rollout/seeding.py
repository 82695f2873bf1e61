"""Generators for what is drawn at each turn of an episode, many turns' seeds at a time.

`numpy.random.default_rng(seed)` costs as much as a step of a native engine, nearly all of it in seeding. Here the seeding
of many turns is done in one pass of array operations, and one generator is set to each turn's state: the numbers are
those of `default_rng(episode.dice(turn))`, to the bit (numpy's SeedSequence and PCG64 seeding, NEP 19 keeps them stable).
A turn that takes one number of a range, as most random players do, needs no generator at all: `Dice.below`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.types import Episode

FEWEST, MOST = 64, 128
"""turns seeded together: as many as were played, within these bounds; a pass takes much the same time for all"""

_A, _B = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
"""first hash constant and its multiplier, of mixing in and of reading out"""
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""of PCG64's linear congruential step"""
_WRAP = (1 << 128) - 1


def _constants(first: int, multiplier: int, count: int) -> np.ndarray:
    found = [first]
    for _ in range(count):
        found.append(found[-1] * multiplier & 0xFFFFFFFF)
    return np.array(found, np.uint32)


_IN, _OUT = _constants(*_A, 16), _constants(*_B, 8)
_ENTER = _IN[:4, None], _IN[1:5, None]
_LEAVE = _OUT[:8].reshape(2, 4, 1), _OUT[1:].reshape(2, 4, 1)
_MIX = []
"""for each source, the constants of the three words after it, going round; numpy goes through them from the first word on"""
for _source in range(4):
    _words = [word % 4 for word in range(_source + 1, _source + 4)]
    _places = np.array([4 + 3 * _source + sorted(_words).index(word) for word in _words])
    _MIX.append((_IN[_places, None], _IN[_places + 1, None]))


def _hashed(values: np.ndarray, constants: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    values = values ^ constants[0]
    values *= constants[1]
    values ^= values >> _SHIFT
    return values


def states(seeds: list[int]) -> list[list[int]]:
    """What `SeedSequence(seed).generate_state(4, np.uint64)` is for each seed below 2**64."""
    entropy: npt.NDArray[np.uint64] = np.array(seeds, np.uint64)
    pool = np.zeros((8, len(seeds)), np.uint32)  # the pool of four words goes down one for each source
    pool[0], pool[1] = entropy & np.uint64(0xFFFFFFFF), entropy >> np.uint64(32)
    pool[:4] = _hashed(pool[:4], _ENTER)
    for source, constants in enumerate(_MIX):
        others = pool[source + 1 : source + 4]
        others *= _LEFT
        others -= _RIGHT * _hashed(pool[source], constants)
        others ^= others >> _SHIFT
        pool[source + 4] = pool[source]
    drawn = _hashed(pool[4:], _LEAVE).reshape(8, -1).astype(np.uint64)
    found: list[list[int]] = (drawn[::2] | drawn[1::2] << np.uint64(32)).T.tolist()
    return found


def begun(words: list[int]) -> tuple[int, int]:
    """State and increment, 128 bits each, of a `PCG64` that is given these words."""
    high, low, stream_high, stream_low = words
    increment = ((stream_high << 64 | stream_low) << 1 | 1) & _WRAP
    return ((increment + (high << 64 | low)) * _MULTIPLIER + increment) & _WRAP, increment


class Seeding:
    """One generator, set to the state that each turn's own would have."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._first, self._states = 0, list[list[int]]()
        self._bits: np.random.PCG64 | None = None  # as long as no turn needs them
        self._generator: np.random.Generator

    def _begun(self, turn: int) -> tuple[int, int]:
        if not 0 <= turn - self._first < len(self._states):
            self._first = turn
            count = max(FEWEST, min(turn, MOST))
            self._states = states(self._episode.all_dice(range(turn, turn + count)))
        return begun(self._states[turn - self._first])

    def below(self, turn: int, count: int) -> int:
        """As `int(at(turn).integers(count))`, for a count from 1 to 2**32 - 1.

        Lemire's multiplication (2019) of the turn's first 32 bits, as numpy does it for ranges of that size; the rare
        number that it throws away, so that none is likelier than another, is left to numpy itself.
        """
        if count == 1:
            return 0
        state, increment = self._begun(turn)
        state = (state * _MULTIPLIER + increment) & _WRAP
        folded, turned = (state >> 64 ^ state) & 0xFFFFFFFFFFFFFFFF, state >> 122  # XSL-RR (O'Neill, 2014)
        bits = (folded >> turned | folded << (64 - turned)) & 0xFFFFFFFF
        scaled = bits * count
        if scaled & 0xFFFFFFFF < count:
            return int(self.at(turn).integers(count))
        return scaled >> 32

    def at(self, turn: int) -> np.random.Generator:
        """As `default_rng(episode.dice(turn))`; what an earlier call returned is this one from now on."""
        state, increment = self._begun(turn)
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
