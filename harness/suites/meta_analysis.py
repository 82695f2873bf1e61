"""Everything known about one task: all published numbers and all of our runs, and where they disagree.

`collect` gathers the numbers from the published tables and from run folders, `disagreements` compares numbers that
one model and method have in several places, and `settings` lists how the protocols differ. `page` renders all three.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.errors import UsageError, did_you_mean
from envsuite.escaping import markdown
from envsuite.types import knobs_json
from harness.stats.summary import summarise
from harness.suites import leaderboards, measured, suites
from harness.suites.forest_plot import Line
from harness.suites.paper_table import TableCell
from harness.suites.published import column_of, table, tables
from harness.suites.verdicts import AGREES, CANNOT_TELL, DIFFERS, CellVerdict, Pair, judge

SHOWN = ("episodes", "max_turns", "history", "thinking", "admissible", "action_mode", "temperature", "max_tokens")
"""settings of suites in which the sources may differ"""


class Entry(NamedTuple):
    """One number on a task."""

    source: str
    """paper and table, or 'ours'"""
    label: str
    """model and method"""
    cell: TableCell
    suite: str
    ours: bool
    obstacle: str = ""
    """why the number cannot be compared, or ''"""
    footnote: str = ""
    """what contradicts the number in print, or ''"""

    @property
    def subject(self) -> str:
        """Model and method; numbers of one subject under one protocol should be equal."""
        return f"{self.label}, {self.suite}"


class Disagreement(NamedTuple):
    """Two numbers of one model and method, with the verdict on the second minus the first."""

    first: Entry
    second: Entry
    verdict: CellVerdict


def collect(task: str, folders: Sequence[Path] = (), boards: Sequence[Path] = (), task_type: str = "") -> list[Entry]:
    """Returns every number on a task, published ones first. Raises UsageError if no table has a column for it.

    Ours are the runs below `folders` that follow the suite of a table, and the entries of `boards`.
    """
    if task not in registry.TASKS:
        raise UsageError(f"No task {task!r} is registered.{did_you_mean(task, known_tasks())}")
    key = task, knobs_json(registry.overrides(registry.TASKS[task], {}))
    published: list[Entry] = []
    ours: dict[tuple[str, str], Entry] = {}
    metric = ""
    for name, spec in tables().items():
        if task not in _tasks(spec):
            continue
        paper_table = table(name, folders)
        metric = metric or paper_table.metric
        columns = [column for column in paper_table.columns if column.task == task and column.task_type == task_type]
        for column in columns:
            if column.key != key:
                continue
            for row in paper_table.rows:
                cell = row.cells.get(column.name)
                if cell is None:
                    continue
                source = "ours" if row.ours else f"{spec['key']}, {spec['table']}"
                obstacle = paper_table.obstacles.get((row.label, column.name), "")
                footnote = paper_table.footnotes.get((row.label, column.name), "")
                entry = Entry(source, row.label, cell, paper_table.suite, row.ours, obstacle, footnote)
                if row.ours:
                    ours.setdefault((paper_table.suite, row.label), entry)
                else:
                    published.append(entry)
    if not published:
        raise UsageError(f"No table has a column for {task}: there are {', '.join(known_tasks())}.")
    for folder in boards if not task_type else ():
        for entry in _of_board(folder, key, metric):
            ours.setdefault((entry.suite, entry.label), entry)
    return [*published, *ours.values()]


def _of_board(folder: Path, key: tuple[str, str], metric: str) -> Iterator[Entry]:
    """Yields the entries of a board on a task. Reads the records only if there is one."""
    if key[0] not in (folder / "metadata.json").read_text("utf-8"):
        return
    board = leaderboards.read(folder)
    for place, entry in board.entries.items():
        if place[:2] == key:
            summary = {**summarise(board.of(place)), "attempts": entry["identity"]["attempts"]}
            cell = measured.summary_cell(folder / "metadata.json", summary, metric)
            if cell:
                yield Entry("ours", place[2], cell, board.suite, True)


def known_tasks() -> list[str]:
    """Returns the tasks that are columns of published tables."""
    return sorted(set().union(*map(_tasks, tables().values())) & registry.TASKS.keys())


def task_of(name: str) -> str:
    """Returns the task that a name means, in any case and without its version: the latest that a table has, or else
    the latest of all. Any other name is returned as it is.
    """
    for ids in ((name,) if name in registry.TASKS else (), known_tasks(), registry.TASKS):
        matching = [key for key in ids if name.lower() in (key.lower(), key.lower().rpartition("-v")[0])]
        if matching:
            return max(matching, key=lambda key: int(key.rpartition("-v")[2]))
    return name


def _tasks(spec: Mapping[str, Any]) -> set[str]:
    """Returns the tasks of a table's columns."""
    return {column_of(name, value).task for name, value in spec["columns"].items()}


def disagreements(entries: Sequence[Entry]) -> list[Disagreement]:
    """Returns every pair of numbers of one model and method that is printed more than once with different values.

    All pairs are judged together, as one table.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        known = [earlier.cell.value for earlier in groups.get(entry.subject, [])]
        if entry.cell.value not in known:
            groups.setdefault(entry.subject, []).append(entry)
    pairs = [pair for group in groups.values() for pair in itertools.combinations(group, 2)]
    verdicts = judge(
        {
            index: Pair(second.cell.estimate, first.cell.estimate, first.cell.value)
            for index, (first, second) in enumerate(pairs)
        }
    )
    return [Disagreement(*pair, verdicts[index]) for index, pair in enumerate(pairs)]


def settings(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Returns suite -> setting -> value for the settings in which the suites of the entries differ."""
    fixed = {name: suites.suite(name) for name in dict.fromkeys(entry.suite for entry in entries)}
    differing = [key for key in SHOWN if len({str(suite.get(key)) for suite in fixed.values()}) > 1]
    return {name: {key: _setting(suite.get(key)) for key in differing} for name, suite in fixed.items()}


def _setting(value: object) -> str:
    return "the task's" if value is None else str(value)


def lines(entries: Sequence[Entry]) -> list[Line]:
    """Returns the lines of a forest plot, published numbers by source and ours at the end, each block by value."""
    order = list(dict.fromkeys(entry.source for entry in entries))
    several = len({entry.suite for entry in entries}) > 1
    ranked = sorted(entries, key=lambda entry: (order.index(entry.source), -entry.cell.value, entry.label))
    return [
        Line(entry.source, _label(entry, several), entry.cell.value, entry.cell.low, entry.cell.high, entry.ours)
        for entry in ranked
    ]


def _label(entry: Entry, several: bool) -> str:
    return f"{entry.label} ({entry.suite})" if entry.ours and several else entry.label


def page(task: str, entries: Sequence[Entry], picture: str = "") -> str:
    """Returns a section of Markdown: numbers, protocols and disagreements. `picture` replaces the table of numbers."""
    count = sum(not entry.ours for entry in entries)
    without = sum(not entry.ours and entry.cell.estimate is None for entry in entries)
    sources = dict.fromkeys(entry.source for entry in entries if not entry.ours)
    numbers = f"![Published numbers and our runs on {task}]({picture})\n" if picture else _numbers_table(entries)
    parts = [
        f"## {task}\n",
        f"Published numbers: {count}, from {len(sources)} tables. Runs of ours: {len(entries) - count}. "
        f"Published numbers without games and spread, and therefore without an interval: {without}.\n",
        numbers,
        *_settings_table(entries),
        *_disagreements_table(entries),
        *_remarks(entries),
    ]
    return "\n".join(parts)


def _numbers_table(entries: Sequence[Entry]) -> str:
    rows = [f"| {line.source} | {markdown(line.label)} | {_with_bounds(line)} |" for line in lines(entries)]
    return "\n".join(["| source | model and method | score [95 %] |\n|---|---|--:|", *rows, ""])


def _with_bounds(line: Line) -> str:
    bounds = "" if line.low is None else f" [{line.low:.3f}, {line.high:.3f}]"
    return f"{line.value:.3f}{bounds}"


def _settings_table(entries: Sequence[Entry]) -> list[str]:
    by_suite = settings(entries)
    names = list(next(iter(by_suite.values())))
    if len(by_suite) < 2 or not names:
        return [f"All sources are mapped to one protocol, `suite:{next(iter(by_suite))}`.\n"]
    head = f"| suite | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}"
    rows = [f"| `{suite}` | {' | '.join(values.values())} |" for suite, values in by_suite.items()]
    return ["The sources differ in protocol. Each number belongs to one of these suites:\n", head, *rows, ""]


def _disagreements_table(entries: Sequence[Entry]) -> list[str]:
    pairs = disagreements(entries)
    if not pairs:
        return ["No model and method has two different numbers under one protocol.\n"]
    words = [pair.verdict.word for pair in pairs]
    counts = ", ".join(f"{words.count(word)} {word}" for word in (DIFFERS, CANNOT_TELL, AGREES) if word in words)
    head = "| model and method | first | second | second minus first |\n|---|---|---|---|"
    rows = [
        f"| {markdown(first.label)} | {_number(first)} | {_number(second)} | {verdict.in_words()} |"
        for first, second, verdict in pairs
    ]
    return [f"Different numbers for one model and method ({counts}):\n", head, *rows, ""]


def _number(entry: Entry) -> str:
    return f"{entry.cell.value:.3f} ({entry.source})"


def _remarks(entries: Sequence[Entry]) -> list[str]:
    """Returns the contradictions in print, and why some numbers cannot be compared with ours."""
    remarks = [f"- {entry.source}, {markdown(entry.label)}: {entry.footnote}." for entry in entries if entry.footnote]
    reasons = [entry.obstacle for entry in entries if entry.obstacle]
    remarks += [
        f"- Not comparable with ours, {reasons.count(reason)} published: {reason}." for reason in dict.fromkeys(reasons)
    ]
    return [*remarks, ""] if remarks else []
