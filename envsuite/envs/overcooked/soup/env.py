"""Overcooked-AI: two cooks serve as many onion soups as they can in 400 steps (Carroll et al., 2019).

The five layouts and all rules are from version 1.1.0 of the package `overcooked_ai`, with which the engine agrees in
every compared state and reward (`benchmarks/overcooked_ai.md`). The texts are our own.

**Turns.** Both cooks act in the same step. The players are asked one after the other, cook 1 first, and the step takes
place after the second command: the first turn takes 0 primitive steps, and the second one takes 1 and pays the reward. A
cook does not see what the other one has decided. `partner` decides who commands cook 2.

**Success** means `goal` soups of three onions (default: one). Every game lasts until the horizon, and the
number of soups is in the metrics.

**Rewards.** `sparse` pays 1 at the horizon if the game is a success. `dense` is the package's reward: 20 for each served
soup, plus `shaping` times its shaped reward (3 for an onion put into a pot, 3 for taking a useful dish, 5 for taking a
soup). `shaping=0` leaves the reward that the papers report.
"""

from __future__ import annotations

from typing import Any, ClassVar

from envsuite.core import TextEnv, expert_script
from envsuite.envs.overcooked.soup import picture, text
from envsuite.envs.overcooked.soup.cooks import Crew
from envsuite.envs.overcooked.soup.engine import IDLE, MOST_ONIONS, SOUP, SOUP_REWARD, SoupKitchen, SoupState
from envsuite.envs.overcooked.soup.layout import COOKS, GRIDS, STAY, published
from envsuite.errors import UsageError
from envsuite.messages import Mailbox, split_message
from envsuite.types import Knob, Outcome

OVER = "The time is up. You served {}."
PLAYED = ("policy", "team")
"""Values of `partner` under which players command both cooks."""


class SoupEnv(TextEnv):
    """A kitchen where two cooks make onion soups at once. Rules: docs/envs/overcooked.md."""

    knobs = (
        Knob("layout", "cramped_room", "published layout", choices=tuple(GRIDS)),
        Knob("partner", "policy", "who commands cook 2; team: each cook has a player of its own",
             choices=("policy", "team", "expert", "greedy", "random", "stay")),
        Knob("say", False, "partner=team: a cook may add a message to its command, which the other one reads"),
        Knob("cooking", "interact", "interact: a cook starts a pot, as in version 1.1.0 of the package; automatic: a "
             "full pot starts by itself, as in the paper", choices=("interact", "automatic")),
        Knob("cook_time", 20, "steps until a soup is done", low=1, high=1_000),
        Knob("horizon", 400, "steps of both cooks until the end", low=1, high=10_000),
        Knob("goal", 1, "soups that make a game a success", low=1, high=1_000),
        Knob("shaping", 1.0, "dense: factor of the package's shaped rewards", low=0.0, high=10.0),
        Knob("max_steps", 800, "commands until truncation; a step takes two commands if players command both cooks",
             low=1),
    )  # fmt: skip
    experts: ClassVar[tuple[str, ...]] = ("", "greedy")
    team_knobs: ClassVar[dict[str, Any]] = {"partner": "team"}
    absent_knobs: ClassVar[dict[str, str]] = {"cooks": "There are always two cooks: set partner."}
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 8}

    state: SoupState

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        knobs = self.settings
        if knobs.say and knobs.partner != "team":
            raise UsageError(f"say=true needs cooks with players of their own: partner=team, not {knobs.partner}.")
        self.kitchen = SoupKitchen(published(knobs.layout), knobs.cook_time, knobs.cooking == "automatic")
        self.instructions = text.instructions(self.kitchen, knobs.horizon, knobs.partner != "policy", knobs.say)
        self._crews: dict[str, Crew] = {}

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self.state = self.kitchen.start()
        self.active_cook = 0
        self._first = STAY  # command of cook 1, until cook 2 has given its own
        self.soups, self.shaped_return = 0, 0.0
        self._mail = Mailbox(COOKS, "Cook")
        self._refusals: dict[int, str] = {}  # cook -> reply to its invalid command, until its next turn
        self.objective = text.objective(self.settings.horizon, self.settings.goal)
        return self._describe()

    def _act(self, command: str) -> Outcome:
        settings, cook = self.settings, self.active_cook
        if settings.say:
            command, message = split_message(command)
            self._mail.tell(cook, message)
        action = text.action_of(command)
        if action is None:
            self._refusals[cook] = text.UNKNOWN + "\n"
        own = STAY if action is None else action
        self.primitive_steps = 0
        reward = 0.0
        if settings.partner not in PLAYED:
            reward = self._step((own, self._partner()))
        elif cook == 0:
            self._first, self.active_cook = own, 1
        else:
            reward = self._step((self._first, own))
            self._first, self.active_cook = STAY, 0
        valid = action is not None
        if self.state.time >= settings.horizon:
            served = "no soup" if not self.soups else "1 soup" if self.soups == 1 else f"{self.soups} soups"
            return Outcome(OVER.format(served), reward, True, self.soups >= settings.goal, valid, self._progress())
        described = self._describe()
        if heard := self._mail.hear(self.active_cook):
            described = f"{heard.rstrip()}\n{described}"
        return Outcome(
            self._refusals.pop(self.active_cook, "") + described, reward, False, False, valid, self._progress()
        )

    def _step(self, actions: tuple[int, int]) -> float:
        """Runs a step of both cooks and returns the dense reward."""
        step = self.kitchen.step(self.state, actions)
        self.state, self.primitive_steps = step.state, 1
        served, shaped = sum(step.served), sum(step.shaped)
        self.soups += served // SOUP_REWARD
        self.shaped_return += shaped
        return served + self.settings.shaping * shaped

    def _partner(self) -> int:
        """Returns the action of cook 2 if no player commands it."""
        partner = self.settings.partner
        if partner == "stay":
            return STAY
        if partner == "random":
            return int(self.die().integers(len(text.COMMANDS)))
        return self._crew("greedy" if partner == "greedy" else "").actions(self.state)[1]

    def _describe(self) -> str:
        return text.observation(self.kitchen, self.state, self.active_cook, self.soups, self.settings.horizon)

    def _progress(self) -> float:
        """Returns the share of the way to the goal: whole soups, and the stage of the best soup in progress."""
        if self.soups >= self.settings.goal:
            return 1.0
        stage = 0.0
        for onions, clock in self.state.pots:
            if clock == IDLE or onions == MOST_ONIONS:
                stage = max(stage, onions + (clock != IDLE))
        if SOUP + MOST_ONIONS in (*self.state.hands, *self.state.counters):
            stage = MOST_ONIONS + 2
        return (self.soups + stage / (MOST_ONIONS + 3)) / self.settings.goal

    # ---- players ---------------------------------------------------------------------------------------------------

    def admissible(self) -> list[str]:
        return list(text.COMMANDS)

    def idle(self) -> str:
        return "stay"

    def expert(self, kind: str = "") -> str | None:
        if self._over:
            return None
        return text.NAMES[self._crew(kind).actions(self.state)[self.active_cook]]

    def _crew(self, kind: str) -> Crew:
        if kind not in self._crews:
            self._crews[kind] = Crew(self.kitchen, alone=kind == "greedy")
        return self._crews[kind]

    def blind_script(self) -> list[str]:
        """Returns the expert's game, as every game of a layout begins in the same way."""
        return expert_script(self)

    @classmethod
    def agents(cls, settings: dict[str, Any]) -> int:
        return COOKS if settings["partner"] == "team" else 1

    # ---- reporting and snapshots -----------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        return {"task_type": self.settings.layout, "instance": self.settings.layout}

    def metrics(self) -> dict[str, float]:
        return {
            "soups": float(self.soups),
            "soup_return": float(SOUP_REWARD * self.soups),  # the reward that the papers report
            "shaped_return": self.shaped_return,
            "primitive_steps": float(self.state.time),
        }

    def extra_info(self) -> dict[str, Any]:
        info = {"env_step": self.state.time, "soups": self.soups}
        return {**info, "agent": self.active_cook + 1} if self.settings.partner == "team" else info

    def get_state(self) -> Any:
        return (
            self.state,
            self.active_cook,
            self._first,
            self.soups,
            self.shaped_return,
            (dict(self._refusals), self._mail.save()),
        )

    def set_state(self, state: Any) -> None:
        self.state, self.active_cook, self._first, self.soups, self.shaped_return, (refusals, unread) = state
        self._refusals = dict(refusals)
        self._mail.load(unread)

    def render(self) -> Any:
        """Renders the kitchen: `rgb_array` [rows * 48 + 22, columns * 48, 3] uint8, or `ansi` text."""
        if self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return self._describe()
        return picture.draw(self.kitchen, self.state, self.soups)
