"""VirtualHome: household tasks in words, with two hands (TWOSOME, Tan et al., 2024; POAD, Wen et al., 2024).

The agent walks between rooms and to things, takes and puts them, opens, closes and switches them, sits and stands up.
There is no physics and no path-finding: every room is one walk away. `task` is one of the eight published tasks, or
`household`, which is drawn from the seed.

**mode=published** reproduces every state, observation, offered command, reward and fact of the reference
(docs/specs/virtualhome.md), including its quirks: Entertainment succeeds when the agent sits in front of the running tv
with chips and milk nearby or on the coffee table, and the other seven tasks succeed when food is closed away in an
appliance. The optimal discounted returns (0.95 per command) are 0.773781 and 0.598737. The text states the published
facts in our own words, does not mention refused commands, and ends in a clause that a command completes. Every action
of the task is executed; `admissible_commands` lists those that the papers offer. Episodes are truncated at 50 commands,
where the papers treat this as a regular end.

**mode=fixed** (default) corrects the following points, each pinned by a test:
1. Heating succeeds when the food is in the running appliance with its door closed, not when it is out of sight.
2. Dishes are washed in the kitchen's dishwasher and clothes in the bathroom's washing machine; the published tasks
   "heat" them.
3. Every offered command works; the published tasks offer walks to things in other rooms, and switching with full hands.
4. There are no dead ends: a seated agent can stand up, and goals stay reachable whatever has happened.
5. Standing up leaves the seat; in the published tasks the agent stays on the sofa, facing the tv, until it walks.
6. Carried things move with the agent; in the published tasks they stay one room behind, and walking to one of them
   returns the agent to that room.
7. The text describes the actual state (things on the table, whether the tv is on) and the reason of a refusal.

**Rewards.** `sparse`, the published reward, pays 1 for the command that completes the task. `dense` is our own: each
subgoal (a thing in hand, a thing in place, a switch) pays its share once, 1 in total, so it cannot be farmed. `shaped`
adds the potential of the exact planner, which counts all commands, offered or not. In every reward mode,
`metrics["discounted_return"]` is the figure of the papers: 0.95**(t-1) for success at command t, else 0.

**Parts.** A goal of several parts reads "First ... Then ...". A part counts as soon as its conditions hold and all
earlier parts have counted, and it stays counted.

**Difficulty** grows with more rooms, objects and distractors, more things in closed containers (`hidden`), a smaller
field of view (`sight`), longer goals (`goal_length`), and content that never occurs in training (`split`:
unseen_object, unseen_appliance, unseen_goal, unseen_home).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.core import expert_script
from envsuite.envs.virtualhome.base import HomeEnv
from envsuite.envs.virtualhome.blind import blind_commands
from envsuite.envs.virtualhome.games import FixedGame, PublishedGame, fixed_game
from envsuite.envs.virtualhome.generator import SPLITS, HouseholdSettings, draw, goal_classes
from envsuite.envs.virtualhome.menu import LEVELS
from envsuite.envs.virtualhome.rules.published import paper_tasks
from envsuite.envs.virtualhome.text import TOOLS
from envsuite.errors import BadKnob
from envsuite.types import Knob

INSTRUCTIONS = """\
You are in a home with several rooms. You have two hands, each for one thing, and you act by short commands:

go to the ROOM or THING; take the THING; put the THING in the CONTAINER; put the THING on the SURFACE; open the THING; close the THING; switch on the THING; switch off the THING; sit on the SEAT; stand up.

You must go to a thing before you can do anything to it. Opening, taking and switching need a free hand. What is shut away in something closed is neither seen nor taken before that is opened."""

SIGHT = {
    "home": " You can tell what is in every room, but only go to things in the room you are in.",
    "room": " You notice only what is in the room you are in.",
    "spot": " You notice only the furniture of the room you are in, and loose things only where you stand.",
}

APPLIANCES = """

An appliance works on what is in it or on it: switch it on, its door shut if it has one, and switch it off before you open it. A fridge or freezer works as soon as it is closed. While you sit, you can go nowhere."""


class VirtualHomeEnv(HomeEnv):
    """A home in which the player does one household task. Rules: docs/envs/virtualhome.md."""

    knobs = (
        Knob("task", "food_preparation", "a published task, or a household drawn from the seed",
             choices=(*paper_tasks(), "household")),
        Knob("mode", "fixed", "published: with all quirks; fixed: with corrected rules", choices=("fixed", "published")),
        Knob("sight", "room", "fixed: field of view: home, room, or loose objects only from their furniture",
             choices=("home", "room", "spot")),
        Knob("rooms", 4, "household: number of rooms", low=2, high=8),
        Knob("objects", 12, "household: number of loose objects, including those of the goal", low=1, high=50),
        Knob("distractors", 3, "household: other objects of the same categories as the goal's", low=0, high=20),
        Knob("hidden", 0.3, "household: fraction of objects that start in closed containers", low=0.0, high=1.0),
        Knob("surprise", 1.0, "household: fraction of objects that start anywhere, not where people keep them",
             low=0.0, high=1.0),
        Knob("goal_length", 1, "household: number of consecutive parts of the goal", low=1, high=4),
        Knob("goals", (), "household: goal classes; empty: all of the split", choices=goal_classes()),
        Knob("split", "train", "household: training content, or what is unseen in training", choices=SPLITS),
        Knob("max_steps", 50, "commands until the episode is truncated", low=1),
    )  # fmt: skip
    ranges = {"dense": (0.0, 1.0), "discounted_return": (0.0, 1.0)}
    levels = LEVELS
    tools = TOOLS
    experts: ClassVar[tuple[str, ...]] = ("",)

    game: PublishedGame | FixedGame

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.settings
        published = settings.mode == "published"
        if published and settings.task == "household":
            raise BadKnob(
                "Knob 'mode' cannot be 'published' for task 'household', which is not a published task: use mode=fixed."
            )
        if published and settings.sight != "room":
            raise BadKnob(f"Knob 'sight' cannot be {settings.sight!r} for mode 'published': use mode=fixed.")
        if settings.sight == "spot" and settings.task != "household":
            raise BadKnob(
                f"Knob 'sight' cannot be 'spot' for task {settings.task!r}, whose things stand where nobody can stop: "
                "use room or home."
            )
        if settings.split == "unseen_goal" and (seen := sorted(set(settings.goals) & set(goal_classes(unseen=False)))):
            raise BadKnob(
                f"Knob 'goals' cannot have {', '.join(seen)} in split 'unseen_goal': training has these classes. "
                f"Held-out classes are {', '.join(goal_classes(unseen=True))}."
            )
        self.instructions = INSTRUCTIONS + SIGHT[settings.sight] + ("" if published else APPLIANCES)
        if settings.task == "household":
            names = ("rooms", "objects", "distractors", "hidden", "goal_length", "goals", "split", "surprise")
            self._household_settings = HouseholdSettings(**{name: getattr(settings, name) for name in names})
            draw(0, self._household_settings)  # reject impossible settings before the first reset
        else:
            self.game = PublishedGame(settings.task) if published else fixed_game(settings.task, settings.sight)

    def _draw_game(self, seed: int) -> PublishedGame | FixedGame:
        if self.settings.task != "household":
            return self.game  # every episode starts alike
        household = draw(seed, self._household_settings)
        labels = {"split": self.settings.split, "home": f"{len(household.home.rooms)}-{household.plan}"}
        return FixedGame(household.home, household.goal, self.settings.sight, labels)

    def expert(self, kind: str = "") -> str | None:
        return self.game.plan()[1]

    def blind_script(self) -> Sequence[str]:
        """Returns the expert's plan for the published tasks, and a script that reads only the goal in a household."""
        if isinstance(self.game, PublishedGame) or self.settings.task != "household":
            return expert_script(self)
        return blind_commands(self.game.goal, open_storage=self.settings.hidden > 0)

    def labels(self) -> dict[str, str]:
        return {**self.game.labels, "instance": self.objective}
