"""The command `envsuite VERB`, also `python -m harness VERB`; a verb's module is imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple

ENTRY_POINTS = "envsuite.verbs"
"""group of entry points through which packages above the harness add their verbs"""


class Verb(NamedTuple):
    """One verb: its line in the help, and the module with `main` and `parser`; "" for an entry point."""

    summary: str
    module: str


GROUPS: dict[str, dict[str, Verb]] = {
    "play and train": {
        "eval": Verb("play models, random players and experts on tasks; print the table", "harness.cli.eval"),
        "train": Verb("train a language model on tasks", ""),
        "generalize": Verb("play models over a grid of settings", "harness.cli.generalize"),
        "play": Verb("play in the terminal yourself", "harness.cli.play"),
        "grade": Verb("grade patches of a predictions file", "harness.grading.command"),
    },
    "read and check results": {
        "table": Verb("print a published table with our runs beside it; play what is missing", "harness.cli.table"),
        "compare": Verb("compare runs in pairs", "harness.cli.compare"),
        "report": Verb("write runs as one HTML file", "harness.cli.report"),
        "watch": Verb("show runs in the browser while they play", "harness.watch.command"),
        "replay": Verb("execute recorded commands again; print the first difference", "harness.cli.replay"),
    },
    "find and make environments": {
        "envs": Verb("list families and tasks, with their difficulty", "harness.cli.envs"),
        "new": Verb("write a package with your own environment", "harness.cli.new"),
        "check": Verb("check that environments keep the contract", "harness.cli.check"),
        "data": Verb("get data sets and games; export runs; write demonstrations", "harness.cli.data"),
        "swe": Verb("make SWE-Gym tasks from packages of the package index", "harness.mining.command"),
    },
    "models, hubs and this machine": {
        "models": Verb("list models by their short names; download their weights", "harness.cli.models"),
        "hub": Verb("upload runs and tasks to a hub", "harness.hub.command"),
        "doctor": Verb("report what works on this machine", "harness.cli.doctor"),
        "cache": Verb("list and clear the cache", "harness.cli.cache"),
    },
}
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}


def usage() -> str:
    """Returns the help: the verbs in groups, a line each."""
    lines = ["usage: envsuite VERB [options]", ""]
    for group, verbs in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<11} {verb.summary}" for name, verb in verbs.items()), ""]
    return "\n".join([*lines, "`envsuite VERB --help` prints the options of a verb."])


def load(name: str) -> Callable[[Sequence[str] | None], None] | None:
    """Returns the function that runs a verb; None if the package of the verb is not installed."""
    module = VERBS[name].module
    if module:
        run: Callable[[Sequence[str] | None], None] = importlib.import_module(module).main
        return run
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        run = entry.load()
        return run
    return None


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a verb and exits; without one, or with --help, prints the verbs."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["-h"], ["--help"]):
        print(usage())
        sys.exit(0)
    if not words:
        print(usage(), file=sys.stderr)
        sys.exit(2)
    name, *rest = words
    run = load(name) if name in VERBS else None
    if run is None:
        print(f"error: {_unknown(name)}", file=sys.stderr)
        sys.exit(2)
    run(rest)


def _unknown(name: str) -> str:
    """Returns why a verb cannot run, and the remedy."""
    from envsuite.errors import did_you_mean

    if name in VERBS:
        return f"The package with the verb {name!r} is not installed: pip install it, as with pip install -e ."
    return f"There is no verb {name!r}: `envsuite --help` lists them.{did_you_mean(name, VERBS)}"


if __name__ == "__main__":
    main()
