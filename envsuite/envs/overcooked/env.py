"""Overcooked: fetch food, chop it, fill a bowl and serve it, by macro-actions (TWOSOME, 2024; POAD, 2024).

A cook is told in words what lies within `radius` cells, and commands macro-actions ("fetch the tomato"), each of which
takes one or more primitive steps. The rules are those of docs/specs/overcooked.md; the published kitchens agree with its
traces and complete graphs in every state, primitive path, reward, fact and offer.

**What pays.** `sparse`: 1 for serving the order. `dense`, as published, per primitive step: +0.2 when a food of the
order has been chopped, +1 for the right dish, -0.1 for any other delivery, -0.001 for the step; inside a macro-action
discounted by `discount` (0.99 as published, 1 for the plain sum). `info["primitive_steps"]` is k and `info["discount"]`
is discount**k, the factor an SMDP learner gives the next value. `shaped`: sparse plus the potential of the exact
planner.

**The dense reward can be farmed**: a food is paid for each time it is chopped, and a wrong delivery sends it home raw,
so chop, hand in bare, repeat nets +0.1 a round. Undiscounted, the best tomato salad player makes 51 commands for a
return of 1.901, where the straight way gives 1.172; lettuce and tomato: 2.003 against 1.355. With 0.99 for each
primitive step the straight way is best (0.920518 and 0.947656); with 0.99 for each command farming is best again.
`shaped` has no such optimum.

**Harder** is: more foods in the order, fewer boards, larger kitchens with walls, a small `radius`, slips, several
cooks.

**Wording.** `published` offers every macro-action always, under labels that promise more than they keep ("hand in the
dish" with a raw tomato); any is carried out. `honest` offers only what gets something done and says what; the rest is
refused.

**Several cooks** (2 or 3) are asked in turn as each ends a macro-action, while the others go on; commands given at the
same moment take no time between them (`primitive_steps` 0). `partner` fills all places but the first: `policy` asks the
same player for them too. The reward is the team's. Cooks cannot share a cell; they walk round each other, and where
there is no short way round, change places. At the horizon walks under way are cut.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.overcooked import picture
from envsuite.envs.overcooked.cooks import Menu, farsighted_cook, greedy_cook, random_cook
from envsuite.envs.overcooked.engine import CHOP, GO_TO_COUNTER, Macro, Simulation, macro_actions
from envsuite.envs.overcooked.generator import kitchen_and_order, kitchen_of_the_papers
from envsuite.envs.overcooked.kitchen import UNREACHABLE, Kitchen, all_foods, recipe_foods, recipe_names
from envsuite.envs.overcooked.menu import LEVELS
from envsuite.envs.overcooked.motion import CHOPS, Rewards, State
from envsuite.envs.overcooked.offers import helps, honest_label, published_label, situation
from envsuite.envs.overcooked.planner import Plan, Planner
from envsuite.envs.overcooked.text import (
    INSTRUCTIONS,
    TEAM,
    Fact,
    commands,
    facts,
    listing,
    normalise,
    phrase,
    sentence,
    vector,
)
from envsuite.errors import UsageError
from envsuite.types import Knob, Outcome, RewardMode, StopReason

KEPT = 20_000  # texts of states kept
PAPER_GAMMA = 0.99  # per primitive step, in the return both papers print


def power_sums(factor: float, length: int = 400) -> list[float]:
    """[n]: 1 + factor + ... + factor**(n - 1); no walk is longer than `length`."""
    return [0.0, *accumulate(factor**power for power in range(length))]


PAPER_SUMS = power_sums(PAPER_GAMMA)


class OvercookedEnv(TextEnv):
    """One order in one kitchen. See the module's docstring for rules and rewards."""

    knobs = (
        Knob("recipe", "tomato", "the order; random draws one from the seed", choices=(*recipe_names(), "random")),
        Knob("layout", "a", "a published map, open (a), divided (b) or with a gap (c), or one drawn from the seed",
             choices=("a", "b", "c", "random")),
        Knob("variant", "v4", "published maps: tomato only (v4), all foods (v3), all foods and two bowls (v1)",
             choices=("v1", "v3", "v4")),
        Knob("size", 7, "cells along a side; published maps have 7 or 9", low=5, high=15),
        Knob("cooks", 1, "cooks in the kitchen", low=1, high=3),
        Knob("partner", "policy", "who plays the cooks after the first",
             choices=("policy", "expert", "greedy", "random")),
        Knob("foods", 3, "random layout: kinds of food, those of the order at least", low=1, high=len(all_foods())),
        Knob("boards", 2, "random layout: cutting boards", low=1, high=4),
        Knob("bowls", 1, "random layout: bowls", low=1, high=3),
        Knob("deliveries", 1, "random layout: delivery counters", low=1, high=3),
        Knob("walls", 0.1, "random layout: share of the inner cells that are counters", low=0.0, high=0.4),
        Knob("recipe_size", 2, "recipe=random: foods in the order", low=1, high=4),
        Knob("radius", 2, "cells a cook sees in each direction", low=1, high=15),
        Knob("horizon", 200, "primitive steps until no further command is asked for", low=1, high=10_000),
        Knob("slip", 0.0, "chance that a primitive step fails and the cook stays", low=0.0, high=0.9),
        Knob("wording", "published", "all commands always, or those that do something",
             choices=("published", "honest")),
        Knob("discount", PAPER_GAMMA, "dense: factor for each primitive step inside a command; 1 is the plain sum",
             low=0.0, high=1.0),
        Knob("step_cost", 0.001, "dense: taken off for each primitive step", low=0.0, high=1.0),
        Knob("chop_reward", 0.2, "dense: for each chopped food of the order", low=0.0, high=10.0),
        Knob("wrong_cost", 0.1, "dense: taken off for a wrong delivery", low=0.0, high=10.0),
        Knob("max_steps", 600, "commands until truncation; the horizon usually comes first", low=1),
    )  # fmt: skip
    levels = LEVELS
    experts: ClassVar[tuple[str, ...]] = ("", "greedy")
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}

    sim: Simulation
    kitchen: Kitchen

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = self.settings
        if self.reward_mode is RewardMode.SHAPED and given.cooks > 1:
            raise UsageError(
                f"Shaped rewards need the exact planner, which plans for 1 cook, not {given.cooks}: use dense."
            )
        self.instructions = INSTRUCTIONS + (TEAM if given.cooks > 1 else "")
        self._kitchen_name = ""
        self._shape: tuple[Any, ...] = ()
        self._menus: dict[tuple[Any, ...], tuple[Menu, dict[str, Macro]]] = {}
        self._planners: dict[int, Planner] = {}
        self._sentences: dict[Fact, str] = {}
        self._told: dict[tuple[int, State], tuple[str, tuple[str, ...]]] = {}
        self._horizon = given.horizon
        self._sums = power_sums(given.discount)
        self._chance = given.slip > 0 or (given.cooks > 1 and given.partner == "random")
        self._honest = given.wording == "honest"
        self._offered: dict[tuple[Any, ...], tuple[str, ...]] = {}
        if given.layout != "random":  # say at once what cannot be
            kitchen_of_the_papers(given, given.recipe if given.recipe != "random" else "tomato")

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        given = self.settings
        kitchen, recipe = kitchen_and_order(given, seed)
        if self._kitchen_name != (name := f"{kitchen.name} {'-'.join(recipe)}"):
            self._kitchen_name, self.kitchen = name, kitchen
            rewards = Rewards(chop=given.chop_reward, wrong=given.wrong_cost)
            self.sim = Simulation(kitchen, recipe, rewards, given.radius)
            self._shape = shape = kitchen.foods, len(kitchen.bowl_homes), len(kitchen.boards)
            if shape not in self._menus:
                menu = Menu(macro_actions(kitchen, counters=given.layout != "a"))
                self._menus[shape] = menu, commands(menu.macros, *shape)
            self.menu, self._commands = self._menus[shape]
            self._planners, self._told = {}, {}
            foods = listing([f"chopped {food}" for food in recipe])
            self.objective = f"Hand in one bowl with {foods} and nothing else."
        self.sim.reset()
        self.time = 0
        self.discounted_return = self.plain_return = 0.0
        self.chopped = self.wrong = 0
        self.asked = 0
        self.progression = 0.0
        return self._tell()

    def _act(self, command: str) -> Outcome:
        sim = self.sim
        macro = self._commands.get(command) or self._commands.get(normalise(command))
        prefix, valid = "", False
        if macro is None:
            prefix = "Nobody here knows that command. "
        elif self._honest and command not in self._offers and not helps(sim, self.asked, macro):
            prefix, macro = "That would get nothing done now. ", None
        if macro is None:
            sim.begin(self.asked, WAIT)
        else:
            sim.begin(self.asked, macro)
            valid = helps(sim, self.asked, macro) or self._walks(macro)
        before = sim.touched
        reward = self._run()
        progress = self._progress() if sim.touched != before else None
        done = sim.delivered
        truncated = not done and self.time >= self._horizon
        reason = StopReason.MAX_STEPS if truncated else None
        return Outcome(prefix + self._tell(), reward, done, done, valid, progress, truncated, reason)

    def _walks(self, macro: Macro) -> bool:
        """Whether an empty-handed cook walks somewhere by the macro-action just begun, or waits for others."""
        sim, cook = self.sim, self.asked
        if macro.verb == CHOP:
            return len(sim.cell) > 1
        if sim.hand[cook] >= 0:
            return False
        target = sim.target(cook)
        return target >= 0 and 1 < sim.kitchen.way(target).steps[sim.cell[cook]] < UNREACHABLE

    def _run(self) -> float:
        """Lets time pass until one of the policy's cooks must be asked or the order is served; its dense reward."""
        sim, given = self.sim, self.settings
        cost, discount = given.step_cost, given.discount
        dice = self.die() if self._chance else None
        if dice is not None and given.slip:
            sim.slips = lambda: bool(dice.random() < given.slip)
        total, factor, paper, steps = 0.0, 1.0, PAPER_GAMMA**self.time, 0
        plain, discounted = self.plain_return, self.discounted_return
        lone = len(sim.cell) == 1
        if lone and (steps := sim.hasten()):
            total -= cost * self._sums[steps]
            plain -= cost * steps
            discounted -= paper * cost * PAPER_SUMS[steps]
            factor = discount**steps
            paper *= PAPER_GAMMA**steps
        while sim.macro[0] is not None if lone else not self._someone_waits(dice, steps):
            gain = sim.tick() - cost
            total += factor * gain
            plain += gain
            discounted += paper * gain
            factor *= discount
            paper *= PAPER_GAMMA
            steps += 1
            self.chopped += sim.chopped_now
            self.wrong += sim.wrong_now
        self.plain_return, self.discounted_return = plain, discounted
        self.time += steps
        self.primitive_steps = steps
        return total

    def _someone_waits(self, dice: np.random.Generator | None, elapsed: int) -> bool:
        """Sets `asked` to the first of the policy's cooks without a macro-action; gives scripted cooks theirs."""
        sim = self.sim
        if sim.delivered:
            return True
        if self.time + elapsed >= self._horizon:  # with several, walks under way are cut
            return True
        scripted = self.settings.partner != "policy"
        for cook, macro in enumerate(sim.macro):
            if macro is None:
                if cook == 0 or not scripted:
                    self.asked = cook
                    return True
                sim.begin(cook, self._partner(cook, dice))
        return False

    def _partner(self, cook: int, dice: np.random.Generator | None) -> Macro:
        if dice is not None and self.settings.partner == "random":
            return random_cook(self.sim, cook, self.menu, dice)
        if self.settings.partner == "expert":
            return self._expert(cook)
        return greedy_cook(self.sim, cook, self.menu)

    def _progress(self) -> float:
        """Share of the order done: each food chopped, each in a bowl that holds nothing else, the dish served."""
        sim = self.sim
        if sim.delivered:
            return 1.0
        done = best = 0
        for food in sim.recipe:
            done += sim.chops[food] >= CHOPS
        for foods in sim.contents:
            if len(foods) > best and sim.recipe.issuperset(foods):
                best = len(foods)
        return (done + best) / (2 * len(sim.recipe) + 1)

    # ---- what is told and offered ----------------------------------------------------------------------------------

    def _tell(self) -> str:
        """What the asked cook is told; sets its offers. Texts of states met before in this kitchen are kept."""
        sim, cook = self.sim, self.asked
        key = (cook, sim.save())
        kept = self._told.get(key)
        if kept is None:
            if len(self._told) >= KEPT:
                self._told.clear()
            kept = self._told[key] = " ".join(map(self._say, facts(sim, cook))), self._offer()
        text, self._offers = kept
        return text

    def _say(self, fact: Fact) -> str:
        said = self._sentences.get(fact)
        if said is None:  # the number of boards is the same in every episode, as the knobs are
            said = self._sentences[fact] = sentence(fact, len(self.kitchen.boards))
        return said

    def _offer(self) -> tuple[str, ...]:
        """The commands on offer, in macro-action order."""
        sim, cook = self.sim, self.asked
        if self._honest:
            labels = [label for macro in self.menu.macros if (label := honest_label(sim, cook, macro)) is not None]
            waiting = ("wait",) if self.settings.cooks > 1 or not labels else ()
            return (*map(phrase, labels), *waiting)
        key = (self._shape, *situation(sim, cook))
        offers = self._offered.get(key)
        if offers is None:
            labels = [published_label(sim, cook, macro) for macro in self.menu.macros]
            offers = self._offered[key] = tuple(map(phrase, labels))
        return offers

    def admissible(self) -> list[str]:
        return list(self._offers)

    def vector(self) -> list[int]:
        """Returns the present cook's published vector of raw integers (docs/specs/overcooked.md, "Observation")."""
        names = recipe_names()
        recipe = {self.kitchen.foods[food] for food in self.sim.recipe}
        return vector(self.sim, self.asked, [int(set(recipe_foods(name)) == recipe) for name in names])

    # ---- the expert ------------------------------------------------------------------------------------------------

    def plan(self, cook: int = 0) -> Plan | None:
        """The shortest solution from here for one cook, the others standing still; None where it has none."""
        planner = self._planners.get(cook)
        if planner is None:
            planner = self._planners[cook] = Planner(self.sim, self.menu.macros, cook)
        return planner.plan(self.sim.save())

    def _expert(self, cook: int) -> Macro:
        """The exact plan for a lone cook; for several, the best macro-action by playing on."""
        if len(self.sim.cell) > 1:
            return farsighted_cook(self.sim, cook, self.menu)
        found = self.plan(cook)
        return greedy_cook(self.sim, cook, self.menu) if found is None or found.first is None else found.first

    def expert(self, kind: str = "") -> str | None:
        if self.sim.delivered:
            return None
        macro = greedy_cook(self.sim, self.asked, self.menu) if kind == "greedy" else self._expert(self.asked)
        label = (honest_label if self._honest else published_label)(self.sim, self.asked, macro)
        return "wait" if label is None else phrase(label)

    def remaining(self) -> int | None:
        found = self.plan()
        return None if found is None else found.commands

    # ---- what is reported ------------------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        recipe = "-".join(food for i, food in enumerate(self.kitchen.foods) if i in self.sim.recipe)
        return {"task_type": recipe, "instance": self.kitchen.name}

    def metrics(self) -> dict[str, float]:
        return {
            "discounted_return": self.discounted_return,  # 0.99 per primitive step: "episodic return" in both papers
            "plain_return": self.plain_return,
            "primitive_steps": float(self.time),
            "chopped": float(self.chopped),
            "wrong_deliveries": float(self.wrong),
        }

    def extra_info(self) -> dict[str, Any]:
        return {"discount": self.settings.discount**self.primitive_steps, "env_step": self.time}

    def get_state(self) -> Any:
        """The state, walks under way and the tally included."""
        tally = self.discounted_return, self.plain_return, self.chopped, self.wrong
        return self.sim.save(), self.sim.under_way(), self.time, self.asked, tally

    def set_state(self, state: Any) -> None:
        saved, under_way, self.time, self.asked, tally = state
        self.sim.load(saved)
        self.sim.resume(under_way)
        self.discounted_return, self.plain_return, self.chopped, self.wrong = tally
        self._tell()

    def render(self) -> Any:
        """The whole kitchen: `rgb_array` [rows * 48 + 22, columns * 48, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return picture.write(self.sim)
        caption = f"{listing(self.sim.order)} salad: step {self.time} of {self._horizon}"
        return picture.draw(self.sim, self.asked, caption)


WAIT = Macro(GO_TO_COUNTER, -1, "wait")
"""One primitive step in place: the price of a command that nobody understands."""
