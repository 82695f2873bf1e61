"""The expert: minigrid's bot, which sees only what a player has seen, and the planner wherever the bot fails.

The bot is bounded without clocks, signals or processes: the list it keeps its subgoals in counts what is asked of it and
raises when one decision asks for too much (on some seeds of GoToImpUnlock and UnlockToUnlock it would never return).
It is also left, for the rest of the episode, when it breaks, believes itself done, proposes what would fail the mission,
changes nothing, comes back to a situation too often, or has used up half of the level's cap.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot

from envsuite.envs.babyai.model import ACTIONS, Board
from envsuite.envs.babyai.planner import Planner

THOUGHTS = 100  # accesses to the list of subgoals in one decision; those that end have needed fewer than twenty
VISITS = 6  # of the same situation
PATIENCE = 0.5  # share of the level's cap that the bot is given
UNTOUCHED = 6  # minigrid's `done`: what the bot is told of a command that did nothing


class Overthought(Exception):
    """One decision of the bot has taken too long."""


class Subgoals(list):  # type: ignore[type-arg]
    """The bot's stack, which stops it after THOUGHTS accesses."""

    accesses = 0

    def _count(self) -> None:
        self.accesses += 1
        if self.accesses > THOUGHTS:
            raise Overthought

    def append(self, item: Any) -> None:
        self._count()
        super().append(item)

    def __getitem__(self, index: Any) -> Any:
        self._count()
        return super().__getitem__(index)


class Expert:
    """Advice in one episode. `follow` tells it of every command that was played; None: one that did nothing."""

    def __init__(self, engine: Any, board: Board, planner: Planner) -> None:
        self.engine, self.board, self.planner = engine, board, planner
        self.reason = ""  # why the bot was left
        self._bot: Any = None
        self._last: int | None = None  # what was played since the bot was asked
        self._unseen = 0  # commands it was not asked about
        self._advice: int | None = None
        self._asked = False
        self._visits: Counter[Any] = Counter()

    def follow(self, action: int | None) -> None:
        """Says what was played."""
        self._unseen += 1
        self._last = UNTOUCHED if action is None else action
        self._asked = False

    def advice(self) -> int | None:
        """The bot's next action, or the planner's; None where neither knows one."""
        if not self._asked:
            self._advice = self._from_bot()
            self._asked = True
        return self._advice if self._advice is not None else self.plan()

    def plan(self) -> int | None:
        """The planner's next action."""
        found = self.planner.advice(self.board.state(self.engine))
        return found[0] if found else None

    def _from_bot(self) -> int | None:
        if self.reason:
            return None
        action, failing = self._ask_bot()
        if failing:
            self.reason, self._bot = f"the bot {failing}", None
            return None
        return action

    def _ask_bot(self) -> tuple[int, str]:
        """The bot's action, and why it cannot be relied on ('': it can)."""
        if self._unseen != (0 if self._bot is None else 1):
            return UNTOUCHED, "was not asked every time"
        try:
            if self._bot is None:
                self._bot = BabyAIBot(self.engine)
                self._bot.stack = Subgoals(self._bot.stack)
            self._bot.stack.accesses = 0
            action = int(self._bot.replan(self._last))
        except Overthought:
            return UNTOUCHED, "does not come to a decision"
        except Exception as error:  # it stops with assertions and attribute errors of many kinds
            return UNTOUCHED, f"broke: {type(error).__name__}"
        self._unseen = 0
        state = self.board.state(self.engine)
        situation = state, int(self._bot.vis_mask.sum())
        self._visits[situation] += 1
        if action not in ACTIONS:
            return action, "believes itself done"
        if self._visits[situation] > VISITS:
            return action, "goes in circles"
        if self.engine.step_count > PATIENCE * self.engine.max_steps:
            return action, "takes too long"
        if not self.board.applicable(state, action):
            return action, "proposes what does nothing"
        after, status = self.board.step(state, action)
        return action, "would fail" if status == "failure" or self.board.lost(after) else ""
