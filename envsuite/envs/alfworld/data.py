"""The official games under $ALFWORLD_DATA: finding them, panels of them, and fetching them.

Played are the games ALFWorld itself plays: no sliced objects, no movable receptacles, and `solvable` true in the file.
Games whose file says `solvable: false` (the flag is no proof, some can be solved) are listed by `flagged` and playable
with the knob `flagged=true`, never part of an official panel.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.game import MAX_BYTES
from envsuite.envs.alfworld.scenery import TASK_TYPES
from envsuite.errors import DataError, MissingData, MissingExtra
from envsuite.panels import make_panel
from envsuite.types import Panel

VARIABLE = "ALFWORLD_DATA"
VERSION = "json_2.1.1"
EXPECTED = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
"""solvable games per official split"""
CURES = (
    f"set {VARIABLE} to the folder that holds {VERSION}/, fetch it with `envsuite-data get alfworld`, "
    "or play generated games: --env ALFWorld-generated-v0"
)
_INDEX_VERSION = 1


class GameFile(NamedTuple):
    """One official game."""

    name: str
    """'valid_seen/pick_.../trial_...', the same on every machine"""
    path: Path
    task_type: str
    digest: str
    """SHA-256 of the file"""
    flagged: bool
    """the file says `solvable: false`"""


def data_folder() -> Path | None:
    """`$ALFWORLD_DATA`, None where it is not set. It need not exist."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def games(split: str, flagged: bool = False) -> list[GameFile]:
    """The split's solvable games by name, or with `flagged` those whose file says they are not.

    Raises DataError where the folder is missing or a file in it cannot be read.
    """
    root = data_folder()
    if root is None:
        raise MissingData(f"{VARIABLE} is not set, and the games of {split} are found by it: {CURES}.")
    folder = root / VERSION / split
    if not folder.is_dir():
        raise MissingData(f"{VARIABLE}={root} holds no {VERSION}/{split}: {CURES}.")
    return [game for game in _index(folder, split) if game.flagged == flagged]


def panel(**settings: Any) -> Panel:
    """The panel of an official task's settings (`games`, `flagged`); the generated games have none."""
    split, flagged = settings["games"], bool(settings["flagged"])
    found = games(split, flagged)
    name = f"alfworld/{split}" + "/flagged" * flagged
    return make_panel(name, [(g.task_type, g.name, g.digest) for g in found], 0 if flagged else EXPECTED[split])


def read_game(path: Path) -> str:
    """The text of a game file. Raises DataError, naming it, where it is unreadable or not a game at all."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _broken(path, f"it is larger than {MAX_BYTES:,} bytes")
        text = path.read_text()
        game = json.loads(text)
    except FileNotFoundError:
        raise DataError(f"Game file {path} is missing: {CURES}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(path, str(error) or type(error).__name__) from error
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game, dict) or not isinstance(game.get(key), str):
            raise _broken(path, f"it has no text under the key {key!r}")
    return text


def default_task() -> tuple[str, str]:
    """What `--env alfworld` stands for here, and the line that says why: (task id, notice)."""
    if data_folder() is not None:
        return "ALFWorld-valid_seen-v0", ""
    return (
        "ALFWorld-generated-v0",
        f"alfworld: {VARIABLE} is not set, so generated games are played (ALFWorld-generated-v0), not the official "
        f"valid_seen ones. Scores on the two do not compare. `envsuite-data get alfworld` fetches the official games.",
    )


def download() -> str:
    """Fetches the official games with alfworld's own `alfworld-download`; returns what is there then.

    They go to $ALFWORLD_DATA, else to the envsuite cache.
    """
    script = download_script()
    if not script.is_file():
        raise MissingExtra("alfworld-download is not installed: pip install 'envsuite[alfworld]'")
    target = data_folder() or cache_dir("alfworld", "data")
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, str(script), "--data-dir", str(target)], stdout=sys.stderr, check=False)
    if done.returncode:
        raise DataError(
            f"alfworld-download did not succeed (exit code {done.returncode}); it needs github.com. Without a network: "
            f"run it on another machine, copy its folder here, and set {VARIABLE} to it."
        )
    return f"{summary(target)}\nexport {VARIABLE}={target}"


def download_script() -> Path:
    """alfworld's own downloader, installed beside this Python."""
    return Path(sys.executable).with_name("alfworld-download")


def summary(root: Path) -> str:
    """How much of each split lies under `root`."""
    lines = []
    for split, expected in EXPECTED.items():
        folder = root / VERSION / split
        found = _index(folder, split) if folder.is_dir() else []
        sound = sum(not game.flagged for game in found)
        line = f"{split}: {sound:,} of {expected:,} games present"
        if len(found) > sound:
            line += f", and {len(found) - sound} flagged unsolvable (--set flagged=true plays them)"
        lines.append(line)
    return "\n".join([str(root), *lines])


def _index(folder: Path, split: str) -> list[GameFile]:
    """All games of a split, from the index kept in the cache where a file has not changed since."""
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = cache_dir("alfworld") / f"index-{key}.json"
    known: dict[str, list[Any]] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stored = json.loads(path.read_text())
        known = stored["games"] if stored.get("version") == _INDEX_VERSION else {}
    found, fresh = [], {}
    for name, file in _files(folder):
        try:
            stat = file.stat()
        except FileNotFoundError:  # a trial without a game: ALFWorld skips it too
            continue
        stamp = [stat.st_mtime_ns, stat.st_size]
        entry = known.get(name)
        if entry is None or entry[:2] != stamp:
            entry = [*stamp, *_describe(file)]
        fresh[name] = entry
        task_type, digest, solvable = entry[2:]
        if solvable is not None and task_type in TASK_TYPES:
            found.append(_shared(f"{split}/{name}", file, task_type, digest, not solvable))
    if fresh != known:
        with contextlib.suppress(OSError):  # a read-only or full cache costs time, nothing else
            write_atomically(path, json.dumps({"version": _INDEX_VERSION, "games": fresh}))
    return sorted(found)


@lru_cache(maxsize=8_192)
def _shared(*entry: Any) -> GameFile:
    """One value for all environments: a thousand in one process hold each game's entry once."""
    return GameFile(*entry)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """('pick_.../trial_...', game file) of every trial, in no particular order."""
    for task in os.scandir(folder):
        if not task.is_dir() or "movable" in task.name or "Sliced" in task.name:
            continue
        for trial in os.scandir(task.path):
            if trial.is_dir():
                yield f"{task.name}/{trial.name}", Path(trial.path) / "game.tw-pddl"


def _describe(file: Path) -> tuple[str, str, bool | None]:
    """Task type, digest and flag of a game file."""
    text = read_game(file)
    task_type = file.parent.parent.name.split("-")[0]
    if task_type not in TASK_TYPES:
        try:
            task_type = str(json.loads((file.parent / "traj_data.json").read_text())["task_type"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _broken(file.parent / "traj_data.json", f"it gives no task_type ({error})") from error
    solvable = json.loads(text).get("solvable")
    return task_type, hashlib.sha256(text.encode()).hexdigest(), None if solvable is None else bool(solvable)


def _broken(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} cannot be read as an ALFWorld game: {why}. Fetch it again (`envsuite-data get alfworld`), "
        "or remove its folder to play without it."
    )
