"""envsuite-check: puts environments, yours or ours, to the contract."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from envsuite import registry
from envsuite.checks import LEAK_SECONDS, check
from envsuite.errors import UsageError
from harness import cli
from harness.cli.eval import setting


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-check",
        description="Check that environments keep the contract: Gymnasium's checker, determinism, fuzzing, leaks, "
        "expert wins, idle loses, info schema, reward modes.",
        epilog="An environment of yours: envsuite-check MyEnv-v0 --module my_package.my_env",
    )
    found.add_argument("env", nargs="+", help="family, task id or glob")
    found.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE")
    found.add_argument("--module", action="append", default=[], help="import this first: it registers your tasks")
    found.add_argument("--seconds", type=float, default=LEAK_SECONDS, help="bound of the leak check (default: 60)")
    found.add_argument("--seeds", type=int, default=5, help="games per check (default: 5)")
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    console = cli.console()
    cli.import_modules(args.module)
    if args.seeds < 1 or not args.seconds > 0:
        raise UsageError(f"--seeds must be at least 1 and --seconds above 0, not {args.seeds} and {args.seconds:g}.")
    knobs = dict(setting(word) for word in args.set)
    failed = 0
    tasks = [task for pattern in args.env for task in registry.tasks(pattern)]
    for task in tasks:
        console.print(f"[bold]{task.id}[/]", highlight=False)
        for finding in check(task, args.seconds, args.seeds, **registry.overrides(task, knobs)):
            mark = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]"
            console.print(f"  {mark} {finding.name}: ", end="", highlight=False)
            console.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
            failed += not finding.ok
    console.print(f"{len(tasks)} tasks, {failed} properties that do not hold", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    main()
