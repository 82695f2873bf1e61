"""Game specifications: a challenge, its settings and a seed. This module does not need the engine."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from envsuite.envs.textworld.structure import split_of_seed
from envsuite.errors import BadKnob

SETTINGS: dict[str, dict[str, Any]] = {
    "custom": {"world_size": 2, "nb_objects": 3, "quest_length": 4, "goal": "detailed"},
    "simple": {"rewards": "dense", "goal": "detailed"},
    "cooking": {
        "recipe": 1,
        "take": 0,
        "go": 1,
        "open": False,
        "cook": False,
        "cut": False,
        "drop": False,
        "recipe_seed": 0,
        "foods": "all",
    },
    "treasure_hunter": {"level": 5},
    "coin_collector": {"level": 5},
}
"""Settings of each challenge with their defaults. A game is one of these, filled in, plus a seed."""

LEVELS = {"treasure_hunter": 30, "coin_collector": 300}
MAX_ROOMS = 100  # limit of a .z8 file, checked by the generator too
MAX_SEED = 2**32  # limit of numpy's RandomState


@dataclass(frozen=True)
class GameSpec:
    """One game: equal specs produce the same game on every machine with the same textworld version."""

    challenge: str
    settings: tuple[tuple[str, Any], ...]
    """all settings of the challenge, sorted by name"""
    seed: int
    split: str = ""
    """The split to which the game's structure belongs. '' if `seed` is TextWorld's own; otherwise
    TextWorld's seed is drawn from `seed` until the structure fits."""

    @property
    def name(self) -> str:
        """Name as in the Practitioner's Guide, `w2-o3-q4_17`, and alike for the other challenges.

        Games of a split are named `w2-o3-q4-test_17`.
        """
        split = f"-{self.split}" if self.split else ""
        return f"{setting_name(self.challenge, dict(self.settings))}{split}_{self.seed}"

    @functools.cached_property
    def key(self) -> str:
        """Cache key: 24 hex digits over generator version, challenge, settings, seed and split."""
        parts = [textworld_version(), self.challenge, self.settings, self.seed]
        if self.split:
            parts.append(self.split)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def candidate(self, number: int) -> GameSpec:
        """Returns the game with TextWorld's own seed that is drawn as candidate `number` of a split."""
        digest = hashlib.sha256(f"{self.seed}/{number}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:4], "big"), split="")


def game_spec(challenge: str, settings: Mapping[str, Any], seed: int, split_by: str = "seed") -> GameSpec:
    """Returns the game of `seed`; missing `settings` take their defaults.

    With `split_by="structure"` its structure belongs to the split of the seed. Raises BadKnob if no
    such game can exist.
    """
    known = SETTINGS[challenge]
    for name in settings:
        if name not in known:
            raise BadKnob(f"Challenge {challenge!r} has no setting {name!r}: it has {', '.join(known)}.")
    filled = {name: settings.get(name, default) for name, default in known.items()}
    check_settings(challenge, filled)
    if not 0 <= seed < MAX_SEED:
        raise BadKnob(f"TextWorld seeds are 0..{MAX_SEED - 1}, not {seed}.")
    split = split_of_seed(seed) if split_by == "structure" else ""
    return GameSpec(challenge, tuple(sorted(filled.items())), int(seed), split)


def check_settings(challenge: str, settings: Mapping[str, Any]) -> None:
    """Raises BadKnob for combinations that the generator rejects for every seed."""
    if challenge == "custom" and settings["goal"] == "none":
        raise BadKnob("Knob 'goal' cannot be 'none' in custom games: use detailed or brief.")
    if challenge == "cooking":
        if settings["take"] > settings["recipe"]:
            raise BadKnob(f"Cooking: take={settings['take']} is more than recipe={settings['recipe']}: lower take.")
        if settings["recipe_seed"] and not settings["take"]:
            raise BadKnob(f"Cooking: recipe_seed={settings['recipe_seed']} needs ingredients to take: set take >= 1.")
    if challenge in LEVELS and not 1 <= settings["level"] <= LEVELS[challenge]:
        raise BadKnob(f"Knob 'level' cannot be {settings['level']}: {challenge} has levels 1..{LEVELS[challenge]}.")
    if challenge == "coin_collector":
        level = settings["level"]
        rooms = ((level - 1) // 100 + 1) * ((level - 1) % 100 + 1)
        if rooms > MAX_ROOMS:
            raise BadKnob(
                f"Coin collector: level={level} has {rooms} rooms, but a .z8 file holds at most {MAX_ROOMS}: lower it."
            )


def setting_name(challenge: str, settings: Mapping[str, Any]) -> str:
    """Returns a short name for the settings of a challenge: `w2-o3-q4`, `cooking-r3-t2-g6-open`."""
    if challenge == "custom":
        brief = "-brief" * (settings["goal"] == "brief")
        return f"w{settings['world_size']}-o{settings['nb_objects']}-q{settings['quest_length']}{brief}"
    if challenge == "simple":
        return f"simple-{settings['rewards']}-{settings['goal']}"
    if challenge == "cooking":
        parts = [f"cooking-r{settings['recipe']}-t{settings['take']}-g{settings['go']}"]
        parts += [skill for skill in ("open", "cook", "cut", "drop") if settings[skill]]
        parts += [f"s{settings['recipe_seed']}"] * bool(settings["recipe_seed"])
        parts += [settings["foods"]] * (settings["foods"] != "all")
        return "-".join(parts)
    return f"{challenge}-l{settings['level']}"


@functools.cache
def textworld_version() -> str:
    """Returns the installed textworld version. Raises ModuleNotFoundError if there is none."""
    try:
        return importlib.metadata.version("textworld")
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError("No module named 'textworld'", name="textworld") from None
