"""Flags of the commands that play: `add_options` declares them, `run_request` and `execution` read them."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from envsuite.types import RewardMode
from harness import cli
from harness.cli.common.parser import CliParser
from harness.evaluate import Budget, Execution
from harness.prompting import protocols
from harness.prompting.grammars import GRAMMARS
from harness.prompting.prompting import ADMISSIBLE
from harness.prompting.rewording import WORDINGS
from harness.suites.plan import NO_FLAGS, RunRequest

TRUSTED_HELP = (
    "a knob that names files or chooses the sandbox: replays take such values from you, never from the file, and use a "
    "safe sandbox otherwise"
)


REUSE = ("on", "new", "off")


def _reuse_default() -> str:
    """Returns the value of ENVSUITE_REUSE, or "on"."""
    value = os.environ.get("ENVSUITE_REUSE") or "on"
    if value not in REUSE:
        raise UsageError(f"ENVSUITE_REUSE is {value!r}: set it to {', '.join(REUSE)}, or remove it.")
    return value


class Parser(CliParser):
    """ArgumentParser whose result lists the given flags in `explicit`, even those set to their default."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed = super().parse_args(args, namespace)
        absent = object()
        sentinels = {name: absent for name, value in vars(parsed).items() if not isinstance(value, list)}
        again = vars(super().parse_args(args, argparse.Namespace(**sentinels)))
        parsed.explicit = {name for name, value in again.items() if value is not absent and value != []}
        return parsed


class DefaultsFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds a flag's default to its help, unless there is none to tell or the help tells it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, "", []) or action.nargs == 0 or "default:" in (action.help or ""):
            return action.help
        return super()._get_help_string(action)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all flags that the playing commands share, that is, all but the model and the environments."""
    add = parser.add_argument
    add("--set", action="append", default=[], metavar="KNOB=VALUE", help="set a knob; may be repeated")
    add("--split", default="", help="train | test | the splits of the task; default: the task's last one")
    add("-n", "--episodes", "--limit", type=int, default=None, help="seeds per task (a whole panel, or 100)")
    add("-r", "--repeats", type=int, default=1, help="attempts per seed")
    add("--seed", type=int, default=0, help="number of the split's first seed to play")
    add("--reward", default="sparse", choices=[str(mode) for mode in RewardMode], help="reward mode of the task")
    add("--module", action="append", default=[], help="Python module that registers your own environments")
    add("--max-turns", type=int, default=None, help="limit on the model's turns, besides the environment's own")
    group = parser.add_argument_group("model")
    group.add_argument(
        "--temperature",
        type=_temperature,
        default=0.0,
        metavar="T",
        help="0: the most likely token; 'default': the server's own",
    )
    group.add_argument("--top-p", type=float, default=1.0, help="share of the probability mass to sample from")
    group.add_argument("--max-tokens", type=int, default=512, help="per reply")
    group.add_argument(
        "--action-mode", choices=["write", "score"], default="write", help="score: choose the most likely command"
    )
    group.add_argument(
        "--normalisation", choices=["sum", "token", "word", "trie"], default="word", help="with --action-mode score"
    )
    group.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, mps; auto: a GPU if there is one")
    group.add_argument(
        "--dtype",
        default="auto",
        help="float32, bfloat16, float16; auto: float32 on a CPU, bfloat16 on a GPU that supports it",
    )
    group = parser.add_argument_group(
        "server", "for openai:NAME and inspect:PROVIDER/NAME, or for any name with --base-url"
    )
    group.add_argument(
        "--base-url", default=None, help="http://host:port/v1; several, separated by commas, share the episodes"
    )
    group.add_argument(
        "--api-key-var", default=None, help="environment variable that holds the key; never the key itself"
    )
    group.add_argument("--served-model-name", default=None, help="the model's name on the server")
    group.add_argument("--reasoning-effort", default="", metavar="LEVEL", help="such as low, medium or high")
    group.add_argument(
        "--extra-body", default="", metavar="JSON", help="fields added to every request, such as '{\"top_k\": 20}'"
    )
    group.add_argument(
        "--header",
        dest="headers",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="sent with every request and never stored; may be repeated",
    )
    group.add_argument(
        "--thinking-budget",
        type=int,
        default=0,
        metavar="N",
        help="most tokens of reasoning per reply; for inspect:, vllm: and llamacpp:",
    )
    group.add_argument("--timeout", type=float, default=300.0, help="seconds per request")
    group.add_argument("--max-retries", type=int, default=6, help="per request, with growing pauses")
    group.add_argument("--requests-per-minute", type=float, default=None, help="all requests together")
    group.add_argument(
        "--price", default=None, metavar="IN,OUT", help="USD per million tokens, for --max-cost and records"
    )
    group = parser.add_argument_group("managed server", "for vllm:NAME and llamacpp:FILE.gguf, which start a server")
    group.add_argument(
        "--server-python",
        default="",
        metavar="PATH",
        help="interpreter or virtual environment that has the server (default: this one, the PATH, the cache)",
    )
    group.add_argument(
        "--server-context",
        type=int,
        default=0,
        metavar="N",
        help="tokens of a conversation; 0: vLLM the model's own, llama.cpp 4096",
    )
    group.add_argument(
        "--server-gpu-share",
        type=float,
        default=0.0,
        metavar="F",
        help="part of the GPU memory; 0: the server's own",
    )
    group.add_argument("--server-tensor-parallel", type=int, default=1, metavar="N", help="GPUs that share each layer")
    group.add_argument("--server-args", default="", metavar="WORDS", help="further words of the server's command line")
    group = parser.add_argument_group("prompt")
    group.add_argument(
        "--protocol",
        default="",
        metavar="NAME",
        help=f"prompt, parser and settings of a published set-up: {', '.join(protocols.names())}",
    )
    group.add_argument("--history", type=int, default=-1, help="remembered turns; -1 for all")
    group.add_argument(
        "--thinking", choices=["on", "off"], default="on", help="off: ask for the command alone, without reasoning"
    )
    group.add_argument(
        "--history-reasoning",
        default="on",
        metavar="on|off|N",
        help="keep the reasoning of earlier replies in the prompt; N: of the latest N only",
    )
    group.add_argument(
        "--admissible", choices=ADMISSIBLE, default="latest", help="turns that list the admissible commands"
    )
    group.add_argument(
        "--action-grammar",
        choices=list(GRAMMARS),
        default="action",
        help="how a reply gives its command; tools: native tool calls",
    )
    group.add_argument(
        "--prompt-wording",
        choices=list(WORDINGS),
        default="plain",
        help="rewords observations and commands; the game stays the same",
    )
    group = parser.add_argument_group("run")
    group.add_argument("--baselines", default="random,expert", help="players to run besides the model; 'none' for none")
    group.add_argument(
        "--baseline-episodes", type=int, default=None, help="seeds per baseline (default: as many as for the model)"
    )
    group.add_argument("--num-workers", type=int, default=-1, help="environment processes; -1 as needed, 0 none")
    group.add_argument(
        "--env-timeout",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds for an environment to answer a reset or a turn, else its episode is broken (default: 600)",
    )
    cli.add_executor(group)
    group.add_argument(
        "--policy-replicas",
        type=int,
        default=0,
        help="with --executor ray: actors that hold a copy of the model; 0: none",
    )
    group.add_argument("-c", "--max-concurrent", type=int, default=16, help="episodes at once")
    group.add_argument(
        "-o",
        "--output-dir",
        type=Path,
        default=Path("runs"),
        help="folder of all runs; each run gets a folder of its own in it",
    )
    group.add_argument("--resume", action="store_true", help="continue a run of the same settings")
    group.add_argument(
        "--reuse",
        choices=REUSE,
        default=_reuse_default(),
        help="on: take finished episodes with equal settings from earlier runs; new: play all of them, for later runs "
        "to reuse; off: neither reuse nor store",
    )
    group.add_argument(
        "--max-cost",
        type=float,
        default=0.0,
        help="USD for all runs of the call; a run stops at this limit (exit code 3), and --resume continues",
    )
    group.add_argument(
        "--max-tokens-total", type=int, default=0, help="limit on prompt and reply tokens, as --max-cost"
    )
    group.add_argument("--max-time", type=float, default=0.0, help="limit in seconds, as --max-cost")
    group.add_argument("--show-prompt", action="store_true", help="print the first prompt and stop")
    group.add_argument("--dry-run", action="store_true", help="print the plan and stop; needs no weights")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("-v", "--verbose", action="store_true", help="print tracebacks and every episode")


def _temperature(text: str) -> float | None:
    """Reads --temperature; None stands for the server's default."""
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or 'default', not {text!r}") from None


def run_request(args: argparse.Namespace, model: str) -> RunRequest:
    """Returns what the flags say about a run of `model`."""
    names = [field.name for field in dataclasses.fields(RunRequest) if field.name not in NO_FLAGS]
    values = {name: getattr(args, name) for name in names if hasattr(args, name)}
    explicit = frozenset("knobs" if name == "set" else name for name in getattr(args, "explicit", ()))
    return RunRequest(model, tuple(args.set), **values, explicit=explicit)


def execution(args: argparse.Namespace) -> Execution:
    """Returns how the flags say that runs are carried out. Raises UsageError."""
    if args.max_concurrent < 1:
        raise UsageError(f"-c must be at least 1, not {args.max_concurrent}.")
    if args.policy_replicas < 0:
        raise UsageError(f"--policy-replicas must be at least 0, not {args.policy_replicas}.")
    if args.executor != "ray" and args.policy_replicas:
        raise UsageError("--policy-replicas needs --executor ray.")
    budget = Budget(args.max_cost, args.max_tokens_total, args.max_time)
    return Execution(
        args.max_concurrent,
        args.num_workers,
        args.resume,
        budget,
        executor=args.executor,
        ray_address=args.ray_address,
        env_timeout=args.env_timeout,
        isolate_unknown=True,
    )
