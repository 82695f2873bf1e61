"""Leaderboards from run folders: take runs in, render the pages, play floor and ceiling again.

python -m harness.cli.boards add leaderboards/SUITE runs/*--MODEL/*
python -m harness.cli.boards render
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from envsuite.cache import write_atomically
from envsuite.errors import MissingData
from harness import cli
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.settings import add_flags
from harness.suites import leaderboard_pages, leaderboards, paper_pages

ROOT = Path("leaderboards")


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(prog="python -m harness.cli.boards", description="Leaderboards from run folders.")
    verbs = commands.add_subparsers(dest="verb", required=True)
    add = verbs.add_parser("add", help="take finished runs into a board; each must be what its suite prescribes")
    add.add_argument("board", type=Path, help="leaderboards/SUITE")
    add.add_argument("runs", nargs="+", type=Path, help="run folders")
    render = verbs.add_parser("render", help="write every page again from the records")
    render.add_argument("--root", type=Path, default=ROOT, help="folder of the leaderboards")
    play = verbs.add_parser("play", help="play the random player and the expert of a board, new or there already")
    play.add_argument("boards", nargs="+", type=Path, help="leaderboards/SUITE")
    add_flags(play, RunConfig, ("episodes",), {"episodes": None})
    play.add_argument("--missing", action="store_true", help="only what the board has no floor or ceiling of")
    cli.add_verbose(verbs)
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.verb == "add":
        board = leaderboards.add(args.board, args.runs)
        print(f"{args.board}: {len(board.entries)} entries, {len(board.records):,} records")
    elif args.verb == "render":
        for path, text in {**leaderboard_pages.pages(args.root), **paper_pages.pages(args.root)}.items():
            write_atomically(path, text)
            print(path)
    else:
        for folder in args.boards:
            _play(folder, args.episodes, args.missing)
    return 0


def _play(folder: Path, episodes: int | None, missing: bool) -> None:
    """Plays the floor and the ceiling of a board on its tasks and games.

    A new board has the tasks of its suite. With `missing`, only tasks of the suite that the board lacks are played. A
    task whose data is not on this machine is named and skipped.
    """
    old = leaderboards.read(folder).entries if (folder / "metadata.json").exists() else {}
    floor = {place[:2]: entry["identity"]["seeds"][1] for place, entry in old.items() if place[2] == "random"}
    with tempfile.TemporaryDirectory() as scratch:
        runs = []
        for place, planned in leaderboards.prescribed(folder.name).items():
            if old and not missing and place not in floor:
                continue
            count = episodes or floor.get(place) or planned.baseline_episodes or planned.config.episodes
            for name in ("random", "expert"):
                if missing and (*place, name) in old:
                    continue
                config = dataclasses.replace(planned.config, model=name, episodes=count)
                try:
                    evaluate(config, Path(scratch), functools.partial(make_policy, name))
                except MissingData as error:
                    print(f"{config.task.id} {name}: not played: {error}")
                    continue
                print(f"{config.task.id} {name}: {len(config.all_episodes())} episodes", flush=True)
                runs.append(config.folder(Path(scratch)))
        if not runs:
            print(f"{folder}: nothing was played")
            return
        board = leaderboards.add(folder, runs)
    print(f"{folder}: {len(board.entries)} entries, {len(board.records):,} records")


main = cli.command(_main)

if __name__ == "__main__":
    main()
