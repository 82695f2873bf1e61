"""Summaries of records, and the result tables of the command line."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from envsuite.types import knobs_json
from harness.records import FAULTS, Record, is_broken
from harness.stats import aggregate
from harness.stats.intervals import SHARE, Interval, Range, mean_interval, success_interval
from harness.stats.ranges import known_ranges

Summary = dict[str, Any]


def summarise(records: Iterable[Record]) -> Summary:
    """Summarises the records of one model on one task. Broken episodes are counted and otherwise ignored.

    Reads the records once and keeps only their numbers in memory.

    Examples:
        >>> from pathlib import Path
        >>> from harness.records import read_results
        >>> games = read_results(Path("leaderboards/overcooked/results.jsonl.gz"))
        >>> salad = [game for game in games if game["task"] == "Overcooked-tomato_salad-v0"]
        >>> percent(summarise(game for game in salad if game["model"] == "random")["success"])
        '55.0 [31.5, 76.9] n=20'
    """
    reasoning = 0
    broken, clusters = 0, list[tuple[str, str, int]]()
    protocols: set[tuple[str, str]] = set()  # (task, reward mode)
    columns: dict[str, list[float]] = {name: [] for name in ("success", "reward", "progression")}
    sums: dict[str, float] = dict.fromkeys(("num_turns", "input_tokens", "output_tokens", "dropped_turns", "cost"), 0)
    faults = dict.fromkeys(FAULTS, 0)
    reasons = Counter[str]()
    metrics: dict[str, tuple[list[float], list[int]]] = defaultdict(
        lambda: ([], [])
    )  # values, and the episodes that have them
    by_type: dict[str, list[int]] = defaultdict(list)
    for record in records:
        if is_broken(record):
            broken += 1
            continue
        index = len(clusters)
        clusters.append((record["task"], knobs_json(record["knobs"]), record["seed"]))
        protocols.add((record["task"], record["reward_mode"]))
        for name, column in columns.items():
            column.append(record[name])
        for name in sums:
            sums[name] += record[name]
        for kind, times in record["faults"].items():
            faults[kind] = faults.get(kind, 0) + times
        reasoning += record.get("reasoning_tokens", 0)
        reasons[record["stop_reason"]] += 1
        for name, value in record["metrics"].items():
            metrics[name][0].append(value)
            metrics[name][1].append(index)
        by_type[record["labels"].get("task_type", "")].append(index)
    count, turns = len(clusters), sums["num_turns"]
    ranges: dict[str, Range] = known_ranges(*protocols.pop()) if len(protocols) == 1 else {}

    def success(indices: Sequence[int]) -> dict[str, Any]:
        wins = columns["success"]
        return _plain(success_interval([bool(wins[i]) for i in indices], [clusters[i] for i in indices]))

    return {
        "episodes": count,
        "broken": broken,
        "success": success(range(count)),
        "reward": _plain(mean_interval(columns["reward"], clusters, ranges.get("reward"))),
        "progression": _plain(mean_interval(columns["progression"], clusters, SHARE)),
        "repeats": {
            name: _plain(interval)
            for name, interval in aggregate.repeated([bool(win) for win in columns["success"]], clusters).items()
        },
        "metrics": {
            name: _plain(mean_interval(values, [clusters[i] for i in indices], ranges.get(name)))
            for name, (values, indices) in sorted(metrics.items())
        },
        "turns": turns / count if count else None,
        "valid_share": 1 - sum(faults.values()) / turns if turns else None,
        "faults": {kind: number / turns if turns else None for kind, number in faults.items()},
        "stop_reasons": dict(sorted(reasons.items())),
        **{name: sums[name] for name in ("input_tokens", "output_tokens", "dropped_turns", "cost")},
        **({"reasoning_tokens": reasoning} if reasoning else {}),
        "by_task_type": {kind: success(indices) for kind, indices in sorted(by_type.items()) if kind},
    }


def _plain(interval: Interval) -> dict[str, Any]:
    fields = interval._asdict()
    if interval.deviation is None:
        del fields["deviation"]
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in fields.items()}


def over_tasks(records: Iterable[Record]) -> Summary:
    """Summarises one model over several tasks; the profile and the interquartile mean resample games within tasks."""
    success, progression = (aggregate.task_scores(records, metric) for metric in ("success", "progression"))
    return {
        "tasks": len(success),
        "success": _plain(aggregate.success_over_tasks(success)),
        "progression_iqm": _plain(aggregate.interquartile_mean(progression)),
        "profile": {str(level): _plain(interval) for level, interval in aggregate.profile(progression).items()},
    }


def percent(interval: dict[str, Any]) -> str:
    """Formats an interval in percent, as '12.5 [4.0, 31.0] n=8'."""
    if interval["value"] is None:
        return "–"
    bounds = "" if interval["low"] is None else f" [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
    return f"{100 * interval['value']:.1f}{bounds} n={interval['n']}"


def number(interval: dict[str, Any]) -> str:
    """Formats an interval without n, as '0.125 [0.040, 0.310]'."""
    if interval["value"] is None:
        return "–"
    bounds = "" if interval["low"] is None else f" [{interval['low']:.3f}, {interval['high']:.3f}]"
    return f"{interval['value']:.3f}{bounds}"


def result_table(title: str, rows: Sequence[tuple[str, Summary]]) -> Table:
    """Returns a table with one row per model: success, reward, turns and cost."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("model")
    for head in ("success % [95 %]", "reward [95 %]", "turns", "valid %", "tokens out/ep", "broken"):
        table.add_column(head, justify="right")
    for name, summary in rows:
        episodes = summary["episodes"]
        table.add_row(
            name,
            percent(summary["success"]),
            number(summary["reward"]),
            f"{summary['turns']:.1f}" if summary["turns"] is not None else "–",
            f"{100 * summary['valid_share']:.1f}" if summary["valid_share"] is not None else "–",
            f"{summary['output_tokens'] / episodes:.0f}" if episodes and summary["output_tokens"] else "–",
            str(summary["broken"]),
        )
    return table


def type_table(rows: Sequence[tuple[str, Summary]]) -> Table | None:
    """Returns a table of success per task type, or None if the tasks have no types."""
    kinds = sorted({kind for _, summary in rows for kind in summary["by_task_type"]})
    if not kinds:
        return None
    table = Table(title="success % by task type", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("task type")
    for name, _ in rows:
        table.add_column(name, justify="right")
    for kind in kinds:
        cells = [summary["by_task_type"].get(kind) for _, summary in rows]
        table.add_row(kind, *(percent(cell) if cell else "–" for cell in cells))
    return table


def repeats_table(rows: Sequence[tuple[str, Summary]]) -> Table | None:
    """Returns a table of pass@k (one of k attempts wins) and pass^k (all k win), or None without repeated attempts."""
    names = list(dict.fromkeys(name for _, summary in rows for name in summary["repeats"]))
    if not names:
        return None
    table = Table(title="% of games won in k attempts [95 %]", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("model")
    for name in names:
        table.add_column(name, justify="right")
    for model, summary in rows:
        cells = [summary["repeats"].get(name) for name in names]
        table.add_row(model, *(percent(cell) if cell else "–" for cell in cells))
    return table


def tasks_table(rows: Sequence[tuple[str, Summary]]) -> Table:
    """Returns a table with one row per model: its aggregates over tasks."""
    table = Table(title="over tasks", title_justify="left", box=SIMPLE_HEAD)
    for head, side in (("model", "left"), ("tasks", "right"), ("success %, mean of tasks [95 %]", "right"),
                       ("progression %, interquartile mean [95 %]", "right")):  # fmt: skip
        table.add_column(head, justify=side)  # type: ignore[arg-type]
    for model, summary in rows:
        table.add_row(model, str(summary["tasks"]), percent(summary["success"]), percent(summary["progression_iqm"]))
    return table
