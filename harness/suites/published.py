"""Published numbers, and our runs beside them, cell by cell.

`published.jsonl.gz` holds 1,687 printed results with their set-ups and sources, one JSON object a line; `tables.toml` says
which tasks of ours a table's columns are, and which model of ours a published row is. Nothing printed here was made by hand.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.errors import DataError, UsageError, did_you_mean
from envsuite.types import knobs_json
from harness.records import SCHEMA, schema_cure
from harness.suites import suites, training_studies

REPRODUCED, WITHIN, DEVIATES, NOT_RUN = "reproduced", "within interval", "deviates", "not run"
SHARED = ("models", "zero-shot", "trained", "no-row")  # sections of tables.toml that are no tables
PROTOCOL = ("reward_mode", "max_turns", "sampling", "prompting", "attempts")
"""what must be equal in all of one model's runs that stand in one table; of one task, the panel too"""


RENAMED = {"action_grammar": "grammar", "prompt_wording": "wording"}
"""flags of a suite that a run's `prompting` has under another name"""


class Cell(NamedTuple):
    """A number with what is known of its spread."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Column:
    """A column as printed, and what is played for it: a task at a setting. No task: nothing here can be played for it."""

    name: str
    task: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    task_type: str = ""
    """only the games of this type count"""

    @property
    def key(self) -> tuple[str, str]:
        return self.task, knobs_json(registry.overrides(registry.TASKS[self.task], dict(self.knobs)))


@dataclass(frozen=True)
class Row:
    """A line of a table: who, and a cell per column. Published rows know which of our models they are ('' for none)."""

    label: str
    ours: bool
    cells: dict[str, Cell]
    model: str = ""
    command: str = ""
    cost: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A published table with our rows beside it."""

    name: str
    title: str
    metric: str
    suite: str
    columns: list[Column]
    rows: list[Row]
    notes: list[str]
    footnotes: dict[tuple[str, str], str]
    """(row, column) -> what contradicts the number printed there"""
    left_out: list[str]
    """runs of the columns' tasks that are not of the suite's protocol, and in what"""
    small: list[str] = field(default_factory=list)
    """what the table compares, compared by trainings in small: studies of other models and budgets"""

    def measured(self, row: Row) -> Row | None:
        """Our row that stands beside a published one."""
        return next((one for one in self.rows if one.ours and one.label == row.model), None) if row.model else None

    def status(self, row: Row, column: str) -> str:
        """'' where nothing was published, else one of the four verdicts."""
        if column not in row.cells:
            return ""
        mine = self.measured(row)
        return verdict(row.cells[column], mine.cells[column]) if mine and column in mine.cells else NOT_RUN


@functools.cache
def records() -> tuple[dict[str, Any], ...]:
    """Every published number."""
    data = (importlib.resources.files("harness.suites") / "published.jsonl.gz").read_bytes()
    return tuple(json.loads(line) for line in gzip.decompress(data).splitlines())


def _spec() -> dict[str, dict[str, Any]]:
    return tomllib.loads((importlib.resources.files("harness.suites") / "tables.toml").read_text())


def tables() -> dict[str, dict[str, Any]]:
    """The tables that can be printed, by name."""
    return {name: spec for name, spec in _spec().items() if name not in SHARED}


def table(
    name: str,
    folders: Iterable[Path] = (),
    rows: Mapping[str, str] | None = None,
    metric: str = "",
    trained: Path | None = None,
) -> PaperTable:
    """A table by name, with the runs found below `folders`. Raises UsageError naming the nearest.

    `rows`: published row -> the model of ours that stands beside it, for models trained here. `metric` replaces the
    table's own. `trained`: the folder of the studies that the table names.
    """
    known = tables()
    if name not in known:
        raise UsageError(f"No table {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    spec = known[name]
    columns = [_column(column, value) for column, value in spec["columns"].items()]
    published = _published(name, spec, [one.name for one in columns], rows or {})
    asked, metric = metric, metric or spec["metric"]
    footnotes = {(one["row"], one["column"]): one["text"] for one in spec.get("footnotes", ())}
    ours, left_out = _ours(metric, columns, spec["suite"], folders, bool(asked))
    notes = spec.get("notes", [])
    why = _spec()["no-row"]
    if not ours and (reason := why.get(name) or why.get(spec["suite"])):
        notes = [*notes, f"no row of ours: {reason}"]
    small = [training_studies.in_words(trained / one) for one in spec.get("studies", ())] if trained else []
    return PaperTable(
        name, spec["title"], metric, spec["suite"], columns, [*published, *ours], notes, footnotes, left_out, small
    )


def _column(name: str, value: str | dict[str, Any]) -> Column:
    if isinstance(value, str):
        return Column(name, value)
    return Column(name, value["task"], value.get("set", {}), value.get("task_type", ""))


def _published(name: str, spec: dict[str, Any], columns: list[str], chosen: Mapping[str, str]) -> list[Row]:
    scale, pivot = spec.get("scale", 1.0), re.compile(spec.get("variant", r"(?P<column>.*)"))
    rows: dict[str, dict[str, Cell]] = {}
    who: dict[str, tuple[str, str]] = {}
    for one in records():
        if one["key"] != spec["key"] or one["table_or_figure"] != spec["table"]:
            continue
        if any(one[key] != value for key, value in spec.get("only", {}).items()):
            continue
        match = pivot.fullmatch(one["task_variant"])
        if not match or match["column"] not in columns or not isinstance(one["value"], (int, float)):
            continue
        spread = one["std_or_ci"] if isinstance(one["std_or_ci"], (int, float)) else None
        value = one["value"] * scale
        low, high = (None, None) if spread is None else (value - spread * scale, value + spread * scale)
        label = ", ".join([one["model"], one["method"], *([match["row"]] if "row" in match.groupdict() else [])])
        who[label] = one["model"], one["method"]
        rows.setdefault(label, {}).setdefault(match["column"], Cell(value, low, high, one["n_episodes"]))
    for label in chosen:
        if label not in rows:
            raise UsageError(
                f"Table {name!r} has no row {label!r}: it has {'; '.join(rows)}.{did_you_mean(label, rows)}"
            )
    return [
        Row(label, False, cells, *_runner(name, spec, label, *who[label], chosen.get(label, "")))
        for label, cells in rows.items()
    ]


def _runner(name: str, spec: dict[str, Any], label: str, model: str, method: str, chosen: str) -> tuple[str, str, str]:
    """(our model, the command that runs a published row, what that costs)."""
    shared, costs = _spec(), spec.get("cost", {})
    ours = shared["models"].get(model, "")
    if chosen:
        return chosen, f"envsuite-eval -m {chosen} -e suite:{spec['suite']}", costs.get("zero-shot", "")
    if method in shared["zero-shot"]["methods"] and ours:
        return ours, f"envsuite-table {name} --run paper --model {ours}", costs.get("zero-shot", "")
    algorithm = shared["trained"].get(method)
    if algorithm and ours:
        command = (
            f"envsuite-train RECIPE.toml --set algorithm={algorithm} --set model.name={ours} -o CKPT && "
            f'envsuite-table {name} --run paper --model CKPT/model --row "{label}=CKPT/model"'
        )
        return "", command, costs.get("trained", "")
    return "", "", "no command here: its model or method is not in this suite"


def _ours(
    metric: str, columns: list[Column], suite: str, folders: Iterable[Path], asked: bool = False
) -> tuple[list[Row], list[str]]:
    """A row per model that has finished runs of the columns' tasks at the suite's settings; runs at other settings.

    Raises UsageError where a metric was `asked` for that no run has.
    """
    left_out: list[str] = []
    known: set[str] = set()
    wanted: dict[tuple[str, str], list[Column]] = {}
    for column in columns:
        if column.task and column.task in registry.TASKS:
            wanted.setdefault(column.key, []).append(column)
    rows: dict[str, dict[str, Cell]] = {}
    first: dict[str, tuple[Path, dict[str, Any]]] = {}
    size: dict[tuple[str, str], int] = {}
    for path in sorted(path for folder in folders for path in folder.glob("**/summary.json")):
        summary = _read(path)
        label = summary["model"]
        meant = wanted.get((summary["task"], knobs_json(summary["knobs"])), [])
        if meant and (departure := _departure(summary, suite)):
            left_out.append(f"{path.parent}: {departure}")
            continue
        if meant:
            known |= {"success", "reward", "progression", *summary.get("repeats", ()), *summary["metrics"]}
        for column in meant:
            interval = _interval(summary, metric, column.task_type)
            if interval is None or interval["value"] is None:
                continue
            _refuse_unlike(path, label, summary, first.setdefault(label, (path, summary)))
            if size.get((label, column.name), 0) >= summary["episodes"]:
                continue  # of runs of one protocol the larger stands
            size[label, column.name] = summary["episodes"]
            rows.setdefault(label, {})[column.name] = Cell(
                interval["value"], interval["low"], interval["high"], interval["n"]
            )
    if asked and known and metric not in known:
        raise UsageError(
            f"No run has a metric {metric!r}: there are {', '.join(sorted(known))}.{did_you_mean(metric, known)}"
        )
    return [Row(label, True, cells, label) for label, cells in sorted(rows.items())], left_out


def _departure(summary: dict[str, Any], name: str) -> str:
    """In what a run was not played as the suite asks, of games, cap, reward, sampling and prompting; '' where in nothing."""
    suite = suites.suite(name)
    if said := _other_games(summary, name):
        return said
    told = settings(summary)
    for key, value in {"max_turns": None, "reward": "sparse", **suite}.items():
        if key not in told or key in suite.get("free", ()):
            continue
        mine = told[key]
        if isinstance(mine, bool):
            mine = "on" if mine else "off"
        if mine != value:
            return f"{key} is {'unset' if mine is None else mine}, the suite's {'unset' if value is None else value}"
    return ""


def settings(summary: dict[str, Any]) -> dict[str, Any]:
    """What a run was played with, by the names that suites have for it; a player that reads nothing has little to tell."""
    prompting = summary.get("prompting") or {}
    return {
        "max_turns": summary.get("max_turns"),
        "reward": summary.get("reward_mode", "sparse"),
        **(summary.get("sampling") or {}),
        **prompting,
        **{flag: prompting[name] for flag, name in RENAMED.items() if name in prompting},
    }


def _other_games(summary: dict[str, Any], name: str) -> str:
    """In what a run's games are not the suite's: those of another split, a later stretch of them, another panel."""
    task = registry.TASKS[summary["task"]]
    first, wanted = summary["seeds"][0], suites.first_seed(name, task)
    if first != wanted:
        return f"first seed is {first}, the suite's {wanted}"
    if panel := summary.get("panel"):
        _, digest, games = panel
        if whole := suites.panel_departure(name, task.id, digest, games):
            return f"panel is {digest} of {games} games, the suite's {whole}"
    return ""


def _read(path: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads(path.read_text())
        schema = summary.get("schema_version", SCHEMA)
        if schema == SCHEMA:
            summary["task"], summary["knobs"], summary["model"], summary["episodes"], summary["seeds"][0]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is no summary ({type(error).__name__}: {error}): finish the run with --resume."
        ) from error
    if schema != SCHEMA:
        raise DataError(f"{path} has schema_version {schema!r}: {schema_cure(schema)}.")
    return summary


def _interval(summary: dict[str, Any], metric: str, task_type: str) -> dict[str, Any] | None:
    if task_type:
        found = summary["by_task_type"].get(task_type) if metric == "success" else None
    elif metric in ("success", "reward", "progression"):
        found = summary[metric]
    else:
        found = summary.get("repeats", {}).get(metric) or summary["metrics"].get(metric)
    return found


def _refuse_unlike(path: Path, label: str, summary: dict[str, Any], first: tuple[Path, dict[str, Any]]) -> None:
    same_task = summary["task"] == first[1]["task"]
    for key in (*PROTOCOL, *(["panel"] if same_task else [])):
        mine, theirs = summary.get(key), first[1].get(key)
        if mine != theirs:
            raise UsageError(
                f"{path.parent} and {first[0].parent} are different protocols of {label!r}: {key} is {mine!r} in one and "
                f"{theirs!r} in the other. Name the runs of one protocol with --runs."
            )


def verdict(published: Cell, measured: Cell) -> str:
    """'reproduced' within both intervals, 'within interval' inside one, else 'deviates'; 'no interval' of ours, no word."""
    if measured.low is None or measured.high is None:
        return "no interval"
    inside = measured.low <= published.value <= measured.high
    if published.low is not None and published.high is not None:
        overlap = published.low <= measured.value <= published.high
        return REPRODUCED if inside and overlap else WITHIN if inside or overlap else DEVIATES
    return WITHIN if inside else DEVIATES
