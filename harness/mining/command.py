"""envsuite swe: makes tasks for SWE-Gym from packages of the package index."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from envsuite.escaping import one_line
from harness import cli
from harness.mining.tables import reasons_table, yield_table


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite swe", description="Make tasks for SWE-Gym from packages of the package index."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    mine = verbs.add_parser(
        "mine",
        help="find real bugs between consecutive releases",
        description="Find real bugs: tests of a release that fail on the release before, and the fewest changes of the "
        "code that repair them. Nothing of a package runs outside a sandbox. Writes records.jsonl in SWE-Gym's "
        "schema, each with a setup for pip, and yield.md. The same command continues an interrupted run.",
        epilog="Example: envsuite swe mine voluptuous boltons -o mined -r 10",
    )
    mine.add_argument("packages", nargs="*", metavar="PACKAGE", help="name on the package index")
    mine.add_argument("-f", "--file", type=Path, help="file with further names, one per line; # begins a comment")
    mine.add_argument("-o", "--output", type=Path, default=Path("mined"), help="folder of the results (default: mined)")
    mine.add_argument("-r", "--releases", type=int, default=10, help="latest pairs of releases to search (default: 10)")
    mine.add_argument("-n", "--most", type=int, default=12, help="instances of one package at most (default: 12)")
    mine.add_argument("-j", "--workers", type=int, default=1, help="packages mined at the same time (default: 1)")
    mine.add_argument("-s", "--seconds", type=float, default=float("inf"), help="start no pair after this time")
    mine.add_argument(
        "-t", "--suite-seconds", type=float, default=30.0, help="seconds for one run of a package's tests (default: 30)"
    )
    mine.add_argument("--archives", type=Path, help="folder of NAME-VERSION.tar.gz to use instead of the package index")
    build = verbs.add_parser(
        "build",
        help="plant bugs in many packages",
        description="Generate tasks of many packages, one after another. Writes jobs.jsonl, with a line per package: "
        "tasks, every reason for a rejection, and the rate per core hour. The same command continues an interrupted "
        "run. The folder is a data set: use it with --set tasks=FOLDER.",
        epilog="Example: envsuite swe build jsonpointer tabulate==0.10.0 -o tasks -r 2",
    )
    build.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help="NAME, NAME==VERSION, path of an archive, or a shipped package"
    )
    build.add_argument("-f", "--file", type=Path, help="file with further packages, one per line; # begins a comment")
    build.add_argument("-o", "--output", type=Path, default=Path("tasks"), help="folder of the tasks (default: tasks)")
    build.add_argument("-r", "--rounds", type=int, default=2, help="rounds of 16 tasks per package (default: 2)")
    build.add_argument("-j", "--workers", type=int, default=1, help="runs of tests at the same time (default: 1)")
    build.add_argument("-s", "--seconds", type=float, default=600.0, help="most time for a package (default: 600)")
    layout = build.add_argument_group("for a package whose layout cannot be guessed")
    layout.add_argument("--code", action="append", default=[], metavar="PATH", help="code that may be changed: src/foo")
    layout.add_argument("--tests", action="append", default=[], metavar="PATH", help="arguments for pytest: tests")
    layout.add_argument(
        "--with", dest="needs", action="append", default=[], metavar="NAME", help="installed package that tests need"
    )
    layout.add_argument("--split", choices=("train", "test"), default="test", help="split of the tasks (default: test)")
    cli.add_verbose(verbs)
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    packages = [*args.packages, *_listed(args.file)]
    if not packages:
        raise UsageError("Name at least one package, or a file of names with --file.")
    for flag in ("workers", "releases", "most", "rounds"):
        if getattr(args, flag, 1) < 1:
            raise UsageError(f"--{flag} must be at least 1, not {getattr(args, flag)}.")
    return _mine(args, packages) if args.verb == "mine" else _build(args, packages)


def _listed(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The list of packages {path} cannot be read: {error}.") from None
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def _mine(args: argparse.Namespace, packages: Sequence[str]) -> int:
    from envsuite.cache import write_atomically
    from envsuite.envs.swegym.makers import mining

    def show(result: Any) -> None:
        title = " ".join(filter(None, (result.package, result.old, result.new)))
        outcome = result.reason or f"{len(result.records)} kept of {result.candidates}, {_counted(result.rejected)}"
        cli.print_safely(f"{title}: {one_line(outcome)} ({result.seconds:.0f} s)")

    plan = mining.MiningPlan(
        packages, args.releases, args.most, args.workers, args.archives, args.seconds, args.suite_seconds
    )
    journal = mining.mine(plan, args.output, show)
    rows = mining.yields([result for result in journal.results if result.package in packages])
    lines = [*yield_table(rows), "", *reasons_table(rows)]
    write_atomically(args.output / "yield.md", "\n".join(lines) + "\n")
    kept = sum(row["kept"] for row in rows)
    cli.print_safely(f"{cli.plural(kept, 'instance')} of {cli.plural(len(rows), 'package')}")
    cli.print_safely(f"records: {args.output / mining.RECORDS}\nyield: {args.output / 'yield.md'}")
    return 0 if kept else 1


def _build(args: argparse.Namespace, packages: Sequence[str]) -> int:
    from envsuite.envs.swegym.makers import planting
    from envsuite.envs.swegym.makers.sdists import Layout

    def show(job: planting.BuildJob) -> None:
        outcome = job.error or f"{job.tasks} tasks of {job.tried} candidates, {_counted(job.rejected)}"
        rate = f", {job.rate:.0f} tasks per core hour" if job.tasks else ""
        cli.print_safely(f"{job.package}: {one_line(outcome)} ({job.seconds:.0f} s{rate})")

    layout = Layout(tuple(args.code), tuple(args.tests), tuple(args.needs), args.split)
    if layout != planting.GUESSED and len(packages) != 1:
        raise UsageError("--code, --tests, --with and --split apply to one package: name one.")
    jobs = planting.build_all(args.output, packages, args.workers, args.seconds, args.rounds, show, layout)
    total = sum(job.tasks for job in jobs)
    cli.print_safely(f"{cli.plural(total, 'task')} of {cli.plural(len(jobs), 'package')} in {args.output}")
    return 0 if total else 1


def _counted(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none rejected"


main = cli.command(_main, resumes="the same command", kept="finished pairs of releases and packages")
