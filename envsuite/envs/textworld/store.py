"""The cache of generated games: one folder a game, named by what it is, there whole or not at all.

    <cache>/textworld/<key[:2]>/<key>/game.json, game.z8

Whoever needs a game that is missing makes it under a file lock, in a folder beside its place, which a rename then puts
there. A generator that is killed leaves a folder ending in `.partial`, which nobody reads and the next one clears away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import cache_dir
from envsuite.envs.textworld.games import SETTINGS, GameSpec, game_spec
from envsuite.envs.textworld.story import check_story
from envsuite.errors import DataError, EngineFailure, UsageError

PATIENCE = 300.0
"""seconds one game may take to generate; most take one, a few of the treasure hunt's hard ones never end"""


def story_path(spec: GameSpec) -> Path:
    """Where the story file of a game is, or will be."""
    return cache_dir("textworld", spec.key[:2]) / spec.key / "game.z8"


def find_game(spec: GameSpec) -> Path | None:
    """The story file of a game, None where it has not been generated or is damaged."""
    path = story_path(spec)
    try:
        check_story(path)
        told = path.with_suffix(".json").read_bytes()
    except (DataError, OSError):
        return None
    return path if told[:1] + told[-1:] == b"{}" else None  # not emptied, not cut short


def ensure_game(spec: GameSpec) -> Path:
    """The story file of a game, generated here and now if need be. Raises CannotGenerate.

    For worker processes: the generator is not thread-safe, and can take long.
    """
    from envsuite.envs.textworld.generator import compile_game, make_game

    found = find_game(spec)
    if found is not None:
        return found

    def write(folder: Path) -> None:
        game = make_game(spec)
        game.save(str(folder / "game.json"))
        compile_game(game, folder / "game.z8")

    return _place(spec, write)


def _place(spec: GameSpec, write: Callable[[Path], None]) -> Path:
    """Puts a game where it belongs, if it is not there: `write` makes its files in a folder that is given."""
    import filelock

    place = story_path(spec).parent
    # A lock for each 4096th of the games: as good as one a game, and their files stay few.
    with filelock.FileLock(cache_dir("textworld", "locks") / f"{spec.key[:3]}.lock"):
        found = find_game(spec)
        if found is not None:
            return found
        draft = place.with_name(place.name + ".partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            write(draft)
            check_story(draft / "game.z8")
            for written in draft.iterdir():
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            shutil.rmtree(place, ignore_errors=True)  # a damaged one
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place / "game.z8"


class Generated(NamedTuple):
    """What became of one game of `generate_many`."""

    spec: GameSpec
    path: Path | None
    problem: str = ""
    """one line why there is none"""


def generate_many(
    specs: Iterable[GameSpec], processes: int | None = None, patience: float = PATIENCE
) -> Iterator[Generated]:
    """Generates games into the cache in `processes` worker processes (default: one a core); yields in the order given.

    What cannot be generated, or not within `patience` seconds, is reported in its place and skipped; no other seed is
    taken for it.
    """
    from envsuite.envs.textworld.interpreter import Interpreter

    idle: list[Interpreter] = []
    everyone: list[Interpreter] = []

    def generate(spec: GameSpec) -> Generated:
        found = find_game(spec)
        if found is not None:
            return Generated(spec, found)
        try:
            worker = idle.pop()
        except IndexError:
            worker = Interpreter()
            everyone.append(worker)
        try:
            return Generated(spec, Path(worker.ask("make", spec, timeout=patience)))
        except (DataError, EngineFailure) as error:
            return Generated(spec, None, str(error))
        finally:
            idle.append(worker)

    count = processes or len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(count, thread_name_prefix="textworld-generate")
    try:
        yield from pool.map(generate, specs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in everyone:
            worker.kill()  # nobody wants what is still in the making
        pool.shutdown()
        for worker in everyone:
            worker.close()


class Packed(NamedTuple):
    """A game made on another machine."""

    files: dict[str, bytes]
    """name -> contents"""
    problem: str = ""
    """one line why there is none"""


def make_packed(specs: Sequence[GameSpec]) -> list[Packed]:
    """Games of this machine's cache, generated if need be, to be sent to another."""
    return [
        Packed({file.name: file.read_bytes() for file in one.path.parent.iterdir()} if one.path else {}, one.problem)
        for one in generate_many(specs, 1)
    ]


Spread = Callable[[Callable[[Sequence[Any]], list[Any]], Sequence[Any]], Iterator[Any]]
"""calls a function, elsewhere, with some items at a time, and yields the answers in the order of the items"""


def fetch_many(specs: Sequence[GameSpec], spread: Spread) -> Iterator[Generated]:
    """`generate_many` on other machines: what they make goes into this one's cache as well."""
    missing = [find_game(spec) is None for spec in specs]
    made = spread(make_packed, [spec for spec, lacks in zip(specs, missing) if lacks])
    for spec, lacks in zip(specs, missing):
        packed: Packed = next(made) if lacks else Packed({})
        if packed.problem:
            yield Generated(spec, None, packed.problem)
        elif lacks:
            yield Generated(spec, _place(spec, partial(_unpack, packed)))
        else:
            yield Generated(spec, story_path(spec))


def _unpack(packed: Packed, folder: Path) -> None:
    for name, content in packed.files.items():
        (folder / name).write_bytes(content)


def prepare(
    settings: Mapping[str, Any], seeds: Iterable[int], processes: int | None = None, spread: Spread | None = None
) -> Iterator[Generated]:
    """`generate_many` for the games that a task with these knobs plays under `seeds`, or `fetch_many` where they are to
    be made elsewhere. Raises UsageError for files."""
    if settings.get("game"):
        raise UsageError(f"game={settings['game']} names files: there is nothing to generate.")
    challenge = settings.get("challenge", "custom")
    own = {name: settings[name] for name in SETTINGS[challenge] if name in settings}
    specs = [game_spec(challenge, own, seed) for seed in seeds]
    return generate_many(specs, processes) if spread is None else fetch_many(specs, spread)
