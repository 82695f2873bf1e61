"""envsuite-audit: lists what it takes to evaluate published checkpoints under their own prompts, and runs them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from envsuite.errors import EnvsuiteError, UsageError
from harness import cli
from harness.audit import board
from harness.audit.board import AuditEntry

STOPPED = (130, 143, -2, -15)
"""exit statuses of an evaluation that Ctrl-C or SIGTERM ended"""


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(
        prog="envsuite-audit",
        description="List public checkpoints of ALFWorld papers with their prompt, games, sampling, published number, "
        "command and estimated cost; with --run, evaluate those that can be run. Needs a GPU and the Hugging Face hub "
        "for the checkpoints themselves.",
        epilog="Example: envsuite-audit --run --only GiGPO",
    )
    commands.add_argument("--run", action="store_true", help="play what is missing; repeat the command to continue")
    commands.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="checkpoints whose name has this text; repeatable"
    )
    commands.add_argument(
        "-m",
        "--model",
        default="",
        metavar="STAND-IN",
        help="with --run: a model that plays in place of each checkpoint",
    )
    commands.add_argument("-n", "--episodes", type=int, default=None, help="games of each suite (default: all)")
    commands.add_argument("-r", "--repeats", type=int, default=1, help="attempts per game (default: 1)")
    commands.add_argument("-o", "--output-dir", type=Path, default=Path("runs/audit"), help="folder of the runs")
    commands.add_argument(
        "--tokens-per-second", type=float, default=1000.0, help="that a GPU writes, for the estimate (default: 1000)"
    )
    commands.add_argument(
        "--read-per-second", type=float, default=10000.0, help="that a GPU reads, for the estimate (default: 10000)"
    )
    commands.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return commands


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "the same command")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    for name in ("tokens_per_second", "read_per_second", "repeats"):
        if not getattr(args, name) > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be positive, not {getattr(args, name)}.")
    if args.episodes is not None and args.episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {args.episodes}.")
    every = board.entries(args.model, args.episodes, args.repeats)
    chosen = [entry for entry in every if not args.only or any(text in entry.checkpoint.model for text in args.only)]
    if not chosen:
        names = ", ".join(dict.fromkeys(entry.checkpoint.model for entry in every))
        raise UsageError(f"No checkpoint has {' or '.join(args.only)} in its name: there are {names}.")
    failures = _run(chosen, args.output_dir) if args.run else []
    rates = args.tokens_per_second, args.read_per_second
    for number, entry in enumerate(chosen, 1):
        for index, line in enumerate(board.describe(entry, args.output_dir, rates)):
            cli.print_safely(f"{number:2}. {line}" if index == 0 else f"    {line}")
    cli.print_safely(board.total(chosen, rates))
    for line in failures:
        cli.print_safely(f"error: {line}", sys.stderr)
    return 1 if failures else 0


def _run(chosen: Sequence[AuditEntry], output_dir: Path) -> list[str]:
    """Plays each entry in a process of its own, which frees the GPU; returns a line for each that failed.

    Finished entries are skipped unless they have broken episodes. Entries with the same settings, which a stand-in has
    for several checkpoints, are played once.
    """
    failures = []
    done: set[tuple[str, ...]] = set()
    for entry in chosen:
        words = entry.command(output_dir)
        if not entry.runnable or tuple(words) in done:
            continue
        done.add(tuple(words))
        try:
            summary = entry.result(output_dir)
        except EnvsuiteError as error:
            failures.append(f"{entry.checkpoint.model} on {entry.suite}: {error}")
            continue
        if summary is not None and not summary["broken"]:
            continue
        status = subprocess.run([sys.executable, "-m", "harness.cli.eval", *words], stdout=sys.stderr).returncode
        if status in STOPPED:
            raise KeyboardInterrupt
        if status:
            failures.append(
                f"{entry.checkpoint.model} on {entry.suite}: envsuite-eval ended with exit status {status}; "
                "its message is above"
            )
    return failures


if __name__ == "__main__":
    main()
