"""Leaderboards as Markdown: a page per board, and one page over all of them. The pages depend on the records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.escaping import markdown, markdown_code
from harness.generalization import grids
from harness.policies import members
from harness.prompting import protocols
from harness.stats.summary import Summary, number, percent
from harness.suites import crossplay, suites
from harness.suites.leaderboards import ENDS, Board, EntryKey, protocol_of, read

INDEX = """# Leaderboards

Each folder holds one suite: the records of finished runs and the tables rendered from them. A row is
a run of all its games. Anyone can carry out the commands in `results.jsonl` (`.gz` if it is large)
again, so a forged, missing or outdated record is found.

```bash
envsuite replay --check leaderboards/*/   # play the records again, check the protocol
envsuite replay --check --sample 5 leaderboards/*/   # the same with 5 episodes a file
make leaderboards                         # render the pages again
make boards                               # play random player and expert again
```

The check proves that the commands lead to the recorded results, that a model's commands are in its
replies, and that no game is missing. It cannot prove which model wrote the replies; the submitter
vouches for that.

To enter, play the suite, add the run folders, check them, and open a pull request.
[Submit to a leaderboard](../docs/howto/leaderboard.md) has the steps.

```bash
envsuite-eval --model MODEL --env suite:SUITE
python -m harness.cli.boards add leaderboards/SUITE runs/*--MODEL/*
```

A board shows what was run; a missing model was not run. Published numbers with ours are in
[tables](tables/README.md), results on unseen settings in
[generalisation](generalisation/README.md), and learning curves in [training](training/README.md).
"""


def folders(root: Path) -> list[Path]:
    """Returns the boards below a folder."""
    return sorted(path.parent for path in root.glob("*/metadata.json"))


def pages(root: Path) -> dict[Path, str]:
    """Returns every page of the boards and grids below `root`, by path."""
    boards = {folder: read(folder) for folder in folders(root)}
    return {
        root / "README.md": index(list(boards.values())),
        **{folder / "README.md": page(board) for folder, board in boards.items()},
        **grids.pages(root / "generalisation"),
    }


def page(board: Board) -> str:
    """Returns a board as Markdown: one table per task, models in order of their success."""
    fixed = suites.suite(board.suite)
    metric = fixed.get("metric", "")
    if metric == "reward":  # every table has a column for it
        metric = ""
    after = fixed["after"]
    sections = [
        f"# {board.suite}\n",
        f"{after if after.endswith('?') else after.rstrip('.') + '.'}\n",
        f"Play it: `envsuite-eval --model MODEL --env suite:{board.suite}`. Check these records: "
        f"`envsuite replay --check leaderboards/{board.suite}`.\n",
    ]
    for task, knobs in dict.fromkeys(key[:2] for key in board.entries):
        sections += _task_table(board, task, knobs, metric, fixed.get("over_splits", ""))
    return "\n".join(sections)


def _task_table(board: Board, task: str, knobs: str, metric: str, over_splits: str) -> list[str]:
    rows = {key: board.summaries[key] for key in board.entries if key[:2] == (task, knobs)}
    heads = ["model", "success % [95 %]", *([metric] if metric else []), "reward [95 %]", "turns", "valid %", "run"]
    lines = [
        f"## {markdown(task)}{'' if knobs == '{}' else ' ' + markdown(knobs)}\n",
        "| " + " | ".join(heads) + " |\n|" + "---|" + "--:|" * (len(heads) - 2) + "---|",
    ]

    def rank(key: EntryKey) -> tuple[float, EntryKey]:
        return -(rows[key]["success"]["value"] or 0.0), key

    for key in sorted(rows, key=rank):
        summary = rows[key]
        cells = [
            markdown(key[2]) + _prompt(board.entries[key]["identity"]),
            percent(summary["success"]),
            *([_metric(summary, metric, over_splits)] if metric else []),
            number(summary["reward"]),
            f"{summary['turns']:.1f}" if summary["turns"] is not None else "–",
            f"{100 * summary['valid_share']:.1f}" if summary["valid_share"] is not None else "–",
            markdown_code(board.entries[key]["run_id"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *_crossplay(rows, metric)]


def _crossplay(rows: Mapping[EntryKey, Summary], metric: str) -> list[str]:
    """Returns the matrices of a task that teams of different players have played, in success and in the metric."""
    summaries = {model: summary for (_, _, model), summary in rows.items()}
    if not any(len(members(model)) > 1 for model in summaries):
        return []
    lines = []
    for name in ("success", *([metric] if metric else [])):
        show = percent if name == "success" else number
        lines += [
            f"### Cross-play: {markdown(name)}\n",
            "The first agent's player is in the rows, the player of the others in the columns.\n",
            *crossplay.as_markdown(crossplay.matrix(summaries, name, show), markdown),
            "",
        ]
    return lines


def _prompt(identity: dict[str, Any]) -> str:
    """Says which published prompt an entry's model read, and in whose words; '' for our prompt."""
    protocol = protocol_of(identity)
    if not protocol:
        return ""
    neutral = identity["prompting"].get("words") == protocols.NEUTRAL
    return f" (prompt of {markdown(protocol)}, {'neutral' if neutral else 'published'} words)"


def _metric(summary: Summary, name: str, over_splits: str) -> str:
    """Returns a metric with its interval and, where the suite names one, its mean deviation over splits of the data."""
    interval = summary["metrics"].get(name) if name not in summary else summary[name]
    spread = summary["metrics"].get(over_splits)
    text = number(interval) if interval else "–"
    return f"{text} ± {spread['value']:.3f} over splits" if spread and spread["value"] is not None else text


def index(boards: Sequence[Board]) -> str:
    """Returns all boards on one page: for each task the random player, the expert and the best model."""
    by_family: dict[str, list[str]] = {}
    for board in boards:
        for task, knobs in dict.fromkeys(key[:2] for key in board.entries):
            by_family.setdefault(task.split("-", 1)[0].lower(), []).append(_index_row(board, task, knobs))
    sections = [INDEX, "Success in percent with 95 % intervals and the number of games.\n"]
    for family, rows in sorted(by_family.items()):
        heads = "| task | board | random | expert | best model |\n|---|---|--:|--:|--:|"
        sections.append(f"## {markdown(family)}\n\n{heads}")
        sections += [*rows, ""]
    return "\n".join(sections)


def _index_row(board: Board, task: str, knobs: str) -> str:
    scores = {key[2]: board.summaries[key]["success"] for key in board.entries if key[:2] == (task, knobs)}
    floor, ceiling = (percent(scores[name]) if name in scores else "not run" for name in ENDS)
    models = {name: score for name, score in scores.items() if name not in board.computed}
    best = max(sorted(models), key=lambda name: models[name]["value"] or 0.0, default=None)
    leader = f"{markdown(best)}: {percent(models[best])}" if best else "none yet"
    link = f"[{board.suite}]({board.suite}/README.md)"
    return f"| {markdown(task)} | {link} | {floor} | {ceiling} | {leader} |"
