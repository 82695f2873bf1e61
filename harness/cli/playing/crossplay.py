"""envsuite table crossplay: plays every player with every player on one task, and prints the matrix."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.escaping import markdown
from harness import cli
from harness.cli.arguments.flags import add_common, add_options, read_call
from harness.cli.playing.players import Players, play
from harness.policies import record_name
from harness.stats.summary import Summary, number, percent
from harness.suites import crossplay
from harness.suites.plan import plan


def parser() -> cli.CliParser:
    parser = cli.CliParser(
        prog="envsuite table crossplay",
        usage="%(prog)s -e ENV -m PLAYER -m PLAYER [options]",
        description="Play every player with every player on one task of several agents, each with a conversation of "
        "its own, and print the mean of every pair with its 95 % interval. The first agent's player is in the rows, "
        "the player of all other agents in the columns. Pairs that were played are not played again.",
        epilog="Example: envsuite table crossplay -e suite:overcooked-crossplay -m random -m blind -m greedy -m expert",
    )
    parser.add_argument("-e", "--env", required=True, help="one task with several agents, or suite:NAME")
    parser.add_argument(
        "-m", "--model", required=True, action="append", help="any player of envsuite-eval, or greedy; repeatable"
    )
    add_common(parser, "metric")
    group = parser.add_mutually_exclusive_group()
    add_common(group, "markdown")
    group.add_argument("--csv", action="store_true", help="print a line for each pair: mean, bounds, games")
    add_options(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Plays the missing pairs and prints the matrix."""
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    players = list(dict.fromkeys(args.model))
    call = read_call(args)
    tasks = plan("random", call.flags, [args.env])
    if len(tasks) != 1:
        raise UsageError(f"Cross-play needs one task, and {args.env} names {len(tasks)}: name one of them.")
    task = tasks[0].config.task
    cls = registry.env_class(task)
    agents = registry.agents(task, {**cls.team_knobs, **tasks[0].config.knobs})
    if agents < 2:
        raise UsageError(
            f"{task.id} with these knobs has one player: name a task of several agents, such as "
            "Overcooked-AI-cramped_room-v0."
        )
    names = list(dict.fromkeys(crossplay.teams(players, agents).values()))
    configs = {name: plan(name, call.flags, [args.env], team=agents)[0].config for name in names}
    if args.dry_run:
        for name, config in configs.items():
            print(f"{name}: {cli.plural(len(config.all_episodes()), 'episode')}, {config.folder(args.output_dir)}")
        return 0
    call = call._replace(execution=dataclasses.replace(call.execution, resume=True))
    summaries: dict[str, Summary] = {}
    with Players(call) as policies:
        for name, config in configs.items():
            _, summary = play(config, name, policies)
            _interval(summary, args.metric)  # an unknown metric is refused before the second pair
            summaries[record_name(name)] = summary
    config = configs[names[0]]
    _print(summaries, args, cli.titled(config.task.id, config.knobs))
    return 0


def _print(summaries: dict[str, Summary], args: Any, title: str) -> None:
    """Prints the matrix in the form that the flags name."""
    cells = {
        pair: _interval(summary, args.metric)
        for name, summary in summaries.items()
        if (pair := crossplay.pair_of(name))
    }
    if args.json:
        cli.print_json([{"first": first, "others": others, **cell} for (first, others), cell in cells.items()])
        return
    if args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["first", "others", args.metric, "low", "high", "n"])
        for pair, cell in cells.items():
            writer.writerow([*pair, cell["value"], cell["low"], cell["high"], cell["n"]])
        return
    rows = crossplay.matrix(summaries, args.metric, percent if args.metric in ("success", "progression") else number)
    if args.markdown:
        print("\n".join(crossplay.as_markdown(rows, markdown)))
        return
    table = cli.new_table(f"{title}: {args.metric} [95 %]", rows[0][:1], rows[0][1:])
    for row in rows[1:]:
        table.add_row(*row)
    cli.console().print(table)


def _interval(summary: Summary, metric: str) -> dict[str, Any]:
    """Returns the mean of a metric with its interval. Raises UsageError if the task has no such metric."""
    mean = crossplay.interval(summary, metric)
    if mean is None:
        raise UsageError(f"The task has no metric {metric!r}: it has {', '.join(summary['metrics'])}.")
    return mean
