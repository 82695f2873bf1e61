"""VirtualHome: household tasks in words, with two hands (TWOSOME, Tan et al., 2024; POAD, Wen et al., 2024).

One walks between rooms and to things, takes and puts them, opens, closes and switches, sits and stands. There is no
physics and no path-finding: any room is one walk away. `task` is one of the papers' eight, or `household`, drawn from
the seed.

**mode=published** follows the reference in every state, observation, offer, reward and fact (docs/specs/virtualhome.md), its
quirks included: Entertainment is done by sitting before a running tv with chips and milk near or on the coffee table,
the other seven by shutting food away in an appliance. Optimal discounted returns (0.95 per command): 0.773781 and
0.598737. The text tells the published facts in our words and nothing of what was refused, and ends in a clause that a
command completes. All actions of the task are carried out; `admissible_commands` are those the papers offer. At 50
commands it is truncated, where the papers call that an end like any other.

**mode=fixed** (default) mends, each point pinned by a test:
1. heating is done when the food is in the running appliance with its door shut, not when it is out of sight;
2. dishes are washed in the kitchen's dishwasher, clothes in the bathroom's washing machine; published, they are
   "heated";
3. every offered command works; published, walks to things in another room are offered, and switching with full hands;
4. nothing is a dead end: standing up is offered to whoever sits, and goals stay possible whatever has been done;
5. standing up leaves the seat; published, one stays on the sofa and faces the tv until one walks;
6. what one carries comes along; published, it stays one room behind, and walking to it throws one back there;
7. the text tells what is so (what stands on the table, whether the tv is on) and why a command was refused.

**What pays.** `sparse`, the published reward: 1 for the command that completes the task. `dense` is ours: each subgoal
on the way (a thing in hand, a thing in place, a switch) pays its share the first time only, 1 in all, so it cannot be
farmed. `shaped`: sparse plus the potential of the exact planner; the planner counts all commands, offered or not.
`metrics["discounted_return"]` is the papers' figure, 0.95**(t-1) for success at command t, else 0, whatever the reward
mode.

**Parts.** A goal of several parts is told as "First ... Then ...": a part counts once its state holds and the parts
before it have counted, and stays counted.

**Harder** is: more rooms, objects and distractors, more shut away (`hidden`), less in sight (`sight`), longer goals
(`goal_length`), and what training never had (`split`: unseen_object, unseen_appliance, unseen_goal, unseen_home).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar

from envsuite.core import TextEnv
from envsuite.envs.virtualhome.games import MendedGame, PublishedGame, fixed_game
from envsuite.envs.virtualhome.generator import SPLITS, Wishes, draw, goal_classes
from envsuite.envs.virtualhome.menu import LEVELS
from envsuite.envs.virtualhome.published import GAMMA, paper_tasks
from envsuite.errors import BadKnob
from envsuite.types import Knob, Outcome

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

KEPT = 8  # households whose plans and text are remembered, for repeated attempts at one seed


class VirtualHomeEnv(TextEnv):
    """One task in one home. See the module's docstring for rules and rewards."""

    knobs = (
        Knob("task", "food_preparation", "a paper's task, or a household drawn from the seed",
             choices=(*paper_tasks(), "household")),
        Knob("mode", "fixed", "as published, quirks included, or mended", choices=("fixed", "published")),
        Knob("sight", "room", "fixed: what is seen: the whole home, the room, or loose things only from beside them",
             choices=("home", "room", "spot")),
        Knob("rooms", 4, "household: rooms", low=2, high=8),
        Knob("objects", 12, "household: loose objects, those of the goal included", low=1, high=50),
        Knob("distractors", 3, "household: how many of them are of the same sorts as the goal's", low=0, high=20),
        Knob("hidden", 0.3, "household: share of objects that start shut away", low=0.0, high=1.0),
        Knob("goal_length", 1, "household: parts of the goal, one after the other", low=1, high=4),
        Knob("goals", (), "household: goal classes to draw from; all of the split unless told", choices=goal_classes()),
        Knob("split", "train", "household: what is drawn from what training never has", choices=SPLITS),
        Knob("max_steps", 50, "commands until the episode is truncated", low=1),
    )  # fmt: skip
    levels = LEVELS
    experts: ClassVar[tuple[str, ...]] = ("",)
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 2}

    game: PublishedGame | MendedGame

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = self.settings
        published = given.mode == "published"
        if published and given.task == "household":
            raise BadKnob("Knob 'mode' cannot be 'published' for task 'household', which no paper has: use mode=fixed.")
        if published and given.sight != "room":
            raise BadKnob(f"Knob 'sight' cannot be {given.sight!r} for mode 'published': use mode=fixed.")
        self.instructions = INSTRUCTIONS + SIGHT[given.sight] + ("" if published else APPLIANCES)
        self._drawn: OrderedDict[int, MendedGame] = OrderedDict()
        if given.task == "household":
            names = ("rooms", "objects", "distractors", "hidden", "goal_length", "goals", "split")
            self._wishes = Wishes(**{name: getattr(given, name) for name in names})
            draw(0, self._wishes)  # say at once what cannot be
        else:
            self.game = PublishedGame(given.task) if published else fixed_game(given.task, given.sight)

    def _reset(self, seed: int) -> str:
        if self.settings.task == "household":
            self.game = self._household(seed)
        self.objective = self.game.objective
        return self.game.begin()

    def _household(self, seed: int) -> MendedGame:
        """The game of a seed, kept for the next attempt at it."""
        game = self._drawn.get(seed)
        if game is None:
            found = draw(seed, self._wishes)
            labels = {"split": self.settings.split, "home": f"{len(found.home.rooms)}-{found.plan}"}
            game = self._drawn[seed] = MendedGame(found.home, found.goal, self.settings.sight, labels)
            if len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
        return game

    def _act(self, command: str) -> Outcome:
        return self.game.act(command)

    def admissible(self) -> list[str]:
        return self.game.admissible()

    def expert(self, kind: str = "") -> str | None:
        return self.game.plan()[1]

    def remaining(self) -> int | None:
        return self.game.plan()[0]

    def labels(self) -> dict[str, str]:
        return {**self.game.labels, "instance": self.objective}

    def metrics(self) -> dict[str, float]:
        return {"discounted_return": GAMMA ** (self.turn - 1) if self.success else 0.0}

    def get_state(self) -> Any:
        """The state of the game, with the seed whose household it belongs to."""
        return self.episode_seed, self.game.save()

    def set_state(self, state: Any) -> None:
        seed, saved = state
        if self.settings.task == "household":
            self.game = self._household(seed)
            self.objective = self.game.objective
        self.game.load(saved)

    def render(self) -> Any:
        """The home: `rgb_array` [height, width, 3] uint8, or `ansi` text. None without a render mode."""
        if self.render_mode is None:
            return None
        from envsuite.envs.virtualhome import picture  # pillow, on first use

        draw_or_write = picture.draw if self.render_mode == "rgb_array" else picture.write
        return draw_or_write(self.game.engine, self.game.state, self.objective)
