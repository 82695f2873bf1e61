"""Overcooked salads: fetch food, chop it, fill a bowl and serve it with macro-actions (TWOSOME, 2024; POAD, 2024).

The observation describes in words everything within `radius` cells of the cook. The player answers with a macro-action
("fetch the tomato"), which takes one or more primitive steps. docs/specs/overcooked.md states the rules. Every state,
path, reward, fact and offered command equals the reference environment's.

**Rewards.** `sparse` pays 1 for serving the order. `dense` is the published reward per primitive step: +0.2 when a food
of the order becomes chopped, +1 for the right dish, -0.1 for any other delivery, and -0.001 for the step. Inside a
macro-action these rewards are discounted by `discount` (0.99 as published; 1 gives the plain sum).
`info["primitive_steps"]` is the number k of primitive steps, and `info["discount"]` is discount**k, the factor that an
SMDP learner applies to the next value. `shaped` adds a potential from the exact planner to the sparse reward.

**The dense reward can be farmed.** Each chopping of a food is paid, and a wrong delivery returns the food raw to its
place, so the cycle "chop, deliver without a bowl" earns +0.1 per round. docs/envs/overcooked.md has the best returns by
discount. `shaped` has no such cycle if `shaping_gamma` and `shaping_unit` are the learner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from envsuite.core import TextEnv, expert_script
from envsuite.envs.overcooked.foods import listing, normalise
from envsuite.envs.overcooked.salad import picture, text
from envsuite.envs.overcooked.salad.engine import CHOPS, NOTHING, WAIT, Simulation, State, macro_actions
from envsuite.envs.overcooked.salad.graph import SaladPlanner
from envsuite.envs.overcooked.salad.kitchen import RECIPES, published_kitchen, recipe_foods
from envsuite.errors import UsageError
from envsuite.types import Knob, Outcome, StopReason

PAPER_GAMMA = 0.99
"""discount per primitive step in the return that both papers report"""
STEP_COST = 0.001


class Totals(NamedTuple):
    """Sums of an episode, for its metrics."""

    steps: int = 0
    discounted_return: float = 0.0
    plain_return: float = 0.0
    chopped: int = 0
    wrong_deliveries: int = 0


class SaladEnv(TextEnv):
    """A kitchen where a cook prepares and serves one order. Rules: docs/envs/overcooked.md."""

    knobs = (
        Knob("recipe", "tomato", "the order", choices=RECIPES),
        Knob("variant", "v4", "kitchen with the tomato only (v4) or with all foods (v3)", choices=("v3", "v4")),
        Knob("size", 7, "cells per side: 7 or 9", low=7, high=9),
        Knob("radius", 2, "cells that the cook sees in each direction", low=1, high=15),
        Knob("horizon", 200, "primitive steps after which no further command starts", low=1, high=10_000),
        Knob("discount", PAPER_GAMMA, "dense: discount per primitive step inside a command; 1 gives the plain sum",
             low=0.0, high=1.0),
        Knob("max_steps", 600, "commands until truncation; the horizon usually ends the episode first", low=1),
    )  # fmt: skip
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}
    experts: ClassVar[tuple[str, ...]] = ("",)
    instructions = text.INSTRUCTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.settings
        self.kitchen = published_kitchen(settings.variant, settings.size)
        foods = recipe_foods(settings.recipe)
        if missing := [food for food in foods if food not in self.kitchen.foods]:
            raise UsageError(
                f"Kitchen {self.kitchen.name!r} has no {' or '.join(missing)} for recipe {settings.recipe!r}: "
                "set variant=v3."
            )
        self.sim = Simulation(self.kitchen, foods, settings.radius)
        self.macros = macro_actions(self.kitchen)
        self._commands = text.commands(self.macros, self.kitchen)
        self.objective = f"Hand in one bowl with {listing([f'chopped {food}' for food in foods])} and nothing else."

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self.sim.reset()
        self.totals = Totals()
        return self._describe()

    def _describe(self) -> str:
        boards = len(self.kitchen.boards)
        return " ".join(text.sentence(fact, boards) for fact in text.facts(self.sim))

    def _act(self, command: str) -> Outcome:
        sim = self.sim
        macro = self._commands.get(normalise(command))
        prefix = text.UNKNOWN if macro is None else ""
        cell, hand, changes = sim.cell, sim.hand, sim.changes
        sim.begin(macro or WAIT)
        reward = self._run()
        has_changed = sim.changes != changes
        has_walked = hand == NOTHING and sim.cell != cell
        progress = self._progress() if has_changed else None
        truncated = not sim.delivered and self.totals.steps >= self.settings.horizon
        reason = StopReason.MAX_STEPS if truncated else None
        valid = macro is not None and (has_changed or has_walked)
        return Outcome(
            prefix + self._describe(), reward, sim.delivered, sim.delivered, valid, progress, truncated, reason
        )

    def _run(self) -> float:
        """Simulates until the macro-action ends. Returns its dense reward."""
        sim = self.sim
        steps, discounted, plain, chopped, wrong = self.totals
        total, factor, paper_factor, start = 0.0, 1.0, PAPER_GAMMA**steps, steps
        while sim.macro is not None:
            gain = sim.tick() - STEP_COST
            total += factor * gain
            plain += gain
            discounted += paper_factor * gain
            factor *= self.settings.discount
            paper_factor *= PAPER_GAMMA
            steps += 1
            chopped += sim.chopped_now
            wrong += sim.wrong_now
        self.totals = Totals(steps, discounted, plain, chopped, wrong)
        self.primitive_steps = steps - start
        return total

    def _progress(self) -> float:
        """Returns the completed fraction of the order, from 0 to 1.

        Chopping a food, putting it in a bowl that holds only foods of the order, and serving count as one part each.
        """
        sim = self.sim
        if sim.delivered:
            return 1.0
        chopped = sum(sim.chops[food] >= CHOPS for food in sim.recipe)
        filled = len(sim.contents) if sim.recipe.issuperset(sim.contents) else 0
        return (chopped + filled) / (2 * len(sim.recipe) + 1)

    def admissible(self) -> list[str]:
        return [text.phrase(text.label(self.sim, macro)) for macro in self.macros]

    def vector(self) -> list[int]:
        """Returns the published observation vector (docs/specs/overcooked.md, "Observation")."""
        order = set(self.sim.order)
        return text.vector(self.sim, [int(set(recipe_foods(name)) == order) for name in RECIPES])

    # ---- players ---------------------------------------------------------------------------------------------------

    @property
    def _planner(self) -> SaladPlanner:
        settings = self.settings
        return _planner_of(settings.variant, settings.size, settings.recipe, settings.radius)

    def expert(self, kind: str = "") -> str | None:
        """Returns the command of a shortest plan."""
        if self.sim.delivered:
            return None
        return text.phrase(text.label(self.sim, self.macros[self._planner.best(self.sim.save())]))

    def remaining(self) -> int | None:
        return self._planner.remaining(self.sim.save())

    def blind_script(self) -> Sequence[str]:
        """Returns the expert's plan, because every episode starts alike."""
        return expert_script(self)

    # ---- reporting and snapshots -------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        return {"task_type": "-".join(self.sim.order), "instance": self.kitchen.name}

    def metrics(self) -> dict[str, float]:
        totals = self.totals
        return {
            "discounted_return": totals.discounted_return,  # the "episodic return" of both papers
            "plain_return": totals.plain_return,
            "primitive_steps": float(totals.steps),
            "chopped": float(totals.chopped),
            "wrong_deliveries": float(totals.wrong_deliveries),
        }

    def extra_info(self) -> dict[str, Any]:
        return {"discount": self.settings.discount**self.primitive_steps, "env_step": self.totals.steps}

    def get_state(self) -> tuple[State, Totals]:
        return self.sim.save(), self.totals

    def set_state(self, state: tuple[State, Totals]) -> None:
        saved, self.totals = state
        self.sim.load(saved)

    def render(self) -> Any:
        """Renders the whole kitchen: `rgb_array` [rows * 48 + 22, columns * 48, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return picture.write(self.sim)
        caption = f"{listing(self.sim.order)} salad: step {self.totals.steps} of {self.settings.horizon}"
        return picture.draw(self.sim, caption)


@lru_cache(maxsize=8)
def _planner_of(variant: str, size: int, recipe: str, radius: int) -> SaladPlanner:
    kitchen = published_kitchen(variant, size)
    return SaladPlanner(Simulation(kitchen, recipe_foods(recipe), radius), macro_actions(kitchen))
