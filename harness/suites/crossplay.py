"""Cross-play: teams of every pair of players in one game, and the matrix of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.policies import members, team_name
from harness.stats.summary import Summary

METRICS = ("success", "reward", "progression")
"""Metrics that every task has."""
Pair = tuple[str, str]
"""Player of the first agent, and player of all other agents."""


def teams(players: Sequence[str], agents: int) -> dict[Pair, str]:
    """Returns pair -> name of its team in a game with `agents` agents. Raises UsageError for an invalid player."""
    return {(first, partner): team_name([first, *[partner] * (agents - 1)]) for first in players for partner in players}


def pair_of(name: str) -> Pair | None:
    """Returns the pair of a team; None if the agents after the first have different players."""
    first, *partners = members(name)
    return (first, partners[0] if partners else first) if len(set(partners)) < 2 else None


def matrix(summaries: Mapping[str, Summary], metric: str, show: Callable[[Any], str]) -> list[list[str]]:
    """Returns the rows of a table, header included: a row per player of the first agent, a column per partner.

    `summaries` maps names of teams to results. `metric` is success, reward, progression or a metric of the task.
    """
    cells = {pair: summary for name, summary in summaries.items() if (pair := pair_of(name)) is not None}
    firsts, partners = _ordered(pair[0] for pair in cells), _ordered(pair[1] for pair in cells)
    rows = [["first agent / others", *partners]]
    for first in firsts:
        row = [cells.get((first, partner)) for partner in partners]
        rows.append([first, *[_cell(summary, metric, show) if summary else "–" for summary in row]])
    return rows


def _ordered(players: Iterable[str]) -> list[str]:
    """Returns the distinct players: scripted ones first, from weak to strong, then models by name."""
    known = ("random", "blind", "idle", "expert:greedy", "expert")
    return sorted(set(players), key=lambda name: (known.index(name) if name in known else len(known), name))


def interval(summary: Summary, metric: str) -> dict[str, Any] | None:
    """Returns the mean of a metric with its interval; None if the task lacks the metric."""
    mean: dict[str, Any] | None = summary[metric] if metric in METRICS else summary["metrics"].get(metric)
    return mean


def _cell(summary: Summary, metric: str, show: Callable[[Any], str]) -> str:
    mean = interval(summary, metric)
    return show(mean) if mean else "–"


def as_markdown(rows: Sequence[Sequence[str]], escape: Callable[[object], str]) -> list[str]:
    """Returns the lines of a matrix as a Markdown table; `escape` makes the players' names safe."""
    head = [escape(player) for player in rows[0]]
    body = [[escape(row[0]), *row[1:]] for row in rows[1:]]
    return [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1), *(f"| {' | '.join(row)} |" for row in body)]
