"""Where environments live: in this process, or in a pool of worker processes.

A slot holds one environment and plays one episode after another. `start` and `step` only ask; `poll` returns what has
been answered, so that slow environments step while others go on.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any, Protocol

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import DataError, EngineFailure, EnvsuiteError, MissingExtra, UsageError
from harness.rollout.seeding import Seeding
from harness.types import Episode

CLEARING = 60.0
"""seconds a worker has to give back what its environments hold; a loaded machine takes its time over eight containers"""


@dataclass(slots=True)
class StepResult:
    """What an environment shows after a reset or a turn."""

    observation: str
    info: dict[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    advice: str | None = None
    done_commands: int = 0  # how many of the turn's commands were carried out
    instructions: str = ""  # on reset
    objective: str = ""  # on reset
    error: str = ""  # the environment broke; nothing else here counts
    lost: str = ""  # with `error`: the environment went down with its worker, as a "suspect" of having done it or not
    fatal: EnvsuiteError | None = field(default=None)  # no episode of this kind can be played: stop the run


def lost(why: str, suspect: bool) -> StepResult:
    """What is said of an environment whose worker is gone."""
    return StepResult("", {}, error=f"{EngineFailure.__name__}: {why}", lost="suspect" if suspect else "bystander")


class Executor(Protocol):
    """A number of slots, each playing one episode at a time."""

    count: int

    def start(self, slot: int, episode: Episode) -> None: ...

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None: ...

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        """All answers at hand; with `wait`, at least one unless nothing was asked."""
        ...

    def close(self) -> None: ...


class EnvHost:
    """One slot's environment, wherever it lives."""

    def __init__(self, reward_mode: str, advice_kind: str, shaping_gamma: float = 0.99) -> None:
        self.reward_mode, self.advice_kind, self.shaping_gamma = reward_mode, advice_kind, shaping_gamma
        self.env: TextEnv | None = None
        self.built = ("", "")
        self.dice: Seeding | None = None
        self._draws = False

    def start(self, episode: Episode) -> StepResult:
        try:
            self.dice = Seeding(episode) if self.advice_kind == "random" else None
            if self.built != (episode.task.id, episode.knobs):
                self.close()
                self.env = self._build(episode)
                self.built = episode.task.id, episode.knobs
            assert self.env is not None
            # A random player who takes any of the commands on offer: drawn here, from those just shown.
            self._draws = self.dice is not None and type(self.env).random_command is TextEnv.random_command
            text, info = self._reset(self.env, episode)
            return StepResult(
                text,
                info,
                advice=self._advice(0, info),
                instructions=self.env.instructions,
                objective=info.get("objective", ""),
            )
        except (UsageError, MissingExtra) as error:  # would befall every episode alike
            return StepResult("", {}, fatal=error)
        except DataError as error:  # of the task (nothing could be built): every episode's; of one game: its own
            return self.broke(error) if self.env else StepResult("", {}, fatal=error)
        except Exception as error:
            return self.broke(error)

    def _build(self, episode: Episode) -> TextEnv:
        if episode.task.id not in registry.TASKS:  # registered in the parent only
            registry.register(episode.task)
        return registry.build(
            episode.task, self.reward_mode, shaping_gamma=self.shaping_gamma, **json.loads(episode.knobs)
        )

    def _reset(self, env: TextEnv, episode: Episode) -> tuple[str, dict[str, Any]]:
        return env.reset(seed=episode.seed, options={"attempt": episode.attempt})

    def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        env = self.env
        if env is None:
            return StepResult("", {}, error="the environment was lost with its worker", lost="bystander")
        try:
            steps = self.turn(commands, turn)
            command = next(steps)
            while True:
                try:
                    command = steps.send(env.step(command))
                except StopIteration as done:
                    shown: StepResult = done.value
                    return shown
        except Exception as error:
            return self.broke(error)

    def turn(self, commands: tuple[str, ...], turn: int) -> Generator[str, Step, StepResult]:
        """One turn of the player: gives out command by command, is sent what `env.step` says, returns what is shown."""
        first, *others = commands or ("",)
        text, reward, terminated, truncated, info = yield first
        total, done = float(reward), 1
        for command in others:
            if terminated or truncated:
                break
            valid = info["is_action_valid"]
            more, reward, terminated, truncated, info = yield command
            info["is_action_valid"] = bool(valid and info["is_action_valid"])
            text, total, done = f"{text}\n{more}", total + float(reward), done + 1
        advice = None if terminated or truncated else self._advice(turn + 1, info)
        return StepResult(text, info, total, terminated, truncated, advice, done)

    def _advice(self, turn: int, info: dict[str, Any]) -> str | None:
        """What the player is to say at `turn`, of whose beginning `info` tells."""
        assert self.env is not None
        if self.dice is not None:
            commands = info["admissible_commands"] if self._draws else ()
            if commands:
                return str(commands[self.dice.below(turn, len(commands))])
            return self.env.random_command(self.dice.at(turn))
        if self.advice_kind.startswith("expert"):
            return self.env.expert(self.advice_kind.partition(":")[2])
        return None

    def broke(self, error: Exception) -> StepResult:
        """An engine that failed is not trusted again: the next episode gets a new one."""
        self.close()
        where = "" if isinstance(error, EnvsuiteError) else "\n" + "".join(traceback.format_exception(error)[-3:])
        return StepResult("", {}, error=f"{type(error).__name__}: {error}{where}")

    def close(self) -> None:
        if self.env is not None:
            with contextlib.suppress(Exception):
                self.env.close()
        self.env, self.built = None, ("", "")


Step = tuple[str, float, bool, bool, dict[str, Any]]
Request = tuple[Any, ...]  # ("start", slot, Episode) | ("step", slot, commands, turn)


class EnvHosts:
    """The inside of a worker, be it a process or an actor: the environments of its slots, made as they are asked for."""

    def __init__(self, config: tuple[str, str, float]) -> None:
        """`config`: what a `EnvHost` is made with."""
        self._config = config
        self._by_slot: dict[int, EnvHost] = {}

    def answer(self, request: Request) -> tuple[int, StepResult]:
        kind, slot, *rest = request
        if slot not in self._by_slot:
            self._by_slot[slot] = EnvHost(*self._config)
        host = self._by_slot[slot]
        return slot, host.start(*rest) if kind == "start" else host.step(*rest)

    def play_on(self, request: Request, seconds: float) -> tuple[int, list[StepResult]]:
        """The same, and for so many seconds what follows where the player does as it is advised."""
        until = time.monotonic() + seconds
        slot, shown = self.answer(request)
        found, turn = [shown], 0 if request[0] == "start" else request[-1] + 1
        while shown.advice and time.monotonic() < until:
            shown = self._by_slot[slot].step((shown.advice,), turn)
            found.append(shown)
            turn += 1
        return slot, found

    def close(self) -> None:
        for host in self._by_slot.values():
            host.close()


class LocalExecutor:
    """Environments in this process: for native engines, which answer at once."""

    def __init__(
        self, count: int, reward_mode: str = "sparse", advice_kind: str = "", shaping_gamma: float = 0.99
    ) -> None:
        self.count = count
        self._hosts = [EnvHost(reward_mode, advice_kind, shaping_gamma) for _ in range(count)]
        self._answers: list[tuple[int, StepResult]] = []

    def start(self, slot: int, episode: Episode) -> None:
        self._answers.append((slot, self._hosts[slot].start(episode)))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._answers.append((slot, self._hosts[slot].step(commands, turn)))

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        for host in self._hosts:
            host.close()


class ProcessExecutor:
    """Environments in worker processes; slot s lives in worker s modulo the number of workers.

    A worker that dies or does not answer within `timeout` seconds is replaced, and the episodes it held are lost; the
    other slots go on. Its interpreter's start, slow on a loaded machine, has `START` seconds of its own.
    """

    START = 120.0

    def __init__(
        self,
        count: int,
        workers: int,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping_gamma: float = 0.99,
        timeout: float = 600.0,
    ) -> None:
        self.count = count
        self.timeout = timeout
        self._config = (reward_mode, advice_kind, shaping_gamma)
        self._context = multiprocessing.get_context("spawn")  # forks of a process with threads deadlock
        self._workers = [_Worker(self._context, self._config) for _ in range(max(1, min(workers, count)))]
        self._lost: deque[tuple[int, StepResult]] = deque()

    def start(self, slot: int, episode: Episode) -> None:
        self._ask(slot, ("start", slot, episode))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._ask(slot, ("step", slot, commands, turn))

    def _ask(self, slot: int, request: Request) -> None:
        worker = self._workers[slot % len(self._workers)]
        worker.asked.append((slot, time.monotonic()))
        with contextlib.suppress(BrokenPipeError, OSError):  # a dead worker is noticed by poll
            worker.pipe.send(request)

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers: list[tuple[int, StepResult]] = []
        while not answers and (self._lost or any(worker.asked for worker in self._workers)):
            while self._lost:
                answers.append(self._lost.popleft())
            busy = {worker.pipe: worker for worker in self._workers if worker.asked}
            for pipe in connection.wait(list(busy), timeout=1.0 if wait and not answers else 0):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    while worker.pipe.poll():
                        answer = worker.pipe.recv()
                        worker.answered(answer)
                        if answer is not None:
                            answers.append(answer)
                except (EOFError, OSError):
                    self._replace(worker, "its worker process died")
            for worker in busy.values():
                limit = self.timeout + (0.0 if worker.ready else self.START)
                replaced = worker not in self._workers  # just now, since it died
                if not replaced and worker.asked and time.monotonic() - worker.alive_at > limit:
                    self._replace(worker, f"no answer within {limit:.0f} s")
            if not wait:
                answers.extend(self._lost)
                self._lost.clear()
                break
        return answers

    def _replace(self, worker: _Worker, why: str) -> None:
        # A worker answers in order: what it was thinking about is the first question left.
        self._lost.extend((slot, lost(why, not number)) for number, (slot, _) in enumerate(worker.asked))
        worker.stop()
        self._workers[self._workers.index(worker)] = _Worker(self._context, self._config)

    def close(self) -> None:
        for worker in self._workers:
            worker.ask_to_stop()
        for worker in self._workers:
            worker.stop()


class _Worker:
    def __init__(self, context: Any, config: tuple[str, str, float]) -> None:
        self.pipe, theirs = context.Pipe()
        self.asked: deque[tuple[int, float]] = deque()  # what it has not answered, in order
        self.ready = False
        self._last = time.monotonic()
        self.process = context.Process(target=_serve, args=(theirs, config, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def alive_at(self) -> float:
        """When it last had reason to be thinking about something new."""
        return max(self._last, self.asked[0][1]) if self.asked else time.monotonic()

    def answered(self, answer: tuple[int, StepResult] | None) -> None:
        """Books an answer; None is the first thing a worker says, when it has started."""
        self._last, self.ready = time.monotonic(), True
        if answer is None:
            return
        for index, (asked, _) in enumerate(self.asked):
            if asked == answer[0]:
                del self.asked[index]
                return

    def ask_to_stop(self) -> None:
        with contextlib.suppress(Exception):
            self.pipe.send(None)
            self.pipe.close()

    def stop(self) -> None:
        """Ends it: when it is done with what it was asked, cut short after 2 s, and killed where it does not clear away
        what its environments hold (sandboxes, folders) within CLEARING."""
        self.ask_to_stop()
        self.process.join(timeout=2)
        if self.process.is_alive() and self.ready:
            self.process.terminate()
            self.process.join(timeout=CLEARING)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=5)


def _leave(number: int, frame: Any) -> None:
    """SIGTERM cuts short what a worker is at, so that it clears away behind itself; once begun, that is not cut."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def _serve(pipe: connection.Connection, config: tuple[str, str, float], parent: int) -> None:
    """A worker's life: answer until the pipe closes. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    hosts = EnvHosts(config)
    try:
        pipe.send(None)
        while True:
            if not pipe.poll(5.0):
                if os.getppid() != parent:  # the parent was killed outright
                    break
                continue
            request = pipe.recv()
            if request is None:
                break
            pipe.send(hosts.answer(request))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        with contextlib.suppress(SystemExit):  # clearing away is not cut short
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hosts.close()
