"""BabyAI in words: a mission in a grid of rooms, of which the player is told what it sees.

A mission asks to go to, pick up, open or put next to each other things named by colour and kind, singly, joined by
"and", or in order ("then", "after you"). Six commands turn, walk, take, set down and toggle. The player sees a square
before it (7 x 7), not behind itself nor through walls and closed doors. Cells are facts of minigrid's engine; see view.py.

What pays: nothing before the mission is done. Sparse 1; dense minigrid's own 1 - 0.9 * steps / cap; so nothing can be
farmed. Shaped (local levels only) from the exact plan.

Harder means: larger rooms, more of them, more distractors, locked rooms, missions of several parts, a smaller view.

Worth knowing, all as in the reference: going to counts for the *place* of a target until something is set down; both
parts of a sequence may be done by one command; putting next to counts only when the named one is set down; toggling a box
destroys it (then `info["unsolvable"]` says so, and the episode goes on to its cap); a command that cannot be carried out
still costs a step. Source: Chevalier-Boisvert et al., 2019; text: Carta et al., 2023; splits as in docs/specs/babyai.md.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.babyai.levels import KINDS, LEVELS
from envsuite.envs.babyai.view import FORWARD, WORDINGS, describe, look
from envsuite.errors import EngineFailure, UsageError
from envsuite.types import Knob, Outcome, RewardMode

COMMANDS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""in minigrid's order: the position is the action"""
ALIASES = {
    "left": 0,
    "rotate left": 0,
    "right": 1,
    "rotate right": 1,
    "forward": 2,
    "move forward": 2,
    "move ahead": 2,
    "walk forward": 2,
    "go ahead": 2,
    "pickup": 3,
    "take": 3,
    "put down": 4,
    "release": 4,
    "switch": 5,
    "open": 5,
}
UNDERSTOOD = {**{command: action for action, command in enumerate(COMMANDS)}, **ALIASES}

INSTRUCTIONS = """You are in a world of square cells: rooms with walls and doors, and keys, balls and boxes in six colours.
You see what lies before you and beside you, up to {reach} steps ahead and {side} to each side, but not behind you, nor \
through walls and closed doors. What you see is told from where you stand: steps ahead, and steps to your left or right.
You face one way at a time and carry one thing at a time. Commands, one at a time:
- turn left, turn right: turn on the spot by a quarter
- go forward: one step; only an empty cell or an open door lets you through
- pick up: take the key, ball or box directly in front of you, if your hand is empty
- drop: set what you carry down in the empty cell directly in front of you
- toggle: open or close the door directly in front of you; a locked one opens if you carry the key of its colour. \
A toggled box is gone, and what was in it lies there
To go to a thing means to stand next to it and face it."""

VIEW = Knob("view", 7, "side of the square that is seen, an odd number", choices=(3, 5, 7, 9, 11, 13, 15))
WORDING = Knob("wording", "ours", "how the view is told; babyai-text: the exact text of BabyAI-Text", choices=WORDINGS)
ADMISSIBLE = Knob(
    "admissible",
    "applicable",
    "commands listed: those that would change something, or all six",
    choices=("applicable", "all"),
)
CAP = Knob("max_steps", 0, "commands until the episode is truncated; 0: the level's own cap", low=0, high=100_000)
COMMON = (VIEW, WORDING, ADMISSIBLE, CAP)


class BabyAI(TextEnv):
    """What all levels have in common; subclasses say which engine a seed is played on."""

    experts = ("", "planner")
    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}
    exact = False  # whether the planner's plan is the shortest there is

    def __init__(
        self,
        reward_mode: RewardMode | str = RewardMode.SPARSE,
        shaping_gamma: float = 0.99,
        render_mode: str | None = None,
        **knobs: Any,
    ) -> None:
        super().__init__(reward_mode, shaping_gamma, render_mode, **knobs)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"Render mode {render_mode!r} is not one of {', '.join(self.metadata['render_modes'])}.")
        # The model and the expert import minigrid too: all of it here, so that a missing package is told at once.
        from envsuite.envs.babyai import engine, expert, model, planner

        self._engines, self._model, self._planner, self._expert_module = engine, model, planner, expert
        view = self.settings.view
        self.instructions = INSTRUCTIONS.format(reach=view - 1, side=view // 2)
        self._cap = self.settings.max_steps
        self._built: dict[Any, Any] = {}
        self.engine: Any = None
        self._task_type = ""
        self.unsolvable = False

    @abstractmethod
    def _choose(self, seed: int) -> Any:
        """What of the engine's settings the seed decides; also the task type."""

    @abstractmethod
    def _build(self, chosen: Any) -> Any:
        """A new engine."""

    def _reset(self, seed: int) -> str:
        chosen = self._choose(seed)
        if chosen not in self._built:
            self._built[chosen] = self._build(chosen)
        self.engine = self._built[chosen]
        self.engine.reset(seed=seed)
        self.settings.max_steps = self.engine.max_steps
        self._task_type = str(chosen)
        self.objective = self.engine.mission[0].upper() + self.engine.mission[1:] + "."
        self._board = self._model.Board(self.engine)
        self._plans = self._planner.Planner(self._board, self.exact)
        self._guide = self._expert_module.Expert(self.engine, self._board, self._plans)
        self._destroyed = self.unsolvable = False
        return self._view()

    def _view(self) -> str:
        return describe(look(self.engine), self.settings.wording)

    def _act(self, command: str) -> Outcome:
        engine = self.engine
        action = understood(command)
        if action is None:
            engine.step_count += 1  # costs a step, but must not be judged: a mission may be done where one stands
            self._guide.follow(None)
            shown = "".join(c if c.isprintable() else "?" for c in command[:40])
            said = f"{shown!r} is not a command here. Say one of: {', '.join(COMMANDS)}.\n{self._view()}"
            return Outcome(said, valid=False, truncated=engine.step_count >= engine.max_steps)
        ahead = self._ahead()
        refused = self._refusal(action, ahead)
        self._destroyed |= action == 5 and ahead is not None and ahead.type == "box"
        _, reward, terminated, truncated, _ = engine.step(action)
        self._guide.follow(action)
        if self._destroyed and not terminated:
            self.unsolvable = self._board.lost(self._board.state(engine))
        text = self._view()
        if refused and self.settings.wording == "ours":
            text = f"{refused}\n{text}"
        # minigrid pays at least 0.1 for a mission done and 0 for one failed, and ends in no other way.
        return Outcome(
            text,
            reward=float(reward),
            done=terminated,
            success=terminated and reward > 0,
            valid=not refused,
            progression=self._board.share_done(*self._board.progress(engine.instrs)),
            truncated=truncated,
        )

    def _ahead(self) -> Any:
        grid, (x, y) = self.engine.grid, self.engine.agent_pos
        dx, dy = FORWARD[self.engine.agent_dir]
        return grid.grid[(int(y) + dy) * grid.width + int(x) + dx]

    def _refusal(self, action: int, ahead: Any) -> str:
        """Why an action would change nothing; '' where it would."""
        if action < 2:
            return ""
        held = self.engine.carrying
        if action == 2:
            return (
                "" if ahead is None or ahead.can_overlap() else f"You cannot go forward: {_name(ahead)} is in the way."
            )
        if action == 3:
            if ahead is None or not ahead.can_pickup():
                return "There is nothing to pick up directly in front of you."
            return f"Your hand is full: you carry a {held.color} {held.type}." if held is not None else ""
        if action == 4:
            if held is None:
                return "You carry nothing."
            return f"You cannot set it down here: {_name(ahead)} is in the way." if ahead is not None else ""
        if ahead is None or ahead.type not in ("door", "box"):
            return "There is nothing to toggle directly in front of you."
        has_key = held is not None and held.type == "key" and held.color == ahead.color
        if ahead.type == "door" and ahead.is_locked and not has_key:
            return f"The door is locked: it takes a {ahead.color} key in your hand."
        return ""

    def admissible(self) -> list[str]:
        if self.settings.admissible == "all":
            return list(COMMANDS)
        ahead = self._ahead()
        return [command for action, command in enumerate(COMMANDS) if not self._refusal(action, ahead)]

    def random_command(self, rng: np.random.Generator) -> str:
        """Any of the six commands, applicable or not: the random player of the papers."""
        return COMMANDS[int(rng.integers(len(COMMANDS)))]

    def expert(self, kind: str = "") -> str | None:
        """'': minigrid's bot, which explores, and the planner where it fails; 'planner': plans on the whole state."""
        action = self._guide.plan() if kind == "planner" else self._guide.advice()
        return None if action is None else COMMANDS[action]

    def labels(self) -> dict[str, str]:
        return {"task_type": self._task_type, "instance": self.engine.mission}

    def extra_info(self) -> dict[str, Any]:
        return {"unsolvable": self.unsolvable}

    def metrics(self) -> dict[str, float]:
        return {
            "return_minigrid": 1 - 0.9 * self.engine.step_count / self.engine.max_steps if self.success else 0.0,
            "rejected_layouts": float(self.engine.rejected),
            "impossible_layouts": float(self.engine.impossible),
        }

    def render(self) -> Any:
        """A picture [height, width, 3] of the whole level, or a map in letters."""
        if self.engine is None:
            return None
        if self.render_mode == "rgb_array":
            return self.engine.get_frame(tile_size=32)
        return f"{self.engine.mission}\n{self.engine.pprint_grid()}" if self.render_mode == "ansi" else None


class Level(BabyAI):
    """The levels minigrid registers, each at its own settings."""

    knobs = (Knob("level", "GoToLocal", "name of the level, as in BabyAI-<level>-v0", choices=LEVELS), *COMMON)
    levels = {
        "easy": {"level": "GoToLocal"},
        "medium": {"level": "MiniBossLevel"},
        "hard": {"level": "BossLevel"},
    }

    def _choose(self, seed: int) -> str:
        return str(self.settings.level)

    def _build(self, chosen: str) -> Any:
        return self._engines.build_level(chosen, self.settings.view, self._cap)


class Local(BabyAI):
    """The mixed local level of BabyAI-Text: five kinds of mission in one room (`open`: two), with an exact planner."""

    exact = True
    knobs = (
        Knob("kind", "mixed", "kind of mission; mixed: drawn evenly, by the seed", choices=("mixed", *KINDS)),
        Knob(
            "missions", "train", "train: none of the five held-out names; test: nothing else", choices=("train", "test")
        ),
        Knob("room_size", 8, "side of the room, walls included", low=5, high=12),
        Knob("distractors", 8, "things beside those the mission needs", low=0, high=16),
        *COMMON,
    )
    levels = {
        "easy": {"kind": "goto", "distractors": 0},
        "medium": {"kind": "mixed", "distractors": 8},
        "hard": {"kind": "putnext", "room_size": 10, "distractors": 16},
    }

    def __init__(self, *args: Any, **knobs: Any) -> None:
        super().__init__(*args, **knobs)
        most = (self.settings.room_size - 2) ** 2 // 4
        if self.settings.distractors > most:
            raise UsageError(
                f"{self.settings.distractors} distractors do not fit a room of size {self.settings.room_size}: "
                f"at most {most}, or a larger room_size."
            )

    def _choose(self, seed: int) -> str:
        kind = str(self.settings.kind)
        return KINDS[int(np.random.default_rng([seed, 0xBABA]).integers(len(KINDS)))] if kind == "mixed" else kind

    def _build(self, chosen: str) -> Any:
        settings = self.settings
        return self._engines.build_local(
            chosen, settings.missions, settings.room_size, settings.distractors, settings.view, self._cap
        )

    def remaining(self) -> int | None:
        if self.success:
            return 0
        found = self._plans.advice(self._board.state(self.engine))
        if found is None and not self._board.lost(self._board.state(self.engine)):
            raise EngineFailure("The exact planner gave up on this state: use sparse or dense, or fewer distractors.")
        return found[1] if found else None


class Composed(BabyAI):
    """minigrid's general level with everything to choose: rooms, distractors, locks, and what missions are made of."""

    knobs = (
        Knob("room_size", 8, "side of a room, walls included", low=4, high=16),
        Knob("rows", 3, "rows of rooms", low=1, high=5),
        Knob("columns", 3, "columns of rooms", low=1, high=5),
        Knob("distractors", 18, "things lying about", low=1, high=60),
        Knob("actions", KINDS[:4], "what missions ask for", choices=KINDS[:4]),
        Knob("mission", ("action", "and", "seq"), "how missions are put together", choices=("action", "and", "seq")),
        Knob("locked", 0.5, "chance of a locked room", low=0.0, high=1.0),
        Knob("locations", True, "missions may say where a thing lies"),
        *COMMON,
    )
    levels = {
        "easy": {
            "rows": 1,
            "columns": 1,
            "distractors": 6,
            "actions": ("goto", "pickup"),
            "mission": ("action",),
            "locked": 0.0,
        },
        "medium": {
            "rows": 2,
            "columns": 2,
            "room_size": 6,
            "distractors": 8,
            "mission": ("action", "and"),
            "locked": 0.25,
        },
        "hard": {},
    }

    def __init__(self, *args: Any, **knobs: Any) -> None:
        super().__init__(*args, **knobs)
        s = self.settings
        if s.rows * s.columns == 1 and ("open" in s.actions or s.locked > 0):
            raise UsageError(
                "A single room has no door: take 'open' out of `actions` and set locked=0, or more rows or columns."
            )
        most = (s.room_size - 2) ** 2 * s.rows * s.columns // 3
        if s.distractors > most:
            raise UsageError(f"{s.distractors} distractors do not fit {s.rows} x {s.columns} rooms: at most {most}.")
        if not s.actions or not s.mission:
            raise UsageError("`actions` and `mission` each need at least one word.")
        if s.actions == ("putnext",) and s.rows * s.columns == 1 and s.distractors == 1:
            raise UsageError("One thing alone cannot be put next to another: distractors=2, or other `actions`.")

    def _choose(self, seed: int) -> str:
        return "composed"

    def _build(self, chosen: str) -> Any:
        s = self.settings
        return self._engines.build_composed(
            s.room_size,
            s.rows,
            s.columns,
            s.distractors,
            s.actions,
            s.mission,
            s.locked,
            s.locations,
            s.view,
            self._cap,
        )


def _name(thing: Any) -> str:
    return "a wall" if thing.type == "wall" else f"a {thing.color} {thing.type}"


def understood(command: str) -> int | None:
    """The action a command stands for, whatever its case, spacing and final punctuation; None for anything else."""
    if len(command) > 64:
        return None
    words = " ".join(re.sub(r"[_\-.!,;:'\"`]", " ", command.lower()).split())
    return UNDERSTOOD.get(words)
