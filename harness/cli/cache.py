"""envsuite-cache: lists the cache folder, and removes parts of it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from envsuite.cache import MARKER, cache_dir
from envsuite.errors import UsageError, did_you_mean
from harness import cli

PARTS = ("alfworld", "datascicoding", "docker", "envsuite", "models", "openml", "play", "swegym", "textworld")
"""folders that may be removed from a cache without the marker, which an older version made"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="envsuite-cache",
        description="List or clear the cache: $ENVSUITE_CACHE, or the user's cache folder. Everything in it can be "
        "made or "
        "downloaded again.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="print parts and sizes")
    clear = verbs.add_parser("clear", help="remove one part, or all")
    clear.add_argument("part", nargs="?", help="a part that `list` prints (default: all of them)")
    clear.add_argument("-y", "--yes", action="store_true", help="do not ask")
    cli.add_verbose(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    root = cache_dir()
    marked = (root / MARKER).exists()
    folders = (path for path in sorted(root.iterdir()) if path.is_dir())
    parts = {path.name: path for path in folders if marked or path.name in PARTS}
    if args.verb == "list":
        print(root)
        for name, path in parts.items():
            count, size = _size(path)
            print(f"  {name:24} {count:8,} files {size / 1e6:10.1f} MB")
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


def _clear(folders: Sequence[Path], root: Path, confirmed: bool) -> None:
    size = sum(_size(path)[1] for path in folders)
    names = ", ".join(path.name for path in folders) or "nothing"
    question = f"Remove {names} ({size / 1e6:.1f} MB) from {root}? [y/N] "
    if folders and (confirmed or _confirms(question)):
        for path in folders:
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        print(f"removed {size / 1e6:.1f} MB")


def _confirms(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        raise UsageError("There is no terminal to ask: add --yes. Nothing was removed.") from None


def _size(path: Path) -> tuple[int, int]:
    files = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return len(files), sum(file.stat().st_size for file in files)


if __name__ == "__main__":
    main()
