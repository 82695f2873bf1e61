"""Runs that are still missing in a table of published numbers.

tiny   the random player and the expert, up to 20 games per column: minutes on two cores
small  both on all of the suite's games, and the bundled model on up to 20 games: about an hour
paper  the published models that need no training, on all games: needs a GPU and access to a model hub
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from envsuite import registry
from envsuite.errors import MissingData, UsageError
from harness.evaluate import RunConfig
from harness.policies import is_model
from harness.suites import suites
from harness.suites.paper_table import Column, PaperTable
from harness.suites.plan import Flags, configure, under_suite

SIZES = ("tiny", "small", "paper")
FEW = 20
BASELINES = ("random", "expert")
BUNDLED = "smollm2-135m"


class MissingRun(NamedTuple):
    """One run of one model that fills one or several columns."""

    model: str
    columns: list[str]
    config: RunConfig


def models(table: PaperTable, size: str) -> list[tuple[str, int | None]]:
    """Returns the players of a size with their largest number of games per column (None: the suite's number)."""
    if size == "tiny":
        return [(name, FEW) for name in BASELINES]
    if size == "small":
        return [*((name, None) for name in BASELINES), (BUNDLED, FEW)]
    return [(name, None) for name in dict.fromkeys(name for row in table.rows if not row.ours for name in row.models)]


def missing_runs(
    table: PaperTable, size: str, flags: Flags, only: Sequence[str] = (), absent: list[str] | None = None
) -> list[MissingRun]:
    """Returns the runs of a size, one per model and distinct setting.

    `only` replaces the models of the size. `absent` receives a line for each column whose games are not on this
    machine; without it such a column raises MissingData. Raises UsageError if nothing of the table can be
    played here.
    """
    runs: dict[tuple[str, str], MissingRun] = {}
    for name, limit in _players(table, size, only):
        for column in table.columns:
            if not column.task or column.task not in registry.TASKS:
                continue
            try:
                config = _config(table, column, name, flags, limit)
            except MissingData as error:
                if absent is None:
                    raise
                absent.append(f"{name}  {column.name}: not played: {error}")
                continue
            key = (name, config.run_id)
            if key in runs:
                runs[key].columns.append(column.name)
            else:
                runs[key] = MissingRun(name, [column.name], config)
    if not runs and not absent:
        raise UsageError(f"Nothing of table {table.name!r} can be played with size {size!r} in this version.")
    return list(runs.values())


def _players(table: PaperTable, size: str, only: Sequence[str]) -> list[tuple[str, int | None]]:
    if not only:
        return models(table, size)
    few = None if size == "paper" else FEW
    return [(name, few if is_model(name) or size == "tiny" else None) for name in only]


def _config(table: PaperTable, column: Column, model: str, flags: Flags, limit: int | None) -> RunConfig:
    settings = under_suite(flags, table.suite)
    knobs = (*settings["set"], *(f"{name}={value}" for name, value in column.knobs.items()))
    config = configure(registry.TASKS[column.task], model, {**settings, "set": knobs})
    if config.panel:
        suites.check_panel(table.suite, config.task, config.panel)
    episodes = min(len(config.seeds), limit) if limit else config.episodes
    return dataclasses.replace(config, episodes=episodes)
