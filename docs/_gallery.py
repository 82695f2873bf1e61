"""Writes the gallery: docs/envs/gallery.md and its pictures in docs/images/gallery.

    make gallery

Every number comes from the cards that the package ships, and every episode is played while this runs.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from docs import _drawings
from envsuite import TextEnv, registry
from envsuite.cache import write_atomically
from envsuite.core import declared_knobs
from envsuite.types import Task
from harness.cli.envs import card, share_of_wins

DOCS = Path(__file__).parent
PICTURES = DOCS / "images" / "gallery"
WIDTH = 86  # columns of an episode's text: a code block of this width needs no scroll bar
TURNS = 3
LINES = 14  # longest observation or command that is shown whole


class Entry(NamedTuple):
    """One family: its episode, its tasks in the table, and what its picture shows."""

    family: str
    title: str
    task: str
    rows: tuple[str, ...]
    caption: str


ENTRIES = (
    Entry("alfworld", "ALFWorld", "ALFWorld-generated-medium-v0",
          ("ALFWorld-generated-easy-v0", "ALFWorld-generated-medium-v0", "ALFWorld-generated-hard-v0"),
          "the room of the episode: every receptacle and what is in it; dark ones are closed at the start"),
    Entry("babyai", "BabyAI", "BabyAI-hard-v0",
          ("BabyAI-easy-v0", "BabyAI-medium-v0", "BabyAI-hard-v0"),
          "Minigrid's drawing of the start; the player sees the bright cells"),
    Entry("textworld", "TextWorld", "TextWorld-medium-v0",
          ("TextWorld-easy-v0", "TextWorld-medium-v0", "TextWorld-hard-v0"),
          "the map of the generated world; the player starts in the dark room"),
    Entry("overcooked", "Overcooked", "Overcooked-hard-v0",
          ("Overcooked-easy-v0", "Overcooked-medium-v0", "Overcooked-hard-v0",
           "Overcooked-tomato_salad-v0", "Overcooked-tomato_lettuce_salad-v0",
           "Overcooked-AI-cramped_room-v0", "Overcooked-AI-forced_coordination-v0"),
          "a kitchen drawn from the seed, with crates, bowl racks, a board, stoves and hatches"),
    Entry("virtualhome", "VirtualHome", "VirtualHome-easy-v0",
          ("VirtualHome-easy-v0", "VirtualHome-medium-v0", "VirtualHome-hard-v0",
           "VirtualHome-pair-easy-v0", "VirtualHome-pair-medium-v0", "VirtualHome-pair-hard-v0"),
          "a home drawn from the seed: one frame per room, one card per piece of furniture"),
    Entry("datascicoding", "DataSciCoding", "DataSciCoding-easy-v0",
          ("DataSciCoding-easy-v0", "DataSciCoding-medium-v0", "DataSciCoding-hard-v0", "DataSciCoding-explore-v0",
           "DataSciCoding-generated-easy-v0", "DataSciCoding-generated-medium-v0", "DataSciCoding-generated-hard-v0",
           "DataSciCoding-mle-v0", "DataSciCoding-caafe-v0"),
          "two columns of the episode's training table, one colour per class"),
    Entry("swegym", "SWE-Gym", "SWEGym-medium-v0",
          ("SWEGym-easy-v0", "SWEGym-medium-v0", "SWEGym-hard-v0",
           "SWEGym-mined-easy-v0", "SWEGym-mined-medium-v0", "SWEGym-mined-hard-v0"),
          "the tests of the repository: the filled ones fail before the repair"),
)  # fmt: skip


def open_episode(entry: Entry, **options: Any) -> tuple[TextEnv, str]:
    """Returns the environment of an entry after its reset, and the first observation."""
    task = registry.TASKS[entry.task]
    env = registry.build(task, **options)
    seed = 0 if task.panel else task.splits[registry.default_split(task)].start
    observation, _ = env.reset(seed=seed)
    return env, observation


def section(entry: Entry) -> str:
    """Returns the Markdown of one family."""
    family = registry.FAMILIES[entry.family]
    tasks = [task for task in registry.tasks("*") if task.family == entry.family]
    task = registry.TASKS[entry.task]
    knobs = ", ".join(f"`{name}`" for name in declared_knobs(registry.env_class(task)))
    suffix = _drawings.SUFFIX[entry.family]
    parts = [
        f"## {entry.title}",
        f"{family.summary[0].upper()}{family.summary[1:]}. {len(tasks)} tasks. "
        f"[Rules, rewards and quirks]({entry.family}.md).",
        f"![{entry.title}: {entry.caption}](../images/gallery/{entry.family}.{suffix})",
        f"*{entry.task}: {entry.caption}.*",
        table(entry),
        f"Knobs: {knobs}.",
        f"The first turns of {entry.task}, with the expert's commands:",
        f"```text\n{episode(entry)}\n```",
    ]
    return "\n\n".join(parts)


def table(entry: Entry) -> str:
    """Returns floor, ceiling and sizes of an entry's tasks, from their cards."""
    lines = [
        "| task | games | floor (random) | ceiling (expert) | commands to solve | choices per turn | splits |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name in entry.rows:
        task, measured = registry.TASKS[name], card(registry.TASKS[name])
        choices = measured["admissible_commands"]["mean"] or "unlimited"
        cells = [
            f"`{name}`",
            measured["episodes"],
            share_of_wins(measured, "random"),
            share_of_wins(measured, "expert"),
            measured["solution_length"]["mean"],
            choices,
            sizes(task),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def sizes(task: Task) -> str:
    """Returns the number of games in each split, or in the panel."""
    games = registry.panel(task)
    if games is not None:
        return f"{len(games):,} games"
    return ", ".join(f"{name} {len(span):,}" for name, span in task.splits.items())


def episode(entry: Entry) -> str:
    """Plays the expert for some turns and returns the transcript."""
    env, observation = open_episode(entry)
    lines = [_shown(f"Objective: {env.objective}")] if env.objective.strip() not in observation else []
    lines.append(_shown(observation))
    for _ in range(TURNS):
        command = env.expert()
        assert command is not None, f"{entry.task} has no expert"
        observation, _reward, terminated, truncated, _info = env.step(command)
        lines += [f"\n> {_shown(command)}", _shown(observation)]
        if terminated or truncated:
            break
    env.close()
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Returns a text folded to the page, and cut if it is long."""
    lines = [part for line in text.strip().splitlines() for part in textwrap.wrap(line, WIDTH, subsequent_indent="")]
    if len(lines) > LINES:
        lines = [*lines[:LINES], "..."]
    return "\n".join(lines)


def page() -> str:
    """Returns the whole page."""
    parts = [
        "# Gallery",
        "Seven families of environments. Each has a random player as its floor, an expert as its ceiling, knobs,\n"
        "and tasks from easy to hard. [Difficulty cards](cards.md) lists the measurements of every task.",
        "`make gallery` writes this page: the numbers are from the cards that the package ships, and the\n"
        "episodes are played.",
    ]
    return "\n\n".join([*parts, *map(section, ENTRIES)]) + "\n"


def main() -> None:
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Minigrid draws with pygame
    PICTURES.mkdir(parents=True, exist_ok=True)
    for entry in ENTRIES:
        path = PICTURES / f"{entry.family}.{_drawings.SUFFIX[entry.family]}"
        _drawings.draw(entry, path, open_episode)
        print(path)
    write_atomically(DOCS / "envs" / "gallery.md", page())


if __name__ == "__main__":
    main()
