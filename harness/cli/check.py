"""envsuite check: checks that environments keep the contract of TextEnv."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.checks import absent, check
from envsuite.checks.gold import TIMES, deny_list, examine
from envsuite.checks.leaks import LEAK_SECONDS
from envsuite.errors import UsageError
from envsuite.sandbox import drivers, selftest
from envsuite.types import Task
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite check",
        description="Check that environments keep the contract: Gymnasium's checker, determinism, fuzzing, leaks, "
        "expert wins, idle player loses, info schema, reward modes.",
        epilog="Your own environment: envsuite check MyEnv-v0 --module my_package.my_env. "
        "Instances: envsuite check --gold SWEGym-records --set records=FILE --deny-list bad.txt",
    )
    parser.add_argument("env", nargs="*", help="family, task id or glob")
    parser.add_argument("--sandbox", action="store_true", help="only attack every sandbox driver and list the results")
    add_common(parser, "set", "module", "verbose")
    parser.add_argument(
        "--seconds", type=float, default=LEAK_SECONDS, help="time limit of the leak check (default: 60)"
    )
    parser.add_argument("--seeds", type=int, default=5, help="games per check (default: 5)")
    gold = parser.add_argument_group("gold: check that every game of a panel can be won")
    gold.add_argument(
        "--gold", action="store_true",
        help="only play every game: the expert must always win, and an idle player must not",
    )  # fmt: skip
    gold.add_argument("--times", type=int, default=TIMES, help=f"plays of the expert per game (default: {TIMES})")
    gold.add_argument("-n", type=int, metavar="GAMES", help="only the first games of the panel")
    gold.add_argument(
        "--deny-list", type=Path, metavar="FILE", help="write the failed games to FILE, for later --set deny=FILE"
    )
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    console = cli.console()
    cli.import_modules(args.module)
    if args.seeds < 1 or not args.seconds > 0:
        raise UsageError(f"--seeds must be at least 1 and --seconds above 0, not {args.seeds} and {args.seconds:g}.")
    if args.times < 1 or (args.n is not None and args.n < 1):
        raise UsageError(f"--times and -n must be at least 1, not {args.times} and {args.n}.")
    if args.sandbox:
        return _sandbox(console)
    if not args.env:
        raise UsageError("There is nothing to check: name a task, or use --sandbox.")
    knobs = dict(parse_setting(word) for word in args.set)
    tasks = [task for pattern in args.env for task in registry.tasks(pattern)]
    if args.gold:
        return _gold(tasks, knobs, args, console)
    failed = skipped = 0
    for task in tasks:
        console.print(task.id, style="bold", highlight=False)
        chosen = registry.overrides(task, knobs)
        if missing := absent(task, **chosen):
            console.print(f"  not checked: {missing}", highlight=False, soft_wrap=True)
            skipped += 1
            continue
        for finding in check(task, args.seconds, args.seeds, **chosen):
            mark = "[red]FAIL[/]" if not finding.ok else "[green]ok  [/]" if finding.judged else "[yellow]note[/]"
            console.print(f"  {mark} {finding.name}: ", end="", highlight=False, markup=True)
            console.print(finding.detail, highlight=False, soft_wrap=True)
            failed += not finding.ok
    console.print(
        f"{cli.plural(len(tasks) - skipped, 'task')}, {cli.plural(failed, 'failed check')}, "
        f"{cli.plural(skipped, 'task')} not checked",
        highlight=False,
    )
    return 1 if failed or skipped == len(tasks) else 0


def _sandbox(console: Console) -> int:
    """Prints which attacks every sandbox driver stops.

    Returns 1 if a driver for model-written code fails or none works.
    """
    worked: set[str] = set()
    failed = 0
    for finding in selftest.examine():
        protects = finding.driver in drivers.SAFE
        if finding.name != selftest.WORKS:
            worked.add(finding.driver)
            failed += protects and not finding.holds
        mark = "[green]ok  [/]" if finding.holds else "[red]FAIL[/]" if protects else "[yellow]open[/]"
        mark = "[dim]none[/]" if finding.name == selftest.WORKS else mark
        console.print(f"  {mark} {finding.driver}: {finding.name}: ", end="", highlight=False, markup=True)
        console.print(finding.detail, highlight=False, soft_wrap=True)
    usable = [name for name in drivers.SAFE if name in worked]
    chosen = usable[0] if usable else "none of them"
    console.print(
        f"auto chooses {chosen}. open: `process` does not stop this attack; it protects against accidents only.",
        highlight=False,
    )
    return 1 if failed or not usable else 0


def _gold(tasks: list[Task], knobs: dict[str, Any], args: argparse.Namespace, console: Console) -> int:
    verdicts = []
    for task in tasks:
        console.print(task.id, style="bold", highlight=False)
        for verdict in examine(task, args.times, args.n, **registry.overrides(task, knobs)):
            verdicts.append(verdict)
            mark = "[green]sound [/]" if verdict.status == "sound" else f"[red]{verdict.status:6}[/]"
            console.print(f"  {mark} ", end="", highlight=False, markup=True)
            line = f"{verdict.game}: {verdict.detail}, {verdict.seconds:.1f} s"
            console.print(line, highlight=False, soft_wrap=True)
            if args.deny_list:  # at once: an examination of hours may be cut
                write_atomically(args.deny_list, deny_list(verdicts))
    failed = [verdict for verdict in verdicts if verdict.status != "sound"]
    console.print(f"{len(verdicts)} games, {len(failed)} to exclude", highlight=False)
    return 1 if failed else 0


main = cli.command(_main)
