"""Per-turn state of many ALFWorld games, stored as parallel lists for speed.

A single environment owns a `BatchState` of size one; the sub-environments of a vector environment
share one. A turn of hundreds of games then updates a few long lists instead of several small
objects per game, which would cost more time than the games themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from envsuite.envs.alfworld.engine import NativeEngine

MAX_LOG_TURNS = 1_000
"""Log length beyond which turns older than every running episode are dropped."""


class BatchState:
    """Lists indexed by game, and the log of the commands of every turn."""

    __slots__ = (
        "command_log",
        "dead_ends",
        "dense_rewards",
        "engines",
        "files",
        "log_starts",
        "revision",
        "search_words",
        "turns",
    )

    def __init__(self, games: int) -> None:
        self.engines: list[NativeEngine | None] = [None] * games
        """None if the environment must see every command: stock engine or shaped rewards"""
        self.files = [""] * games
        self.turns = [0] * games
        self.revision = [-1] * games
        """the engine's `revision` when the subgoals were last updated"""
        self.search_words: list[str | None] = [None] * games
        """a word that every rewarding observation contains; None once all targets are found"""
        self.dense_rewards = [0.0] * games
        """sum of the dense rewards of this episode"""
        self.dead_ends = [False] * games
        """whether the task can no longer be completed"""
        self.command_log: list[Mapping[int, str] | tuple[str | None, ...]] = []
        """per turn: the commands of all games (None: skipped), or a mapping from game to command"""
        self.log_starts = [0] * games
        """position in `command_log` where the current episode starts"""

    def start_episode(self, game: int) -> None:
        """Starts a new episode of `game` with an empty command history."""
        self.log_starts[game] = len(self.command_log)
        if len(self.log_starts) == 1 or len(self.command_log) > MAX_LOG_TURNS:
            unused = min(self.log_starts)
            del self.command_log[:unused]
            self.log_starts[:] = [start - unused for start in self.log_starts]

    def commands(self, game: int) -> list[str]:
        """Returns the commands of the current episode of `game`, in order."""
        rows = self.command_log[self.log_starts[game] :]
        commands = [row[game] if isinstance(row, tuple) else row.get(game) for row in rows]
        return [command for command in commands if command is not None]
