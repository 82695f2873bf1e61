"""Leaderboards from run folders: take runs in, render the pages, play floor and ceiling again.

python -m harness.cli.boards add leaderboards/SUITE runs/*--MODEL/*
python -m harness.cli.boards render
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from envsuite.cache import write_atomically
from harness import boards, cli

ROOT = Path("leaderboards")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m harness.cli.boards", description="Leaderboards from run folders.")
    found.add_argument("-v", "--verbose", action="store_true")
    verbs = found.add_subparsers(dest="verb", required=True)
    add = verbs.add_parser("add", help="take finished runs into a board; each must be what its suite prescribes")
    add.add_argument("board", type=Path, help="leaderboards/SUITE")
    add.add_argument("runs", nargs="+", type=Path, help="run folders")
    render = verbs.add_parser("render", help="write every page again from the records")
    render.add_argument("--root", type=Path, default=ROOT)
    play = verbs.add_parser("play", help="play the random player and the expert of a board, new or there already")
    play.add_argument("boards", nargs="+", type=Path, help="leaderboards/SUITE")
    play.add_argument("-n", "--episodes", type=int, default=None, help="games a task (default: as many as there are)")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.verb == "add":
        board = boards.add(args.board, args.runs)
        print(f"{args.board}: {len(board.entries)} entries, {len(board.records):,} records")
    elif args.verb == "render":
        for path, text in boards.pages(args.root).items():
            write_atomically(path, text)
            print(path)
    else:
        for folder in args.boards:
            _play(folder, args.episodes)
    return 0


def _play(folder: Path, episodes: int | None) -> None:
    """Floor and ceiling of a board, on as many games as it has of them."""
    from harness.cli import eval as evaluation

    if episodes is None and (folder / "metadata.json").exists():
        found = json.loads((folder / "metadata.json").read_text())["entries"]
        episodes = max(entry["identity"]["seeds"][1] for entry in found if entry["identity"]["model"] == "random")
    with tempfile.TemporaryDirectory() as scratch:
        words = ["-e", f"suite:{folder.name}", "--baselines", "none", "-o", scratch]
        if episodes is not None:
            words += ["-n", str(episodes)]
        for name in ("random", "expert"):
            evaluation._main(["-m", name, *words])
        runs = sorted(path.parent for path in Path(scratch).glob("*/*/results.jsonl"))
        board = boards.add(folder, runs)
    print(f"{folder}: {len(board.entries)} entries, {len(board.records):,} records")


if __name__ == "__main__":
    main()
