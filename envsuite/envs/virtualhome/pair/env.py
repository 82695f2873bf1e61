"""VirtualHome for two agents with split knowledge: each has its own rooms, its own list, and sees only where it is.

A drawn home, with its furniture, common sense, commands and names, is divided: each agent has keys to its
own rooms and to one shared room. Every thing on an agent's list starts in the other one's rooms and belongs in the
agent's own rooms. So the agent that knows what is needed cannot reach it, and the one that can does not know what is
needed. They act in turn, agent 1 first, and can add a message to a command.

`partner` decides who commands agent 2. With `team` (default) each agent has a player and a conversation of its own. With
`policy` one player commands both in turn, and so knows both lists.

**Success**: everything on both lists has been put where it belongs. The errands have no order, and a done one stays done.

**Rewards.** `sparse` pays 1 for the last errand. `dense` pays four milestones of each errand (carried by the other agent,
laid down in the shared room, carried by its owner, done), each once and 1 in total.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, ClassVar

from envsuite.core import TextEnv
from envsuite.envs.virtualhome.homes.classes import DrawSettings
from envsuite.envs.virtualhome.homes.text import HOME_TOOLS, LOOK
from envsuite.envs.virtualhome.menu import PAIR_LEVELS
from envsuite.envs.virtualhome.pair.experts import ErrandExpert, blind_commands
from envsuite.envs.virtualhome.pair.game import SharedGame
from envsuite.envs.virtualhome.pair.generator import AGENTS, draw_shared_home
from envsuite.errors import UsageError
from envsuite.messages import Mailbox, split_message
from envsuite.tools import ACT
from envsuite.types import Knob, Outcome

MOST_CHARACTERS = 200
"""longest message"""
INSTRUCTIONS = """\
Two agents are in a home. Each has keys to its own rooms and to one shared room, and a list of things to put in place. \
The things on your list are in rooms of the other agent, which does not know your list, and the things on its list are \
in your rooms. Both lists must be done. You take turns and act by short commands:

go to ROOM or FURNITURE; take THING; put THING in CONTAINER; put THING on SURFACE; open FURNITURE; close FURNITURE; \
switch on DEVICE; switch off DEVICE; sit on SEAT; stand up; look around.

Go to a piece of furniture before you use it or what is on or in it. You have two hands, each for one thing. Opening, \
taking and switching need a free hand. Parentheses tell what is on or in a piece of furniture. What is in closed \
furniture is seen and taken only after opening it.{sight}

A list names a thing by its noun. A command needs the whole name, for example "steel mug" for the mug."""
SIGHT = {
    "room": " You notice all loose things in the room that are not shut away.",
    "spot": " You notice loose things only at the furniture where you stand.",
}
SAY = """

To tell the other agent something, add it to a command: "look around; say: Please bring the mug to the shared room." It \
reads the message before its next command."""
BOTH = """

You command both agents in turn; every observation begins with the number of the agent that you command next."""
ALL_DONE = "Everything is in its place."
PLAYED = ("policy", "team")
"""Values of `partner` under which players command both agents."""


class PairEnv(TextEnv):
    """A home in which two agents fetch things for each other. Rules: docs/envs/virtualhome.md."""

    knobs = (
        Knob("partner", "team", "who commands agent 2; team: each agent has a player of its own",
             choices=("policy", "team", "expert", "random", "idle")),
        Knob("say", True, "an agent may add a message to its command, which the other one reads; not for partner=policy"),
        Knob("sight", "spot", "field of view: loose objects of the room, or only those at the same furniture",
             choices=("room", "spot")),
        Knob("rooms", 5, "number of rooms, one of them shared", low=3, high=8),
        Knob("objects", 14, "number of loose objects, including those of the lists", low=1, high=50),
        Knob("distractors", 4, "other objects of the same categories as those of the lists", low=0, high=20),
        Knob("hidden", 0.3, "fraction of objects that start in closed furniture, if that is usual for them",
             low=0.0, high=1.0),
        Knob("errands", 2, "entries of both lists together", low=1, high=6),
        Knob("max_steps", 100, "commands of both agents until the episode is truncated", low=1),
    )  # fmt: skip
    ranges = {"dense": (0.0, 1.0), "errands": (0.0, 1.0)}
    levels = PAIR_LEVELS
    tools = HOME_TOOLS
    experts: ClassVar[tuple[str, ...]] = ("", "partial")
    team_knobs: ClassVar[dict[str, Any]] = {"partner": "team"}
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 2}

    game: SharedGame

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        knobs = self.settings
        if knobs.errands > knobs.objects:
            raise UsageError(f"{knobs.errands} errands need as many objects, and objects is {knobs.objects}: use more.")
        self._says = knobs.say and knobs.partner != "policy"
        self._drawn_with = DrawSettings(
            rooms=knobs.rooms, objects=knobs.objects, distractors=knobs.distractors, hidden=knobs.hidden,
            goal_length=knobs.errands,
        )  # fmt: skip
        self.instructions = INSTRUCTIONS.format(sight=SIGHT[knobs.sight])
        self.instructions += SAY if self._says else BOTH if knobs.partner == "policy" else ""
        if self._says:
            self.tools = (ACT,)  # tools with a place or a thing as arguments have none for a message
        draw_shared_home(1_000_000, self._drawn_with)  # reject impossible settings before the first reset

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self.game = SharedGame(draw_shared_home(seed, self._drawn_with), self.settings.sight == "spot")
        self.objective = "Do everything on both lists, yours and the other agent's."
        self.active = 0
        self._mail = Mailbox(AGENTS, "Agent")
        common = self.settings.partner == "policy"
        self._experts = [ErrandExpert(self.game, agent, common) for agent in range(AGENTS)]
        for agent_expert in self._experts:
            agent_expert.look()
        self._seen = [self.game.describe(agent) for agent in range(AGENTS)]
        """what each agent reads on its next turn"""
        return self._observation()

    def _observation(self) -> str:
        agent = self.active
        parts = (
            f"You are agent {agent + 1}.",
            self._mail.hear(agent).rstrip(),
            self._seen[agent],
            self.game.note(agent),
        )
        return " ".join(filter(None, parts))

    def _act(self, command: str) -> Outcome:
        before = self.game.progress
        valid = self._command(self.active, command)
        if self.settings.partner in PLAYED:
            self.active = (self.active + 1) % AGENTS
        elif not all(self.game.done):
            self._command(1, self._partner())
        now, success = self.game.progress, all(self.game.done)
        text = ALL_DONE if success else self._observation()
        return Outcome(text, now - before, success, success, valid, now)

    def _command(self, agent: int, command: str) -> bool:
        """Carries out an agent's command, with the message that it may have. Returns True if the command is valid."""
        if self._says:
            command, message = split_message(command, MOST_CHARACTERS)
            self._mail.tell(agent, message)
            self._experts[1 - agent].hear(message)
            self._experts[agent].asked |= bool(message)
        reply = self.game.act(agent, command)
        self._seen[agent] = reply.text
        self._experts[agent].look()
        return reply.valid

    def _partner(self) -> str:
        """Returns the command of agent 2 if no player commands it."""
        if self.settings.partner == "idle":
            return LOOK
        if self.settings.partner == "random":
            offers = self.game.offers(1)
            return offers[int(self.die().integers(len(offers)))]
        return self._advice(1)

    # ---- players ---------------------------------------------------------------------------------------------------

    def admissible(self) -> list[str]:
        return self.game.offers(self.active)

    def idle(self) -> str:
        return LOOK

    def expert(self, kind: str = "") -> str | None:
        return None if self._over else self._advice(self.active, kind)

    def _advice(self, agent: int, kind: str = "") -> str:
        command, message = self._experts[agent].next(searching=kind == "partial")
        return f"{command}; say: {message}" if message and self._says else command

    def blind_script(self) -> Sequence[str]:
        """Returns a script that reads both lists and the names of the rooms."""
        first, second = blind_commands(self.game)
        if self.settings.partner not in PLAYED:
            return first
        return list(chain.from_iterable(zip_longest(first, second, fillvalue=LOOK)))

    @classmethod
    def agents(cls, settings: dict[str, Any]) -> int:
        return AGENTS if settings["partner"] == "team" else 1

    # ---- reporting and snapshots -----------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        drawn = self.game.drawn
        lists = "; ".join(f"{errand.owner + 1}: {errand.text}" for errand in drawn.errands)
        return {"task_type": f"{len(drawn.errands)} errands", "home": f"{len(drawn.home.rooms)}-{drawn.plan}",
                "instance": lists}  # fmt: skip

    def metrics(self) -> dict[str, float]:
        return {"errands": sum(self.game.done) / len(self.game.done)}

    def extra_info(self) -> dict[str, Any]:
        return {"agent": self.active + 1} if self.settings.partner == "team" else {}

    def get_state(self) -> Any:
        experts = tuple(expert.save() for expert in self._experts)
        return self.episode_seed, self.active, self.game.save(), self._mail.save(), tuple(self._seen), experts

    def set_state(self, state: Any) -> None:
        seed, active, game, mail, seen, experts = state
        self._reset(seed)
        self.active = active
        self.game.load(game)
        self._mail.load(mail)
        self._seen = list(seen)
        for expert, saved in zip(self._experts, experts, strict=True):
            expert.load(saved)

    def render(self) -> Any:
        """Renders the home with the active agent: `rgb_array` [height, width, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        from envsuite.envs.virtualhome import picture  # pillow, on first use

        draw_or_write = picture.draw if self.render_mode == "rgb_array" else picture.write
        title = f"Agent {self.active + 1}. {self.game.note(self.active)}"
        return draw_or_write(self.game.home, self.game.state(self.active), title)
