"""envsuite-verify: replay and render a stranger's folder in a sandbox, and write a certificate."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import envsuite
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from harness import cli, records
from harness.cli.common.counter import counter
from harness.provenance import certificates, replay, sandboxed


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(
        prog="envsuite-verify",
        description="Read, replay and render a stranger's run folder or leaderboard inside a sandbox, and write a "
        "certificate: every record replays, the protocol matches, and the hash of every file. Nobody can verify "
        f"{' or '.join(certificates.NOT_VERIFIED)}. Records whose commands are programs (SWE-Gym, DataSciCoding) need "
        "--replay-outside.",
    )
    commands.add_argument("folder", type=Path, help="a run folder or a leaderboard")
    commands.add_argument(
        "-o", "--output", type=Path, help=f"the certificate (default: FOLDER/{certificates.NAME})", metavar="FILE"
    )
    commands.add_argument(
        "--sandbox", default="auto", choices=["auto", *drivers.SAFE], help="driver (default: the strongest one here)"
    )
    commands.add_argument(
        "--seconds", type=float, default=600.0, help="time limit in the sandbox, not of --replay-outside (default: 600)"
    )
    commands.add_argument(
        "--replay-outside",
        action="store_true",
        help="replay records whose commands are programs in this process, without --sandbox and --seconds, as "
        "envsuite-replay does: each program in a sandbox of its own; pip may install the packages of mined tasks",
    )
    commands.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return commands


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if not args.seconds > 0:
        raise UsageError(f"--seconds must be above 0, not {args.seconds:g}.")
    if not args.folder.is_dir():
        raise UsageError(f"{args.folder} is not a folder: name a run folder or a leaderboard.")
    if not records.results_file(args.folder).exists():
        raise UsageError(
            f"{args.folder} has no results.jsonl: name one run folder, RUNS/TASK--MODEL/RUN_ID, or a leaderboard."
        )
    digests = certificates.file_digests(args.folder)
    findings, driver = sandboxed.examine(args.folder, args.sandbox, args.seconds, args.replay_outside)
    tasks = {entry["task"] for entry in findings["entries"]}
    outside = set(filter(replay.runs_programs, tasks)) if args.replay_outside else set()
    if outside:
        cli.print_safely(f"{args.folder}: replays {', '.join(sorted(outside))} outside of the sandbox", sys.stderr)
        total = sum(entry["records"] for entry in findings["entries"] if entry["task"] in outside)
        sandboxed.replay_outside(args.folder, findings, outside, counter(str(args.folder), total))
    if certificates.file_digests(args.folder) != digests:
        raise DataError(f"{args.folder} changed while it was verified: verify it again when nothing writes to it.")
    count = sum(entry["records"] for entry in findings["entries"])
    for difference in findings["differences"]:
        cli.print_safely(f"{args.folder}: {difference}", sys.stderr)
    if findings["differ"] or not count or any(entry["replayed"] != entry["records"] for entry in findings["entries"]):
        cli.print_safely(f"{args.folder}: not verified: {findings['differ']} differences in {count:,} records")
        return 1
    output = args.output or args.folder / certificates.NAME
    certificates.write(
        output,
        {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "envsuite": envsuite.__version__,
            "python": platform.python_version(),
            "sandbox": driver,
            "replayed_outside": sorted(outside),
            "entries": findings["entries"],
            "rendered_bytes": findings["rendered_bytes"],
            "not_verified": list(certificates.NOT_VERIFIED),
            "sha256": certificates.digest_of_files(digests),
            "files": digests,
        },
    )
    cli.print_safely(
        f"{output}: {count:,} records replay, the protocol matches, the report renders. Not verified: "
        f"{'; '.join(certificates.NOT_VERIFIED)}."
    )
    return 0


if __name__ == "__main__":
    main()
