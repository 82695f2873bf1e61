"""envsuite-eval: evaluates a model on tasks, with the random player and the expert for comparison."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from envsuite.errors import UsageError, did_you_mean
from harness import cli
from harness.cli.arguments.flags import Call, add_options, read_call
from harness.cli.playing.players import Players, play
from harness.cli.playing.preview import describe, show_prompt
from harness.evaluate import RunConfig
from harness.lm import model_files
from harness.policies import ADVISED, gguf_file, is_model, record_name, team_name
from harness.prompting import protocols
from harness.records import Results
from harness.stats.summary import Summary, over_tasks, repeats_table, result_table, tasks_table, type_table
from harness.suites.plan import Planned, check_team, plan

AGENT_PLAYERS = ("greedy", *ADVISED)
"""Players of --agent that are no models."""


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite-eval",
        usage="%(prog)s -m MODEL -e ENV [options]",
        description="Evaluate models on text environments.",
        epilog="Example: envsuite-eval --model qwen2.5-3b --env alfworld",
    )
    parser.add_argument(
        "-m",
        "--model",
        required=True,
        action="append",
        help="repeatable; random | blind | expert | idle | replay:FILE | hf:X | vllm:X | llamacpp:FILE.gguf | openai:X "
        "| inspect:PROVIDER/X | alias | path | org/name",
    )
    parser.add_argument(
        "-e", "--env", required=True, action="append", help="family, task id, glob or suite:NAME; may be repeated"
    )
    parser.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="N=MODEL",
        help="the player of agent N, from 2, with a conversation of its own; --model plays agent 1; any player of "
        "--model, or greedy; once for each further agent",
    )
    add_options(parser)
    parser.add_argument("--show-prompt", action="store_true", help="print the first prompt and stop")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    console = cli.console(stderr=args.json)
    cli.import_modules(args.module)
    call = read_call(args)
    base_url = call.connection.base_url
    notices: list[str] = []
    team = len(args.agent) and 1 + len(args.agent)
    if base_url is None:  # a server may have any model
        for word in args.agent:
            _check_player(word.partition("=")[2])
    args.model = list(dict.fromkeys(_with_agents(name, args.agent) for name in args.model))
    for name in args.model:
        record_name(name)  # raises early if a file cannot be read
    if base_url and not any(map(is_model, args.model)):
        raise UsageError(
            f"--base-url is the address of a model, and {', '.join(args.model)} needs none: remove the flag."
        )
    plans = plan(args.model[0], call.flags, args.env, notices, team)
    for notice in notices:
        console.print(notice, style="yellow", highlight=False, soft_wrap=True)
    for config in _configs(plans, args.model):
        check_team(config, team)
    if args.dry_run:
        for config in _configs(plans, args.model):
            describe(config, call, console)
        return 0
    if args.show_prompt:
        for config in _configs(plans, args.model):
            show_prompt(config, base_url)
        return 0
    return _evaluate(plans, call, args, console)


def _with_agents(model: str, words: Sequence[str]) -> str:
    """Returns the name of the team of a model and the players after --agent. Raises UsageError."""
    players = {1: model}
    for word in words:
        number, equals, player = word.partition("=")
        if not (equals and player and number.isdecimal()) or int(number) < 2 or int(number) in players:
            raise UsageError(f"--agent takes N=MODEL, a number from 2 and its player, each number once, not {word!r}.")
        players[int(number)] = player
    if sorted(players) != list(range(1, len(players) + 1)):
        raise UsageError(
            f"--agent must name the players of agents 2 to {max(players)}, not only some of them: in a game of two "
            "agents it is --agent 2=MODEL."
        )
    return team_name([players[number] for number in sorted(players)]) if words else model


def _check_player(name: str) -> None:
    """Raises UsageError for a word that is neither a player nor like the name of a model."""
    bare = ":" not in name and "/" not in name and not Path(name).exists()
    if name and bare and name not in AGENT_PLAYERS and name.lower() not in (*model_files.BUNDLED, *model_files.ALIASES):
        raise UsageError(
            f"--agent names an unknown player, {name!r}: it is one of {', '.join(AGENT_PLAYERS)}, or a model as in "
            "--model." + did_you_mean(name, (*AGENT_PLAYERS, *model_files.BUNDLED, *model_files.ALIASES))
        )


def _configs(plans: Sequence[Planned], models: Sequence[str]) -> list[RunConfig]:
    """Returns the run of every model on every task."""
    return [_config_of(name, planned, models) for planned in plans for name in models]


def _evaluate(plans: Sequence[Planned], call: Call, args: argparse.Namespace, console: Console) -> int:
    """Plays every run with its baselines, and prints the results. Returns the exit code."""
    baselines = _baselines(args)
    output: list[dict[str, Any]] = []
    failure = ""
    files: dict[str, list[Path]] = {}
    with Players(call) as players:
        for planned in plans:
            config = planned.config
            rows: list[tuple[str, Summary]] = []
            for name in [*args.model, *baselines]:
                own = _config_of(name, planned, args.model)
                # Baselines are shared by all models of a task, so existing results are always resumed.
                again = dataclasses.replace(call.execution, resume=True, patience=600.0)
                records, summary = play(own, name, players, None if name in args.model else again)
                rows.append((name, summary))
                files.setdefault(name, []).extend(records.paths)
                if summary["broken"] and not summary["episodes"]:
                    first = next(iter(records))["error"]
                    failure = f"every episode of {name} on {config.task.id} broke; the first: {first}"
            _print_tables(console, config, rows)
            for name in args.model:
                folder = _config_of(name, planned, args.model).folder(args.output_dir)
                console.print(f"records: {folder}", highlight=False, soft_wrap=True)
            output.append({"run": str(config.folder(args.output_dir)), "rows": dict(rows)})
    if len(plans) > 1:
        across = [(name, over_tasks(Results(*paths))) for name, paths in files.items()]
        console.print(tasks_table(across))
        output.append({"over_tasks": dict(across)})
    if args.json:
        cli.print_json(output)
    if failure:
        cli.print_safely(f"error: {failure}", sys.stderr)
    return 1 if failure else 0


def _config_of(name: str, planned: Planned, models: Sequence[str]) -> RunConfig:
    config = dataclasses.replace(planned.config, model=record_name(name), gguf_file=gguf_file(name))
    if name not in models and planned.baseline_episodes:
        return dataclasses.replace(config, episodes=planned.baseline_episodes)
    return config


def _baselines(args: argparse.Namespace) -> list[str]:
    """Returns the names after --baselines. Raises UsageError early if one is not a baseline."""
    names = [name.strip() for name in args.baselines.split(",") if name.strip() not in ("", "none", *args.model)]
    for name in names:
        if is_model(name):
            raise UsageError(
                f"--baselines {name!r} is not one of {', '.join(ADVISED)}, expert:KIND, replay:FILE, none: "
                "run a model by itself with --model."
            )
        record_name(name)  # raises early if a file cannot be read
    return names


def _print_tables(console: Console, config: RunConfig, rows: list[tuple[str, Summary]]) -> None:
    panel = config.panel
    title = cli.titled(config.task.id, config.knobs)
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        title += f"  panel {panel.digest} ({len(config.seeds)} played, {len(panel):,}{of} present)"
    if config.prompting.protocol and is_model(config.model):
        neutral = config.prompting.words == protocols.NEUTRAL
        title += f"  protocol {config.prompting.protocol}" + (
            " in neutral words, not the published ones" if neutral else ""
        )
    console.print(result_table(title, rows))
    for table in (repeats_table(rows), type_table(rows)):
        if table:
            console.print(table)


main = cli.command(_main, "--resume")

if __name__ == "__main__":
    main()
