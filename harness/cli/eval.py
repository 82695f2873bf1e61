"""envsuite-eval: a model plays tasks; random player and expert beside it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from envsuite.errors import UsageError
from harness import cli
from harness.cli.plans import Parser, add_options, execution, plan
from harness.cli.players import Players, play
from harness.cli.preview import describe, show_prompt
from harness.evaluate import RunConfig
from harness.policies import ADVISED, is_model, record_name
from harness.records import Results
from harness.stats.summary import Summary, over_tasks, repeats_table, result_table, tasks_table, type_table


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="envsuite-eval",
        description="Evaluate a model on text environments.",
        epilog="Example: envsuite-eval --model qwen2.5-3b --env alfworld",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = found.add_argument
    add(
        "-m",
        "--model",
        required=True,
        help="random | expert | idle | replay:FILE | hf:X | openai:X | alias | path | org/name",
    )
    add("-e", "--env", required=True, action="append", help="family, task id, glob or suite:NAME; may be repeated")
    add_options(found)
    group = found.add_argument_group("prediction, for --dry-run")
    group.add_argument("--nodes", type=int, default=0, help="what it takes on so many nodes")
    group.add_argument("--cpus-per-node", type=int, default=os.cpu_count() or 1, help="with --nodes")
    group.add_argument(
        "--tokens-per-second", type=float, default=0.0, help="with --nodes: what one server or replica writes in all"
    )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "--resume")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.nodes < 0 or args.cpus_per_node < 1 or args.tokens_per_second < 0:
        raise UsageError(
            f"--nodes {args.nodes}, --cpus-per-node {args.cpus_per_node} and --tokens-per-second "
            f"{args.tokens_per_second} must be positive."
        )
    if args.nodes and not args.dry_run:
        raise UsageError("--nodes belongs to --dry-run, which was not given: a run takes the nodes of its Ray cluster.")
    console = cli.console(stderr=args.json)
    plans, mode = plan(args, console), execution(args)
    if args.dry_run:
        for planned in plans:
            describe(planned.config, args, console)
        return 0
    if args.show_prompt:
        for planned in plans:
            show_prompt(planned.config, args.base_url)
        return 0
    baselines = _baselines(args)
    found: list[dict[str, Any]] = []
    broken = ""
    everything: dict[str, list[Path]] = {}
    with Players(args) as players:
        for planned in plans:
            config = planned.config
            rows: list[tuple[str, Summary]] = []
            for name in [args.model, *baselines]:
                mine = dataclasses.replace(config, model=record_name(name))
                if name != args.model and planned.baseline_episodes:
                    mine = dataclasses.replace(mine, episodes=planned.baseline_episodes)
                # Floor and ceiling are shared by every model of the task: what is there is taken as it is.
                how = mode if name == args.model else dataclasses.replace(mode, resume=True, patience=600.0)
                records, summary = play(mine, name, args, how, players, console)
                rows.append((name, summary))
                everything.setdefault(name, []).extend(records.paths)
                if summary["broken"] and not summary["episodes"]:
                    broken = (
                        f"every episode of {name} on {config.task.id} broke; the first: {next(iter(records))['error']}"
                    )
            _show(console, config, rows, args)
            found.append({"run": str(config.folder(args.output_dir)), "rows": dict(rows)})
    if len(plans) > 1:
        across = [(name, over_tasks(Results(*paths))) for name, paths in everything.items()]
        console.print(tasks_table(across))
        found.append({"over_tasks": dict(across)})
    if args.json:
        print(json.dumps(found, indent=2))
    if broken:
        print(f"error: {broken}", file=sys.stderr)
    return 1 if broken else 0


def _baselines(args: argparse.Namespace) -> list[str]:
    """Who plays beside the model. Raises UsageError for what is no such player, before the model has played for hours."""
    names = [name.strip() for name in args.baselines.split(",") if name.strip() not in ("", "none", args.model)]
    for name in names:
        if is_model(name):
            raise UsageError(
                f"--baselines {name!r} is not one of {', '.join(ADVISED)}, expert:KIND, replay:FILE, none: "
                "a model is run by itself with --model."
            )
        record_name(name)  # a file that cannot be read is said now
    return names


def _show(console: Console, config: RunConfig, rows: list[tuple[str, Summary]], args: argparse.Namespace) -> None:
    panel = config.panel
    title = cli.titled(config.task.id, config.knobs)
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        title += f"  panel {panel.digest} ({len(config.seeds)} played, {len(panel):,}{of} present)"
    console.print(result_table(title, rows))
    for table in (repeats_table(rows), type_table(rows)):
        if table:
            console.print(table)
    console.print(f"records: {config.folder(args.output_dir)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
