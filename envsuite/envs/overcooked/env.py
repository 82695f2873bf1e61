"""Overcooked: fetch food, chop it, fill a bowl and serve it with macro-actions (TWOSOME, 2024; POAD, 2024).

The observation describes in words everything within `radius` cells of a cook. The player answers with a macro-action
("fetch the tomato"), which takes one or more primitive steps. docs/specs/overcooked.md states the rules. In the
published kitchens every state, path, reward, fact and offered command equals the reference environment's.

**Rewards.** `sparse` pays 1 for serving the order. `dense` is the published reward per primitive step: +0.2 when a food
of the order becomes chopped, +1 for the right dish, -0.1 for any other delivery, and -0.001 for the step. Inside a
macro-action these rewards are discounted by `discount` (0.99 as published; 1 gives the plain sum).
`info["primitive_steps"]` is the number k of primitive steps, and `info["discount"]` is discount**k, the factor that an
SMDP learner applies to the next value. `shaped` adds a potential from the exact planner to the sparse reward.

**The dense reward can be farmed.** Each chopping of a food is paid, and a wrong delivery returns the food raw to its
place, so the cycle "chop, deliver without a bowl" earns +0.1 per round. docs/envs/overcooked.md has the best returns by
discount. `shaped` has no such cycle if `shaping_gamma` and `shaping_unit` are the learner's.

**Difficulty** grows with more foods in the order, fewer boards, larger kitchens with walls, a smaller `radius`, slips,
and several cooks.

**Wording.** `published` always offers every macro-action, under labels that can promise more than the action does
("hand in the dish" while holding a raw tomato), and executes all of them. `honest` offers only macro-actions that
change something, whose labels describe the effect, and refuses the others.

**Several cooks** (2 or 3) receive commands in turn, each when its macro-action ends, while the others keep moving.
Commands given at the same moment take no time between them (`primitive_steps` is 0). `partner` decides who commands the
cooks after the first; with `policy` the player commands them too, and with `team` each cook has its own player. The
team shares one reward. Two cooks never occupy
one cell: they walk around each other, or swap cells where every detour is long. Walks in progress end at the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.core import expert_script
from envsuite.envs.overcooked import picture
from envsuite.envs.overcooked.cooks import Menu, blind_commands, greedy_cook
from envsuite.envs.overcooked.engine import Macro, Simulation, macro_actions
from envsuite.envs.overcooked.generator import kitchen_and_order, published_kitchen_and_order
from envsuite.envs.overcooked.kitchen import Kitchen, all_foods, recipe_foods, recipe_names
from envsuite.envs.overcooked.menu import LEVELS
from envsuite.envs.overcooked.motion import Rewards, State
from envsuite.envs.overcooked.offers import helps, honest_label, label_state, published_label
from envsuite.envs.overcooked.planner import Planner
from envsuite.envs.overcooked.rounds import PAPER_GAMMA, WAIT, Rounds, power_sums
from envsuite.envs.overcooked.team import Team, expert_commands, scripts_of
from envsuite.envs.overcooked.text import (
    INSTRUCTIONS,
    Fact,
    commands,
    facts,
    listing,
    normalise,
    phrase,
    sentence,
    team_rules,
    vector,
)
from envsuite.errors import UsageError
from envsuite.messages import split_message
from envsuite.types import Knob, Outcome, RewardMode, StopReason

MAX_CACHED_TEXTS = 20_000  # state descriptions kept in memory


class OvercookedEnv(Rounds):
    """A kitchen where cooks prepare and serve one order. Rules: docs/envs/overcooked.md."""

    knobs = (
        Knob("recipe", "tomato", "the order; random draws it from the seed", choices=(*recipe_names(), "random")),
        Knob("layout", "a", "published map: open (a), divided (b), with a gap (c); random: drawn from the seed",
             choices=("a", "b", "c", "random")),
        Knob("variant", "v4", "published maps: tomato only (v4), all foods (v3), all foods and two bowls (v1)",
             choices=("v1", "v3", "v4")),
        Knob("size", 7, "cells per side; published maps have 7 or 9", low=5, high=15),
        Knob("cooks", 1, "cooks in the kitchen", low=1, high=3),
        Knob("partner", "policy", "who controls the cooks after the first; team: each cook has a player of its own",
             choices=("policy", "team", "expert", "greedy", "random")),
        Knob("say", False, "partner=team: a cook may add a message to its command, which the others read"),
        Knob("realtime", False, "several cooks: every player is asked before each primitive step"),
        Knob("foods", 3, "random layout: kinds of food, at least those in the order", low=1, high=len(all_foods())),
        Knob("boards", 2, "random layout: cutting boards", low=1, high=4),
        Knob("bowls", 1, "random layout: bowls", low=1, high=3),
        Knob("deliveries", 1, "random layout: delivery counters", low=1, high=3),
        Knob("walls", 0.1, "random layout: fraction of the inner cells that are counters", low=0.0, high=0.4),
        Knob("recipe_size", 2, "recipe=random: foods in the order", low=1, high=4),
        Knob("radius", 2, "cells a cook sees in each direction", low=1, high=15),
        Knob("horizon", 200, "primitive steps after which no further command starts", low=1, high=10_000),
        Knob("slip", 0.0, "probability that a primitive step fails and the cook stays in place", low=0.0, high=0.9),
        Knob("wording", "published", "published: all commands, always; honest: only commands that change something",
             choices=("published", "honest")),
        Knob("texts", "v0", "v1: a cook is told only its own mistakes, and the last text says that the order was served",
             choices=("v0", "v1")),
        Knob("discount", PAPER_GAMMA, "dense: discount per primitive step inside a command; 1 gives the plain sum",
             low=0.0, high=1.0),
        Knob("step_cost", 0.001, "dense: subtracted for each primitive step", low=0.0, high=1.0),
        Knob("chop_reward", 0.2, "dense: for each chopped food of the order", low=0.0, high=10.0),
        Knob("wrong_cost", 0.1, "dense: subtracted for a wrong delivery", low=0.0, high=10.0),
        Knob("max_steps", 600, "commands until truncation; the horizon usually ends the episode first", low=1),
    )  # fmt: skip
    levels = LEVELS
    experts: ClassVar[tuple[str, ...]] = ("", "greedy")
    team_knobs: ClassVar[dict[str, Any]] = {"partner": "team"}
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}

    sim: Simulation
    kitchen: Kitchen

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.settings
        if self.reward_mode is RewardMode.SHAPED and settings.cooks > 1:
            raise UsageError(
                f"Shaped rewards need the exact planner, which plans for 1 cook, not {settings.cooks}: use dense."
            )
        if settings.cooks == 1 and (settings.realtime or settings.partner == "team"):
            raise UsageError("One cook is no team: set cooks=2 or cooks=3, or remove realtime and partner=team.")
        if settings.say and settings.partner != "team":
            raise UsageError(f"say=true needs cooks with players of their own: partner=team, not {settings.partner}.")
        own = settings.partner == "team"
        self.instructions = INSTRUCTIONS + (
            team_rules(own, settings.say, settings.realtime) if settings.cooks > 1 else ""
        )
        self._kitchen_name = ""
        self._shape: tuple[Any, ...] = ()
        self._menus: dict[tuple[Any, ...], tuple[Menu, dict[str, Macro]]] = {}
        self._planners: dict[int, Planner] = {}
        self._sentences: dict[Fact, str] = {}
        self._descriptions: dict[tuple[int, State], tuple[str, tuple[str, ...]]] = {}
        self._horizon = settings.horizon
        self._sums = power_sums(settings.discount)
        self._stochastic = settings.slip > 0 or (settings.cooks > 1 and settings.partner == "random")
        self._honest = settings.wording == "honest"
        self._offered: dict[tuple[Any, ...], tuple[str, ...]] = {}
        if settings.layout != "random":  # reject impossible settings before the first reset
            published_kitchen_and_order(settings, settings.recipe if settings.recipe != "random" else "tomato")

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        settings = self.settings
        kitchen, recipe = self._drawn_game(seed)
        if self._kitchen_name != (name := f"{kitchen.name} {'-'.join(recipe)}"):
            self._kitchen_name, self.kitchen = name, kitchen
            rewards = Rewards(chop=settings.chop_reward, wrong=settings.wrong_cost)
            self.sim = Simulation(kitchen, recipe, rewards, settings.radius)
            self._shape = shape = kitchen.foods, len(kitchen.bowl_homes), len(kitchen.boards)
            if shape not in self._menus:
                menu = Menu(macro_actions(kitchen, counters=settings.layout != "a"))
                self._menus[shape] = menu, commands(menu.macros, *shape)
            self.menu, self._commands = self._menus[shape]
            self._planners, self._descriptions = {}, {}
            foods = listing([f"chopped {food}" for food in recipe])
            self.objective = f"Hand in one bowl with {foods} and nothing else."
        self.sim.reset()
        self.time = 0
        self.discounted_return = self.plain_return = 0.0
        self.chopped = self.wrong = 0
        self.active_cook = 0
        self.team = Team(settings.cooks)
        self._scripts: list[Sequence[str]] = []  # of the blind players in this episode, by cook
        return self._describe()

    def _draw_game(self, seed: int) -> tuple[Kitchen, tuple[str, ...]]:
        return kitchen_and_order(self.settings, seed)

    def _act(self, command: str) -> Outcome:
        sim, settings, team, cook = self.sim, self.settings, self.team, self.active_cook
        own = settings.partner == "team"
        if own and settings.say:
            command, message = split_message(command)
            team.tell(cook, message)
        macro = self._commands.get(command) or self._commands.get(normalise(command))
        prefix, valid = "", False
        going_on = macro is not None and macro == sim.macro[cook]  # in real time
        if own or settings.realtime:
            team.given[cook] += not going_on
        if macro is None:
            prefix = "Nobody here knows that command. "
        elif self._honest and command not in self._offers and not helps(sim, cook, macro) and not going_on:
            prefix, macro = "That would get nothing done now. ", None
        if macro is None:
            sim.begin(cook, WAIT)
        else:
            if not going_on:
                sim.begin(cook, macro)
            valid = going_on or helps(sim, cook, macro) or self._walks(macro)
        team.due.discard(cook)
        before = sim.touched
        reward = self._run()
        progress = self._progress() if sim.touched != before else None
        done = sim.delivered
        truncated = not done and self.time >= self._horizon
        reason = StopReason.MAX_STEPS if truncated else None
        text = self._describe()
        if own or settings.texts == "v1":
            if prefix:
                team.refusals[cook] = prefix
            prefix = team.refusals.pop(self.active_cook, "")
        if settings.texts == "v1" and done:
            text = SERVED
        elif own:
            prefix += team.hear(self.active_cook)
        return Outcome(prefix + text, reward, done, done, valid, progress, truncated, reason)

    # ---- observations and offered commands -----------------------------------------------------------------------

    def _describe(self) -> str:
        """Returns the active cook's observation and sets its offered commands; both are cached per state."""
        sim, cook = self.sim, self.active_cook
        key = (cook, sim.save())
        description = self._descriptions.get(key)
        if description is None:
            if len(self._descriptions) >= MAX_CACHED_TEXTS:
                self._descriptions.clear()
            description = self._descriptions[key] = " ".join(map(self._sentence_of, facts(sim, cook))), self._offer()
        text, self._offers = description
        return text

    def _sentence_of(self, fact: Fact) -> str:
        text = self._sentences.get(fact)
        if text is None:  # the number of boards follows from the knobs, so the cache stays valid across episodes
            text = self._sentences[fact] = sentence(fact, len(self.kitchen.boards), self.settings.texts)
        return text

    def _offer(self) -> tuple[str, ...]:
        """Returns the offered commands in the order of the macro-actions."""
        sim, cook = self.sim, self.active_cook
        if self._honest:
            labels = [label for macro in self.menu.macros if (label := honest_label(sim, cook, macro)) is not None]
            waiting = ("wait",) if self.settings.cooks > 1 or not labels else ()
            return (*map(phrase, labels), *waiting)
        key = (self._shape, *label_state(sim, cook))
        offers = self._offered.get(key)
        if offers is None:
            labels = [published_label(sim, cook, macro) for macro in self.menu.macros]
            offers = self._offered[key] = tuple(map(phrase, labels))
        return offers

    def admissible(self) -> list[str]:
        return list(self._offers)

    def vector(self) -> list[int]:
        """Returns the active cook's published observation vector (docs/specs/overcooked.md, "Observation")."""
        names = recipe_names()
        recipe = {self.kitchen.foods[food] for food in self.sim.recipe}
        return vector(self.sim, self.active_cook, [int(set(recipe_foods(name)) == recipe) for name in names])

    # ---- the expert ------------------------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        if self.sim.delivered:
            return None
        cook = self.active_cook
        macro = self.sim.macro[cook]
        if macro is not None:  # in real time: go on
            return macro.name
        macro = greedy_cook(self.sim, cook, self.menu) if kind == "greedy" else self._expert(cook)
        label = (honest_label if self._honest else published_label)(self.sim, cook, macro)
        return "wait" if label is None else phrase(label)

    def blind_script(self) -> Sequence[str]:
        """Returns the expert's plan in a published kitchen, and a script that reads only the order in a drawn one."""
        settings = self.settings
        if settings.layout != "random":
            return expert_script(self)
        if settings.cooks > 1 and settings.partner == "policy":
            return ()  # whose turn it is depends on the kitchen
        return blind_commands(self.sim.order, settings.boards)

    def blind(self) -> str | None:
        """Returns the blind player's next command. In a team, every cook has a script of its own.

        In a published kitchen it is that cook's part of the experts' game. In real time, it goes on with a command
        until that ends.
        """
        settings, cook = self.settings, self.active_cook
        published = settings.layout != "random"
        if settings.partner != "team" and (published or not settings.realtime):
            return super().blind()
        if (running := self.sim.macro[cook]) is not None:
            return running.name
        if not self._scripts:
            cooks = settings.cooks
            self._scripts = scripts_of(expert_commands(self), cooks) if published else [self.blind_script()] * cooks
        script = self._scripts[cook]
        return script[self.team.given[cook] % len(script)] if script else None

    @classmethod
    def agents(cls, settings: dict[str, Any]) -> int:
        return int(settings["cooks"]) if settings["partner"] == "team" else 1

    def remaining(self) -> int | None:
        plan = self.plan()
        return None if plan is None else plan.commands

    # ---- reporting and snapshots -------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        recipe = "-".join(food for i, food in enumerate(self.kitchen.foods) if i in self.sim.recipe)
        return {"task_type": recipe, "instance": self.kitchen.name}

    def metrics(self) -> dict[str, float]:
        return {
            # 0.99 per primitive step: the "episodic return" of both papers
            "discounted_return": self.discounted_return,
            "plain_return": self.plain_return,
            "primitive_steps": float(self.time),
            "chopped": float(self.chopped),
            "wrong_deliveries": float(self.wrong),
        }

    def extra_info(self) -> dict[str, Any]:
        info = {"discount": self.settings.discount**self.primitive_steps, "env_step": self.time}
        return {**info, "agent": self.active_cook + 1} if self.settings.partner == "team" else info

    def get_state(self) -> Any:
        """Returns a snapshot of the episode, including macro-actions in progress and the running totals."""
        tally = self.discounted_return, self.plain_return, self.chopped, self.wrong
        return self.sim.save(), self.sim.in_progress(), self.time, self.active_cook, tally, self.team.save()

    def set_state(self, state: Any) -> None:
        saved, in_progress, self.time, self.active_cook, tally, team = state
        self.team.load(team)
        self.sim.load(saved)
        self.sim.resume(in_progress)
        self.discounted_return, self.plain_return, self.chopped, self.wrong = tally
        self._describe()

    def render(self) -> Any:
        """Renders the whole kitchen: `rgb_array` [rows * 48 + 22, columns * 48, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return picture.write(self.sim)
        caption = f"{listing(self.sim.order)} salad: step {self.time} of {self._horizon}"
        return picture.draw(self.sim, self.active_cook, caption)


SERVED = "The dish is handed in just as it was ordered."
"""Last text of a solved episode under texts=v1."""
