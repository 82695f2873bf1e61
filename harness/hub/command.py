"""envsuite hub: uploads a run or a task to the Hugging Face hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from envsuite import registry
from envsuite.errors import UsageError
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.evaluate import RunConfig
from harness.hub.bundle import KINDS, Bundle, Target
from harness.settings import add_flags
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(prog="envsuite hub", description="Share runs and tasks on a hub.")
    verbs = commands.add_subparsers(dest="verb", required=True)
    push = verbs.add_parser(
        "push",
        help="upload a run or a task",
        description="Upload a run or a task. Files with secrets, or with paths of this computer, are refused.",
        epilog="Example: envsuite hub push runs/BabyAI-goto-v0--random/0123abcd4567 dataset:my-name/goto-random "
        "--dry-run",
    )
    push.add_argument("source", help="folder of a finished run, or a task id")
    push.add_argument(
        "target",
        metavar="KIND:OWNER/NAME",
        help="; ".join(f"{kind}: {text}" for kind, text in KINDS.items()),
    )
    push.add_argument(
        "--dry-run", action="store_true", help="upload nothing: print the target, the files with sizes, and the card"
    )
    push.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="write the files to this folder as well")
    push.add_argument("--private", action="store_true", help="create a private repository")
    push.add_argument("--license", default="", metavar="NAME", help="licence for the card, such as mit")
    push.add_argument("--message", default="Upload by envsuite hub", help="message of the commit")
    push.add_argument(
        "--allow", action="append", default=[], metavar="TEXT", help="a path or name that may be uploaded; repeatable"
    )
    group = push.add_argument_group("tasks")
    add_common(group, "set", "module")
    add_flags(group, RunConfig, ("split", "episodes", "reward"), {"split": "", "episodes": 100, "reward": "sparse"})
    group.add_argument("--wheel", type=Path, metavar="FILE", help="for a Space: the wheel of envsuite that it installs")
    cli.add_verbose(verbs)
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    target = Target.parse(args.target)
    bundle = _bundle(args, target)
    bundle.check_private(args.allow)
    for line in bundle.lines():
        cli.print_safely(line)
    if args.output:
        bundle.write(args.output)
        cli.print_safely(f"written to {args.output}")
    if args.dry_run:
        cli.print_safely(f"\nREADME.md:\n\n{bundle.card}\nnothing was uploaded (--dry-run)")
        return 0
    from harness.hub.upload import push

    cli.print_safely(f"uploaded: {push(bundle, args.private, args.message)}")
    return 0


def _bundle(args: argparse.Namespace, target: Target) -> Bundle:
    """Returns the files of the run or task that the arguments name. Raises UsageError."""
    from harness.hub.contents import TaskOptions, of_run, of_task

    source = Path(args.source)
    if source.is_dir():
        return of_run(source, target, args.license)
    if source.exists():
        raise UsageError(f"{source} is a file: name the folder of the run, which has config.json.")
    if "/" in args.source:
        raise UsageError(f"There is no folder {source}: name that of a run, or a task id (envsuite envs lists them).")
    cli.import_modules(args.module)
    task = cli.one_task(args.source)
    if args.episodes < 1:
        raise UsageError(f"--episodes must be at least 1, not {args.episodes}.")
    knobs = registry.overrides(task, dict(parse_setting(word) for word in args.set))
    options = TaskOptions(args.split, args.episodes, knobs, tuple(args.set), args.reward, args.license, args.wheel)
    return of_task(task, target, options)


main = cli.command(_main)
