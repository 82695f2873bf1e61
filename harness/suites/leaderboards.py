"""Leaderboards: finished runs under a suite, kept so that anybody can check them.

    leaderboards/
        README.md           rendered: every family at a glance
        {suite}/
            results.jsonl   every record of every entry; the commands in it can be carried out again; gzipped (.gz) where it is large
            metadata.json   per entry what its run measured, as `run_id` hashes it
            README.md       rendered

Nothing is typed in by hand: a board is a function of its records. `faults` says where it is not what it claims to be;
`harness.replay.check` carries the records out again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import DataError, UsageError
from envsuite.types import StopReason, knobs_json
from harness import records
from harness.evaluate import RunConfig
from harness.generalization import grids
from harness.records import Record, is_broken
from harness.stats.compare import read_run
from harness.stats.summary import Summary, number, percent, plain, summarise
from harness.suites import suites

if TYPE_CHECKING:
    from harness.cli.plans import Planned

SCHEMA = "envsuite-board-1"
NOT_IDENTITY = ("run_id", "split", "execution", "started_at", "host")
"""keys of config.json that `run_id` does not hash"""

IDENTITY: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "model", "reward_mode"), str),
    **{"knobs": dict, "seeds": list, "attempts": int, "max_turns": (int, type(None)), "panel": (list, type(None))},
}
"""what an entry must tell to be checked and shown"""

LARGE = 10**6
"""bytes of records above which a board gzips them: they differ little from one another, and shrink to a tenth or less"""

COMPUTED = ("random", "expert")
"""players that write no text: no sampling and no prompting is theirs"""
UNSAID = {"wording": "plain"}
"""settings that an identity leaves out at this value"""

Place = tuple[str, str, str]
"""(task, canonical knobs, model): one entry, one row of a table"""


@dataclass(frozen=True)
class Board:
    """One suite's entries and all their records."""

    suite: str
    entries: dict[Place, dict[str, Any]]
    """place -> {run_id, identity}"""
    records: list[Record]

    def of(self, place: Place) -> list[Record]:
        return [one for one in self.records if _place(one) == place]


def read(folder: Path) -> Board:
    """A board's folder. Raises DataError naming the file."""
    path = folder / "metadata.json"
    try:
        found = json.loads(path.read_text())
        if found["schema_version"] != SCHEMA:
            raise DataError(
                f"{path} has schema_version {found['schema_version']!r}, this envsuite reads {SCHEMA!r}: "
                "add its runs again with the version at hand."
            )
        for one in found["entries"]:
            records.are(one, {"run_id": str, "identity": dict})
            records.are(one["identity"], IDENTITY)
            first, count = one["identity"]["seeds"]
            records.are([first, count], {0: int, 1: int})
        entries = {_place(one["identity"]): one for one in found["entries"]}
        return Board(found["suite"], entries, records.read_results(records.results_file(folder)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no board's metadata ({type(error).__name__}: {error}).") from error


def add(folder: Path, runs: Sequence[Path]) -> Board:
    """Takes finished runs in, each in place of an older one of its model and task. Raises UsageError for one that is not
    what the suite (the folder's name) prescribes, and writes nothing then.
    """
    board = read(folder) if (folder / "metadata.json").exists() else Board(folder.name, {}, [])
    entries, kept = dict(board.entries), list(board.records)
    for path in runs:
        run = read_run(path, keep_broken=True)
        identity = {key: value for key, value in run.config.items() if key not in NOT_IDENTITY}
        place = _place(identity)
        entries[place] = {"run_id": run.config["run_id"], "identity": identity}
        kept = [one for one in kept if _place(one) != place] + run.records
    board = Board(folder.name, dict(sorted(entries.items())), sorted(kept, key=_order))
    if wrong := list(faults(board)):
        raise UsageError(f"{folder}: {wrong[0]}.")
    text = {"schema_version": SCHEMA, "suite": board.suite, "entries": list(board.entries.values())}
    _write(folder, b"".join(map(records.dump, board.records)))
    write_atomically(folder / "metadata.json", json.dumps(text, indent=1) + "\n")
    return board


def _write(folder: Path, lines: bytes) -> None:
    """The records, in one of the two files, whichever suits their size; the other one goes."""
    plain, packed = folder / "results.jsonl", folder / "results.jsonl.gz"
    if len(lines) > LARGE:
        write_atomically(packed, gzip.compress(lines, mtime=0))  # no time of day: the same records, the same bytes
        plain.unlink(missing_ok=True)
    else:
        write_atomically(plain, lines)
        packed.unlink(missing_ok=True)


def _place(found: dict[str, Any]) -> Place:
    return found["task"], knobs_json(found["knobs"]), found["model"]


def _order(record: Record) -> tuple[Any, ...]:
    return (*_place(record), record["seed"], record["attempt"])


# ---- is it what it claims to be? -------------------------------------------------------------------------------------


def faults(board: Board) -> Iterable[str]:
    """Where a board is not what it claims: another protocol than its suite's, games left out, doubled or slipped in.

    Whether the commands lead where the records say, and are what random player and expert give, only replay can tell; whose
    a model's replies are, nothing can.
    """
    planned = prescribed(board.suite)
    for place, entry in board.entries.items():
        name, identity = f"{place[2]} on {place[0]}", entry["identity"]
        spelled = json.dumps(identity, sort_keys=True)
        if hashlib.sha256(spelled.encode()).hexdigest()[:12] != entry["run_id"]:
            yield f"{name}: run_id {entry['run_id']} is not the hash of what the entry says it measured"
        if place[:2] not in planned:
            yield f"{name}: suite {board.suite!r} has no such task with these knobs"
            continue
        config = planned[place[:2]].config
        for field, (wanted, said) in _protocol(config, identity).items():
            if wanted != said:
                yield f"{name}: {field} is {said!r}, and suite {board.suite!r} fixes {wanted!r}"
        found = board.of(place)
        yield from _games(name, config, identity, found)
        if place[2] not in COMPUTED:
            yield from _replies(name, config, found)
    for place in sorted({_place(one) for one in board.records} - board.entries.keys()):
        yield f"{place[2]} on {place[0]}: records without an entry"


def prescribed(suite: str) -> dict[tuple[str, str], Planned]:
    """What a suite plays, by task and knobs."""
    from rich.console import Console

    from harness.cli.eval import parser
    from harness.cli.plans import plan

    asked = parser().parse_args(["-m", "random", "-e", suites.PREFIX + suite])
    planned = plan(asked, Console(quiet=True))
    return {(one.config.task.id, knobs_json(one.config.knobs)): one for one in planned}


def _protocol(config: RunConfig, identity: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> (as the suite fixes it, as the entry says)."""
    panel = config.panel
    found: dict[str, tuple[Any, Any]] = {
        "reward_mode": (config.reward_mode, identity["reward_mode"]),
        "max_turns": (config.max_turns, identity["max_turns"]),
        "panel": (panel and [panel.name, panel.digest, len(panel)], identity["panel"]),
        "first seed": (config.seeds[0], identity["seeds"][0]),
    }
    if identity["model"] in COMPUTED:
        return found
    for part, wanted in (("sampling", asdict(config.sampling)), ("prompting", asdict(config.prompting))):
        said = identity.get(part)
        if said is None:
            found[part] = (wanted, None)
            continue
        said = {**(UNSAID if part == "prompting" else {}), **said}
        found.update({key: (wanted.get(key), said.get(key)) for key in wanted | said if key != "dtype"})
    return found


def _replies(name: str, config: RunConfig, found: Sequence[Record]) -> Iterable[str]:
    """What a language model leaves and a program does not: tokens, and replies in which the commands are found."""
    written = config.sampling.action_mode == "write"
    for one in found:
        where = f"{name}: seed {one['seed']}"
        if one["steps"] and not (one["input_tokens"] > 0 and one["output_tokens"] > 0):
            yield f"{where}: {one['input_tokens']} tokens read and {one['output_tokens']} written are no model's"
            return
        for turn, step in enumerate(one["steps"], 1):
            said = list(config.prompting.parse(records.reply_text(step)).commands)
            if written and said[: len(step["commands"])] != step["commands"]:
                yield f"{where}, turn {turn}: the commands {step['commands']} are not in the reply"
                return


def _games(name: str, config: RunConfig, identity: dict[str, Any], found: Sequence[Record]) -> Iterable[str]:
    """All games of the entry, each once."""
    count, attempts = identity["seeds"][1], identity["attempts"]
    panel = config.panel
    whole: Sequence[int] = (
        range(len(panel))
        if panel is not None
        else config.task.splits[config.split or registry.default_split(config.task)]
    )
    if config.seed + count > len(whole):
        yield f"{name}: {count} games are more than there are"
        return
    if not 0 < attempts <= len(found):
        yield f"{name}: {attempts} attempts a game, and {len(found)} records in all"
        return
    wanted = {(seed, attempt) for seed in whole[config.seed : config.seed + count] for attempt in range(attempts)}
    played = [(one["seed"], one["attempt"]) for one in found]
    if missing := sorted(wanted - set(played)):
        yield f"{name}: seed {missing[0][0]} is missing, {len(missing)} episodes in all"
    if surplus := sorted(set(played) - wanted):
        yield f"{name}: seed {surplus[0][0]} does not belong to the entry"
    if len(played) != len(set(played)):
        yield f"{name}: an episode is there twice"
    if any(map(is_broken, found)):
        yield f"{name}: broken episodes; finish the run with --resume"
    cap = identity["max_turns"]
    if early := [one for one in found if one["stop_reason"] == StopReason.MAX_TURNS and one["num_turns"] != cap]:
        yield f"{name}: seed {early[0]['seed']} was stopped after {early[0]['num_turns']} turns, the entry's cap is {cap}"
    if any(one["reward_mode"] != identity["reward_mode"] for one in found):
        yield f"{name}: records of another reward mode"


# ---- pages -----------------------------------------------------------------------------------------------------------


def folders(root: Path) -> list[Path]:
    """The boards below a folder."""
    return sorted(path.parent for path in root.glob("*/metadata.json"))


def pages(root: Path) -> dict[Path, str]:
    """Every page of the boards and grids below `root`, and the heat maps of these, by path."""
    boards = [(folder, read(folder)) for folder in folders(root)]
    found = {folder / "README.md": page(board) for folder, board in boards}
    return {root / "README.md": index([board for _, board in boards]), **found, **grids.pages(root / "generalisation")}


def page(board: Board) -> str:
    """A board as Markdown: a table per task, models in order of their success."""
    fixed = suites.suite(board.suite)
    metric = fixed.get("metric", "")
    metric = "" if metric == "reward" else metric  # has a column anyway
    parts = [
        f"# {board.suite}\n",
        f"{fixed['after'].rstrip('.')}{'' if fixed['after'].endswith('?') else '.'}\n",
        f"Play it: `envsuite-eval --model MODEL --env suite:{board.suite}`. Check these records: "
        f"`envsuite-replay --check leaderboards/{board.suite}`.\n",
    ]
    for task, knobs in dict.fromkeys(place[:2] for place in board.entries):
        rows = {place: summarise(board.of(place)) for place in board.entries if place[:2] == (task, knobs)}
        parts.append(f"## {task}{'' if knobs == '{}' else ' ' + knobs}\n")
        heads = ["model", "success % [95 %]", *([metric] if metric else []), "reward [95 %]", "turns", "valid %", "run"]
        parts.append("| " + " | ".join(heads) + " |\n|" + "---|" + "--:|" * (len(heads) - 2) + "---|")
        for place in sorted(rows, key=lambda place: (-(rows[place]["success"]["value"] or 0.0), place)):
            summary = rows[place]
            cells = [
                plain(place[2]),
                percent(summary["success"]),
                *([_metric(summary, metric)] if metric else []),
                number(summary["reward"]),
                f"{summary['turns']:.1f}" if summary["turns"] is not None else "–",
                f"{100 * summary['valid_share']:.1f}" if summary["valid_share"] is not None else "–",
                f"`{board.entries[place]['run_id']}`",
            ]
            parts.append("| " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)


def _metric(summary: Summary, name: str) -> str:
    interval = summary["metrics"].get(name) if name not in summary else summary[name]
    return number(interval) if interval else "–"


INDEX = """# Leaderboards

Each folder holds one suite: the records of finished runs and the tables rendered from them. A row is
a run of all its games. Anyone can carry out the commands in `results.jsonl` (`.gz` if it is large)
again, so a forged, missing or outdated record is found.

```bash
envsuite-replay --check leaderboards/*/   # play the records again, check the protocol
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


def index(boards: Sequence[Board]) -> str:
    """All boards on one page: per family every task with its floor, its ceiling, and the best model."""
    by_family: dict[str, list[str]] = {}
    for board in boards:
        for task, knobs in dict.fromkeys(place[:2] for place in board.entries):
            scores = {
                place[2]: summarise(board.of(place))["success"] for place in board.entries if place[:2] == (task, knobs)
            }
            floor, ceiling = (percent(scores[name]) if name in scores else "not run" for name in ("random", "expert"))
            models = {name: one for name, one in scores.items() if name not in ("random", "expert")}
            best = max(sorted(models), key=lambda name: models[name]["value"] or 0.0, default=None)
            shown = f"{plain(best)}: {percent(models[best])}" if best else "none yet"
            link = f"[{board.suite}]({board.suite}/README.md)"
            row = f"| {task} | {link} | {floor} | {ceiling} | {shown} |"
            by_family.setdefault(task.split("-", 1)[0].lower(), []).append(row)
    parts = [INDEX, "Success in percent with 95 % intervals and the number of games.\n"]
    for family, rows in sorted(by_family.items()):
        parts.append(f"## {family}\n\n| task | board | random | expert | best model |\n|---|---|--:|--:|--:|")
        parts += [*rows, ""]
    return "\n".join(parts)
