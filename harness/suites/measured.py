"""Our rows of a published table: finished runs that follow the protocol of the table's suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import DataError, UsageError, did_you_mean
from envsuite.reading import read_json
from envsuite.types import knobs_json
from harness.prompting import protocols
from harness.records import SCHEMA, check_types, schema_cure
from harness.stats.estimates import Estimate, mean, mean_over_splits, proportion
from harness.suites import suites
from harness.suites.paper_table import Column, Row, TableCell

PROTOCOL = ("reward_mode", "max_turns", "sampling", "prompting", "attempts")
"""settings that must be equal in all runs of one model in one table; runs of one task must also have equal panels"""

SUMMARY: dict[str, type] = {
    **dict.fromkeys(("task", "model"), str),
    **dict.fromkeys(("knobs", "metrics", "success"), dict),
    **{"episodes": int, "seeds": list},
}
"""fields of summary.json that a table needs, with their types"""

RENAMED = {"action_grammar": "grammar", "prompt_wording": "wording"}
"""flags that `prompting` of a run stores under another name"""


SPLITS = 5
"""splits of the data whose deviation a run's metric gives"""


@dataclass
class Measured:
    """Our rows of a table, and the runs that are not in it."""

    rows: list[Row]
    left_out: list[str] = field(default_factory=list)
    """a line per run under another protocol"""
    unlike: dict[tuple[str, str], str] = field(default_factory=dict)
    """(model, column) -> the first setting in which such a run differs"""


def read(
    metric: str,
    columns: list[Column],
    suite: str,
    folders: Iterable[Path],
    explicit: bool = False,
    over_splits: str = "",
    seeds: Sequence[tuple[str, ...]] = (),
) -> Measured:
    """Returns a row per model with finished runs of the columns' tasks, and the runs under another protocol.

    `over_splits` names the metric with the deviation over splits of the data. `seeds` names models that differ in
    their training seed alone and are pooled. Raises UsageError if runs of one model, or of such models, differ in
    protocol, or if the user chose a `metric` that no run has.
    """
    result = Measured([])
    known: set[str] = set()
    by_task: dict[tuple[str, str], list[Column]] = {}
    for column in columns:
        if column.task and column.task in registry.TASKS:
            by_task.setdefault(column.key, []).append(column)
    cells: dict[str, dict[str, TableCell]] = {}
    first: dict[str, tuple[Path, dict[str, Any]]] = {}
    episodes: dict[tuple[str, str], int] = {}
    group_of = {model: ", ".join(models) for models in seeds for model in models}
    for path in sorted(path for folder in folders for path in folder.glob("**/summary.json")):
        summary = _read(path)
        label = summary["model"]
        matching = by_task.get((summary["task"], knobs_json(_own_knobs(summary))), [])
        if not matching:
            continue
        if departure := _departure(summary, suite):
            result.left_out.append(f"{path.parent}: {departure}")
            result.unlike.update({(label, column.name): departure for column in matching})
            continue
        known |= {"success", "reward", "progression", *summary.get("repeats", ()), *summary["metrics"]}
        for column in matching:
            cell = summary_cell(path, summary, metric, column.task_type, over_splits)
            if cell is None:
                continue
            cell = dataclasses.replace(cell, published_prompt=_has_published_prompt(summary))
            group = group_of.get(label, label)
            _refuse_unlike(path, group, summary, first.setdefault(group, (path, summary)))
            if episodes.get((label, column.name), 0) >= summary["episodes"]:
                continue  # of several runs of one protocol the largest counts
            episodes[label, column.name] = summary["episodes"]
            cells.setdefault(label, {})[column.name] = cell
    if explicit and known and metric not in known:
        raise UsageError(
            f"No run has a metric {metric!r}: there are {', '.join(sorted(known))}.{did_you_mean(metric, known)}"
        )
    result.rows = [Row(label, True, by_column, (label,)) for label, by_column in sorted(cells.items())]
    return result


def summary_cell(
    path: Path, summary: dict[str, Any], metric: str, task_type: str = "", over_splits: str = ""
) -> TableCell | None:
    """Returns a run's cell, or None if the run lacks the metric. Raises DataError if its numbers are not numbers."""
    try:
        interval = _interval(summary, metric, task_type)
        if interval is None or interval["value"] is None:
            return None
        check_types(interval, {"value": (int, float), "n": int})
        bounds = {name: (int, float) for name in ("low", "high") if interval[name] is not None}
        check_types(interval, bounds)
        if interval["n"] < 1:
            raise ValueError(f"n is {interval['n']}")
        deviation = (summary["metrics"].get(over_splits) or {}).get("value") if over_splits else None
        return _cell(interval, metric == "success" and summary.get("attempts", 1) == 1, deviation)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} has no valid {metric!r} ({type(error).__name__}: {error}).") from error


def _cell(interval: Mapping[str, Any], share: bool, over_splits: float | None) -> TableCell:
    """Returns a cell with the likelihood of its score; a score outside [0, 1] has none.

    The cell shows the run's own interval, as boards do; with `over_splits`, the wider one of the likelihood.
    """
    value, low, high, n = (interval[name] for name in ("value", "low", "high", "n"))
    if not 0 <= value <= 1:
        return TableCell(value, low, high, n, over_splits=over_splits)
    estimate = _estimate(value, interval.get("deviation"), n, share, over_splits)
    if over_splits is not None:
        return TableCell(value, *estimate.interval(), n, estimate, over_splits)
    if low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
    return TableCell(value, low, high, n, estimate)


def _estimate(value: float, deviation: float | None, n: int, share: bool, over_splits: float | None) -> Estimate:
    if share:
        return proportion(value, n)
    if deviation is None:  # one game, or a run of an older version: the largest possible variance
        return Estimate(value, n, games=n)
    if over_splits is None:
        return mean(value, deviation, n)
    return mean_over_splits(value, deviation, n, over_splits, SPLITS)


def _departure(summary: dict[str, Any], name: str) -> str:
    """Describes the first setting in which a run differs from its suite; '' if it follows the protocol."""
    if difference := _other_games(summary, name):
        return difference
    suite = suites.suite(name)
    if protocol := _protocol_name(summary):
        if protocol != suite.get("protocol"):
            return f"protocol is {protocol}, the suite's {suite.get('protocol') or 'unset'}"
        suite = suites.published_settings(name, protocol)
    stored = settings(summary)
    for key, value in {"max_turns": None, "reward": "sparse", **suite}.items():
        if key not in stored or key in suite.get("free", ()):
            continue
        current = stored[key]
        if isinstance(current, bool):
            current = "on" if current else "off"
        if key == "max_turns" and _limit(summary, current) == _limit(summary, value):
            continue
        if current != value:
            expected = "unset" if value is None else value
            return f"{key} is {'unset' if current is None else current}, the suite's {expected}"
    return ""


def _limit(summary: dict[str, Any], max_turns: int | None) -> int | None:
    """Returns the turns after which an episode ends: the task has a limit too, and the smaller one counts."""
    own = summary["knobs"].get("max_steps", registry.knob_names(registry.TASKS[summary["task"]])["max_steps"])
    limits = [limit for limit in (max_turns, own) if limit]
    return min(limits, default=None)


def _protocol_name(summary: dict[str, Any]) -> str:
    return str((summary.get("prompting") or {}).get("protocol", ""))


def _has_published_prompt(summary: dict[str, Any]) -> bool:
    """Returns True if a run's model read the published words of a protocol, as they are pinned now."""
    name = _protocol_name(summary)
    published = protocols.load(name).published_id if name in protocols.names() else protocols.NEUTRAL
    return published != protocols.NEUTRAL and summary["prompting"].get("words") == published


def _own_knobs(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's knobs, except the ones that its protocol sets."""
    name = _protocol_name(summary)
    if name not in protocols.names() or summary["task"] not in registry.TASKS:
        return dict(summary["knobs"])
    set_by_protocol = protocols.load(name).knobs(registry.TASKS[summary["task"]].family)
    return {knob: value for knob, value in summary["knobs"].items() if knob not in set_by_protocol}


def settings(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's settings under the names of flags; players without a model have no sampling and no prompting."""
    prompting = summary.get("prompting") or {}
    return {
        "max_turns": summary.get("max_turns"),
        "reward": summary.get("reward_mode", "sparse"),
        **(summary.get("sampling") or {}),
        **prompting,
        **{flag: prompting[name] for flag, name in RENAMED.items() if name in prompting},
    }


def _other_games(summary: dict[str, Any], name: str) -> str:
    """Describes how a run's games differ from the suite's (first seed or panel); '' if they are the same."""
    task = registry.TASKS[summary["task"]]
    first, expected = summary["seeds"][0], suites.first_seed(name, task)
    if first != expected:
        return f"first seed is {first}, the suite's {expected}"
    if panel := summary.get("panel"):
        _, digest, games = panel
        if whole := suites.panel_departure(name, task.id, digest, games):
            return f"panel is {digest} of {games} games, the suite's {whole}"
    return ""


def _read(path: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = read_json(path)
        schema = summary.get("schema_version", SCHEMA)
        if schema == SCHEMA:
            check_types(summary, SUMMARY)
            check_types(summary["seeds"], {0: int})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is not a run's summary ({type(error).__name__}: {error}): finish the run with --resume."
        ) from error
    if schema != SCHEMA:
        raise DataError(f"{path} has schema_version {schema!r}: {schema_cure()}.")
    return summary


def _interval(summary: dict[str, Any], metric: str, task_type: str) -> dict[str, Any] | None:
    if task_type:
        return summary["by_task_type"].get(task_type) if metric == "success" else None
    if metric in ("success", "reward", "progression"):
        return summary.get(metric)
    return summary.get("repeats", {}).get(metric) or summary["metrics"].get(metric)


def _refuse_unlike(path: Path, label: str, summary: dict[str, Any], first: tuple[Path, dict[str, Any]]) -> None:
    same_task = summary["task"] == first[1]["task"]
    for key in (*PROTOCOL, *(["panel"] if same_task else [])):
        current, expected = summary.get(key), first[1].get(key)
        if current != expected:
            raise UsageError(
                f"{path.parent} and {first[0].parent} are different protocols of {label!r}: {key} is "
                f"{current!r} in one "
                f"and {expected!r} in the other. Name the runs of one protocol with --runs."
            )
