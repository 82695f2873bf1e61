"""The cache of generated games: one folder per game, which is either complete or absent.

    <cache>/textworld/<key[:2]>/<key>/game.json, game.z8

A missing game is generated under a file lock in a folder beside its target, which is then renamed.
A killed generator leaves a folder ending in `.partial`, which is never read and is removed by the
next attempt.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import cache_dir
from envsuite.envs.textworld.games import SETTINGS, GameSpec, game_spec
from envsuite.envs.textworld.story_files import check_story
from envsuite.errors import DataError, EngineFailure, UsageError

GENERATION_SECONDS = 300.0
"""Time limit per game; most take a second, a few hard treasure hunts never end."""


def story_path(spec: GameSpec) -> Path:
    """Returns the path of a game's story file, which may not exist yet."""
    return cache_dir("textworld", spec.key[:2]) / spec.key / "game.z8"


def find_game(spec: GameSpec) -> Path | None:
    """Returns the story file of a game; None if it is missing or damaged."""
    path = story_path(spec)
    try:
        check_story(path)
    except DataError:
        return None
    return path if find_logic(spec) else None


def find_logic(spec: GameSpec) -> Path | None:
    """Returns the .json file of a game, which may not be compiled yet; None if it is missing or damaged."""
    path = story_path(spec).with_suffix(".json")
    try:
        metadata = path.read_bytes()
    except OSError:
        return None
    return path if metadata[:1] + metadata[-1:] == b"{}" else None  # neither empty nor truncated


def ensure_game(spec: GameSpec) -> Path:
    """Returns the story file of a game and generates it if necessary. Raises CannotGenerate.

    Call it in worker processes: the generator is not thread-safe and can take long.
    """
    from envsuite.envs.textworld.generator import compile_game, make_game

    path = find_game(spec)
    if path is not None:
        return path

    def write(folder: Path) -> None:
        game = make_game(spec)
        game.save(str(folder / "game.json"))
        compile_game(game, folder / "game.z8")

    return _place(spec, write)


def ensure_logic(spec: GameSpec) -> Path:
    """Returns the .json file of a game and generates it, without compiling, if necessary. Raises CannotGenerate."""
    from envsuite.envs.textworld.generator import make_game

    def write(folder: Path) -> None:
        make_game(spec).save(str(folder / "game.json"))

    return find_logic(spec) or _place(spec, write, find_logic)


def _place(spec: GameSpec, write: Callable[[Path], None], find: Callable[[GameSpec], Path | None] = find_game) -> Path:
    """Creates a game in the cache if `find` misses it; `write` creates its files in a given folder."""
    import filelock

    target = story_path(spec).parent
    # 4,096 locks shared by all games: nearly as good as one per game, with few files.
    with filelock.FileLock(cache_dir("textworld", "locks") / f"{spec.key[:3]}.lock"):
        path = find(spec)
        if path is not None:
            return path
        draft = target.with_name(target.name + ".partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            write(draft)
            if find is find_game:
                check_story(draft / "game.z8")
            for written in draft.iterdir():
                with written.open("rb") as file:
                    os.fsync(file.fileno())
            shutil.rmtree(target, ignore_errors=True)  # it may contain a damaged game
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target / ("game.z8" if find is find_game else "game.json")


class GenerationResult(NamedTuple):
    """Result of `generate_many` for one game."""

    spec: GameSpec
    path: Path | None
    problem: str = ""
    """one-line reason if the game is missing"""


def generate_many(
    specs: Iterable[GameSpec], processes: int | None = None, timeout: float = GENERATION_SECONDS
) -> Iterator[GenerationResult]:
    """Generates games into the cache in `processes` worker processes (default: one per core).

    Yields results in the order of `specs`. Games that fail, or take longer than `timeout` seconds,
    are reported in their place; no other seed replaces them.
    """
    from envsuite.envs.textworld.engine.interpreter import Interpreter

    idle: list[Interpreter] = []
    workers: list[Interpreter] = []

    def generate(spec: GameSpec) -> GenerationResult:
        path = find_game(spec)
        if path is not None:
            return GenerationResult(spec, path)
        try:
            worker = idle.pop()
        except IndexError:
            worker = Interpreter()
            workers.append(worker)
        try:
            return GenerationResult(spec, Path(worker.ask("make", spec, timeout=timeout)))
        except (DataError, EngineFailure) as error:
            return GenerationResult(spec, None, str(error))
        finally:
            idle.append(worker)

    count = processes or len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(count, thread_name_prefix="textworld-generate")
    try:
        yield from pool.map(generate, specs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()  # stops unfinished games
        pool.shutdown()
        for worker in workers:
            worker.close()


def prepare(
    settings: Mapping[str, Any],
    seeds: Iterable[int],
    processes: int | None = None,
) -> Iterator[GenerationResult]:
    """Generates the games that a task with these settings plays for `seeds`.

    Raises UsageError if the task plays files.
    """
    if settings.get("game"):
        raise UsageError(f"game={settings['game']} is a file or folder, so there is nothing to generate.")
    challenge = settings.get("challenge", "custom")
    own = {name: settings[name] for name in SETTINGS[challenge] if name in settings}
    specs = [game_spec(challenge, own, seed, settings.get("split_by", "seed")) for seed in seeds]
    return generate_many(specs, processes)
