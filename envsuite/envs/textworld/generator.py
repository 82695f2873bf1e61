"""Generates and compiles games through textworld's Python API, as its command line does.

Not thread-safe, because textworld has global state: run it in processes, as
`game_cache.generate_many` does.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.textworld.engine.patches import apply_patches
from envsuite.envs.textworld.games import GameSpec, setting_name
from envsuite.envs.textworld.structure import split_of, structure_digest
from envsuite.errors import DataError, EngineFailure

if TYPE_CHECKING:
    from textworld.generator.game import Game, GameOptions


CANNOT_WRITE = re.compile("couldn't (open|write)|trying to write", re.IGNORECASE)
"""Error texts of the two compilers when the disk is full."""


MIN_STRUCTURES = 10
"""Fewest structures that can be divided into splits."""
MAX_CANDIDATES = 100
"""Number of games that are drawn, at most, to find that many structures, or one of a given split."""


class CannotGenerate(DataError):
    """The generator has no game for these settings and this seed; callers may try another seed."""


def make_game(spec: GameSpec) -> Game:
    """Generates the game of a spec. Raises CannotGenerate.

    It equals that of `tw-make` for the seed, which is `metadata["seed"]` for a game of a split.
    """
    return _make_game_of_split(spec) if spec.split else _make_game_of_seed(spec)


def _make_game_of_split(spec: GameSpec) -> Game:
    """Generates candidates until the structure of one belongs to the split of the spec."""
    _check_structures(spec.challenge, spec.settings)
    structures = set()
    for number in range(MAX_CANDIDATES):
        candidate = spec.candidate(number)
        try:
            game = _make_game_of_seed(candidate)
        except CannotGenerate:
            continue
        structure = structure_digest(game.serialize())
        if split_of(structure) == spec.split:
            game.metadata["seed"] = candidate.seed
            return game
        structures.add(structure)
    raise CannotGenerate(
        f"TextWorld cannot generate {spec.name}: {MAX_CANDIDATES} games have {len(structures)} structures, "
        f"none in the split {spec.split!r}: use split_by=seed, or knobs with more variety."
    )


@functools.cache
def _check_structures(challenge: str, settings: tuple[tuple[str, Any], ...]) -> None:
    """Raises CannotGenerate if games with these settings have too few structures for splits."""
    structures = set()
    for seed in range(MAX_CANDIDATES):
        try:
            game = _make_game_of_seed(GameSpec(challenge, settings, seed))
        except CannotGenerate:
            continue
        structures.add(structure_digest(game.serialize()))
        if len(structures) == MIN_STRUCTURES:
            return
    name = setting_name(challenge, dict(settings))
    raise CannotGenerate(
        f"Number of structures in {MAX_CANDIDATES} games of {name}: {len(structures)}, "
        f"too few for splits without twins (at least {MIN_STRUCTURES}): use split_by=seed, or knobs with more variety."
    )


def _make_game_of_seed(spec: GameSpec) -> Game:
    import textworld

    apply_patches()
    options = textworld.GameOptions()  # a new object per game, because the challenges modify it
    options.seeds = int(spec.seed)
    try:
        return _generate(spec, options)
    except (OSError, MemoryError):
        raise  # a fault of the machine, not of the game
    except Exception as error:  # the generator raises errors of many kinds
        message = str(error).strip().split("\n")[0][:120]
        reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise CannotGenerate(
            f"TextWorld cannot generate {spec.name} ({reason}): use another seed or easier settings."
        ) from error


def _generate(spec: GameSpec, options: GameOptions) -> Game:
    """Calls textworld's generator with the settings of a spec; `options` contain the seed."""
    import textworld.challenges
    import textworld.generator

    settings = dict(spec.settings)
    if spec.challenge == "custom":
        options.nb_rooms, options.nb_objects = settings["world_size"], settings["nb_objects"]
        chaining, length = options.chaining, settings["quest_length"]
        chaining.min_length = chaining.max_length = chaining.max_depth = length
        chaining.min_depth, chaining.min_breadth, chaining.max_breadth = 1, 1, 5  # defaults of the command line
        options.grammar.only_last_action = settings["goal"] == "brief"
        return textworld.generator.make_game(options)
    if spec.challenge == "simple":
        settings["test"] = False
    if spec.challenge == "cooking":
        foods = settings.pop("foods")
        settings["split"] = None if foods == "all" else foods
    _, make, _ = textworld.challenges.CHALLENGES[f"tw-{spec.challenge}"]
    return make(settings=settings, options=options)


def content_digest(serialised: dict[str, Any], named: bool = True) -> str:
    """Returns 16 hex digits over the facts and quests of a game, with entities by name.

    Games with equal digests differ only in prose, so who can solve one can solve the other. With
    `named=False`, games that differ only in names are equal too: the digest describes the
    structure.
    """
    names = {key: info["name"] or info["type"] for key, info in serialised["infos"]}

    def fact(item: dict[str, Any]) -> list[str]:
        return [item["name"], *(names.get(x["name"], x["name"]) if named else x["name"] for x in item["arguments"])]

    def conditions(events: list[dict[str, Any]]) -> list[Any]:
        return sorted(sorted(fact(item) for item in event["condition"]["preconditions"]) for event in events)

    quests = sorted(
        [conditions(quest["win_events"]), conditions(quest["fail_events"]), quest["reward"], quest["optional"]]
        for quest in serialised["quests"]
    )
    resolve_ambiguity = json.dumps([sorted(fact(item) for item in serialised["world"]), quests])
    return hashlib.sha256(resolve_ambiguity.encode()).hexdigest()[:16]


def compile_game(game: Game, target: Path) -> None:
    """Compiles a game to a .z8 file.

    Uses the compilers and switches of textworld, plus `-noindex` (no web pages, which take a
    seventh of the time) and a separate home folder, because parallel runs would share `~/Inform`.
    Raises CannotGenerate if the game does not compile (too large, for example), and EngineFailure
    if the disk is full or the compiler was killed.
    """
    from textworld.generator.inform7 import generate_inform7_source
    from textworld.generator.inform7.world2inform7 import I7_DEFAULT_PATH

    share = Path(os.environ.get("INFORM_HOME", I7_DEFAULT_PATH)) / "share" / "inform7"
    folder = Path(tempfile.mkdtemp(prefix="envsuite-inform-"))
    try:
        (folder / "Source").mkdir()
        (folder / "Build").mkdir()
        (folder / "Source" / "story.ni").write_text(generate_inform7_source(game))
        (folder / "uuid.txt").touch()
        inform7 = [share / "Compilers" / "ni", "--internal", share / "Internal", "--format=.z8", "--project", folder]
        for command in (
            [*inform7, "-noindex", "-noprogress"],
            [share / "Compilers" / "inform6", "-E2wSv8F0", folder / "Build" / "auto.inf", target],
        ):
            done = subprocess.run(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(folder)},
            )
            if done.returncode:
                message = done.stdout.decode(errors="replace").strip().split("\n")[-1][:200]
                if done.returncode < 0 or CANNOT_WRITE.search(message):
                    raise EngineFailure(
                        f"TextWorld's compiler could not finish (exit {done.returncode}: {message}): it needs memory "
                        f"and some megabytes of disk space in {folder.parent} and {target.parent}."
                    )
                raise CannotGenerate(f"The game does not compile ({message}): it may be too large for a .z8 file.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
