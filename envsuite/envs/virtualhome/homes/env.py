"""VirtualHome in homes drawn from a seed: household tasks that need a look around.

The published rules apply with their faults corrected (`rules.py`), and:

* Objects start where people keep them, except for the share `surprise`, and goals ask for sensible places.
* Goals can leave the choice ("put a drink on the desk"). With `logic` they also count ("two drinks"), negate ("leave
  nothing on the table", "but not the milk") and prefer ("the novel or, half as good, the atlas").
* "First ... then" is ordered: a part counts only when it is done after the part before it (`goals.py`).
* The player walks to rooms and furniture, not to loose things, so it must find out where things are.
* Observations report what a command changed; `look around` describes the room, and `view=full` does so every turn.
* Home, sentences and structure of a game belong to one split (`structure.py`); the seed decides which.
* Success takes at least 5 commands.

**Rewards.** `sparse` pays 1 for the command that completes the task. `dense` pays milestones (a thing in hand, in its
appliance, treated, in place; a switch; the end of a part), each once and 1 in total. The second of two preferences
completes the task, too, and earns half of its part. `shaped` uses the planner, which meets all preferences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.envs.virtualhome.base import HomeEnv
from envsuite.envs.virtualhome.homes.classes import SPLITS, DrawSettings
from envsuite.envs.virtualhome.homes.game import HomeGame
from envsuite.envs.virtualhome.homes.generator import draw_home
from envsuite.envs.virtualhome.homes.players.blind import blind_commands
from envsuite.envs.virtualhome.homes.text import HOME_TOOLS
from envsuite.envs.virtualhome.homes.vocabulary import goal_classes
from envsuite.envs.virtualhome.menu import LEVELS
from envsuite.types import Knob

INSTRUCTIONS = """\
You are in a home with several rooms. You have two hands, each for one thing, and you act by short commands:

go to ROOM or FURNITURE; take THING; put THING in CONTAINER; put THING on SURFACE; open FURNITURE; close FURNITURE; switch on DEVICE; switch off DEVICE; sit on SEAT; stand up; look around.

Go to a piece of furniture before you use it or what is on or in it. Opening, taking and switching need a free hand. Parentheses tell what is on or in a piece of furniture. What is in closed furniture is seen and taken only after opening it.{sight}

An appliance works on what is in it or on it: switch it on, its door shut if it has one, and switch it off before you open it. A fridge or freezer works as soon as it is closed. While you sit, you can go nowhere.

A task names a thing by its noun or its kind. A command needs the whole name, for example "steel mug" for the mug.

The parts of a task count one after the other. A part is done by the first command in its turn that makes all it asks \
for true at the same time. If all of it is true already when its turn comes, undo some of it and do it again. What an \
appliance did to a thing before the part's turn is forgotten.{logic}"""
LOGIC = """

"Two" things are at least two. "Leave nothing" means nothing loose; what you hold does not count. "But not the X" means \
that X must not be where you put the others; where you carry something to a room, X only does not count. Of two \
choices, either completes its part; prefer the first if the second is called "half as good"."""
SIGHT = {
    "room": " You notice all loose things in the room that are not shut away.",
    "spot": " You notice loose things only at the furniture where you stand.",
}


class DrawnHomeEnv(HomeEnv):
    """A drawn home in which the player does one household task. Rules: docs/envs/virtualhome.md."""

    knobs = (
        Knob("sight", "spot", "field of view: loose objects of the room, or only those at the same furniture",
             choices=("room", "spot")),
        Knob("view", "news", "observations: what a command changed, or the whole room every turn",
             choices=("news", "full")),
        Knob("rooms", 4, "number of rooms", low=2, high=8),
        Knob("objects", 12, "number of loose objects, including those of the goal", low=1, high=50),
        Knob("distractors", 3, "other objects of the same categories as the goal's", low=0, high=20),
        Knob("hidden", 0.3, "fraction of objects that start in closed furniture, if that is usual for them",
             low=0.0, high=1.0),
        Knob("surprise", 0.0, "fraction of objects that start anywhere, not where people keep them", low=0.0, high=1.0),
        Knob("goal_length", 1, "number of consecutive parts of the goal", low=1, high=4),
        Knob("logic", False, "goals with counts, negation and preference; every goal has such a part"),
        Knob("goals", (), "goal classes; empty: all of the split, and of `logic`", choices=goal_classes()),
        Knob("split", "train", "training content, or what is unseen in training", choices=SPLITS),
        Knob("max_steps", 50, "commands until the episode is truncated", low=1),
    )  # fmt: skip
    ranges = {"dense": (0.0, 1.0), "discounted_return": (0.0, 1.0), "preferred": (0.0, 1.0)}
    levels = LEVELS
    tools = HOME_TOOLS
    experts: ClassVar[tuple[str, ...]] = ("", "partial")

    game: HomeGame

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.settings
        self._draw_settings = DrawSettings(**{name: getattr(settings, name) for name in DrawSettings._fields})
        self.instructions = INSTRUCTIONS.format(sight=SIGHT[settings.sight], logic=LOGIC if settings.logic else "")
        draw_home(1_000_000, self._draw_settings)  # reject impossible settings before the first reset

    def _game_of(self, seed: int) -> HomeGame:
        drawn = draw_home(seed, self._draw_settings)
        return HomeGame(drawn, self.settings.sight == "spot", self.settings.view == "full")

    def expert(self, kind: str = "") -> str | None:
        """Returns the next command of the exact planner, or for `partial` of the expert that searches."""
        return self.game.search() if kind == "partial" else self.game.plan()[1]

    def blind_script(self) -> Sequence[str]:
        """Returns a script that reads only the goal and knows what homes are like."""
        return blind_commands(self.game.goal, self.settings.max_steps)

    def labels(self) -> dict[str, str]:
        home = f"{len(self.game.home.rooms)}-{self.game.drawn.plan}"
        task = {"task_type": self.game.goal.name, "split": self.settings.split, "home": home}
        return {**task, "instance": self.objective}

    def metrics(self) -> dict[str, float]:
        values = super().metrics()
        if preferences := self.game.preferences:
            values["preferred"] = sum(preferences) / len(preferences)
        return values
