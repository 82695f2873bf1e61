"""Commands: each module holds one `main(argv)`, and imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import EnvsuiteError, UsageError
from envsuite.escaping import one_line, setting
from envsuite.types import Task
from harness.cli.arguments.parser import CliParser
from harness.cli.terminal.console import SafeConsole, accept_any_text, console, new_table, print_safely

__all__ = [
    "CliParser",
    "SafeConsole",
    "add_verbose",
    "command",
    "console",
    "import_modules",
    "new_table",
    "one_task",
    "plural",
    "print_json",
    "print_safely",
    "print_warnings",
    "run",
    "titled",
]


def titled(task: str, knobs: Mapping[str, Any]) -> str:
    """Returns a task with its knobs, as people read it."""
    return " ".join([task, *(setting(name, value) for name, value in knobs.items())])


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun, as "1 run" or "2,000 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_json(value: Any) -> None:
    """Prints indented JSON, with null for NaN and numbers of 12 significant digits: 0.82, not 0.8200000000000001."""
    print(json.dumps(_rounded(value), indent=2, default=str))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def print_warnings(warnings: Iterable[str]) -> None:
    """Prints each warning that is not empty as one line on stderr."""
    for line in filter(None, warnings):
        print_safely(f"warning: {one_line(line)}", sys.stderr)


def add_verbose(verbs: argparse._SubParsersAction[Any]) -> None:
    """Adds -v to every verb of a command; `run` looks for it."""
    for verb in verbs.choices.values():
        verb.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")


def import_modules(names: Sequence[str]) -> None:
    """Imports modules that register environments; the current folder is searched too. Raises UsageError."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(f"--module {name}: {error}. Give the name as Python imports it: my_package.my_env.") from (
                error
            )


def one_task(pattern: str, notices: list[str] | None = None) -> Task:
    """Returns the only task that a pattern names. Raises UsageError."""
    (task, *more) = registry.tasks(pattern, notices)
    if more:
        raise UsageError(f"{pattern!r} names {len(more) + 1} tasks: name one of them.")
    return task


class SigtermReceived(KeyboardInterrupt):
    """SIGTERM, which ends a command like Ctrl-C."""


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raises SigtermReceived in the block at the first SIGTERM, and ignores further ones while the block cleans up.

    `timeout` and cluster schedulers send the signal more than once. Forked processes keep the usual behaviour.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: Any) -> None:
        if os.getpid() != owner:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SigtermReceived

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def run(
    command: Callable[[Sequence[str] | None], int | None],
    argv: Sequence[str] | None = None,
    resumes: str = "",
    kept: str = "finished episodes",
) -> None:
    """Runs a command and exits: 0 success, 1 failed check, 2 known error (one line), 3 budget used up, 130 Ctrl-C,
    143 SIGTERM.

    `resumes` names what continues an interrupted command, if it keeps `kept`.
    """
    words = sys.argv[1:] if argv is None else argv
    verbose = "-v" in words or "--verbose" in words
    accept_any_text()
    try:
        with sigterm_as_interrupt():
            code = command(argv)
    except (EnvsuiteError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader of stdout has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest is flushed there at exit
            sys.exit(0)
        if verbose:
            traceback.print_exc()
        from harness.evaluate import BudgetReached

        stopped = isinstance(error, BudgetReached)
        print(f"{'stopped' if stopped else 'error'}: {one_line(_explained(error))}", file=sys.stderr)
        sys.exit(3 if stopped else 2)
    except KeyboardInterrupt as error:
        terminated = isinstance(error, SigtermReceived)
        note = f": {kept} are kept, and {resumes} continues from there" if resumes else ""
        print(f"\nstopped{' by SIGTERM' if terminated else ''}{note}", file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if terminated else signal.SIGINT))
    sys.exit(code or 0)


def command(
    body: Callable[[Sequence[str] | None], int | None], resumes: str = "", kept: str = "finished episodes"
) -> Callable[..., None]:
    """Returns the `main` of a command: `body` under `run`."""

    def main(argv: Sequence[str] | None = None) -> None:
        run(body, argv, resumes, kept)

    return main


def _explained(error: Exception) -> str:
    """Returns the message of an error; for a folder or file without permission, with the remedy."""
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return (
            f"No permission for {error.filename} ({error.strerror}): work in a folder that you may write to, or name "
            "one, for example with --output-dir."
        )
    if isinstance(error, (NotADirectoryError, FileExistsError)) and error.filename:
        path = Path(error.filename)
        file = next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), path)
        return f"{file} is a file, where a folder is needed: name another folder, for example with --output-dir."
    if isinstance(error, FileNotFoundError) and error.filename:
        return (
            f"{error.filename} is not there or cannot be made ({error.strerror}): check the path, or name another "
            "folder, for example with --output-dir."
        )
    return str(error)
