"""envsuite-eval: a model plays tasks; random player and expert beside it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task
from harness import cli, suites
from harness.cli.progress import RunProgress
from harness.estimate import turn_cap
from harness.evaluate import Budget, Execution, RunConfig, Sampling, evaluate, resolve_split
from harness.policies import ADVISED, is_model, make_policy, on_server, record_name
from harness.prompting import ADMISSIBLE, GRAMMARS, Prompting
from harness.records import Results, is_broken
from harness.summary import Summary, over_tasks, repeats_table, result_table, tasks_table, type_table
from harness.types import Policy
from harness.wording import WORDINGS


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
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


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


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
            _describe(planned.config, args, console)
        return 0
    if args.show_prompt:
        for planned in plans:
            _show_prompt(planned.config, args.base_url)
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


def _load(name: str, options: dict[str, Any], args: argparse.Namespace) -> Policy:
    """The policy in this process, or replicas of it on the cluster."""
    if args.executor == "ray" and args.policy_replicas and is_model(name) and not on_server(name, args.base_url):
        from harness.cluster.connect import connect
        from harness.cluster.replicas import RayPolicy

        return RayPolicy(connect(args.ray_address), name, args.policy_replicas, options)
    return make_policy(name, **options)


class Players:
    """Who plays the runs of one call, which share its budget. Policies by name: one of each in memory, made again only
    where the next run asks for other settings.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._made: dict[str, tuple[dict[str, Any], Policy]] = {}
        self._began, self._used = time.monotonic(), dict[str, Summary]()

    def left(self, budget: Budget, config: RunConfig) -> Budget:
        """What the runs before this one have left of the call's budget."""
        return budget.after(self._began, [one for run_id, one in self._used.items() if run_id != config.run_id])

    def spend(self, config: RunConfig, summary: Summary) -> None:
        self._used[config.run_id] = summary

    def get(self, name: str, config: RunConfig) -> Policy:
        options = _options(self._args, config)
        if name in self._made and self._made[name][0] != options:
            self._made.pop(name)[1].close()
        if name not in self._made:
            self._made[name] = options, _load(name, options, self._args)
        return self._made[name][1]

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *error: object) -> None:
        for _, one in self._made.values():
            one.close()


def play(
    config: RunConfig, name: str, args: argparse.Namespace, how: Execution, players: Players, console: Console
) -> tuple[Results, Summary]:
    """One run, with its progress on `console`, within what earlier runs of `players` have left of the budget."""
    how = dataclasses.replace(how, budget=players.left(how.budget, config))
    with RunProgress(console, f"{config.task.id} {name}", len(config.all_episodes()), args.json) as progress:

        def ended(record: Any, run: Any) -> None:
            progress(record, sum(turn.reply.cached_tokens for turn in run.turns))
            if args.verbose or is_broken(record):
                _tell(console, record)

        records, summary = evaluate(config, args.output_dir, lambda: players.get(name, config), how, ended)
        if progress.cached:
            console.print(
                f"{name}: {progress.cached:,} of {progress.read:,} prompt tokens ({progress.cached / progress.read:.0%}) were cached: "
                "read in an earlier turn, not again",
                highlight=False,
                soft_wrap=True,
            )
    players.spend(config, summary)
    return records, summary


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
            asked = suites.protocol(args, parser().parse_args(["-m", args.model, "-e", pattern]), name)
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


def _options(args: argparse.Namespace, config: RunConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        **dataclasses.asdict(config.sampling),
        "thinking": config.prompting.thinking,
        "stop": config.prompting.stop,
    }
    if on_server(config.model, args.base_url):
        server = ("base_url", "api_key_var", "served_model_name", "timeout", "max_retries", "requests_per_minute")
        return {
            **options,
            **{name: getattr(args, name) for name in server},
            "price": args.price,
            "watch": args.base_url is not None,
        }
    lead, _, close = GRAMMARS[config.prompting.grammar].spell("\0", "").partition("\0")
    return {**options, "lead": lead, "close": close, "device": args.device}


def _describe(config: RunConfig, args: argparse.Namespace, console: Console) -> None:
    """What would be played, and as whom."""
    say = lambda text: console.print(text, highlight=False, soft_wrap=True)
    panel = config.panel
    episodes = config.all_episodes()
    say(f"task      {cli.titled(config.task.id, config.knobs)}")
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        say(f"panel     {panel.name} {panel.digest}: {len(panel):,}{of} games present")
    say(f"episodes  {len(config.seeds)} seeds from {config.seeds[0]} x {config.attempts} attempts = {len(episodes)}")
    cls = registry.env_class(config.task)
    turns = turn_cap(config)
    each = f"at most {turns} each, {turns * len(episodes):,} in all" if turns else "as many as each game allows"
    say(f"turns     {each}   reward {config.reward_mode} ({cls.__name__})")
    if is_model(config.model):
        from harness.models import resolve

        served = on_server(config.model, args.base_url)
        where = args.base_url or "OpenAI" if served else resolve(config.model.removeprefix("hf:"))
        say(f"model     {config.model} -> {where}")
        say(f"sampling  {config.sampling}")
        say(f"prompt    {config.prompting}")
        if turns:
            say(f"tokens    at most {turns * len(episodes) * config.sampling.max_tokens:,} sampled")
    say(f"folder    {config.folder(args.output_dir)}")
    if args.nodes:
        for line in predicted(config, args):
            say(line)


def predicted(config: RunConfig, args: argparse.Namespace) -> Iterator[str]:
    """What the run would take on a cluster, in words."""
    from harness.capacity import predict, profile

    head, families = profile.load()
    if config.task.family not in families:
        raise UsageError(f"--nodes: no profile of {config.task.id} was measured; there are {', '.join(families)}.")
    price = (0.0, 0.0)
    if args.price:
        from harness.completions import Price

        parsed = Price.parse(args.price)
        price = parsed.input, parsed.output
    servers = len(args.base_url.split(",")) if args.base_url else max(1, args.policy_replicas)
    asked = predict.Asked(
        nodes=args.nodes,
        cpus=args.cpus_per_node,
        slots=args.max_concurrent,
        workers=max(0, args.num_workers),
        replicas=servers,
        tokens_per_s=args.tokens_per_second,
        price=price,
    )
    return predict.lines(config, head, families[config.task.family], asked)


def _show_prompt(config: RunConfig, base_url: str | None) -> None:
    """The very messages the model is asked first; where its weights are here, also the text its template makes of them."""
    env = registry.build(config.task, config.reward_mode, **config.knobs)
    try:
        text, info = env.reset(seed=config.seeds[0], options={"attempt": 0})
        admissible = info["admissible_commands"]
        messages = config.prompting.messages(env.instructions, info["objective"], [], text, admissible)
        print(
            json.dumps(
                {"messages": messages, "tools": config.prompting.tools(admissible)}, indent=2, ensure_ascii=False
            )
        )
    finally:
        env.close()
    if not is_model(config.model):
        return
    from harness import models

    if on_server(config.model, base_url):
        return
    path = models.here(models.resolve(config.model.removeprefix("hf:")))
    if path is None:
        print(f"\n(the weights of {config.model} are not here: its chat template cannot be applied)")
        return
    from transformers import AutoTokenizer

    from harness.lm.template import Template

    tokenizer = AutoTokenizer.from_pretrained(path)
    template = Template(tokenizer, (), config.prompting.thinking)
    print(f"\n{template.render(messages)}\n({len(template.encode(messages).ids)} tokens)")


def _tell(console: Console, record: Any) -> None:
    reason = record["stop_reason"]
    line = (
        f"  {record['task']} seed {record['seed']} attempt {record['attempt']}: {reason}, {record['num_turns']} turns"
    )
    console.print(
        line + (f": {record['error']}" if record["error"] else ""), highlight=False, markup=False, soft_wrap=True
    )


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
