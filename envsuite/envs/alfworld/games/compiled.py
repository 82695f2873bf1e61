"""Parsed official games in compact form on disk, and all that this process has read in memory.

A game file of 100 kB becomes about 4 kB of marshalled tuples. They are stored in one file of the
cache folder under the SHA-256 of the game file, so that a game is parsed only once per machine. A
missing, damaged or outdated entry is replaced by parsing the game again.

Games that were read stay in memory: all 3,553 training games take about 50 MB. What an episode adds
to a game, such as lists of commands, is not kept with them.
"""

from __future__ import annotations

import contextlib
import marshal
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.logic import Sentences
from envsuite.envs.alfworld.games.pack import Pack
from envsuite.envs.alfworld.games.problem import GameState, TaskGoal

FORMAT = f"2-{sys.version_info[0]}.{sys.version_info[1]}"
"""Changes with the fields of a game and with Python's marshal format."""

Fields = dict[str, Any]
"""The fields of an AlfworldGame, without its name where they come from the cache folder."""

NAMES = ("receptacles", "receptacle_types", "objects", "object_types", "locations", "holders")
"""Fields that are names, or a mapping from names."""

PLAIN = ("task", "cleaners", "solvable", "receptacle_location", "openable", "flags")
"""Fields that marshal stores as they are."""

_games: dict[str, Fields] = {}
"""Digest of a game file -> fields of the game, for all games of this process."""


def load_compiled(path: Path, digest: str) -> AlfworldGame:
    """Returns the game at `path` whose SHA-256 is `digest`; parses the file only if it is not cached.

    Raises the errors of `AlfworldGame.load`.
    """
    fields = _games.get(digest)
    if fields is None:
        fields = _games[digest] = _stored(digest) or _parsed(path, digest)
    # A new game every time: the tables that engines add to it are evicted with it.
    return _game(fields | {"name": str(path)})


def _game(fields: Fields) -> AlfworldGame:
    """Returns a game with these fields, in a tenth of the time that its constructor takes."""
    game = object.__new__(AlfworldGame)
    game.__dict__.update(fields)
    return game


def _stored(digest: str) -> Fields | None:
    """Reads a game from the cache folder; None if its entry is missing or damaged."""
    blob = _pack().get(digest)
    if blob is not None:
        with contextlib.suppress(ValueError, EOFError, TypeError):
            return _from_tuple(marshal.loads(blob))
    return None


def _parsed(path: Path, digest: str) -> Fields:
    """Parses a game file and stores it in the cache folder."""
    fields = dict(AlfworldGame.load(path).__dict__)
    blob = marshal.dumps(_to_tuple(fields))
    with contextlib.suppress(OSError):  # a read-only or full cache only costs time
        _pack().add(digest, blob)
    return fields


def clear_memory() -> None:
    """Forgets the games in memory, for measurements."""
    _games.clear()


@lru_cache(maxsize=1)
def _pack() -> Pack:
    return Pack(cache_dir("alfworld") / f"compiled-{FORMAT}.bin")


def _to_tuple(fields: Fields) -> tuple[Any, ...]:
    """Returns the fields of a game as built-in types, without its name.

    All names are one text, because marshal takes longer to read many short ones.
    """
    masks = [_mask(receptacles) for receptacles in fields["holders"].values()]
    names = [name for field in NAMES for name in fields[field]]
    return (
        "\n".join(names),
        tuple([len(fields[field]) for field in NAMES]),
        marshal.dumps(tuple(fields["sentences"])),
        tuple(fields["goal"]),
        tuple(fields["start"]),
        tuple(masks),
        tuple(fields["inside"].items()),
        tuple([fields[field] for field in PLAIN]),
    )


def _from_tuple(values: tuple[Any, ...]) -> Fields:
    text, counts, sentences, goal, start, masks, inside, plain = values
    names = tuple(text.split("\n"))
    fields: Fields = dict(zip(PLAIN, plain, strict=True))
    first = 0
    for field, count in zip(NAMES, counts, strict=True):
        fields[field] = names[first : first + count]
        first += count
    fields["holders"] = dict(zip(fields["holders"], map(_set, masks), strict=True))
    fields["inside"] = dict(inside)
    fields["sentences"], fields["goal"], fields["start"] = _sentences(sentences), TaskGoal(*goal), GameState(*start)
    return fields


def _mask(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


@lru_cache(maxsize=4096)
def _set(mask: int) -> frozenset[int]:
    """Returns the positions of the bits of a mask; one value for all games, as rooms repeat."""
    return frozenset([number for number in range(mask.bit_length()) if mask >> number & 1])


@lru_cache(maxsize=32)
def _sentences(values: bytes) -> Sentences:
    """Returns one value for all games with these sentences, as official games share them."""
    return Sentences(*marshal.loads(values))
