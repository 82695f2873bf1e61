"""envsuite-eval: a model plays tasks; random player and expert beside it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task
from harness import cli, suites
from harness.cli.progress import RunProgress
from harness.evaluate import Budget, Execution, RunConfig, Sampling, evaluate, resolve_split
from harness.policies import is_model, make_policy, on_server, record_name
from harness.prompting import ADMISSIBLE, GRAMMARS, Prompting
from harness.records import is_broken
from harness.summary import Summary, result_table, type_table
from harness.types import Policy


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-eval",
        description="Evaluate a model on text environments.",
        epilog="Example: envsuite-eval --model qwen2.5-3b --env alfworld",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = found.add_argument
    add(
        "-m", "--model", required=True, help="random | expert | replay:FILE | hf:X | openai:X | alias | path | org/name"
    )
    add("-e", "--env", required=True, action="append", help="family, task id, glob or suite:NAME; may be repeated")
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
        "--base-url", default=None, help="http://host:port/v1; several by commas, conversations are spread"
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
    group = found.add_argument_group("run")
    group.add_argument("--baselines", default="random,expert", help="played beside the model; 'none' for none")
    group.add_argument("--num-workers", type=int, default=-1, help="environment processes; -1 as needed, 0 none")
    group.add_argument("-c", "--max-concurrent", type=int, default=16, help="episodes at once")
    group.add_argument("-o", "--output-dir", type=Path, default=Path("runs"))
    group.add_argument("--resume", action="store_true", help="go on with a run of the same settings")
    group.add_argument("--max-cost", type=float, default=0.0, help="USD; stop cleanly there (exit 3), --resume goes on")
    group.add_argument("--max-tokens-total", type=int, default=0, help="prompt and reply tokens; likewise")
    group.add_argument("--max-time", type=float, default=0.0, help="seconds; likewise")
    group.add_argument("--show-prompt", action="store_true", help="print the first prompt, and play nothing")
    group.add_argument("--dry-run", action="store_true", help="say what would be played; needs no weights")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("-v", "--verbose", action="store_true", help="tracebacks and every episode")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    console = cli.console(stderr=args.json)
    configs = plan(args, console)
    if args.dry_run:
        for config in configs:
            _describe(config, args, console)
        return 0
    if args.show_prompt:
        for config in configs:
            _show_prompt(config, args.base_url)
        return 0
    budget = Budget(args.max_cost, args.max_tokens_total, args.max_time)
    execution = Execution(args.max_concurrent, args.num_workers, args.resume, budget)
    baselines = [] if args.baselines == "none" else [name for name in args.baselines.split(",") if name != args.model]
    policies: dict[str, tuple[dict[str, Any], Policy]] = {}

    def policy(name: str, config: RunConfig) -> Policy:
        """One model in memory at a time, loaded again only where the next task asks for other settings."""
        options = _options(args, config)
        if name in policies and policies[name][0] != options:
            policies.pop(name)[1].close()
        if name not in policies:
            policies[name] = options, make_policy(name, **options)
        return policies[name][1]

    found, all_broken = [], False
    try:
        for config in configs:
            rows: list[tuple[str, Summary]] = []
            for name in [args.model, *baselines]:
                mine = dataclasses.replace(config, model=record_name(name))
                # Floor and ceiling are shared by every model of the task: what is there is taken as it is.
                how = execution if name == args.model else dataclasses.replace(execution, resume=True, patience=600.0)
                with RunProgress(console, f"{config.task.id} {name}", len(mine.all_episodes()), args.json) as progress:

                    def ended(record: Any, run: Any, progress: RunProgress = progress) -> None:
                        progress(record)
                        if args.verbose or is_broken(record):
                            _tell(console, record)

                    player = functools.partial(policy, name, mine)
                    records, summary = evaluate(mine, args.output_dir, player, how, ended)
                rows.append((name, summary))
                all_broken |= bool(records) and summary["episodes"] == 0
            _show(console, config, rows, args)
            found.append({"run": str(config.folder(args.output_dir)), "rows": dict(rows)})
    finally:
        for _, one in policies.values():
            one.close()
    if args.json:
        print(json.dumps(found, indent=2))
    if all_broken:
        print("error: every episode of a run broke; see 'error' in its results.jsonl", file=sys.stderr)
    return 1 if all_broken else 0


def plan(args: argparse.Namespace, console: Console) -> list[RunConfig]:
    """One configuration per task named, every value checked."""
    cli.import_modules(args.module)
    notices: list[str] = []
    found: dict[str, RunConfig] = {}
    for pattern in args.env:
        if pattern.startswith(suites.PREFIX):
            name = pattern.removeprefix(suites.PREFIX)
            asked = suites.protocol(args, parser().parse_args(["-m", args.model, "-e", pattern]), name)
            patterns = suites.suite(name)["tasks"]
        else:
            asked, patterns = args, [pattern]
        for one in patterns:
            for task in registry.tasks(one, notices):
                config = _config(task, asked)
                found[config.run_id] = config
    for notice in notices:
        console.print(notice, style="yellow", highlight=False, soft_wrap=True)
    return list(found.values())


def _config(task: Task, args: argparse.Namespace) -> RunConfig:
    """One task under the flags, every value checked."""
    for value, flag in ((args.repeats, "--repeats"), (args.max_tokens, "--max-tokens"), (args.max_concurrent, "-c")):
        if value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}.")
    if args.temperature < 0 or not 0 < args.top_p <= 1:
        raise UsageError(f"--temperature {args.temperature} must be >= 0 and --top-p {args.top_p} in (0, 1].")
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
        return {**options, **{name: getattr(args, name) for name in server}, "price": args.price}
    lead, _, close = GRAMMARS[config.prompting.grammar].spell("\0", "").partition("\0")
    return {**options, "lead": lead, "close": close, "device": args.device}


def _describe(config: RunConfig, args: argparse.Namespace, console: Console) -> None:
    """What would be played, and as whom."""
    say = lambda text: console.print(text, highlight=False, soft_wrap=True)
    panel = config.panel
    episodes = config.all_episodes()
    say(f"task      {config.task.id}" + (f"  {config.knobs}" if config.knobs else ""))
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        say(f"panel     {panel.name} {panel.digest}: {len(panel):,}{of} games present")
    say(f"episodes  {len(config.seeds)} seeds from {config.seeds[0]} x {config.attempts} attempts = {len(episodes)}")
    cls = registry.env_class(config.task)
    cap = {**registry.knob_names(config.task), **config.knobs}["max_steps"]
    turns = min((limit for limit in (cap, config.max_turns) if limit), default=0)  # a cap of 0: each game has its own
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
    title = config.task.id + (f" {config.knobs}" if config.knobs else "")
    if panel:
        of = f" of {panel.expected:,}" if panel.expected and panel.expected != len(panel) else ""
        title += f"  panel {panel.digest} ({len(config.seeds)} played, {len(panel):,}{of} present)"
    console.print(result_table(title, rows))
    by_type = type_table(rows)
    if by_type:
        console.print(by_type)
    console.print(f"records: {config.folder(args.output_dir)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
