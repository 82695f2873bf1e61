"""envsuite envs: what there is to play, and how hard it is."""

from __future__ import annotations

import argparse
import importlib.resources
import inspect
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import declared_knobs
from envsuite.errors import MissingExtra
from envsuite.types import Task
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.stats.intervals import success_interval


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(prog="envsuite envs", description="List families and tasks; show difficulty cards.")
    parser.add_argument("pattern", nargs="?", default="", help="family, task id or glob; default: list the families")
    parser.add_argument("--card", action="store_true", help="knobs, levels and measured difficulty")
    parser.add_argument(
        "--measure", type=int, metavar="N", help="play N games per task and write the cards (for developers)"
    )
    parser.add_argument("--seed", type=int, default=0, help="with --measure: offset of the first game (default: 0)")
    add_common(parser, "json", "verbose")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    console = cli.console()
    if not args.pattern and not args.card:
        _families(console, args.json)
        return 0
    pattern = args.pattern or "*"
    family = pattern.lower()
    # Here a family's name lists all its tasks; in other commands it is its default task.
    tasks = registry.tasks(f"{family}-*" if family in registry.FAMILIES and not args.card else pattern)
    if args.measure:
        for task in tasks:
            _measure(console, task, args.measure, args.seed)
    elif args.json:
        cli.print_json([_plain(task) for task in tasks])
    elif args.card:
        for task in tasks:
            _card(console, task)
    else:
        table = cli.new_table("", ("task", "level", "splits", "summary"))
        for task in tasks:
            splits = "panel" if task.panel else " ".join(f"{name}:{len(span):,}" for name, span in task.splits.items())
            table.add_row(task.id, task.level, splits, task.summary)
        console.print(table)
    return 0


def _families(console: Console, as_json: bool) -> None:
    registry.tasks("*")  # plugins too
    count = Counter(task.family for task in registry.TASKS.values())
    if as_json:
        cli.print_json({name: vars(family) for name, family in registry.FAMILIES.items()})
        return
    table = cli.new_table("", ("family", "tasks", "what it is", "extra", "source"))
    table.caption = "envsuite envs NAME lists a family's tasks; --card shows knobs and difficulty"
    for name in sorted({*registry.FAMILIES, *count}):
        family = registry.FAMILIES.get(name)
        row = (family.summary, family.requires, family.paper) if family else ("", "", "")
        table.add_row(name, str(count[name]), *row)
    console.print(table)


def _measure(console: Console, task: Task, episodes: int, seed: int) -> None:
    """Measures a task and writes its card into the source checkout, beside the environment."""
    from harness.difficulty_cards import measure

    path = Path(inspect.getfile(registry.env_class(task))).with_name("cards.json")
    cards = json.loads(path.read_text()) if path.exists() else {}
    cards[task.id] = measure(task, episodes, seed)
    write_atomically(path, json.dumps(dict(sorted(cards.items())), indent=1) + "\n")
    console.print(f"{task.id}: {cards[task.id]}", highlight=False, soft_wrap=True)


def card(task: Task) -> dict[str, Any]:
    """Returns the shipped difficulty card of a task; {} if it was not measured."""
    package = task.entry_point.partition(":")[0].rpartition(".")[0]
    try:
        source = importlib.resources.files(package) / "cards.json"
        result: dict[str, Any] = json.loads(source.read_text()).get(task.id, {})
        return result
    except (FileNotFoundError, ModuleNotFoundError, ValueError, TypeError):
        return {}


def share_of_wins(measured: dict[str, Any], player: str) -> str:
    """Returns a player's success on a card with its 95 % interval; a dash if it was not measured."""
    from harness.difficulty_cards import IDLE_GAMES

    success = measured.get(f"{player}_success")
    if success is None:
        return "–"
    games = min(measured["episodes"], IDLE_GAMES) if player == "idle" else measured["episodes"]
    wins = round(success * games)
    interval = success_interval([True] * wins + [False] * (games - wins), range(games))
    return f"{success:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _plain(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "family": task.family,
        "level": task.level,
        "kwargs": dict(task.kwargs),
        "splits": {name: [span.start, span.stop] for name, span in task.splits.items()},
        "requires": task.requires,
        "summary": task.summary,
        "card": card(task),
    }


def _card(console: Console, task: Task) -> None:
    console.print(task.id, style="bold", end="  ", highlight=False)
    console.print(task.summary, highlight=False)
    try:
        cls = registry.env_class(task)
    except MissingExtra as error:
        console.print(str(error), style="yellow")
        return
    console.print(inspect.getdoc(cls) or "", highlight=False)
    table = cli.new_table("knobs", ("knob", "value", "range", "what it does"))
    for name, knob in declared_knobs(cls).items():
        table.add_row(name, str(task.kwargs.get(name, knob.default)), knob.range, knob.doc)
    console.print(table)
    for level, settings in cls.levels_of(registry.knob_names(task)).items():
        console.print(f"  {level}: {settings}", highlight=False)
    measured = card(task)
    if measured:
        table = Table(box=SIMPLE_HEAD, title="difficulty, measured", title_justify="left", show_header=False)
        for key, value in measured.items():
            player = key.removesuffix("_success")
            text = share_of_wins(measured, player) if player != key else str(value)
            table.add_row(key, json.dumps(value) if isinstance(value, dict) else text)
        console.print(table)
    else:
        console.print("  no card: this task was not measured", highlight=False)


main = cli.command(_main)
