"""Flags that several commands have, declared here or in the dataclasses of settings."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.errors import UsageError
from harness.evaluate import RunConfig, Sampling
from harness.execution import Budget, Connection, Execution
from harness.prompting.prompting import Prompting
from harness.settings import add_flags, named, read, spelled

REUSE = ("on", "new", "off")
ENDPOINT = ("device", "base_url", "api_key_var", "served_model_name")
"""flags of `Connection` for commands that ask a model without playing"""
COMMON: dict[str, tuple[str, dict[str, Any]]] = {
    "set": ("", {"action": "append", "default": [], "metavar": "KNOB=VALUE", "help": "set a knob; may be repeated"}),
    "module": (
        "",
        {"action": "append", "default": [], "help": "Python module that registers your own environments"},
    ),
    "output_dir": (
        "-o",
        {"type": Path, "default": Path("runs"), "help": "folder of all runs; each run has its own folder in it"},
    ),
    "metric": ("", {"default": "success", "help": "success | reward | progression | a metric of the task"}),
    "markdown": ("", {"action": "store_true", "help": "print Markdown"}),
    "json": ("", {"action": "store_true", "help": "print JSON"}),
    "dry_run": ("", {"action": "store_true", "help": "print the plan and stop; needs no weights"}),
    "verbose": ("-v", {"action": "store_true", "help": "print tracebacks, and every episode"}),
}
"""flags that several commands have: the short name, and the arguments of `add_argument`"""
TRUSTED_HELP = (
    "a knob that names files or chooses the sandbox: replays take such values from you, never from the file, and use a "
    "safe sandbox otherwise"
)


def add_common(parser: argparse._ActionsContainer, *names: str, **changed: str) -> None:
    """Adds flags of COMMON; `changed` replaces the help of some."""
    for name in (*names, *changed):
        short, options = COMMON[name]
        words = [short, spelled(name)] if short else [spelled(name)]
        parser.add_argument(*words, **{**options, "help": changed.get(name, options["help"])})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all flags that the playing commands share, that is, all but the model and the environments."""
    add_common(parser, "set", "module")
    add_flags(parser, RunConfig)
    add_flags(parser.add_argument_group("sampling"), Sampling)
    add_flags(parser.add_argument_group("prompt"), Prompting)
    add_flags(
        parser.add_argument_group(
            "model",
            "A server answers for openai:, inspect: and --base-url; vllm: and llamacpp: start one.",
        ),
        Connection,
    )
    group = parser.add_argument_group("run")
    group.add_argument("--baselines", default="random,expert", help="players to run besides the model; 'none' for none")
    group.add_argument(
        "--baseline-episodes", type=int, default=None, help="seeds per baseline (default: as many as for the model)"
    )
    add_flags(group, Execution)
    add_flags(group, Budget)
    group.add_argument(
        "--reuse",
        choices=REUSE,
        default=_reuse_default(),
        help="on: take finished episodes with equal settings from earlier runs; new: play all of them, for later runs "
        "to reuse; off: neither reuse nor store",
    )
    add_common(group, "output_dir", "dry_run", "json", "verbose")


def _reuse_default() -> str:
    """Returns the value of ENVSUITE_REUSE, or "on"."""
    value = os.environ.get("ENVSUITE_REUSE") or "on"
    if value not in REUSE:
        raise UsageError(f"ENVSUITE_REUSE is {value!r}: set it to {', '.join(REUSE)}, or remove it.")
    return value


class Call(NamedTuple):
    """One call of a command that plays."""

    flags: dict[str, Any]
    """settings of runs that the caller named, for `harness.suites.plan`"""
    connection: Connection
    execution: Execution
    output_dir: Path = Path("runs")
    reuse: str = "off"
    verbose: bool = False


def read_call(args: argparse.Namespace) -> Call:
    """Returns what the flags say. Raises UsageError."""
    flags = named(args, RunConfig, Sampling, Prompting)
    flags |= {"set": tuple(args.set)} if args.set else {}
    if args.baseline_episodes is not None:
        if args.baseline_episodes < 1:
            raise UsageError(f"--baseline-episodes must be at least 1, not {args.baseline_episodes}.")
        flags["baseline_episodes"] = args.baseline_episodes
    execution = read(Execution, named(args, Execution), budget=read(Budget, named(args, Budget)), isolate_unknown=True)
    connection = read(Connection, named(args, Connection))
    return Call(flags, connection, execution, args.output_dir, args.reuse, args.verbose)
