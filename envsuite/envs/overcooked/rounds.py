"""Rounds of Overcooked: the primitive steps between two commands, and the cooks that nobody commands."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.overcooked.cooks import Menu, greedy_cook, lookahead_cook, random_cook
from envsuite.envs.overcooked.engine import CHOP, GO_TO_COUNTER, Macro, Simulation
from envsuite.envs.overcooked.kitchen import UNREACHABLE
from envsuite.envs.overcooked.motion import CHOPS
from envsuite.envs.overcooked.planner import Plan, Planner
from envsuite.envs.overcooked.team import Team

WAIT = Macro(GO_TO_COUNTER, -1, "wait")
"""Macro-action of one primitive step in place, executed for a command that cannot be parsed."""

PLAYED = ("policy", "team")
"""Values of `partner` under which players command all cooks."""
PAPER_GAMMA = 0.99  # discount per primitive step in the return that both papers report


def power_sums(factor: float, length: int = 400) -> list[float]:
    """Returns the sums 1 + factor + ... + factor**(n - 1) for n = 0 to `length`, the longest possible walk."""
    return [0.0, *accumulate(factor**power for power in range(length))]


PAPER_SUMS = power_sums(PAPER_GAMMA)


class Rounds(TextEnv):
    """Base class of the environment: advances the kitchen until a cook of the policy needs a command."""

    sim: Simulation
    menu: Menu
    team: Team
    time: int
    discounted_return: float
    plain_return: float
    chopped: int
    wrong: int
    active_cook: int
    primitive_steps: int
    skipped_steps: int
    step_gains: list[float]
    _sums: list[float]
    _horizon: int
    _stochastic: bool
    _planners: dict[int, Planner]

    def _walks(self, macro: Macro) -> bool:
        """Returns True if the new macro-action makes an empty-handed cook walk, or wait for other cooks."""
        sim, cook = self.sim, self.active_cook
        if macro.verb == CHOP:
            return len(sim.cell) > 1
        if sim.hand[cook] >= 0:
            return False
        target = sim.target(cook)
        return target >= 0 and 1 < sim.kitchen.way(target).steps[sim.cell[cook]] < UNREACHABLE

    def _run(self) -> float:
        """Simulates until a cook of the policy needs a command or the order is served. Returns the dense reward."""
        sim, settings = self.sim, self.settings
        cost, discount = settings.step_cost, settings.discount
        rng = self.die() if self._stochastic else None
        if rng is not None and settings.slip:
            sim.slips = lambda: bool(rng.random() < settings.slip)
        total, factor, paper, steps = 0.0, 1.0, PAPER_GAMMA**self.time, 0
        plain, discounted = self.plain_return, self.discounted_return
        single = len(sim.cell) == 1
        if single and (steps := sim.fast_forward()):
            total -= cost * self._sums[steps]
            plain -= cost * steps
            discounted -= paper * cost * PAPER_SUMS[steps]
            factor = discount**steps
            paper *= PAPER_GAMMA**steps
        self.skipped_steps, gains = steps, list[float]()
        while sim.macro[0] is not None if single else not self._needs_command(rng, steps):
            gain = sim.tick() - cost
            gains.append(gain)
            total += factor * gain
            plain += gain
            discounted += paper * gain
            factor *= discount
            paper *= PAPER_GAMMA
            steps += 1
            self.chopped += sim.chopped_now
            self.wrong += sim.wrong_now
            if settings.realtime:
                self.team.due = set(range(len(sim.cell))) if settings.partner in PLAYED else {0}
        self.plain_return, self.discounted_return = plain, discounted
        self.time, self.primitive_steps, self.step_gains = self.time + steps, steps, gains
        return total

    def _needs_command(self, rng: np.random.Generator | None, elapsed: int) -> bool:
        """Returns True once a player must act or the episode is over; commands the scripted cooks on the way.

        Sets `active_cook` to the first of the players' cooks that has no macro-action or, in real time, that was not
        asked since the last primitive step.
        """
        sim = self.sim
        if sim.delivered:
            return True
        if self.time + elapsed >= self._horizon:  # with several cooks, walks in progress end here
            return True
        scripted = self.settings.partner not in PLAYED
        for cook, macro in enumerate(sim.macro):
            if macro is None or cook in self.team.due:
                if cook == 0 or not scripted:
                    self.active_cook = cook
                    return True
                sim.begin(cook, self._partner(cook, rng))
        return False

    def _partner(self, cook: int, rng: np.random.Generator | None) -> Macro:
        if rng is not None and self.settings.partner == "random":
            return random_cook(self.sim, cook, self.menu, rng)
        if self.settings.partner == "expert":
            return self._expert(cook)
        return greedy_cook(self.sim, cook, self.menu)

    def _progress(self) -> float:
        """Returns the completed fraction of the order, from 0 to 1.

        Chopping a food, putting it in a bowl that holds only foods of the order, and serving count as one part each.
        """
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

    def plan(self, cook: int = 0) -> Plan | None:
        """Returns the shortest plan for one cook while the others stand still, or None if there is none."""
        planner = self._planners.get(cook)
        if planner is None:
            planner = self._planners[cook] = Planner(self.sim, self.menu.macros, cook)
        return planner.plan(self.sim.save())

    def _expert(self, cook: int) -> Macro:
        """Returns the expert's macro-action: the exact plan for a single cook, one-step lookahead for several."""
        if len(self.sim.cell) > 1:
            return lookahead_cook(self.sim, cook, self.menu)
        plan = self.plan(cook)
        if plan is None or plan.first is None:
            return greedy_cook(self.sim, cook, self.menu)
        return plan.first
