"""Games as textworld's command line makes them, and what of them may differ."""

from __future__ import annotations

import json
from typing import Any

from envsuite.envs.textworld.games import GameSpec


def tw_make(spec: GameSpec) -> list[str]:
    """Arguments with which textworld's command line makes a game that has no split."""
    settings = dict(spec.settings)
    if spec.challenge == "custom":
        words = ["custom"] + ["--only-last-action"] * (settings.pop("goal") == "brief")
    else:
        words = [f"tw-{spec.challenge}"]
    if (foods := settings.pop("foods", "all")) != "all":
        settings["split"] = foods
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words += [flag] * value
        else:
            words += [flag, str(value)]
    return [*words, "--seed", str(spec.seed)]


def canonical_game(serialised: dict[str, Any]) -> dict[str, Any]:
    """Returns a game without what depends on set order or on how the generator was called."""
    game: dict[str, Any] = json.loads(json.dumps(serialised))
    game["metadata"].pop("settings", None)
    if "names_to_exclude" in game["grammar"]:
        game["grammar"]["names_to_exclude"].sort(key=str)
    for quest in game["quests"]:
        quest["fail_events"].sort(key=lambda event: json.dumps(event, sort_keys=True))
    return game
