"""envsuite-cache: what lies in the cache folder, and how to be rid of it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from envsuite.cache import cache_dir
from envsuite.errors import UsageError, did_you_mean
from harness import cli


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-cache",
        description="Everything here can be made or fetched again. The folder is $ENVSUITE_CACHE, or the user's cache folder.",
    )
    verbs = found.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="parts and sizes")
    clear = verbs.add_parser("clear", help="remove one part, or all")
    clear.add_argument("part", nargs="?", help="a part that `list` names; all of them without it")
    clear.add_argument("-y", "--yes", action="store_true", help="do not ask")
    cli.add_verbose(verbs)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    root = cache_dir()
    parts = {path.name: path for path in sorted(root.iterdir()) if path.is_dir()}
    if args.verb == "list":
        print(root)
        for name, path in parts.items():
            count, size = _size(path)
            print(f"  {name:24} {count:8,} files {size / 2**20:10.1f} MB")
        return 0
    if args.part is not None and args.part not in parts:
        raise UsageError(
            f"The cache has no part {args.part!r}: it has {', '.join(parts) or 'none'}.{did_you_mean(args.part, parts)}"
        )
    doomed = [parts[args.part]] if args.part else list(parts.values())
    size = sum(_size(path)[1] for path in doomed)
    question = (
        f"Remove {', '.join(path.name for path in doomed) or 'nothing'} ({size / 2**20:.1f} MB) from {root}? [y/N] "
    )
    if doomed and (args.yes or _agreed(question)):
        for path in doomed:
            shutil.rmtree(path)
        print(f"removed {size / 2**20:.1f} MB")
    return 0


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        raise UsageError("Nobody is there to answer: say --yes. Nothing was removed.") from None


def _size(path: Path) -> tuple[int, int]:
    files = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return len(files), sum(file.stat().st_size for file in files)


if __name__ == "__main__":
    main()
