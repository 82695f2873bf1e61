"""envsuite play: play an environment yourself; the human row of a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import RewardMode
from harness import cli
from harness.evaluate import Execution, RunConfig, evaluate, resolve_split
from harness.play import HELP, play
from harness.policies import is_model
from harness.stats.summary import result_table
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(prog="envsuite play", description="Play in the terminal. " + HELP + ".")
    commands.add_argument("env", help="family or task id")
    commands.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob; may be repeated"
    )
    commands.add_argument(
        "--split", default="", help="train | test | the splits of the task; default: the task's last one"
    )
    commands.add_argument("-n", "--episodes", type=int, default=1, help="games to play")
    commands.add_argument("--seed", type=int, default=0, help="number of the split's first seed")
    commands.add_argument("--reward", default="sparse", help=" | ".join(map(str, RewardMode)))
    commands.add_argument("--max-turns", type=int, default=None, help="limit on turns, besides the environment's own")
    commands.add_argument("--player", default="human", help="who plays: the name in the table")
    commands.add_argument("-o", "--output-dir", type=Path, default=Path("runs"), help="folder of all runs")
    commands.add_argument("--resume", action="store_true", help="continue a run of the same settings")
    commands.add_argument(
        "--module", action="append", default=[], help="Python module that registers your own environments"
    )
    commands.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return commands


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "--resume")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    notices: list[str] = []
    if not is_model(args.player):
        raise UsageError(f"--player {args.player!r} is the name of a built-in player: its row must not become yours.")
    (task, *further_tasks) = registry.tasks(args.env, notices)
    if further_tasks:
        raise UsageError(f"{args.env!r} names {len(further_tasks) + 1} tasks: one is played at a time.")
    task, split = resolve_split(task, args.split)
    knobs = registry.overrides(task, dict(parse_setting(word) for word in args.set))
    config = RunConfig(
        task,
        args.player,
        knobs,
        split,
        args.episodes,
        seed=args.seed,
        reward_mode=args.reward,
        max_turns=args.max_turns,
    )
    console = cli.console()

    def say(text: str) -> None:
        console.print(text, highlight=False)

    for notice in notices:
        say(notice)
    say(f"{task.id} {json.dumps(knobs) if knobs else ''}  {HELP}\n")
    env = registry.build(task, args.reward, **knobs)
    try:
        _, summary = evaluate(
            config,
            args.output_dir,
            lambda: None,  # type: ignore[arg-type, return-value]
            Execution(resume=args.resume),
            play=lambda todo: play(env, todo, _asker(), say, args.max_turns),
        )
    finally:
        env.close()
    if summary["episodes"]:
        console.print(result_table(task.id, [(args.player, summary)]))
        console.print(f"records: {config.folder(args.output_dir)}", highlight=False, soft_wrap=True)
    if summary["episodes"] < args.episodes:
        say(f"{summary['episodes']} of {args.episodes} games are recorded; --resume plays the others.")
    return 0


def _asker() -> Callable[[list[str]], str]:
    """A prompt with history and completion on a terminal; plain lines from a pipe."""
    if not sys.stdin.isatty():
        return lambda admissible: input()
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory
    except ModuleNotFoundError:
        print("(pip install 'envsuite[play]' brings history and completion)")
        return lambda admissible: input("> ")
    from envsuite.cache import cache_dir

    session: PromptSession[str] = PromptSession(history=FileHistory(str(cache_dir("play") / "history")))
    return lambda admissible: session.prompt(
        "> ", completer=WordCompleter([*admissible, ":undo", ":actions", ":edit", ":help", ":quit"], sentence=True)
    )


if __name__ == "__main__":
    main()
