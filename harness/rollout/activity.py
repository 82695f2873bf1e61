"""Activity of a rollout: counters for displays, and a file that other processes read."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.types import Policy, Reply, ReportsRetries

WINDOW = 30.0
"""Seconds over which rates are measured."""
MOST_LISTED = 512
"""Number of episodes in play that a snapshot lists."""
MOST_COMMAND = 200
"""Characters of a command in a snapshot."""


class Activity:
    """Counters of a run. The rollout's thread writes them, and any thread may read them."""

    def __init__(self) -> None:
        self.episodes = 0
        """number of episodes of the run"""
        self.ended = 0
        """number of episodes that are recorded, also by earlier calls"""
        self.broken = 0
        """number of episodes that broke in this call"""
        self.most_turns: int | None = None
        """limit on the turns of an episode"""
        self.turns = 0
        self.tokens = 0
        """generated tokens, or their estimated number"""
        self.in_flight = 0
        """prompts without a reply"""
        self.began: float | None = None
        """monotonic time of the first prompt"""
        self._ended_here = self._turns_of_ended = 0
        self._playing: Mapping[int, Any] = {}
        self._policy: Policy | None = None
        self._samples: deque[tuple[float, int, int]] = deque()
        self._lock = threading.Lock()

    def begin(self, policy: Policy, playing: Mapping[int, Any]) -> None:
        """Starts to count for a policy; `playing` holds the states of the episodes in play, by
        slot.
        """
        self._policy, self._playing = policy, playing

    def asked(self) -> None:
        """Counts a prompt."""
        if self.began is None:
            self.began = time.monotonic()
        self.in_flight += 1

    def replied(self, reply: Reply) -> None:
        """Counts a reply."""
        self.in_flight -= 1
        self.turns += 1
        self.tokens += reply.output_tokens if reply.estimated is None else reply.estimated[1]

    def recorded(self, turns: int, broken: bool) -> None:
        """Counts an episode that ended after a number of turns; a broken one is left for `--resume`."""
        self.ended += not broken
        self.broken += broken
        self._ended_here += 1
        self._turns_of_ended += turns

    def rates(self) -> tuple[float, float]:
        """Returns turns and tokens per second over the last `WINDOW` seconds."""
        if self.began is None:
            return 0.0, 0.0
        now = time.monotonic()
        with self._lock:
            samples = self._samples
            if not samples:
                samples.append((self.began, 0, 0))
            while len(samples) > 1 and samples[1][0] < now - WINDOW:
                samples.popleft()
            began, turns, tokens = samples[0]
            if now - samples[-1][0] > WINDOW / 30:
                samples.append((now, self.turns, self.tokens))
        seconds = max(now - began, 1e-3)
        return (self.turns - turns) / seconds, (self.tokens - tokens) / seconds

    def retries(self) -> tuple[int, str, float]:
        """Returns the number of requests that wait for their next try, the most frequent reason,
        and the longest pause in seconds.
        """
        waiting: list[tuple[str, float]] = self._policy.retrying() if isinstance(self._policy, ReportsRetries) else []
        if not waiting:
            return 0, "", 0.0
        ((reason, _),) = Counter(reason for reason, _ in waiting).most_common(1)
        return len(waiting), reason, max(0.0, max(until for _, until in waiting) - time.monotonic())

    def seconds_left(self) -> tuple[float, bool] | None:
        """Estimates the seconds until all episodes have ended; None if that is unknown, also while
        all requests wait for their next try.

        The second value is True before the first episode ends: the time is an upper bound then,
        because every episode counts with the limit on its turns.
        """
        if self.began is None or not self.turns or 0 < self.in_flight <= self.retries()[0]:
            return None
        if self._ended_here:
            length, at_most = self._turns_of_ended / self._ended_here, False
        elif self.most_turns:
            length, at_most = float(self.most_turns), True
        else:
            return None
        missing = self.episodes - self.ended - self.broken
        turns = max(missing * length - (self.turns - self._turns_of_ended), missing)
        return turns * (time.monotonic() - self.began) / self.turns, at_most

    def snapshot(self) -> dict[str, Any]:
        """Returns the counters, rates and episodes in play as JSON values."""
        turns, tokens = self.rates()
        retrying, reason, pause = self.retries()
        left = self.seconds_left()
        return {
            "time": time.time(),
            **{name: getattr(self, name) for name in ("episodes", "ended", "turns", "tokens", "in_flight")},
            "turns_per_second": round(turns, 2),
            "tokens_per_second": round(tokens, 1),
            "retrying": retrying,
            "reason": reason,
            "pause": round(pause, 1),
            "seconds_left": None if left is None else round(left[0], 1),
            "at_most": left is not None and left[1],
            "playing": [_in_play(state) for state in list(self._playing.values())[:MOST_LISTED]],
        }


def _in_play(state: Any) -> dict[str, Any]:
    run = state.run
    last = run.turns[-1] if run.turns else None
    return {
        "task": run.episode.task.id,
        "seed": run.episode.seed,
        "attempt": run.episode.attempt,
        "turns": len(run.turns),
        "seconds": round(time.monotonic() - state.began, 1),
        "command": "; ".join(last.commands)[:MOST_COMMAND] if last else "",
        "fault": last.fault if last else "",
    }


class Heartbeat:
    """Writes an activity's snapshot to a file every `EVERY` seconds, and removes the file at the
    end. Use as a context.
    """

    EVERY = 2.0

    def __init__(self, path: Path, activity: Activity) -> None:
        self._path, self._activity = path, activity
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="envsuite-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._over.wait(self.EVERY):
            text = json.dumps(self._activity.snapshot())
            with contextlib.suppress(OSError):  # a full disk: the run reports it
                self._write(text)

    def _write(self, text: str) -> None:
        """Replaces the file; a crash may lose it, because it is not worth a sync of the disk."""
        temporary = self._path.with_name(f".{self._path.name}")
        temporary.write_text(text)
        os.replace(temporary, self._path)
