"""What a table still needs played, as runs: at three sizes, each a superset of what the smaller one asks.

tiny   the random player and the expert, up to 20 games a column: minutes on two cores
small  the same on all of the suite's games, and the bundled model on up to 20 of them: an hour or so
paper  the models of the published rows that can be evaluated without training, on all games: a GPU and a hub
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from envsuite import registry
from envsuite.errors import MissingData, UsageError
from harness.evaluate import RunConfig
from harness.policies import is_model, record_name
from harness.suites import suites
from harness.suites.published import Column, PaperTable

SIZES = ("tiny", "small", "paper")
FEW = 20
FLOOR_AND_CEILING = ("random", "expert")
BUNDLED = "smollm2-135m"


class Todo(NamedTuple):
    """One run of one model for one or several columns."""

    model: str
    columns: list[str]
    config: RunConfig


def models(table: PaperTable, size: str) -> list[tuple[str, int | None]]:
    """Who plays at a size, and how many games a column at most (None: the suite's number)."""
    if size == "tiny":
        return [(name, FEW) for name in FLOOR_AND_CEILING]
    if size == "small":
        return [*((name, None) for name in FLOOR_AND_CEILING), (BUNDLED, FEW)]
    return [(name, None) for name in dict.fromkeys(row.model for row in table.rows if row.model and not row.ours)]


def todo(
    table: PaperTable, size: str, asked: argparse.Namespace, only: Sequence[str] = (), absent: list[str] | None = None
) -> list[Todo]:
    """The runs of a size, one per model and distinct setting. `asked`: parsed flags of envsuite-eval.

    `only` replaces the models. A column whose games are not on this machine is told in `absent`, where that is given, and
    the others go on. Raises UsageError where nothing can be played here.
    """
    found: dict[tuple[str, str], Todo] = {}
    for name, few in _chosen(table, size, only):
        for column in table.columns:
            if not column.task or column.task not in registry.TASKS:
                continue
            try:
                config = _config(table, column, name, asked, few)
            except MissingData as error:
                if absent is None:
                    raise
                absent.append(f"{name}  {column.name}: not played: {error}")
                continue
            known = found.get((name, config.run_id))
            if known:
                known.columns.append(column.name)
            else:
                found[name, config.run_id] = Todo(name, [column.name], config)
    if not found and not absent:
        raise UsageError(f"Nothing of table {table.name!r} can be played with size {size!r} in this version.")
    return list(found.values())


def _chosen(table: PaperTable, size: str, only: Sequence[str]) -> list[tuple[str, int | None]]:
    if not only:
        return models(table, size)
    few = {"tiny": FEW, "small": FEW, "paper": None}[size]
    return [(name, few if is_model(name) or size == "tiny" else None) for name in only]


def _config(table: PaperTable, column: Column, model: str, asked: argparse.Namespace, few: int | None) -> RunConfig:
    from harness.cli.plans import configure

    args = suites.protocol(argparse.Namespace(**{**vars(asked), "model": model}), table.suite)
    args.set = [*args.set, *(f"{name}={value}" for name, value in column.knobs.items())]
    config = configure(registry.TASKS[column.task], args)
    if config.panel:
        suites.check_panel(table.suite, config.task, config.panel)
    episodes = min(len(config.seeds), few) if few else config.episodes
    return dataclasses.replace(config, model=record_name(model), episodes=episodes)
