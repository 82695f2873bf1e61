"""The cache of generated games: one folder a game, named by what it is, there whole or not at all.

    <cache>/textworld/<key[:2]>/<key>/game.json, game.z8

Whoever needs a game that is missing makes it under a file lock, in a folder beside its place, which a rename then puts
there. A generator that is killed leaves a folder ending in `.partial`, which nobody reads and the next one clears away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
    except DataError:
        return None
    return path if path.with_suffix(".json").is_file() else None


def ensure_game(spec: GameSpec) -> Path:
    """The story file of a game, generated here and now if need be. Raises CannotGenerate.

    For worker processes: the generator is not thread-safe, and can take long.
    """
    import filelock

    from envsuite.envs.textworld.generator import compile_game, make_game

    found = find_game(spec)
    if found is not None:
        return found
    place = story_path(spec).parent
    # A lock for each 4096th of the games: as good as one a game, and their files stay few.
    with filelock.FileLock(cache_dir("textworld", "locks") / f"{spec.key[:3]}.lock"):
        found = find_game(spec)
        if found is not None:
            return found
        partial = place.with_name(place.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            game = make_game(spec)
            game.save(str(partial / "game.json"))
            compile_game(game, partial / "game.z8")
            check_story(partial / "game.z8")
            for written in partial.iterdir():
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            shutil.rmtree(place, ignore_errors=True)  # a damaged one
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
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
        pool.shutdown(cancel_futures=True)
        for worker in everyone:
            worker.close()


def prepare(settings: Mapping[str, Any], seeds: Iterable[int], processes: int | None = None) -> Iterator[Generated]:
    """`generate_many` for the games that a task with these knobs plays under `seeds`. Raises UsageError for files."""
    if settings.get("game"):
        raise UsageError(f"game={settings['game']} names files: there is nothing to generate.")
    challenge = settings.get("challenge", "custom")
    own = {name: settings[name] for name in SETTINGS[challenge] if name in settings}
    return generate_many([game_spec(challenge, own, seed) for seed in seeds], processes)
