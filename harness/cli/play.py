"""envsuite play: play an environment yourself; the human row of a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from envsuite import registry
from envsuite.errors import UsageError
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.evaluate import Execution, RunConfig, evaluate
from harness.play import HELP, play
from harness.policies import is_model
from harness.settings import add_flags, named, read
from harness.stats.summary import result_table
from harness.suites.plan import configure


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(prog="envsuite play", description="Play in the terminal. " + HELP + ".")
    commands.add_argument("env", help="family or task id")
    add_common(commands, "set", "module", "output_dir", "verbose")
    add_flags(commands, RunConfig, ("split", "episodes", "seed", "reward", "max_turns"), {"episodes": 1})
    add_flags(commands, Execution, ("resume",))
    commands.add_argument("--player", default="human", help="who plays: the name in the table")
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    notices: list[str] = []
    if not is_model(args.player):
        raise UsageError(f"--player {args.player!r} is the name of a built-in player: its row must not become yours.")
    config = configure(cli.one_task(args.env, notices), args.player, {**named(args, RunConfig), "set": args.set})
    task, knobs = config.task, config.knobs
    console = cli.console()

    def say(text: str) -> None:
        console.print(text, highlight=False)

    for notice in notices:
        say(notice)
    say(f"{task.id} {json.dumps(knobs) if knobs else ''}  {HELP}\n")
    env = registry.build(task, config.reward_mode, **knobs)
    try:
        _, summary = evaluate(
            config,
            args.output_dir,
            lambda: None,  # type: ignore[arg-type, return-value]
            read(Execution, named(args, Execution)),
            play=lambda todo: play(env, todo, _asker(), say, config.max_turns),
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


main = cli.command(_main, "--resume")
