"""Small complete environments for tests of the harness and the trainer."""

import os
import select
import time
from pathlib import Path

from envsuite import Knob, Outcome, Task, TextEnv, register
from envsuite.errors import DataError, MissingExtra
from envsuite.types import Panel
from examples.hilo import HiLo

__all__ = ["Apart", "Coloured", "Faulty", "HiLo", "Holding", "Instances", "Paths", "Signpost", "Slow"]


class Slow(HiLo):
    """HiLo with a slow engine, so that a run can be killed in the middle."""

    knobs = (*HiLo.knobs, Knob("delay", 0.02, "seconds per guess", low=0.0))

    def _act(self, command: str) -> Outcome:
        # time.sleep fails under a faked clock, because it waits for a time of that clock.
        select.select([], [], [], self.settings.delay)
        return super()._act(command)


class Faulty(HiLo):
    """HiLo whose engine fails on every third seed, by an exception or by ending its process."""

    knobs = (*HiLo.knobs, Knob("how", "raise", "what goes wrong", choices=("raise", "exit", "hang", "reset", "extra")))

    def _reset(self, seed: int) -> str:
        self.bad = seed % 3 == 0
        if self.bad and self.settings.how == "reset":
            raise RuntimeError("the engine did not start")
        if self.bad and self.settings.how == "extra":
            raise MissingExtra("the engine needs a package that is not installed")
        return super()._reset(seed)

    def _act(self, command: str) -> Outcome:
        if self.bad and self.settings.how == "raise":
            raise RuntimeError("the engine broke")
        if self.bad and self.settings.how == "exit":
            os._exit(3)
        if self.bad and self.settings.how == "hang":
            time.sleep(600)
        return super()._act(command)


class Holding(HiLo):
    """HiLo that holds a file until `close`, which takes longer than a test's `workers.GRACE`."""

    knobs = (*HiLo.knobs, Knob("held", "", "the file"), Knob("delay", 0.0, "seconds per guess", low=0.0))

    def _reset(self, seed: int) -> str:
        Path(self.settings.held).touch()
        return super()._reset(seed)

    def _act(self, command: str) -> Outcome:
        time.sleep(self.settings.delay)
        return super()._act(command)

    def close(self) -> None:
        time.sleep(0.8)
        Path(self.settings.held).unlink()


register(Task(id="Holding-v0", entry_point="tests.toys:Holding"))
register(Task(id="Slow-v0", entry_point="tests.toys:Slow"))
register(Task(id="Faulty-v0", entry_point="tests.toys:Faulty"))


class Signpost(TextEnv):
    """An environment that shows one of four words, which is also the right answer: a minimal task for
    a language model.
    """

    knobs = (Knob("max_steps", 2, "answers", low=1),)
    instructions = "Say the word."
    words = ("north", "east", "south", "west")

    def _reset(self, seed: int) -> str:
        self.word = self.words[seed % 4]
        self.objective = "Say it."
        return self.word

    def _act(self, command: str) -> Outcome:
        won = command == self.word
        return Outcome(
            "Yes." if won else self.word, reward=float(won), done=won, success=won, valid=command in self.words
        )

    def admissible(self) -> list[str]:
        return list(self.words)

    def expert(self, kind: str = "") -> str | None:
        return self.word


register(Task(id="Signpost-v0", entry_point="tests.toys:Signpost"))


class Paths(Signpost):
    """Signpost whose commands share their first words, and of which some begin others."""

    words = ("go", "go north", "go north east", "open the gate")


register(Task(id="Paths-v0", entry_point="tests.toys:Paths"))


class Coloured(Signpost):
    """Signpost that shows a colour in place of each word."""

    colours = ("red", "blue", "green", "black")

    def _reset(self, seed: int) -> str:
        super()._reset(seed)
        return self.colours[seed % 4]

    def _act(self, command: str) -> Outcome:
        outcome = super()._act(command)
        return outcome if outcome.done else outcome._replace(text=self.colours[self.words.index(self.word)])


register(Task(id="Coloured-v0", entry_point="tests.toys:Coloured"))


class Apart(Signpost):
    """Signpost in a separate process."""

    isolate = True


register(Task(id="Apart-v0", entry_point="tests.toys:Apart"))


class Instances(TextEnv):
    """A panel of games of which only the first is sound."""

    knobs = (Knob("max_steps", 1, "answers", low=1), Knob("deny", (), "games left out"))
    instructions = "Say the word."
    games = ("sound", "broken", "flaky", "free", "unreadable")

    def _reset(self, seed: int) -> str:
        self.game = panel(**vars(self.settings)).games[seed]
        if self.game == "unreadable":
            raise DataError("The file of this game is torn.")
        self.tries = getattr(self, "tries", 0) + 1
        self.objective = "Say it."
        return self.game

    def _act(self, command: str) -> Outcome:
        plays = {"sound": command == "word", "broken": False, "flaky": self.tries % 2 == 0, "free": True}
        return Outcome("", 0.0, done=True, success=plays[self.game])

    def expert(self, kind: str = "") -> str | None:
        return "word"


def panel(**settings: object) -> Panel:
    return Panel("instances", tuple(game for game in Instances.games if game not in settings["deny"]), "")


register(Task(id="Instances-v0", entry_point="tests.toys:Instances", panel="tests.toys:panel"))
