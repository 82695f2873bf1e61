"""envsuite replay: replays results files and reports every difference; asks a model again for random turns."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.errors import UsageError
from envsuite.sandbox import drivers
from harness import cli, records
from harness.cli.arguments.flags import ENDPOINT, TRUSTED_HELP, Call, add_common
from harness.cli.playing.players import run_options
from harness.cli.terminal.counter import counter
from harness.evaluate import RunConfig
from harness.execution import Connection, Execution
from harness.generalization import grid_check
from harness.hash_chain import has_chain
from harness.policies import is_model, make_policy
from harness.provenance import certificates
from harness.provenance.replay import check
from harness.provenance.resample import describe, resample
from harness.provenance.sandboxed import verify
from harness.settings import add_flags, named, read
from harness.suites import leaderboards
from harness.suites.plan import parse_setting
from harness.types import Policy


def parser() -> argparse.ArgumentParser:
    top_parser = cli.CliParser(
        prog="envsuite replay",
        description="Re-execute the stored commands of results files, or ask a model for its replies again.",
    )
    top_parser.add_argument(
        "files", nargs="+", type=Path, help="results.jsonl, run folders, leaderboards, grids, or folders of them"
    )
    top_parser.add_argument(
        "--check", action="store_true", help="compare observations, rewards, endings and hash chains (the default)"
    )
    add_common(top_parser, "module", set=TRUSTED_HELP)
    top_parser.add_argument(
        "--sample", type=int, metavar="K", help="replay only K episodes of each file, always the same ones"
    )
    add_flags(top_parser, Execution, ("num_workers",), {"num_workers": -1})
    add_common(top_parser, "verbose")
    group = top_parser.add_argument_group("resampling", "asks a model again, to test whether it wrote the replies")
    group.add_argument("--resample", type=int, metavar="K", help="ask for K random turns of each file")
    group.add_argument("-m", "--model", default="", help="the model to ask; never taken from the file")
    group.add_argument("--seed", type=int, default=None, help="of the draw; default: at random, and printed")
    add_flags(group, Connection, ENDPOINT)
    group = top_parser.add_argument_group(
        "sandbox",
        "for one folder of a stranger: everything of it is read, replayed and rendered inside a sandbox, and a "
        f"certificate lists the hash of every file. Nobody can verify {' or '.join(certificates.NOT_VERIFIED)}.",
    )
    group.add_argument("--sandbox", action="store_true", help="verify one run folder or leaderboard in a sandbox")
    group.add_argument(
        "--driver", default="auto", choices=["auto", *drivers.SAFE], help="of the sandbox (default: the strongest one)"
    )
    group.add_argument("--seconds", type=float, default=600.0, help="time limit in the sandbox (default: 600)")
    group.add_argument(
        "--certificate", type=Path, metavar="FILE", help=f"file to write (default: FOLDER/{certificates.NAME})"
    )
    group.add_argument(
        "--replay-outside",
        action="store_true",
        help="replay records whose commands are programs (SWE-Gym, DataSciCoding) in this process, as without "
        "--sandbox: each program in its own sandbox; pip may install the packages of mined tasks",
    )
    return top_parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.sample is not None and args.sample < 1:
        raise UsageError(f"--sample must be at least 1, not {args.sample}.")
    cli.import_modules(args.module)
    if args.sandbox:
        return _verify(args)
    trusted = dict(parse_setting(word) for word in args.set)
    if args.resample is not None:
        return _resample(args, trusted)
    failed = checked = 0
    for path in args.files:
        files = _files(path)
        checked += len(files)
        if not files:
            print(f"{path}: skipped, it holds no records of episodes", flush=True)
        players: set[str] = set()
        if (path / "metadata.json").exists():  # a leaderboard: is it complete, and under its suite's protocol?
            board = leaderboards.read(path)
            players = board.computed
            for fault in leaderboards.faults(board):
                cli.print_safely(f"{path}: {fault}", sys.stderr)
                failed += 1
        for fault in _grid_faults(path):
            cli.print_safely(fault, sys.stderr)
            failed += 1
        for file in files:
            failed += _replay(file, players, trusted, args)
    if not checked:
        raise UsageError(f"Nothing to replay in {', '.join(map(str, args.files))}: name results files or run folders.")
    return 1 if failed else 0


def _verify(args: argparse.Namespace) -> int:
    """Verifies one folder in the sandbox; returns 1 if something differs."""
    folder, *more = args.files
    if more:
        raise UsageError(f"--sandbox verifies one folder at a time, and {len(args.files)} are named.")
    findings, certificate = verify(folder, args.certificate, args.driver, args.seconds, args.replay_outside, counter)
    for difference in findings["differences"]:
        cli.print_safely(f"{folder}: {difference}", sys.stderr)
    count = findings["records"]
    if certificate is None:
        cli.print_safely(f"{folder}: not verified: {findings['differ']} differences in {count:,} records")
        return 1
    cli.print_safely(
        f"{certificate}: {count:,} records replay, the protocol matches, the report renders. Not verified: "
        f"{'; '.join(certificates.NOT_VERIFIED)}."
    )
    return 0


def _files(path: Path) -> list[Path]:
    """Returns the results files of a path: the file itself, a folder's own, or all that are below a folder."""
    if not path.is_dir():
        return [path]
    file = records.results_file(path)
    if file.exists() or (path / "metadata.json").exists():
        return [file]
    return sorted({*path.rglob("results.jsonl"), *path.rglob("results.jsonl.gz")})


def _grid_faults(path: Path) -> Iterator[str]:
    """Yields where the generalization grids in a folder, or directly below it, contradict their records."""
    if not path.is_dir():
        return
    for grid in sorted({*path.glob("grid.json"), *path.glob("*/grid.json")}):
        for fault in grid_check.faults(grid.parent):
            yield f"{grid.parent}: {fault}"


def _replay(file: Path, players: set[str], trusted: Mapping[str, Any], args: argparse.Namespace) -> int:
    """Replays one file, prints what differs and the totals, and returns the number of differences."""
    same = differ = chained = unchained = 0
    stored = sum(1 for _, line in reading.read_lines(file) if line.strip())
    total = min(stored, args.sample or stored)
    show = counter(str(file), total)
    for verdict in check(
        file, read(Execution, named(args, Execution)).num_workers, players=players, trusted=trusted, sample=args.sample
    ):
        record, difference = verdict
        same, differ = same + (not difference), differ + bool(difference)
        chained += not difference and has_chain(record)
        unchained += not difference and not has_chain(record) and is_model(record["model"])
        show(same + differ)
        if difference or args.verbose:
            cli.print_safely(
                f"{file}: {verdict.name}: {difference or 'same'}", sys.stderr if difference else sys.stdout
            )
    part = f" (a sample of {stored:,})" if total < stored else ""
    print(f"{file}: {same} episodes replayed the same, {differ} differ{part}", flush=True)
    if chained:
        print(f"{file}: {chained} hash chains hold; SHA-256 of the records: {records.results_hash(file)}", flush=True)
    if unchained:
        print(f"{file}: {unchained} episodes of a model have no hash chain: their prompts were not checked", flush=True)
    if not players and not (file.parent / "config.json").exists():
        note = "no config.json is beside it, so removed episodes and changed names cannot be found"
        print(f"{file}: {note}", flush=True)
    return differ


def _resample(args: argparse.Namespace, trusted: dict[str, Any]) -> int:
    """Asks the model again and prints the statistics; returns 1 if a file speaks against the model."""
    if args.resample < 1:
        raise UsageError(f"--resample takes a number of turns, not {args.resample}.")
    if not args.model or not is_model(args.model):
        raise UsageError("--resample needs --model, the model that the file names: weights are your choice.")
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed

    execution = read(Execution, named(args, Execution))
    call = Call({}, read(Connection, named(args, Connection)), execution)

    def make(config: RunConfig) -> Policy:
        return make_policy(args.model, **run_options(call, config))

    against = 0
    for file in [file for path in args.files for file in _files(path)]:
        result = resample(file, args.model, make, args.resample, seed, trusted, execution.num_workers)
        against += result.log10_odds < 0
        cli.print_safely(f"{file}: {describe(result, seed)}")
    return 1 if against else 0


main = cli.command(_main)
