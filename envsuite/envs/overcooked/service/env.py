"""Overcooked, versions 1 and 2: several orders with deadlines, in a kitchen where the layout decides.

One cook walks through a drawn kitchen, chops and grills food, fills bowls and serves orders. With `control=primitive` a
command is one step: north, east, south, west (which use a station that is there) or wait. With `control=station` a
command walks to a station and uses it; the steps of time are the same.

Every kitchen is kept only if the planner serves all orders in time while the greedy cook and the scripts of `scripts`
do not; `rejects` chooses the scripts. An order may be served `slack` later than in the plan. With `changes`, one order is
withdrawn during the game and another comes in its place. The kitchens of the splits differ in structure: no two splits
share a map up to the names of foods, turning and mirroring.

**Rewards.** `sparse` pays 1 when the last order is served. `dense` pays 1 divided by the number of orders for each
order served, and subtracts `step_cost` per step. `shaped` adds the potential of the estimated remaining steps, which is
a function of the state, so it cannot be farmed by a learner whose discount is `shaping_gamma` per `shaping_unit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.core import TURNS_LEFT, TextEnv
from envsuite.envs.overcooked.kitchen import FLOOR, STAY, all_foods
from envsuite.envs.overcooked.menu import LEVELS_V1, LEVELS_V2
from envsuite.envs.overcooked.service import picture, text
from envsuite.envs.overcooked.service.cooks import greedy_use
from envsuite.envs.overcooked.service.engine import BOWL, NOTHING, Rules, Service, State
from envsuite.envs.overcooked.service.generator import DrawnService, ServiceKnobs, draw_service
from envsuite.envs.overcooked.service.layout import STOVE
from envsuite.envs.overcooked.service.outlook import Outlook
from envsuite.envs.overcooked.service.planner import Follower, planner
from envsuite.envs.overcooked.service.scripts import first_script
from envsuite.envs.overcooked.text import normalise
from envsuite.errors import UsageError
from envsuite.types import Knob, Outcome

LOST = "The time of order {} has run out. The game is lost."
CHANGED = "Order {} is withdrawn, and another order comes in its place."
WON = "All orders are served."
_ARTICLES = re.compile(r"\bthe ")
MARCH = ("north", "east", "south", "west")


class ServiceEnv(TextEnv):
    """A kitchen where one cook serves several orders in time. Rules: docs/envs/overcooked.md."""

    knobs = (
        Knob("control", "primitive", "primitive: one step per command; station: walk to a station and use it",
             choices=("primitive", "station")),
        Knob("size", 6, "cells per side", low=5, high=10),
        Knob("walls", 0.1, "fraction of the inner cells that are walls or stations", low=0.0, high=0.4),
        Knob("foods", 2, "kinds of food", low=1, high=len(all_foods())),
        Knob("copies", 2, "crates of each food, bowl racks and serving hatches", low=1, high=3),
        Knob("boards", 1, "cutting boards", low=1, high=3),
        Knob("stoves", 1, "stoves; 0: no food is grilled", low=0, high=3),
        Knob("counters", 1, "counters where things can be put down", low=1, high=5),
        Knob("orders", 2, "orders", low=1, high=4),
        Knob("items", 2, "most foods in an order; each order has this number or one less", low=1, high=3),
        Knob("slack", 0.15, "time to serve an order beyond the plan's, as a fraction of it", low=0.0, high=0.5),
        Knob("changes", False, "one order is withdrawn during the game, and another comes in its place"),
        Knob("rejects", "sequential", "scripts that win no kept kitchen: order after order, or interleaved, too",
             choices=("sequential", "interleaved")),
        Knob("chops", 2, "cuts that chop a food", low=1, high=5),
        Knob("cooking", 12, "steps on the stove until a food is grilled", low=1, high=40),
        Knob("burning", 6, "further steps on the stove until a grilled food is burnt", low=1, high=100),
        Knob("step_cost", 0.001, "dense: subtracted for each step", low=0.0, high=1.0),
        Knob("max_steps", 400, "commands until truncation", low=1),
        TURNS_LEFT,
    )  # fmt: skip
    levels = LEVELS_V1
    experts: ClassVar[tuple[str, ...]] = ("", "greedy", "planner")
    absent_knobs: ClassVar[dict[str, str]] = dict.fromkeys(
        ("cooks", "partner"), "Several cooks play version 0: name it, for example Overcooked-medium-v0."
    )
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}

    service: Service
    state: State

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        knobs = self.settings
        if knobs.items > knobs.foods:
            raise UsageError(f"An order of {knobs.items} foods needs as many kinds, not {knobs.foods}: set foods.")
        self.rules = Rules(knobs.chops, knobs.cooking, knobs.burning)
        shared = {name: getattr(knobs, name) for name in ServiceKnobs._fields if name != "rules"}
        self._drawn_with = ServiceKnobs(rules=self.rules, **shared)
        self.instructions = text.instructions(knobs.control, self.rules, knobs.changes)
        self._seed = -1

    @classmethod
    def levels_of(cls, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Returns the levels of version 2 for its kitchens, and those of version 1 for all others."""
        return LEVELS_V2 if settings["rejects"] == "interleaved" else LEVELS_V1

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self._open(seed)
        return text.observation(self.now, self.state)

    def _draw_game(self, seed: int) -> DrawnService:
        return draw_service(self._drawn_with, seed)

    @property
    def now(self) -> Service:
        """The service with the orders as they stand."""
        return self.service.at(self.state)

    def _open(self, seed: int) -> None:
        """Sets everything that depends on the seed."""
        self.service, self.plan, self.rest = self._drawn_game(seed)
        self.outlook = Outlook(self.service)
        self.state = self.service.start()
        self._total = max(1, self._estimate())
        self._cooks: dict[str, Follower] = {}
        self.objective = text.objective(self.service)
        self._uses = {f"use {station.name}": i for i, station in enumerate(self.service.layout.stations)}
        self._numbers = {_ARTICLES.sub("", use): number for use, number in self._uses.items()}
        self._seed = seed

    def _act(self, command: str) -> Outcome:
        before, was = self.state, self.now
        words = _ARTICLES.sub("", normalise(command))
        if self.settings.control == "primitive":
            news, valid = self._primitive(words)
        else:
            news, valid = self._whole_use(words)
        after, service = self.state, self.now
        self.primitive_steps = after.time - before.time
        served = (after.served & ~before.served).bit_count()
        reward = served / len(service.orders) - self.settings.step_cost * self.primitive_steps
        won = after.served == service.all
        expired = -1 if won else service.expired(after)
        progress = min(1.0, max(0.0, 1 - self._estimate() / self._total))
        if won or expired >= 0:
            last = WON if won else LOST.format(expired + 1)
            return Outcome(f"{news} {last}".strip(), reward, True, won, valid, progress)
        if was.change is not None and was.changes_by(after):
            news = f"{news} {CHANGED.format(was.change.order + 1)}".strip()
        described = text.observation(service, after)
        return Outcome(f"{news}\n{described}" if news else described, reward, False, False, valid, progress)

    def _primitive(self, words: str) -> tuple[str, bool]:
        """Runs one step. Returns what happened, and whether the command did something."""
        service, before = self.now, self.state
        words = words.removeprefix("go ").removeprefix("move ")
        if words not in text.DIRECTIONS:
            self.state = service.step(before, STAY)
            return ("", True) if words == "wait" else (self._unknown(), False)
        direction = text.DIRECTIONS[words]
        self.state = service.step(before, direction)
        cell = before.cell + service.layout.kitchen.delta[direction]
        number = service.layout.station_at.get(cell)
        if number is None:
            moved = self.state.cell != before.cell
            return ("", True) if moved else ("A wall is in the way.", False)
        station = service.layout.stations[number]
        used = service.use(before, station)
        return text.event(service, before, used, station), used != before

    def _whole_use(self, words: str) -> tuple[str, bool]:
        """Walks to a station and uses it, until an order expires or changes.

        Returns what happened and whether the command did something.
        """
        service = self.now
        number = self._numbers.get(words, -1)
        if number < 0:
            self.state = service.step(self.state, STAY)
            return ("", True) if words == "wait" else (self._unknown(), False)
        station, news, changed, over = service.layout.stations[number], "", False, False
        while not over and service.expired(self.state) < 0 and not service.changes_by(self.state):
            before, direction = self.state, service.direction(self.state, number)
            self.state = service.step(before, direction)
            if before.cell + service.layout.kitchen.delta[direction] == station.cell:
                used = service.use(before, station)
                news, changed = text.event(service, before, used, station), changed or used != before
                over = not service.goes_on(self.state, number)
        return news, changed or not over

    def _unknown(self) -> str:
        known = "north, east, south, west" if self.settings.control == "primitive" else ", ".join(self._uses)
        return f"This command is unknown, and a step has passed. The commands are {known} and wait."

    def idle(self) -> str:
        return "wait"

    def admissible(self) -> list[str]:
        if self.settings.control == "primitive":
            return [*(name for name, number in text.DIRECTIONS.items() if self._does(number)), "wait"]
        return [*(name for name, number in self._uses.items() if self._helps(number)), "wait"]

    def _does(self, direction: int) -> bool:
        """Returns True if a step in a direction moves the cook or changes something."""
        layout, state = self.service.layout, self.state
        cell = state.cell + layout.kitchen.delta[direction]
        number = layout.station_at.get(cell)
        if number is None:
            return layout.kitchen.kind[cell] == FLOOR
        return self.now.use(state, layout.stations[number]) != state

    def _helps(self, number: int) -> bool:
        """Returns True if a whole use of a station changes something, or waits for food on a stove."""
        service, state = self.now, self.state
        station = service.layout.stations[number]
        if station.kind == STOVE and state.slots[station.slot] != NOTHING and (state.hand < 0 or state.hand >= BOWL):
            return True
        return service.use(state, station) != state

    # ---- players ---------------------------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        if self._over:
            return None
        if kind not in self._cooks:
            service = self.service
            known = (self.plan, self.rest) if kind == "" else ()
            self._cooks[kind] = (
                Follower(service, lambda now, state: [greedy_use(now, state)])
                if kind == "greedy"
                else planner(service, self.outlook, *known)
            )
        direction, number = self._cooks[kind].next_step(self.state)
        if self.settings.control == "station":
            return f"use {self.service.layout.stations[number].name}"
        return next((name for name, value in text.DIRECTIONS.items() if value == direction), "wait")

    def blind_script(self) -> Sequence[str]:
        """Returns a script of stations that reads only the orders; under `primitive`, steps in turn.

        No script of primitive steps can read the way to a station from the orders.
        """
        if self.settings.control == "primitive":
            return MARCH
        stations = self.service.layout.stations
        return [f"use {stations[number].name}" for number in first_script(self.service)]

    def _estimate(self) -> int:
        return self.outlook.at(self.state).estimate(self.state, self.service.all)

    def remaining(self) -> int | None:
        """Returns the estimated number of steps until all orders are served."""
        return self._estimate()

    # ---- reporting and snapshots -----------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        dishes = [text.dish_name(self.service, order.dish) for order in self.service.orders]
        return {"task_type": f"{len(dishes)} orders", "instance": "; ".join(dishes)}

    def metrics(self) -> dict[str, float]:
        return {"primitive_steps": float(self.state.time), "served": float(self.state.served.bit_count())}

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
