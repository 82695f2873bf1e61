"""What is booked on every turn, of games side by side.

A lone environment has books of its own, for one game; those of a vector environment share one. There a turn of hundreds
of games touches a few long lists instead of several small objects per game, whose fetching would cost more than playing.
"""

from __future__ import annotations

from collections.abc import Mapping

from envsuite.envs.alfworld.engine import NativeEngine

KEPT_TURNS = 1_000
"""Turns in the log of several games beyond which those are dropped that lie before every episode in progress."""


class BatchState:
    """Lists by game, and the log of what was said."""

    __slots__ = ("began", "deeds", "engines", "files", "log", "lost", "paid", "sought", "turns")

    def __init__(self, games: int) -> None:
        self.engines: list[NativeEngine | None] = [None] * games
        """None where something else must hear of every command: another engine, or shaped rewards"""
        self.files = [""] * games
        self.turns = [0] * games
        self.deeds = [-1] * games
        """of the engine, when the subgoals were last looked at"""
        self.sought: list[str | None] = [None] * games
        """a word without which an observation pays nothing; None where all of its kind were found"""
        self.paid = [0.0] * games
        """dense reward so far"""
        self.lost = [False] * games
        """at a dead end"""
        self.log: list[Mapping[int, str] | tuple[str | None, ...]] = []
        """what was said, turn by turn: in every game (None where it sat out), or in some"""
        self.began = [0] * games
        """where in the log"""

    def forget(self, game: int) -> None:
        """Nothing was said in this game yet."""
        self.began[game] = len(self.log)
        if len(self.began) == 1 or len(self.log) > KEPT_TURNS:
            old = min(self.began)
            del self.log[:old]
            self.began[:] = [began - old for began in self.began]

    def said(self, game: int) -> list[str]:
        """The commands of its episode in order."""
        rows = self.log[self.began[game] :]
        said = [row[game] if isinstance(row, tuple) else row.get(game) for row in rows]
        return [command for command in said if command is not None]
