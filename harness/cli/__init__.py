"""Commands: each module holds one `main(argv)`, and imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from envsuite.errors import EnvsuiteError, UsageError
from envsuite.escaping import one_line, terminal


class SafeConsole(Console):
    """A console that escapes control characters in all text, so that no name or message can control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(terminal(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """Returns the console for tables and progress. It is wide if it is no terminal, so that logs are not folded.

    Markup and emoji codes in names are printed as they are.
    """
    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(stderr=stderr, width=None if stream.isatty() else 160, markup=False, emoji=False)


def print_safely(text: object, file: TextIO | None = None) -> None:
    """Prints text with its control characters escaped."""
    print(terminal(text), file=file or sys.stdout)


def titled(task: str, knobs: Mapping[str, Any]) -> str:
    """Returns a task with its knobs, as people read it."""
    return " ".join([task, *(f"{name}={value}" for name, value in knobs.items())])


def add_verbose(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds -v to every verb of a command; `run` looks for it."""
    for verb in verbs.choices.values():
        verb.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")


def add_executor(parser: argparse._ActionsContainer) -> None:
    """Adds the flags that choose where environments run; they are the same in every command."""
    parser.add_argument("--executor", choices=["local", "ray"], default="local", help="ray: on the nodes of a cluster")
    parser.add_argument("--ray-address", default="", help="host:port or auto; empty: a cluster of this process")


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
    command: Callable[[Sequence[str] | None], int | None], argv: Sequence[str] | None = None, resumes: str = ""
) -> None:
    """Runs a command and exits: 0 success, 1 failed check, 2 known error (one line), 3 budget used up, 130 Ctrl-C,
    143 SIGTERM.

    `resumes` names what continues an interrupted command, if it keeps finished episodes.
    """
    words = sys.argv[1:] if argv is None else argv
    verbose = "-v" in words or "--verbose" in words
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
        print(f"{'stopped' if stopped else 'error'}: {one_line(error)}", file=sys.stderr)
        sys.exit(3 if stopped else 2)
    except KeyboardInterrupt as error:
        terminated = isinstance(error, SigtermReceived)
        kept = f": finished episodes are kept, and {resumes} continues from there" if resumes else ""
        print(f"\nstopped{' by SIGTERM' if terminated else ''}{kept}", file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if terminated else signal.SIGINT))
    sys.exit(code or 0)
