"""envsuite swe: makes tasks for SWE-Gym from packages of the package index, and words their issues anew."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from envsuite.escaping import one_line
from harness import cli
from harness.cli.common.flags import ENDPOINT
from harness.evaluate import Sampling
from harness.execution import Connection
from harness.mining.tables import reasons_table, yield_table
from harness.settings import add_flags, named

WRITING = {"temperature": 0.7, "max_tokens": 2048}
"""sampling of texts, unless flags say otherwise"""


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
        "schema, each with a recipe for pip, and yield.md. The same command continues an interrupted run.",
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
    build.add_argument("packages", nargs="*", metavar="PACKAGE", help="NAME, NAME==VERSION or path of an archive")
    build.add_argument("-f", "--file", type=Path, help="file with further packages, one per line; # begins a comment")
    build.add_argument("-o", "--output", type=Path, default=Path("tasks"), help="folder of the tasks (default: tasks)")
    build.add_argument("-r", "--rounds", type=int, default=2, help="rounds of 16 tasks per package (default: 2)")
    build.add_argument("-j", "--workers", type=int, default=1, help="runs of tests at the same time (default: 1)")
    build.add_argument("-s", "--seconds", type=float, default=600.0, help="most time for a package (default: 600)")
    reword = verbs.add_parser(
        "reword",
        help="let a model write issue texts in other words",
        description="Let a model write the issue texts of records in other words. A text is kept only if it has the "
        "facts of the original (the check, what it got, what is expected) and no leak: no code, paths or names of the "
        "gold patch and no tests that the original does not name. The other records keep their text. Writes records "
        "for --set records=FILE and counts every reason. The same command continues an interrupted run.",
        epilog="Example: envsuite swe reword mined/records.jsonl -m openai:my-model --base-url http://localhost:8000/v1",
    )
    reword.add_argument(
        "records", nargs="?", default="", help="records file or folder (default: the mined tasks that are shipped)"
    )
    reword.add_argument("-m", "--model", required=True, help="any model, as in envsuite-eval")
    reword.add_argument("-o", "--output", type=Path, default=Path("reworded.jsonl"), help="(default: reworded.jsonl)")
    reword.add_argument("-n", "--most", type=int, default=None, help="the first N records only")
    reword.add_argument("-a", "--attempts", type=int, default=1, help="texts per record at most (default: 1)")
    add_flags(reword, Sampling, WRITING, WRITING)
    add_flags(reword, Connection, ENDPOINT)
    cli.add_verbose(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, resumes="the same command", kept="finished pairs of releases and packages")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.verb == "reword":
        return _reword(args)
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
    from envsuite.envs.swegym.mined import miner

    def show(result: Any) -> None:
        title = " ".join(filter(None, (result.package, result.old, result.new)))
        outcome = result.reason or f"{len(result.records)} kept of {result.candidates}, {_counted(result.rejected)}"
        cli.print_safely(f"{title}: {one_line(outcome)} ({result.seconds:.0f} s)")

    plan = miner.MiningPlan(
        packages, args.releases, args.most, args.workers, args.archives, args.seconds, args.suite_seconds
    )
    journal = miner.mine(plan, args.output, show)
    rows = miner.yields([result for result in journal.results if result.package in packages])
    lines = [*yield_table(rows), "", *reasons_table(rows)]
    write_atomically(args.output / "yield.md", "\n".join(lines) + "\n")
    kept = sum(row["kept"] for row in rows)
    cli.print_safely(f"{cli.plural(kept, 'instance')} of {cli.plural(len(rows), 'package')}")
    cli.print_safely(f"records: {args.output / miner.RECORDS}\nyield: {args.output / 'yield.md'}")
    return 0 if kept else 1


def _reword(args: argparse.Namespace) -> int:
    from harness.mining import rewording
    from harness.policies import is_model, make_policy

    if not is_model(args.model):
        raise UsageError(f"--model {args.model} writes no texts: name a model, such as hf:smollm2-135m.")
    for flag in ("most", "attempts"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag} must be at least 1, not {value}.")
    rewording.check_output(args.output, args.records)
    rows = rewording.sources(args.records)[: args.most]
    policy = make_policy(args.model, **named(args, Sampling, Connection))

    def show(name: str, reasons: list[str]) -> None:
        cli.print_safely(f"{name}: {one_line('; '.join(reasons)) or rewording.KEPT}")

    try:
        counts = rewording.reword_into(args.output, rows, policy, args.attempts, show)
    finally:
        policy.close()
    total = cli.plural(len(rows), "record")
    cli.print_safely(f"{total} in {args.output}; {counts.pop(rewording.KEPT, 0)} reworded now")
    for reason, count in counts.most_common():
        cli.print_safely(f"{count} kept the original: {reason}")
    return 0


def _build(args: argparse.Namespace, packages: Sequence[str]) -> int:
    from envsuite.envs.swegym.generated import batch

    def show(job: batch.BuildJob) -> None:
        outcome = job.error or f"{job.tasks} tasks of {job.tried} candidates, {_counted(job.rejected)}"
        rate = f", {job.rate:.0f} tasks per core hour" if job.tasks else ""
        cli.print_safely(f"{job.package}: {one_line(outcome)} ({job.seconds:.0f} s{rate})")

    jobs = batch.build_all(args.output, packages, args.workers, args.seconds, args.rounds, show)
    total = sum(job.tasks for job in jobs)
    cli.print_safely(f"{cli.plural(total, 'task')} of {cli.plural(len(jobs), 'package')} in {args.output}")
    return 0 if total else 1


def _counted(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none rejected"


if __name__ == "__main__":
    main()
