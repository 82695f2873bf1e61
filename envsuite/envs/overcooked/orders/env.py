"""Overcooked with orders in time, in a kitchen where the layout decides.

One cook walks through a drawn kitchen, chops and grills food, fills bowls and serves several orders, each before its
deadline. A command is one step: north, east, south, west (which use a station that is there) or wait.

Every kitchen is kept only if the planner serves all orders in time while the greedy cook and the scripts of `scripts`
do not. An order may be served `slack` later than in the plan. With `changes`, one order is withdrawn during the game and
another comes in its place. The kitchens of the splits differ in structure.

**Rewards.** `sparse` pays 1 when the last order is served. `dense` pays 1 divided by the number of orders for each
order served, and subtracts `step_cost` per step. `shaped` adds the potential of the estimated remaining steps, which is
a function of the state, so it cannot be farmed by a learner whose discount is `shaping_gamma`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.core import TURNS_LEFT, TextEnv
from envsuite.envs.overcooked.foods import FOODS, normalise
from envsuite.envs.overcooked.grid import STAY
from envsuite.envs.overcooked.menu import LEVELS
from envsuite.envs.overcooked.orders import picture, text
from envsuite.envs.overcooked.orders.generator import KitchenSettings, draw_game
from envsuite.envs.overcooked.orders.planner import Follower, greedy_follower, planner
from envsuite.envs.overcooked.orders.rules import Durations, OrderGame, State
from envsuite.envs.overcooked.orders.work import Estimator, open_dishes
from envsuite.errors import UsageError
from envsuite.types import Knob, Outcome

LOST = "The time of order {} has run out. The game is lost."
CHANGED = "Order {} is withdrawn, and another order comes in its place."
WON = "All orders are served."
UNKNOWN = "This command is unknown, and a step has passed. The commands are north, east, south, west and wait."
_ARTICLES = re.compile(r"\bthe ")


class OrdersEnv(TextEnv):
    """A kitchen where one cook serves several orders in time. Rules: docs/envs/overcooked.md."""

    knobs = (
        Knob("size", 6, "cells per side", low=5, high=10),
        Knob("walls", 0.1, "fraction of the inner cells that are walls or stations", low=0.0, high=0.4),
        Knob("foods", 2, "kinds of food", low=1, high=len(FOODS)),
        Knob("copies", 2, "crates of each food, bowl racks and serving hatches", low=1, high=3),
        Knob("boards", 1, "cutting boards", low=1, high=3),
        Knob("stoves", 1, "stoves; 0: no food is grilled", low=0, high=3),
        Knob("counters", 1, "counters where things can be put down", low=1, high=5),
        Knob("orders", 2, "orders", low=1, high=4),
        Knob("items", 2, "most foods in an order; each order has this number or one less", low=1, high=3),
        Knob("slack", 0.15, "time to serve an order beyond the plan's, as a fraction of it", low=0.0, high=0.5),
        Knob("changes", False, "one order is withdrawn during the game, and another comes in its place"),
        Knob("chops", 2, "cuts that chop a food", low=1, high=5),
        Knob("cooking", 12, "steps on the stove until a food is grilled", low=1, high=40),
        Knob("burning", 6, "further steps on the stove until a grilled food is burnt", low=1, high=100),
        Knob("step_cost", 0.001, "dense: subtracted for each step", low=0.0, high=1.0),
        Knob("max_steps", 400, "commands until truncation", low=1),
        TURNS_LEFT,
    )  # fmt: skip
    levels = LEVELS
    experts: ClassVar[tuple[str, ...]] = ("", "greedy", "planner")
    absent_knobs: ClassVar[dict[str, str]] = dict.fromkeys(
        ("cooks", "partner"), "This game has one cook. Overcooked-AI has two: Overcooked-AI-cramped_room-v0."
    )
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}

    game: OrderGame
    state: State

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        knobs = self.settings
        if knobs.items > knobs.foods:
            raise UsageError(f"An order of {knobs.items} foods needs as many kinds, not {knobs.foods}: set foods.")
        durations = Durations(knobs.chops, knobs.cooking, knobs.burning)
        shared = {name: getattr(knobs, name) for name in KitchenSettings._fields if name != "durations"}
        self.draw_settings = KitchenSettings(durations=durations, **shared)
        self.instructions = text.instructions(durations, knobs.changes)
        self._seed = -1

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self._open(seed)
        return text.observation(self.now, self.state)

    @property
    def now(self) -> OrderGame:
        """The game with the orders as they are."""
        return self.game.at(self.state)

    def _open(self, seed: int) -> None:
        """Sets everything that depends on the seed."""
        self.game, *self.plans = draw_game(self.draw_settings, seed)
        self.estimator = Estimator(self.game)
        self.state = self.game.start()
        self._total = max(1, self._estimate())
        self._cooks: dict[str, Follower] = {}
        self.objective = text.objective(self.game)
        self._seed = seed

    def _act(self, command: str) -> Outcome:
        before, was = self.state, self.now
        news, valid = self._step(_ARTICLES.sub("", normalise(command)))
        after, game = self.state, self.now
        reward = len(after.served - before.served) / len(game.orders) - self.settings.step_cost
        won = after.served == game.all
        expired = -1 if won else game.expired(after)
        progress = min(1.0, max(0.0, 1 - self._estimate() / self._total))
        if won or expired >= 0:
            last = WON if won else LOST.format(expired + 1)
            return Outcome(f"{news} {last}".strip(), reward, True, won, valid, progress)
        if was.change is not None and was.changes_by(after):
            news = f"{news} {CHANGED.format(was.change.order + 1)}".strip()
        described = text.observation(game, after)
        return Outcome(f"{news}\n{described}" if news else described, reward, False, False, valid, progress)

    def _step(self, words: str) -> tuple[str, bool]:
        """Runs one step. Returns what happened, and whether the command did something."""
        game, before = self.now, self.state
        words = words.removeprefix("go ").removeprefix("move ")
        direction = text.DIRECTIONS.get(words, STAY)
        self.state = game.step(before, direction)
        if direction == STAY:
            return ("", True) if words == "wait" else (UNKNOWN, False)
        number = game.kitchen.station_at.get(before.cell + game.kitchen.grid.delta[direction])
        if number is None:
            moved = self.state.cell != before.cell
            return ("", True) if moved else ("A wall is in the way.", False)
        station = game.kitchen.stations[number]
        used = game.use(before, station)
        return text.event(game, before, used, station), used != before

    def idle(self) -> str:
        return "wait"

    def admissible(self) -> list[str]:
        return [*(name for name, direction in text.DIRECTIONS.items() if self._does(direction)), "wait"]

    def _does(self, direction: int) -> bool:
        """Returns True if a step in a direction moves the cook or changes something."""
        kitchen, state = self.game.kitchen, self.state
        cell = state.cell + kitchen.grid.delta[direction]
        number = kitchen.station_at.get(cell)
        if number is None:
            return kitchen.grid.is_floor[cell]
        return self.now.use(state, kitchen.stations[number]) != state

    # ---- players ---------------------------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        """Returns the next command of the cook that knows the plan, or of `planner` or `greedy`."""
        if self._over:
            return None
        if kind not in self._cooks:
            cook = greedy_follower(self.game) if kind == "greedy" else planner(self.game, () if kind else self.plans)
            self._cooks[kind] = cook
        direction = self._cooks[kind].next_direction(self.state)
        return next((name for name, value in text.DIRECTIONS.items() if value == direction), "wait")

    def blind_script(self) -> Sequence[str]:
        """Returns steps in turn: the orders do not tell the way to a station."""
        return tuple(text.DIRECTIONS)

    def _estimate(self) -> int:
        return self.estimator.estimate(self.state, open_dishes(self.now, self.state.served))

    def remaining(self) -> int | None:
        """Returns the estimated number of steps until all orders are served."""
        return self._estimate()

    # ---- reporting and snapshots -----------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        dishes = [text.dish_name(self.game, order.dish) for order in self.game.orders]
        return {"task_type": f"{len(dishes)} orders", "instance": "; ".join(dishes)}

    def metrics(self) -> dict[str, float]:
        return {"primitive_steps": float(self.state.time), "served": float(len(self.state.served))}

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        if self._seed != self.episode_seed:
            self._open(self.episode_seed)
        self.state = state

    def render(self) -> Any:
        """Renders the kitchen: `rgb_array` [rows * 48 + 22, columns * 48, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return text.observation(self.now, self.state)
        return picture.draw(self.now, self.state)
