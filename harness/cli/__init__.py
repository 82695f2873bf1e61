"""The commands. Each module holds one `main(argv) -> None`; nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from envsuite.errors import EnvsuiteError, UsageError


def console(stderr: bool = False) -> Console:
    """Where people read; wide where it is no terminal, so that tables in logs are not folded. Brackets and colons in a
    name are what they are: markup has to be asked for.
    """
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 160, markup=False, emoji=False)


def titled(task: str, knobs: Mapping[str, Any]) -> str:
    """A task with its knobs, as people read it."""
    return " ".join([task, *(f"{name}={value}" for name, value in knobs.items())])


def add_verbose(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """-v after any verb of a command; `run` looks for it."""
    for verb in verbs.choices.values():
        verb.add_argument("-v", "--verbose", action="store_true", help="tracebacks")


def add_executor(parser: argparse._ActionsContainer) -> None:
    """The flags that say where environments live: the same words in every command."""
    parser.add_argument("--executor", choices=["local", "ray"], default="local", help="ray: on a cluster's nodes")
    parser.add_argument("--ray-address", default="", help="host:port or auto; nothing: a cluster of this process")


def import_modules(names: Sequence[str]) -> None:
    """Imports the modules that register somebody's own environments; the current folder is searched too."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--module {name}: {error}. Name it as Python imports it, say my_package.my_env."
            ) from error


def run(
    command: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None = None, resumes: str = ""
) -> None:
    """Runs a command: a known error is one line on stderr and exit code 2, a budget used up 3, Ctrl-C 130.

    `resumes`: how what Ctrl-C stopped goes on, of commands that keep what had ended.
    """
    words = sys.argv[1:] if argv is None else argv
    verbose = "-v" in words or "--verbose" in words
    try:
        code = command(argv)
    except (EnvsuiteError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read stdout has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed there at exit
            sys.exit(0)
        if verbose:
            traceback.print_exc()
        from harness.evaluate import BudgetReached

        stopped = isinstance(error, BudgetReached)
        print(f"{'stopped' if stopped else 'error'}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(3 if stopped else 2)
    except KeyboardInterrupt:
        kept = f": what had ended is kept, and {resumes} goes on from there" if resumes else ""
        print(f"\nstopped{kept}", file=sys.stderr)
        sys.exit(130)
    sys.exit(code or 0)
