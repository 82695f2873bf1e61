"""BabyAI as text: missions in a grid of rooms, with the player's view described in words.

A mission asks to go to, pick up, open, or put next to each other objects named by colour and kind:
singly, joined by "and", or in order ("then", "after you"). Six commands turn, walk, take, put down
and toggle. The player sees a square in front of it (7 x 7), not behind itself nor through walls and
closed doors. The state is minigrid's; `view.py` turns it into text.

Rewards: nothing before the mission is done. Sparse pays 1, dense minigrid's own 1 - 0.9 * steps /
cap, so no cycle of commands pays. Shaped uses the exact plan (local levels only).

Difficulty grows with larger rooms, more rooms, more distractors, locked rooms, missions of several
parts, and a smaller view.

As in the reference: going to an object counts for its *position* until something is dropped; one
command may complete both parts of a sequence; putting next to counts only when the named object is
put down; toggling a box destroys it (then `info["unsolvable"]` is set, and the episode continues to
its cap); a command that cannot be carried out still costs a step. Sources: Chevalier-Boisvert et
al., 2019; text and splits: Carta et al., 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from envsuite.core import TURNS_LEFT, TextEnv
from envsuite.envs.babyai.commands import COMMANDS, TOOLS, parse_command, reasons_without_effect
from envsuite.envs.babyai.levels import KINDS, LEVELS
from envsuite.envs.babyai.model import share_done
from envsuite.envs.babyai.view import FORWARD, WORDINGS, door_state, view_text
from envsuite.errors import EngineFailure, UsageError
from envsuite.types import Knob, Outcome, RewardMode

INSTRUCTIONS = """\
You are in a world of square cells: rooms with walls and doors, and keys, balls and boxes in six colours.
You see what lies before you and beside you, up to {reach} steps ahead and {side} to each side, but not behind you, \
nor through walls and closed doors. What you see is told from where you stand: steps ahead, and steps to your left or right.
You face one way at a time and carry one thing at a time. Commands, one at a time:
- turn left, turn right: turn on the spot by a quarter
- go forward: one step; only an empty cell or an open door lets you through
- pick up: take the key, ball or box directly in front of you, if your hand is empty
- drop: set what you carry down in the empty cell directly in front of you
- toggle: open or close the door directly in front of you; a locked one opens if you carry the key of its colour. \
A toggled box is gone, and what was in it lies there
To go to a thing means to stand next to it and face it."""

VIEW = Knob("view", 7, "side of the visible square, an odd number", choices=(3, 5, 7, 9, 11, 13, 15))
WORDING = Knob("wording", "ours", "wording of the view; babyai-text: the exact text of BabyAI-Text", choices=WORDINGS)
ADMISSIBLE = Knob(
    "admissible",
    "applicable",
    "listed commands: those with an effect, or all six",
    choices=("applicable", "all"),
)
CAP = Knob("max_steps", 0, "commands until truncation; 0: the level's own cap", low=0, high=100_000)
COMMON = (VIEW, WORDING, ADMISSIBLE, CAP, TURNS_LEFT)


class SavedLevel(NamedTuple):
    """The value that `get_state` returns."""

    variant: Any
    seed: int
    grid: Any
    destroyed: bool
    unsolvable: bool


class BabyAI(TextEnv):
    """Common part of all levels; subclasses choose the engine for a seed."""

    experts = ("", "planner")
    tools = TOOLS
    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}
    ranges = {"dense": (0.0, 1.0), "return_minigrid": (0.0, 1.0)}
    exact = False  # whether plans are shortest

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
        # These modules import minigrid; importing them here reports a missing package at once.
        from envsuite.envs.babyai import engine, expert, snapshots

        self._engines, self._expert_module, self._snapshots = engine, expert, snapshots
        view = self.settings.view
        self.instructions = INSTRUCTIONS.format(reach=view - 1, side=view // 2)
        self._cap = self.settings.max_steps
        self._built: dict[Any, Any] = {}
        self.engine: Any = None
        self._task_type = ""
        self.unsolvable = False
        self._episode: tuple[Any, int] | None = None

    @abstractmethod
    def _variant(self, seed: int) -> Any:
        """Returns the engine settings that depend on the seed; also the task type."""

    @abstractmethod
    def _build(self, variant: Any) -> Any:
        """Builds a new engine."""

    def _reset(self, seed: int) -> str:
        self._begin(self._variant(seed), seed)
        return self._view()

    def _begin(self, variant: Any, seed: int) -> None:
        """Resets the engine of a variant to the start of an episode."""
        if variant not in self._built:
            self._built[variant] = self._build(variant)
        self.engine = self._built[variant]
        self.engine.reset(seed=seed)
        self.settings.max_steps = self.engine.max_steps
        self._task_type = str(variant)
        self.objective = self.engine.mission[0].upper() + self.engine.mission[1:] + "."
        self._expert = self._expert_module.BabyAIExpert(self.engine, self.exact)
        self._destroyed = self.unsolvable = False
        self._episode = (variant, seed)

    def _view(self) -> str:
        return view_text(self.engine, self.settings.wording)

    def _act(self, command: str) -> Outcome:
        engine = self.engine
        action = parse_command(command)
        if action is None:
            engine.step_count += 1  # costs a step without verification: the mission may be fulfilled by standing still
            self._expert.follow(None)
            quoted = "".join(c if c.isprintable() else "?" for c in command[:40])
            text = f"{quoted!r} is not a command here. Say one of: {', '.join(COMMANDS)}.\n{self._view()}"
            return Outcome(text, valid=False, truncated=engine.step_count >= engine.max_steps)
        ahead = self._ahead()
        reason = self._reasons_without_effect()[action]
        self._destroyed |= action == 5 and ahead is not None and ahead.type == "box"
        _, reward, terminated, truncated, _ = engine.step(action)
        self._expert.follow(action)
        if self._destroyed and not terminated and action >= 4:  # only drop and toggle can make a mission unsolvable
            self.unsolvable = self._expert.is_lost()
        text = self._view()
        if reason and self.settings.wording == "ours":
            text = f"{reason}\n{text}"
        # minigrid pays at least 0.1 for a completed mission and 0 for a failed one.
        return Outcome(
            text,
            reward=float(reward),
            done=terminated,
            success=terminated and reward > 0,
            valid=not reason,
            progression=share_done(engine.instrs),
            truncated=truncated,
        )

    def _ahead(self) -> Any:
        grid, (x, y) = self.engine.grid, self.engine.agent_pos
        dx, dy = FORWARD[self.engine.agent_dir]
        return grid.grid[(int(y) + dy) * grid.width + int(x) + dx]

    def _reasons_without_effect(self) -> tuple[str, ...]:
        """Returns for each action why it would change nothing, in words for the player; '' if it has an
        effect.
        """
        thing, held = self._ahead(), self.engine.carrying
        ahead = None
        if thing is not None:
            state = door_state(thing) if thing.type == "door" else -1
            ahead = thing.type, thing.color, state, bool(thing.can_overlap()), bool(thing.can_pickup())
        return reasons_without_effect(ahead, None if held is None else (held.type, held.color))

    def admissible(self) -> list[str]:
        if self.settings.admissible == "all":
            return list(COMMANDS)
        reasons = self._reasons_without_effect()
        return [command for command, reason in zip(COMMANDS, reasons, strict=True) if not reason]

    def random_command(self, rng: np.random.Generator) -> str:
        """Returns any of the six commands, applicable or not, like the random player of the papers."""
        return COMMANDS[int(rng.integers(len(COMMANDS)))]

    def blind_script(self) -> list[str]:
        """Returns a walk in growing squares that tries the action of the mission at every cell."""
        mission = self.objective.lower()
        tries = ["toggle"] if "open" in mission else []
        tries += ["pick up"] if "pick" in mission or "put" in mission else []
        tries += ["drop"] if "put" in mission else []
        script: list[str] = []
        for side in range(1, 9):
            for _ in range(2):
                script += [command for _ in range(side) for command in (*tries, "go forward")]
                script.append("turn right")
        return script

    def expert(self, kind: str = "") -> str | None:
        """Returns advice: '' is minigrid's bot with the planner as fallback, 'planner' plans on the
        full state.
        """
        action = self._expert.plan() if kind == "planner" else self._expert.advice()
        return None if action is None else COMMANDS[action]

    def get_state(self) -> SavedLevel:
        """Returns a snapshot: the seed of the level and the state of its engine."""
        if self._episode is None:
            raise UsageError("There is no episode yet: call reset() first.")
        grid = self._snapshots.save_grid(self.engine, self._expert.model)
        return SavedLevel(*self._episode, grid, self._destroyed, self.unsolvable)

    def set_state(self, state: SavedLevel) -> None:
        """Restores a snapshot. After it, the expert is the planner, unless the episode is at its start."""
        if self._episode != (state.variant, state.seed):
            self._begin(state.variant, state.seed)
        self._snapshots.restore_grid(self.engine, self._expert.model, state.grid)
        self._expert.restart(with_bot=state.grid.steps == 0)
        self._destroyed, self.unsolvable = state.destroyed, state.unsolvable

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
        """Returns an image [height, width, 3] of the level, or a map in letters."""
        if self.engine is None:
            return None
        if self.render_mode == "rgb_array":
            return self.engine.get_frame(tile_size=32)
        return f"{self.engine.mission}\n{self.engine.pprint_grid()}" if self.render_mode == "ansi" else None


class Level(BabyAI):
    """The levels that minigrid registers, each with its own settings."""

    knobs = (Knob("level", "GoToLocal", "name of the level, as in BabyAI-<level>-v0", choices=LEVELS), *COMMON)
    levels = {
        "easy": {"level": "GoToLocal"},
        "medium": {"level": "MiniBossLevel"},
        "hard": {"level": "BossLevel"},
    }

    def _variant(self, seed: int) -> str:
        return str(self.settings.level)

    def _build(self, variant: str) -> Any:
        return self._engines.build_level(variant, self.settings.view, self._cap)


class Local(BabyAI):
    """The mixed local level of BabyAI-Text: five kinds of missions in one room (two for `open`).

    The expert's plans are exact.
    """

    exact = True
    knobs = (
        Knob("kind", "mixed", "kind of mission; mixed: drawn evenly, by the seed", choices=("mixed", *KINDS)),
        Knob(
            "missions", "train", "train: without the five held-out names; test: only these", choices=("train", "test")
        ),
        Knob("room_size", 8, "side of the room, walls included", low=5, high=12),
        Knob("distractors", 8, "objects that the mission does not need", low=0, high=16),
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
                f"{self.settings.distractors} distractors do not fit into a room of size {self.settings.room_size}: "
                f"use at most {most}, or a larger room_size."
            )

    def _variant(self, seed: int) -> str:
        kind = str(self.settings.kind)
        return KINDS[int(np.random.default_rng([seed, 0xBABA]).integers(len(KINDS)))] if kind == "mixed" else kind

    def _build(self, variant: str) -> Any:
        settings = self.settings
        return self._engines.build_local(
            variant, settings.missions, settings.room_size, settings.distractors, settings.view, self._cap
        )

    def remaining(self) -> int | None:
        if self.success:
            return 0
        plan = self._expert.full_plan()
        if plan is None and not self._expert.is_lost():
            raise EngineFailure(
                "The exact planner reached its limit in this state: use sparse or dense rewards, or fewer distractors."
            )
        return plan[1] if plan else None


class Composed(BabyAI):
    """minigrid's configurable level: rooms, distractors, locks and composed missions."""

    knobs = (
        Knob("room_size", 8, "side of a room, walls included", low=4, high=16),
        Knob("rows", 3, "rows of rooms", low=1, high=5),
        Knob("columns", 3, "columns of rooms", low=1, high=5),
        Knob("distractors", 18, "number of objects", low=1, high=60),
        Knob("actions", KINDS[:4], "kinds of actions in missions", choices=KINDS[:4]),
        Knob("mission", ("action", "and", "seq"), "composition of missions", choices=("action", "and", "seq")),
        Knob("locked", 0.5, "chance of a locked room", low=0.0, high=1.0),
        Knob("locations", True, "missions may name locations"),
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
                "A single room has no door: remove 'open' from `actions` and set locked=0, or use more rows or columns."
            )
        most = (s.room_size - 2) ** 2 * s.rows * s.columns // 3
        if s.distractors > most:
            raise UsageError(
                f"{s.distractors} distractors do not fit into {s.rows} x {s.columns} rooms: use at most {most}."
            )
        if not s.actions or not s.mission:
            raise UsageError("`actions` and `mission` each need at least one value.")
        if s.actions == ("putnext",) and s.rows * s.columns == 1 and s.distractors == 1:
            raise UsageError("putnext needs two objects: use distractors=2, or other `actions`.")

    def _variant(self, seed: int) -> str:
        return "composed"

    def _build(self, variant: str) -> Any:
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
