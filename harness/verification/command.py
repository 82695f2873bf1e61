"""envsuite-verify: replay and render a stranger's folder in a sandbox, and write a certificate."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import envsuite
from envsuite import sandbox
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.installed import version
from envsuite.reading import parse_json
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Fate, Limits, Spec
from envsuite.types import knobs_json
from harness import cli, records, replay
from harness.cli.common.counter import counter
from harness.suites import certificates, leaderboards
from harness.verification import inside

PROGRAM = Path(inside.__file__)
DISTRIBUTIONS = (
    "numpy", "gymnasium", "rich", "filelock", "platformdirs", "jinja2", "httpx", "minigrid", "textworld", "alfworld",
    "pillow", "scikit-learn", "pandas",
)  # fmt: skip
"""packages that replays and reports use; the sandbox lacks what is not installed here"""
DATA = ("ALFWORLD_DATA",)
"""environment variables that name folders of games, which the sandbox may read"""


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
    findings, driver = _examine(args.folder, args.sandbox, args.seconds, args.replay_outside)
    tasks = {entry["task"] for entry in findings["entries"]}
    outside = set(filter(replay.runs_programs, tasks)) if args.replay_outside else set()
    if outside:
        _replay(args.folder, findings, outside)
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


def _replay(folder: Path, findings: dict[str, Any], tasks: set[str]) -> None:
    """Replays the records of some tasks in this process and adds the result to `findings`.

    The environments run the records' programs in sandboxes. Raises DataError, EngineFailure.
    """
    cli.print_safely(f"{folder}: replays {', '.join(sorted(tasks))} outside of the sandbox", sys.stderr)
    file = records.results_file(folder)
    board = leaderboards.read(folder) if (folder / "metadata.json").exists() else None
    show = counter(str(folder), sum(entry["records"] for entry in findings["entries"] if entry["task"] in tasks))
    entries = {(entry["task"], knobs_json(entry["knobs"]), entry["model"]): entry for entry in findings["entries"]}
    verdicts = replay.check(file, players=board.computed if board else (), only=tasks.__contains__)
    for number, verdict in enumerate(verdicts, 1):
        entry = None if verdict.difference else entries.get(leaderboards.entry_key(verdict.record))
        if entry is not None:
            entry["replayed"] += 1
        else:
            findings["differ"] += 1
            if len(findings["differences"]) < inside.MOST_DIFFERENCES:
                difference = verdict.difference or "the sandbox did not report this record"
                findings["differences"].append(f"{verdict.place}: {difference}")
        show(number)


def _examine(folder: Path, driver: str, seconds: float, outside: bool) -> tuple[dict[str, Any], str]:
    """Returns the findings of `inside`, and the sandbox's driver. Raises DataError, EngineFailure, UsageError."""
    root = Path(envsuite.__file__).resolve().parents[1]
    data = {name: os.environ[name] for name in DATA if Path(os.environ.get(name, "")).is_absolute()}
    packages = [root / "envsuite", root / "harness"]
    shared = [*packages, *(Path(path) for path in data.values() if Path(path).is_dir())]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    limits = Limits(
        seconds=seconds, memory_mb=4096, disk_mb=256 + 2 * (size >> 20), processes=128, files=1024, value_mb=8
    )
    driver = drivers.choose(driver)
    # A run has its own /tmp and /dev/shm, so folders below them get other places; Landlock cannot move folders, and
    # need not.
    places = {
        path: f"/shared/{number}/{path.name}"
        if driver != "landlock" and str(path).startswith(("/tmp/", "/dev/shm/"))
        else str(path)
        for number, path in enumerate(shared)
    }
    spec = Spec(
        program=PROGRAM,
        distributions=tuple(filter(version, DISTRIBUTIONS)),
        read_only=tuple((path, places[path]) for path in shared),
        workspace="/verified",
        limits=limits,
    )
    with sandbox.open(spec, driver) as session:
        session.copy_in(folder, "folder")
        seen = {name: places.get(Path(path), path) for name, path in data.items()}
        job = {
            "packages": [places[path] for path in packages],
            "folder": f"{session.workspace}/folder",
            "environment": seen,
            "outside": outside,
        }
        inner = str(job["folder"])
        result = session.call(json.dumps(job).encode())
        driver = session.driver
    if result.fate is Fate.TIMEOUT:
        raise DataError(f"{folder} was not verified within {seconds:g} s: allow more with --seconds.")
    if result.fate is not Fate.EXITED or result.exit_code:
        last = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineFailure(f"The verification of {folder} ended early ({result.fate}): {''.join(last)[:300]}")
    try:
        findings = parse_json(result.value)  # of a program that read a stranger's files
        if "error" in findings:
            raise DataError(str(findings["error"]).replace(inner, str(folder)))
        records.check_types(findings, {"entries": list, "differences": list, "differ": int, "rendered_bytes": int})
        for entry in findings["entries"]:
            records.check_types(entry, {**dict.fromkeys(("task", "model", "sha256"), str), "knobs": dict})
            records.check_types(entry, {"records": int, "replayed": int})
    except (ValueError, LookupError, TypeError) as error:
        raise EngineFailure(f"The sandbox returned no findings about {folder} ({type(error).__name__}).") from error
    return findings, driver


if __name__ == "__main__":
    main()
