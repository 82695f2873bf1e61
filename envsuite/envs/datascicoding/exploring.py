"""Exploring turns: an interpreter on the training data that keeps its state until the episode ends, as a notebook does.

It sees the training rows of the first split, with their labels, and no row of the holdout. A submission starts in a new
process and finds nothing of the interpreter's state.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from envsuite.envs.datascicoding import replies, scoring
from envsuite.errors import EngineFailure
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.protocol import Dialogue, Fate, HostKill, Limits, Result, Session
from envsuite.tools import Tool

if TYPE_CHECKING:
    from envsuite.envs.datascicoding.instances import Instance

INSTRUCTIONS = (
    " To submit, send the whole program in a ```submit block, or begin it with the line # submit. Before that you may "
    "explore: a ```python block runs at once in an interpreter that keeps its variables, and you read what it prints. "
    "Training rows of one half are there as x_train and y_train. You have {turns} such turns, of {seconds:g} seconds "
    "each. A submission runs in a new process and finds none of the interpreter's variables. The program"
)


def instructions(settings: SimpleNamespace) -> str:
    """Returns the part of the rules that says how to explore and how to submit."""
    return INSTRUCTIONS.format(turns=settings.explore, seconds=settings.explore_seconds)


RUN_PYTHON = Tool(
    "run_python",
    "Runs code in an interpreter that keeps its variables, and shows what it prints; x_train and y_train are there.",
    "# run\n{code}",
    {"code": "Python; the value of a last expression is printed"},
)
SUBMIT = Tool(
    "submit",
    "Submits a program, which is run and scored.",
    "# submit\n{code}",
    {"code": "the whole program, in Python"},
)
PLAY_HELP = (
    "By hand: what you type runs in the interpreter, as one line, as lines between two lines of ```, or by :edit. To "
    "submit a program, begin with a line ```submit and end with a line ```; or begin with the line # submit in :edit."
)
"""for people; the instructions of models are above"""
ENDINGS = {
    Fate.EXITED: "The interpreter ended",
    Fate.TIMEOUT: "The code took too long",
    Fate.MEMORY: "The interpreter took too much memory",
    Fate.PROCESSES: "The code started too many processes",
    Fate.OUTPUT: "The code printed without end",
    Fate.DISK: "The code filled the disk",
}
_MOST_SESSIONS = 256


def typed_command(line: str) -> str:
    """Returns the command that a person means who types `line`: code for the interpreter unless it is marked."""
    return line if replies.is_marked(line) else f"# run\n{line}"


class Explorer:
    """The interpreter of one environment, started when it is first used and again after it has ended."""

    def __init__(self, driver: str, settings: SimpleNamespace, limits: Limits) -> None:
        """`settings`: the environment's; `limits`: the limits of a submission. A turn has its own seconds."""
        self.turns = self.left = int(settings.explore)
        self.limits = replace(limits, seconds=settings.explore_seconds)
        self.characters = int(settings.explore_chars)
        self._driver, self._forbidden = driver, settings.forbidden
        self._lease: Lease | None = None
        self._session: Session | None = None
        self._dialogue: Dialogue | None = None
        self._game: Instance | None = None

    def reset(self, game: Instance) -> None:
        """Begins an episode."""
        self._end()
        self._game, self.left = game, self.turns

    def run(self, code: str) -> tuple[str, bool]:
        """Runs code in the interpreter; returns the text for the player, and True if the code raised no error."""
        self.left -= 1
        try:
            result = self._interpreter().ask(code.encode("utf-8", "replace"), self.limits)
        except HostKill:
            self._end()
            raise
        except EngineFailure:
            self._end()
            self._interpreter().ask(b"", self.limits)  # raises again unless the code was to blame
            return self._lost("The interpreter crashed"), False
        shown = self._fitted(result.stdout)
        if result.fate is Fate.PAUSED:
            return f"{shown or '(no output)'}{self._note()}", result.value[:1] == b"+"
        self._end()
        return (f"{shown}\n" if shown else "") + self._lost(_ending(result)), False

    def close(self) -> None:
        self._end()
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _interpreter(self) -> Dialogue:
        if self._dialogue is None:
            assert self._game is not None
            x_train, y_train, _, _ = self._game.splits(1)[0]
            job = {"forbidden": self._forbidden, "sealed": scoring.sealed_modules(self._forbidden)}
            payload = pickle.dumps({**job, "x_train": scoring.plain_table(x_train), "y_train": y_train})
            spec = scoring.spec(self._forbidden)
            self._lease = self._lease or Lease(spec, self._driver, _MOST_SESSIONS)
            self._session = self._session or self._lease.pool.take()
            limits = replace(self.limits, seconds=self.limits.seconds * (self.turns + 1))
            self._dialogue = self._session.dialogue(payload, limits)
        return self._dialogue

    def _end(self) -> None:
        """Ends the interpreter and gives its sandbox back."""
        try:
            if self._dialogue is not None:
                self._dialogue.close()
        except EngineFailure:
            pass  # the sandbox starts anew
        finally:
            if self._session is not None and self._lease is not None:
                self._lease.pool.give_back(self._session)
            self._dialogue = self._session = None

    def _lost(self, reason: str) -> str:
        return f"{reason}. A new interpreter starts: all variables are lost.{self._note()}"

    def _note(self) -> str:
        left = f"{self.left}" if self.left else "0, so that every further program is submitted"
        return f"\n\nExploring turns left: {left}."

    def _fitted(self, output: bytes) -> str:
        """Returns output fit for the player, equal on every machine: no control characters, addresses or paths."""
        text = scoring.neutral(output.decode(errors="replace").replace("\r\n", "\n").expandtabs())
        text = "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in text).strip("\n")
        text = re.sub(r"\[\.\.\. \d+ bytes left out \.\.\.\]", "[...]", text)
        half = self.characters // 2
        return text if len(text) <= self.characters else f"{text[:half]}\n[...]\n{text[-half:]}"


def _ending(result: Result) -> str:
    reason = ENDINGS[result.fate]
    if result.fate is Fate.EXITED:
        status = f"signal {-result.exit_code}" if result.exit_code < 0 else f"exit status {result.exit_code}"
        return f"{reason} ({status})"
    return reason
