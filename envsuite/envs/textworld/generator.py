"""Games from textworld's Python API: the same as its command line makes, without starting a program for each.

Not thread-safe (textworld keeps global state): run in processes, as `store.generate_many` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.textworld.games import GameSpec
from envsuite.envs.textworld.hasten import hasten
from envsuite.errors import DataError, EngineFailure

if TYPE_CHECKING:
    from textworld.generator.game import Game


CANNOT_WRITE = re.compile("couldn't (open|write)|trying to write", re.IGNORECASE)
"""what the two compilers say of a full disk"""


class CannotGenerate(DataError):
    """The generator has no game for these settings and this seed. Another seed is the caller's to choose."""


def make_game(spec: GameSpec) -> Game:
    """The game of a spec, equal to `tw-make`'s for the same settings and seed. Raises CannotGenerate."""
    import textworld
    import textworld.challenges
    import textworld.generator

    hasten()
    settings = dict(spec.settings)
    options = textworld.GameOptions()  # a fresh one for each game: the challenges write into it
    options.seeds = int(spec.seed)
    try:
        if spec.challenge == "custom":
            options.nb_rooms, options.nb_objects = settings["world_size"], settings["nb_objects"]
            chaining, length = options.chaining, settings["quest_length"]
            chaining.min_length = chaining.max_length = chaining.max_depth = length
            chaining.min_depth, chaining.min_breadth, chaining.max_breadth = 1, 1, 5  # the command line's defaults
            return textworld.generator.make_game(options)
        if spec.challenge == "simple":
            settings["test"] = False
        if spec.challenge == "cooking":
            foods = settings.pop("foods")
            settings["split"] = None if foods == "all" else foods
        _, make, _ = textworld.challenges.CHALLENGES[f"tw-{spec.challenge}"]
        return make(settings=settings, options=options)
    except (OSError, MemoryError):
        raise  # a fault of this machine, not of the game
    except Exception as error:  # the generator fails with whatever it happens to meet
        said = str(error).strip().split("\n")[0][:120]
        why = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise CannotGenerate(
            f"TextWorld cannot generate {spec.name} ({why}): take another seed, or less demanding settings."
        ) from error


def canonical(serialised: dict[str, Any]) -> dict[str, Any]:
    """A game as data, less what hangs on the order of Python sets or on how the generator was called."""
    game: dict[str, Any] = json.loads(json.dumps(serialised))
    game["metadata"].pop("settings", None)
    if "names_to_exclude" in game["grammar"]:
        game["grammar"]["names_to_exclude"].sort(key=str)
    for quest in game["quests"]:
        quest["fail_events"].sort(key=lambda event: json.dumps(event, sort_keys=True))
    return game


def content(serialised: dict[str, Any], named: bool = True) -> str:
    """16 hex digits over what a game asks for: its facts and quests, entities by their names.

    Equal for two seeds whose games differ in prose alone: who can solve one can solve the other. With `named=False`
    also for games that differ in names (their skeleton).
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
    spelled = json.dumps([sorted(fact(item) for item in serialised["world"]), quests])
    return hashlib.sha256(spelled.encode()).hexdigest()[:16]


def compile_game(game: Game, target: Path) -> None:
    """Writes the .z8 of a game. Raises CannotGenerate where it does not compile (too big, say), EngineFailure where the
    disk is full or the compiler was killed.

    The same compilers with the same switches as textworld's own, but for `-noindex` (no web pages on the project, a
    seventh of the time) and a home folder of its own: Inform writes into `~/Inform`, which parallel runs would share.
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
                said = done.stdout.decode(errors="replace").strip().split("\n")[-1][:200]
                if done.returncode < 0 or CANNOT_WRITE.search(said):
                    raise EngineFailure(
                        f"TextWorld's compiler could not finish (exit {done.returncode}: {said}): it needs memory, and some "
                        f"megabytes of disk in {folder.parent} and {target.parent}."
                    )
                raise CannotGenerate(f"TextWorld's game does not compile ({said}): it may be too big for a .z8 file.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
