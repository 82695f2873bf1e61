"""Parsed official games in compact form on disk, and all that this process has read in memory.

A game file of 100 kB becomes about 4 kB of marshalled tuples. They are stored in the cache folder
under the SHA-256 of the game file, so that the first reset of a game need not parse it. A missing,
damaged or outdated entry is replaced by parsing the file again.

Games that were read stay in memory: all 3,553 training games take about 50 MB. What an episode adds
to a game, such as lists of commands, is not kept with them.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
import zlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.logic import Sentences
from envsuite.envs.alfworld.games.problem import GameState, TaskGoal

FORMAT = f"1-{sys.version_info[0]}.{sys.version_info[1]}"
"""Changes with the fields of a game and with Python's marshal format."""

LARGEST = 1 << 20
"""bytes of a compiled game; a longer file is damaged"""

_games: dict[str, AlfworldGame] = {}
"""Digest of a game file -> game, for all games of this process."""


def load_compiled(path: Path, digest: str) -> AlfworldGame:
    """Returns the game at `path` whose SHA-256 is `digest`; parses the file only if it is not cached.

    Raises the errors of `AlfworldGame.load`.
    """
    game = _games.get(digest)
    if game is None:
        game = _games[digest] = _stored(path, digest) or _parsed(path, digest)
    return replace(game, name=str(path))  # a copy: the tables that engines add to it are evicted with it


def _stored(path: Path, digest: str) -> AlfworldGame | None:
    """Reads a game from the cache folder; None if its entry is missing or damaged."""
    blob = _read(digest)
    if blob is not None:
        with contextlib.suppress(ValueError, EOFError, TypeError):
            return _from_tuple(str(path), marshal.loads(blob))
    return None


def _parsed(path: Path, digest: str) -> AlfworldGame:
    """Parses a game file and stores it in the cache folder."""
    game = AlfworldGame.load(path)
    blob = marshal.dumps(_to_tuple(game))
    with contextlib.suppress(OSError):  # a read-only or full cache only costs time
        write_atomically(Path(_path(digest)), zlib.crc32(blob).to_bytes(4, "big") + blob)
    return game


def clear_memory() -> None:
    """Forgets the games in memory, for measurements."""
    _games.clear()


def _path(digest: str) -> str:
    return f"{_folder()}/{digest[:40]}.bin"


@lru_cache(maxsize=1)
def _folder() -> str:
    return str(cache_dir("alfworld", f"compiled-{FORMAT}"))


def _read(digest: str) -> bytes | None:
    """Returns the stored blob of a game; None if it is missing or damaged."""
    try:
        file = os.open(_path(digest), os.O_RDONLY | os.O_CLOEXEC)  # half the time of open()
        try:
            content = os.read(file, LARGEST)
        finally:
            os.close(file)
    except OSError:
        return None
    blob = content[4:]
    return blob if content[:4] == zlib.crc32(blob).to_bytes(4, "big") else None


def _to_tuple(game: AlfworldGame) -> tuple[Any, ...]:
    """Returns the fields of a game as built-in types, without its name."""
    return (
        game.task,
        marshal.dumps(tuple(game.sentences)),
        game.cleaners,
        game.solvable,
        tuple(game.goal),
        tuple(game.start),
        game.receptacles,
        game.receptacle_types,
        game.receptacle_location,
        game.openable,
        game.objects,
        game.object_types,
        game.flags,
        game.locations,
        tuple([(kind, _mask(receptacles)) for kind, receptacles in game.holders.items()]),
        tuple(game.inside.items()),
    )


def _from_tuple(name: str, fields: tuple[Any, ...]) -> AlfworldGame:
    task, sentences, cleaners, solvable, goal, start, *tables, holders, inside = fields
    sets = {mask: frozenset(_numbers(mask)) for mask in {mask for _, mask in holders}}
    values: list[Any] = [name, task, _sentences(sentences), cleaners, solvable, TaskGoal(*goal), GameState(*start)]
    values += [*tables, {kind: sets[mask] for kind, mask in holders}, dict(inside)]
    return AlfworldGame(*values)


def _mask(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


@lru_cache(maxsize=4096)
def _numbers(mask: int) -> tuple[int, ...]:
    """Returns the positions of the bits of a mask."""
    return tuple([number for number in range(mask.bit_length()) if mask >> number & 1])


@lru_cache(maxsize=32)
def _sentences(values: bytes) -> Sentences:
    """Returns one value for all games with these sentences, as official games share them."""
    return Sentences(*marshal.loads(values))
