"""What a call of the commands that play asks for: their common flags, and the runs that these name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task
from harness import cli
from harness.evaluate import Budget, Execution, RunConfig, Sampling, resolve_split
from harness.policies import record_name
from harness.prompting.prompting import ADMISSIBLE, GRAMMARS, Prompting
from harness.prompting.rewording import WORDINGS
from harness.suites import suites

TRUSTED_HELP = (
    "a knob that names files or chooses the sandbox: replays take such values from you, never from the file, and use a "
    "safe sandbox otherwise"
)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose result tells in `said` which flags were given: also those that were given their default."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found = super().parse_args(args, namespace)
        unsaid = object()
        single = {name: unsaid for name, value in vars(found).items() if not isinstance(value, list)}
        again = vars(super().parse_args(args, argparse.Namespace(**single)))
        found.said = {name for name, value in again.items() if value is not unsaid and value != []}
        return found


def add_options(found: argparse.ArgumentParser) -> None:
    """Everything but who plays what: shared by the commands that play."""
    add = found.add_argument
    add("--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob; may be repeated")
    add("--split", default="", help="train | test | the splits of the task; the task's last one unless told")
    add("-n", "--episodes", "--limit", type=int, default=None, help="seeds per task (a whole panel, or 100)")
    add("-r", "--repeats", type=int, default=1, help="attempts per seed")
    add("--seed", type=int, default=0, help="number of the split's first seed to play")
    add("--reward", default="sparse", choices=[str(mode) for mode in RewardMode])
    add("--module", action="append", default=[], help="import this first: it registers environments of yours")
    add("--max-turns", type=int, default=None, help="cap on the model's turns, beside the environment's own")
    group = found.add_argument_group("model")
    group.add_argument("--temperature", type=float, default=0.0)
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--max-tokens", type=int, default=512, help="per reply")
    group.add_argument(
        "--action-mode", choices=["write", "score"], default="write", help="score: choose the likeliest command"
    )
    group.add_argument(
        "--normalisation", choices=["sum", "token", "word"], default="word", help="with --action-mode score"
    )
    group.add_argument("--device", default="auto")
    group.add_argument("--dtype", default="auto")
    group = found.add_argument_group(
        "server", "for openai:NAME, or any name with --base-url, which is then sent as it is"
    )
    group.add_argument(
        "--base-url", default=None, help="http://host:port/v1; several by commas share the conversations"
    )
    group.add_argument(
        "--api-key-var", default=None, help="environment variable that holds the key; never the key itself"
    )
    group.add_argument("--served-model-name", default=None, help="what the server calls the model")
    group.add_argument("--timeout", type=float, default=300.0, help="seconds per request")
    group.add_argument("--max-retries", type=int, default=6, help="per request, with growing pauses")
    group.add_argument("--requests-per-minute", type=float, default=None, help="all requests together")
    group.add_argument(
        "--price", default=None, metavar="IN,OUT", help="USD per million tokens, for --max-cost and records"
    )
    group = found.add_argument_group("prompt")
    group.add_argument("--history", type=int, default=-1, help="remembered turns; -1 for all")
    group.add_argument("--thinking", choices=["on", "off"], default="on")
    group.add_argument(
        "--history-reasoning", default="on", metavar="on|off|N", help="replies keep it in memory; N: the latest N alone"
    )
    group.add_argument("--admissible", choices=ADMISSIBLE, default="latest", help="where admissible commands are shown")
    group.add_argument("--action-grammar", choices=list(GRAMMARS), default="action")
    group.add_argument("--prompt-wording", choices=list(WORDINGS), default="plain", help="the same game in other words")
    group = found.add_argument_group("run")
    group.add_argument("--baselines", default="random,expert", help="played beside the model; 'none' for none")
    group.add_argument("--baseline-episodes", type=int, default=None, help="seeds for them (default: the model's)")
    group.add_argument("--num-workers", type=int, default=-1, help="environment processes; -1 as needed, 0 none")
    cli.add_executor(group)
    group.add_argument(
        "--policy-replicas", type=int, default=0, help="with ray: so many actors hold the model; 0: none"
    )
    group.add_argument("-c", "--max-concurrent", type=int, default=16, help="episodes at once")
    group.add_argument("-o", "--output-dir", type=Path, default=Path("runs"))
    group.add_argument("--resume", action="store_true", help="go on with a run of the same settings")
    group.add_argument(
        "--max-cost",
        type=float,
        default=0.0,
        help="USD, all runs of the call together; stop cleanly there (exit 3), --resume goes on",
    )
    group.add_argument("--max-tokens-total", type=int, default=0, help="prompt and reply tokens; likewise")
    group.add_argument("--max-time", type=float, default=0.0, help="seconds; likewise")
    group.add_argument("--show-prompt", action="store_true", help="print the first prompt, and play nothing")
    group.add_argument("--dry-run", action="store_true", help="say what would be played; needs no weights")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("-v", "--verbose", action="store_true", help="tracebacks and every episode")


def execution(args: argparse.Namespace) -> Execution:
    """How runs are carried out, from the flags."""
    budget = Budget(args.max_cost, args.max_tokens_total, args.max_time)
    return Execution(
        args.max_concurrent, args.num_workers, args.resume, budget, executor=args.executor, ray_address=args.ray_address
    )


class Planned(NamedTuple):
    """A run to be made, and how many games floor and ceiling play beside it (None: the same)."""

    config: RunConfig
    baseline_episodes: int | None = None


def plan(args: argparse.Namespace, console: Console) -> list[Planned]:
    """One run per task named, every value checked."""
    cli.import_modules(args.module)
    notices: list[str] = []
    found: dict[str, Planned] = {}
    for pattern in args.env:
        if pattern.startswith(suites.PREFIX):
            name = pattern.removeprefix(suites.PREFIX)
            asked = suites.protocol(args, name)
            tasks = suites.tasks(name)
        else:
            name, asked, tasks = "", args, registry.tasks(pattern, notices)
        for task in tasks:
            config = configure(task, asked)
            if name and config.panel:
                suites.check_panel(name, config.task, config.panel)
            found[config.run_id] = Planned(config, asked.baseline_episodes)
    for notice in notices:
        console.print(notice, style="yellow", highlight=False, soft_wrap=True)
    return list(found.values())


def configure(task: Task, args: argparse.Namespace) -> RunConfig:
    """One task under the flags, every value checked."""
    for value, flag in ((args.repeats, "--repeats"), (args.max_tokens, "--max-tokens"), (args.max_concurrent, "-c")):
        if value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}.")
    if args.temperature < 0 or not 0 < args.top_p <= 1:
        raise UsageError(f"--temperature {args.temperature} must be >= 0 and --top-p {args.top_p} in (0, 1].")
    if args.policy_replicas < 0:
        raise UsageError(f"--policy-replicas must be at least 0, not {args.policy_replicas}.")
    if args.executor != "ray" and args.policy_replicas:
        raise UsageError("--policy-replicas belongs to --executor ray, which was not given.")
    if args.max_turns is not None and args.max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, not {args.max_turns}.")
    task, split = resolve_split(task, args.split)
    config = RunConfig(
        task=task,
        model=record_name(args.model),
        knobs=registry.overrides(task, dict(setting(word) for word in args.set)),
        split=split,
        episodes=args.episodes,
        attempts=args.repeats,
        seed=args.seed,
        reward_mode=args.reward,
        max_turns=args.max_turns,
        sampling=Sampling(
            args.temperature, args.top_p, args.max_tokens, args.action_mode, args.normalisation, args.dtype
        ),
        prompting=Prompting(
            args.action_grammar,
            args.thinking == "on",
            args.history,
            _reasoning(args.history_reasoning),
            args.admissible,
            args.prompt_wording,
        ),
    )
    config.seeds  # noqa: B018  an impossible number of episodes is said before anything is played
    return config


def _reasoning(word: str) -> bool | int:
    if word in ("on", "off"):
        return word == "on"
    if not word.isdecimal():
        raise UsageError(f"--history-reasoning is on, off or a number of replies, not {word!r}.")
    return int(word)


def setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--set takes KNOB=VALUE, not {word!r}.")
    return name.strip(), value
