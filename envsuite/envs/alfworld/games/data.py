"""The official games under $ALFWORLD_DATA: listing, panels, reading and download.

The tasks use the same games as ALFWorld: no sliced objects, no movable receptacles, and `solvable`
is true in the game file. Games with `solvable: false` (some of them can in fact be solved) are
listed with `flagged=True` and playable with the knob `flagged=true`. They are never part of an
official panel.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.games.floorplans import TASK_TYPES
from envsuite.envs.alfworld.games.game import MAX_BYTES
from envsuite.envs.alfworld.games.package import download_script, package_folder
from envsuite.errors import DataError, MissingData, MissingExtra
from envsuite.panels import make_panel
from envsuite.types import Panel

DATA_VARIABLE = "ALFWORLD_DATA"
VERSION = "json_2.1.1"
EXPECTED = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
"""Number of solvable games in each official split."""
DATA_HELP = (
    f"set {DATA_VARIABLE} to the folder that holds {VERSION}/, fetch it with `envsuite data get alfworld`, "
    "or play generated games: --env ALFWorld-generated-v0"
)
_INDEX_VERSION = 1


class GameFile(NamedTuple):
    """An official game file."""

    name: str
    """'valid_seen/pick_.../trial_...', equal on every machine"""
    path: Path
    task_type: str
    digest: str
    """SHA-256 of the file"""
    flagged: bool
    """the file contains `solvable: false`"""


def data_folder() -> Path | None:
    """Returns `$ALFWORLD_DATA`, or None if it is not set. The folder may not exist."""
    value = os.environ.get(DATA_VARIABLE)
    return Path(value).expanduser() if value else None


def games(split: str, flagged: bool = False) -> list[GameFile]:
    """Returns the solvable games of a split sorted by name, or the unsolvable ones if `flagged`.

    Raises MissingData if the folder does not exist, and DataError if one of its files cannot be
    read.
    """
    root = data_folder()
    if root is None:
        raise MissingData(f"{DATA_VARIABLE} is not set, so the games of {split} cannot be found: {DATA_HELP}.")
    folder = root / VERSION / split
    if not folder.is_dir():
        raise MissingData(f"{DATA_VARIABLE}={root} does not contain {VERSION}/{split}: {DATA_HELP}.")
    return [game for game in _index(folder, split) if game.flagged == flagged]


def panel(**settings: Any) -> Panel:
    """Returns the panel for the settings of an official task (`games`, `flagged`, `task_types`)."""
    split, flagged = settings["games"], bool(settings["flagged"])
    files = games(split, flagged)
    name = f"alfworld/{split}" + "/flagged" * flagged
    task_types = set(settings.get("task_types", TASK_TYPES))
    if task_types != set(TASK_TYPES):
        name += "/" + "+".join(sorted(task_types))
        files = [game for game in files if game.task_type in task_types]
        return make_panel(name, [(g.task_type, g.name, g.digest) for g in files])
    return make_panel(name, [(g.task_type, g.name, g.digest) for g in files], 0 if flagged else EXPECTED[split])


def read_game(path: Path) -> str:
    """Returns the text of a game file. Raises DataError if it is unreadable or not a game."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _broken(path, f"it is larger than {MAX_BYTES:,} bytes")
        text = path.read_text()
        game = json.loads(text)
    except FileNotFoundError:
        raise DataError(f"Game file {path} is missing: {DATA_HELP}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(path, str(error) or type(error).__name__) from error
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(game, dict) or not isinstance(game.get(key), str):
            raise _broken(path, f"the key {key!r} is missing or not a string")
    return text


def default_task() -> tuple[str, str]:
    """Returns the task id that `--env alfworld` stands for, and a notice for the user.

    The notice is empty if the official games are installed.
    """
    if data_folder() is not None:
        return "ALFWorld-valid_seen-v0", ""
    return (
        "ALFWorld-generated-v0",
        f"alfworld: {DATA_VARIABLE} is not set, so this run plays generated games (ALFWorld-generated-v0) "
        "instead of the official valid_seen games. The scores are not comparable. "
        "`envsuite data get alfworld` downloads the official games.",
    )


def download() -> str:
    """Downloads the official games with the `alfworld-download` command of the alfworld package.

    The target is $ALFWORLD_DATA, or the envsuite cache if that is not set. Returns a summary of the
    games that are present afterwards.
    """
    for name in ("requests", "tqdm"):
        if find_spec(name) is None:
            raise MissingExtra(f"alfworld-download needs the package {name!r}: pip install 'envsuite[alfworld]'")
    script = download_script()
    target = data_folder() or cache_dir("alfworld", "data")
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(script), "--data-dir", str(target)],
        stdout=sys.stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package_folder().parent), *sys.path])},
        check=False,
    )
    if done.returncode:
        raise DataError(
            f"alfworld-download failed (exit code {done.returncode}); it needs access to github.com. "
            f"Without a network: run it on another machine, copy its folder here, and set {DATA_VARIABLE} to it."
        )
    return f"{summary(target)}\nexport {DATA_VARIABLE}={target}"


def summary(root: Path) -> str:
    """Returns one line per split with the number of games present under `root`."""
    lines = []
    for split, expected in EXPECTED.items():
        folder = root / VERSION / split
        files = _index(folder, split) if folder.is_dir() else []
        solvable = sum(not game.flagged for game in files)
        line = f"{split}: {solvable:,} of {expected:,} games present"
        if len(files) > solvable:
            line += f", and {len(files) - solvable} flagged unsolvable (play them with --set flagged=true)"
        lines.append(line)
    return "\n".join([str(root), *lines])


def _index(folder: Path, split: str) -> list[GameFile]:
    """Lists all games of a split. Unchanged files are read from an index in the cache."""
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = cache_dir("alfworld") / f"index-{key}.json"
    cached: dict[str, list[Any]] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stored = json.loads(path.read_text())
        cached = stored["games"] if stored.get("version") == _INDEX_VERSION else {}
    game_files, entries = [], {}
    for name, file in _files(folder):
        try:
            stat = file.stat()
        except FileNotFoundError:  # a trial without a game file; ALFWorld skips it too
            continue
        stamp = [stat.st_mtime_ns, stat.st_size]
        entry = cached.get(name)
        if entry is None or entry[:2] != stamp:
            entry = [*stamp, *_describe(file)]
        entries[name] = entry
        task_type, digest, solvable = entry[2:]
        if solvable is not None and task_type in TASK_TYPES:
            game_files.append(_shared(f"{split}/{name}", file, task_type, digest, not solvable))
    if entries != cached:
        with contextlib.suppress(OSError):  # a read-only or full cache only costs time
            write_atomically(path, json.dumps({"version": _INDEX_VERSION, "games": entries}))
    return sorted(game_files)


@lru_cache(maxsize=8_192)
def _shared(*entry: Any) -> GameFile:
    """Returns one GameFile per game, shared by all environments of the process."""
    return GameFile(*entry)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields ('pick_.../trial_...', path of the game file) for every trial, unsorted."""
    for task in os.scandir(folder):
        if not task.is_dir() or "movable" in task.name or "Sliced" in task.name:
            continue
        for trial in os.scandir(task.path):
            if trial.is_dir():
                yield f"{task.name}/{trial.name}", Path(trial.path) / "game.tw-pddl"


def _describe(file: Path) -> tuple[str, str, bool | None]:
    """Returns task type, digest and the `solvable` flag of a game file."""
    text = read_game(file)
    task_type = file.parent.parent.name.split("-")[0]
    if task_type not in TASK_TYPES:
        try:
            task_type = str(json.loads((file.parent / "traj_data.json").read_text())["task_type"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _broken(file.parent / "traj_data.json", f"it has no task_type ({error})") from error
    solvable = json.loads(text).get("solvable")
    return task_type, hashlib.sha256(text.encode()).hexdigest(), None if solvable is None else bool(solvable)


def _broken(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} cannot be read as an ALFWorld game: {why}. Fetch it again (`envsuite data get alfworld`), "
        "or remove its folder to play without it."
    )
