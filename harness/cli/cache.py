"""envsuite cache: lists the cache folder and the finished episodes in it, and removes parts of them."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import platformdirs

from envsuite.cache import MARKER, cache_dir
from envsuite.errors import UsageError, did_you_mean
from harness import cli
from harness.episodes.store import EpisodeStore

MB = 10**6


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite cache",
        description="List or clear the cache: $ENVSUITE_CACHE, or the user's cache folder. Everything in it can be "
        "made, played or downloaded again.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="print parts and sizes")
    verbs.add_parser("episodes", help="list the finished episodes that later runs reuse")
    prune = verbs.add_parser("prune", help="remove finished episodes that no run has used for long")
    prune.add_argument("--unused-days", type=float, metavar="D", help="remove what was not used for D days")
    prune.add_argument("--max-mb", type=float, metavar="MB", help="remove what was not used for longest, down to this")
    clear = verbs.add_parser("clear", help="remove one part, or all")
    clear.add_argument("part", nargs="?", help="a part that `list` prints (default: all of them)")
    clear.add_argument("-y", "--yes", action="store_true", help="do not ask")
    cli.add_verbose(verbs)
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.verb == "episodes":
        return _list_episodes()
    if args.verb == "prune":
        return _prune(args)
    root = cache_dir()
    marked = (root / MARKER).exists()
    folders = (path for path in sorted(root.iterdir()) if path.is_dir())
    parts = {path.name: path for path in folders}
    if args.verb == "list":
        print(root)
        for name, path in parts.items():
            count, size = _size(path)
            print(f"  {name:24} {count:8,} files {size / MB:10.1f} MB")
        return 0
    if args.part is not None and args.part not in parts:
        raise UsageError(
            f"The cache has no part {args.part!r}: it has {', '.join(parts) or 'none'}.{did_you_mean(args.part, parts)}"
        )
    if not marked and root != Path(platformdirs.user_cache_dir("envsuite")):
        raise UsageError(
            f"{root} was not made by envsuite: it has no file {MARKER}. Nothing was removed; check ENVSUITE_CACHE, and "
            "create that file if the folder is the cache."
        )
    _clear([parts[args.part]] if args.part else list(parts.values()), root, args.yes)
    return 0


def _list_episodes() -> int:
    store = EpisodeStore()
    heads = ("episodes", "MB", "last used", "series")
    table = cli.new_table(str(store.folder), ("task", "model", "protocol"), heads)
    for info in store.list():
        day = time.strftime("%Y-%m-%d", time.gmtime(info.used))
        task = cli.titled(str(info.settings.get("task")), info.settings.get("knobs") or {})
        counts = f"{info.episodes:,}", f"{info.size / MB:.2f}"
        table.add_row(task, str(info.settings.get("model")), _protocol(info.settings), *counts, day, info.path.stem)
    cli.console().print(table)
    return 0


def _protocol(settings: dict[str, Any]) -> str:
    """Describes in a few words how the episodes of a series were played."""
    words = [str(settings.get("reward_mode"))]
    if settings.get("max_turns"):
        words.append(f"{settings['max_turns']} turns")
    sampling, policy = settings.get("sampling") or {}, settings.get("policy") or {}
    if sampling:
        words.append(f"temperature {sampling.get('temperature')}")
    return ", ".join([*words, *map(str, policy.get("servers", ()))])


def _prune(args: argparse.Namespace) -> int:
    if args.unused_days is None and args.max_mb is None:
        raise UsageError("Say what to remove: --unused-days D, --max-mb MB, or both. `clear episodes` removes all.")
    for value, flag in ((args.unused_days, "--unused-days"), (args.max_mb, "--max-mb")):
        if value is not None and not value >= 0:
            raise UsageError(f"{flag} must be at least 0, not {value:g}.")
    seconds = None if args.unused_days is None else args.unused_days * 86400
    count, size = EpisodeStore().prune(seconds, None if args.max_mb is None else int(args.max_mb * MB))
    print(f"removed {count} series of episodes, {size / MB:.1f} MB")
    return 0


def _clear(folders: Sequence[Path], root: Path, confirmed: bool) -> None:
    size = sum(_size(path)[1] for path in folders)
    names = ", ".join(path.name for path in folders) or "nothing"
    question = f"Remove {names} ({size / MB:.1f} MB) from {root}? [y/N] "
    if folders and (confirmed or _confirms(question)):
        for path in folders:
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        print(f"removed {size / MB:.1f} MB")


def _confirms(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        raise UsageError("There is no terminal to ask: add --yes. Nothing was removed.") from None


def _size(path: Path) -> tuple[int, int]:
    files = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return len(files), sum(file.stat().st_size for file in files)


main = cli.command(_main)
