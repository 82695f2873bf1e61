"""VirtualHome: the household tasks of two papers in words, with two hands (TWOSOME, 2024; POAD, 2024).

The agent walks between rooms and to things, takes and puts them, opens, closes and switches them, sits and stands up.
There is no physics and no path-finding: every room is one walk away.

Every state, observation, offered command, reward and fact of the reference is reproduced (docs/specs/virtualhome.md),
including its quirks: Entertainment succeeds when the agent sits in front of the running tv with chips and milk nearby
or on the coffee table, and the other seven tasks succeed when food is closed away in an appliance. The optimal
discounted returns (0.95 per command) are 0.773781 and 0.598737. The text states the published facts in our own words,
does not mention refused commands, and ends in a clause that a command completes. Every action of the task is executed;
`admissible_commands` lists those that the papers offer. Episodes are truncated at 50 commands, where the papers treat
this as a regular end.

**Rewards.** `sparse`, the published reward, pays 1 for the command that completes the task. `dense` is our own: each
subgoal (a thing in hand, a thing in place, a switch) pays its share once, 1 in total, so it cannot be farmed. `shaped`
adds the potential of the exact solutions, which count all commands, offered or not. In every reward mode,
`metrics["discounted_return"]` is the figure of the papers: 0.95**(t-1) for success at command t, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from envsuite.core import expert_script
from envsuite.envs.virtualhome.base import HomeEnv
from envsuite.envs.virtualhome.published.game import PublishedGame
from envsuite.envs.virtualhome.published.tasks import paper_tasks
from envsuite.envs.virtualhome.text import TOOLS
from envsuite.types import Knob

INSTRUCTIONS = """\
You are in a home with several rooms. You have two hands, each for one thing, and you act by short commands:

go to the ROOM or THING; take the THING; put the THING in the CONTAINER; put the THING on the SURFACE; open the THING; close the THING; switch on the THING; switch off the THING; sit on the SEAT; stand up.

You must go to a thing before you can do anything to it. Opening, taking and switching need a free hand. What is shut away in something closed is neither seen nor taken before that is opened. You notice only what is in the room you are in."""


class PublishedEnv(HomeEnv):
    """A home in which the player does one of the eight published tasks. Rules: docs/envs/virtualhome.md."""

    knobs = (
        Knob("task", "food_preparation", "a published task", choices=paper_tasks()),
        Knob("max_steps", 50, "commands until the episode is truncated", low=1),
    )
    ranges = {"dense": (0.0, 1.0), "discounted_return": (0.0, 1.0)}
    tools = TOOLS
    experts: ClassVar[tuple[str, ...]] = ("",)
    instructions = INSTRUCTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.game = PublishedGame(self.settings.task)

    def _game_of(self, seed: int) -> PublishedGame:
        """Returns the one game: every episode starts alike."""
        game: PublishedGame = self.game
        return game

    def expert(self, kind: str = "") -> str | None:
        command: str | None = self.game.plan()[1]
        return command

    def blind_script(self) -> Sequence[str]:
        """Returns the expert's plan, because every episode starts alike."""
        return expert_script(self)

    def labels(self) -> dict[str, str]:
        return {"task_type": self.settings.task, "mode": "published", "instance": self.objective}
