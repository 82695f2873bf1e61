"""The expert: minigrid's bot, which sees only what a player has seen, with the planner as fallback.

The bot is bounded without clocks, signals or processes: the list with its subgoals counts accesses
and raises if one decision needs too many (on some seeds of GoToImpUnlock and UnlockToUnlock the bot
never returns). The planner takes over for the rest of the episode if the bot fails, considers
itself done, proposes a command that fails the mission or changes nothing, returns to a situation
too often, or has used half of the level's cap.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from minigrid.utils.baby_ai_bot import BabyAIBot

from envsuite.envs.babyai.model import ACTIONS, GridModel
from envsuite.envs.babyai.planner import GridPlanner

MAX_STACK_ACCESSES = 100  # per decision; successful decisions need fewer than twenty
MAX_VISITS = 6  # per situation
MAX_CAP_SHARE = 0.5  # share of the level's step cap that the bot may use
NO_EFFECT = 6  # minigrid's `done`, which the bot receives for a command without effect


class DecisionLimitReached(Exception):
    """One decision of the bot needed too many stack accesses."""


class BoundedStack(list):  # type: ignore[type-arg]
    """The bot's stack of subgoals; raises after MAX_STACK_ACCESSES accesses."""

    accesses = 0

    def _count(self) -> None:
        self.accesses += 1
        if self.accesses > MAX_STACK_ACCESSES:
            raise DecisionLimitReached

    def append(self, item: Any) -> None:
        self._count()
        super().append(item)

    def __getitem__(self, index: Any) -> Any:
        self._count()
        return super().__getitem__(index)


class BabyAIExpert:
    """Advice for one episode, created after the engine's reset. Call `follow` for every command played."""

    def __init__(self, engine: Any, exact: bool) -> None:
        self.engine = engine
        self._exact = exact
        self._start = list(engine.grid.grid), engine.carrying
        self.bot_failure = ""  # why the bot is no longer used
        self._bot: Any = None
        self._last_action: int | None = None  # played since the bot's last decision
        self._commands_since = 0  # number of commands since the bot's last decision
        self._advice: int | None = None
        self._is_current = False
        self._visits: Counter[Any] = Counter()

    @functools.cached_property
    def model(self) -> GridModel:
        """The model of the episode, which reads the start of the game when it is first needed."""
        return GridModel(self.engine, *self._start)

    @functools.cached_property
    def planner(self) -> GridPlanner:
        return GridPlanner(self.model, self._exact)

    def restart(self, with_bot: bool) -> None:
        """Forgets the bot, whose memory does not fit the present state; another one may begin here."""
        self.bot_failure = "" if with_bot else "the bot cannot follow a restored game"
        self._bot, self._last_action, self._commands_since, self._is_current = None, None, 0, False
        self._visits.clear()

    def is_lost(self) -> bool:
        """Tests whether the mission cannot be completed any more."""
        return self.model.is_lost(self.model.state(self.engine))

    def follow(self, action: int | None) -> None:
        """Records a command; None means one without effect."""
        self._commands_since += 1
        self._last_action = NO_EFFECT if action is None else action
        self._is_current = False

    def advice(self) -> int | None:
        """Returns the bot's next action, or the planner's; None if neither has one."""
        if not self._is_current:
            self._advice = self._from_bot()
            self._is_current = True
        if self._advice is not None:
            return self._advice
        plan = self.full_plan()
        return plan[0] if plan else None

    def plan(self) -> int | None:
        """Returns the planner's next action, or the bot's if the planner's search failed.

        The bot starts in the middle of the game if it has not followed the player so far.
        """
        plan = self.full_plan()
        if plan is not None:
            return plan[0]
        if self.is_lost():
            return None
        if not self._is_current:
            if self._commands_since != (0 if self._bot is None else 1):
                self.restart(with_bot=True)
            self._advice = self._from_bot()
            self._is_current = True
            if self._advice is None:  # the bot has brought the game into another state, which may be easier
                self.planner.forget_failures()
                plan = self.full_plan()
        return plan[0] if plan is not None else self._advice

    def full_plan(self) -> tuple[int, int] | None:
        """Returns the planner's next action and the number of actions left; None without a plan."""
        return self.planner.advice(self.model.state(self.engine))

    def _from_bot(self) -> int | None:
        if self.bot_failure:
            return None
        action, failure = self._ask_bot()
        if failure:
            self.bot_failure, self._bot = f"the bot {failure}", None
            return None
        return action

    def _ask_bot(self) -> tuple[int, str]:
        """Returns the bot's action and why it is unreliable ('' if it is reliable)."""
        if self._commands_since != (0 if self._bot is None else 1):
            return NO_EFFECT, "did not follow every command"
        try:
            if self._bot is None:
                self._bot = BabyAIBot(self.engine)
                self._bot.stack = BoundedStack(self._bot.stack)
            self._bot.stack.accesses = 0
            action = int(self._bot.replan(self._last_action))
        except DecisionLimitReached:
            return NO_EFFECT, "did not reach a decision"
        except Exception as error:  # the bot raises many kinds of errors
            return NO_EFFECT, f"failed: {type(error).__name__}"
        self._commands_since = 0
        state = self.model.state(self.engine)
        situation = state, int(self._bot.vis_mask.sum())
        self._visits[situation] += 1
        if action not in ACTIONS:
            return action, "considers itself done"
        if self._visits[situation] > MAX_VISITS:
            return action, "goes in circles"
        if self.engine.step_count > MAX_CAP_SHARE * self.engine.max_steps:
            return action, "takes too long"
        if not self.model.applicable(state, action):
            return action, "proposes a command without effect"
        after, status = self.model.step(state, action)
        return action, "would fail the mission" if status == "failure" or self.model.is_lost(after) else ""
