"""An ALFWorld game file (`game.tw-pddl`) as an immutable value, with its derived tables."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from envsuite.envs.alfworld.games.logic import (
    CLEANABLE,
    COOLABLE,
    HEATABLE,
    TOGGLEABLE,
    Sentences,
    Unrecognised,
    read_domain,
    read_grammar,
    read_task,
    split_task,
)
from envsuite.envs.alfworld.games.problem import (
    CLEAN_AND_PLACE,
    COOL_AND_PLACE,
    HEAT_AND_PLACE,
    LIGHT,
    PLACE,
    PLACE_TWO,
    TASK_TYPES,
    TRANSFORMS,
    BrokenProblem,
    GameState,
    Shuffle,
    TaskGoal,
    read_problem,
)
from envsuite.errors import DataError

__all__ = [
    "CLEAN_AND_PLACE", "COOL_AND_PLACE", "HEAT_AND_PLACE", "LIGHT", "PLACE", "PLACE_TWO", "TASK_TYPES", "TRANSFORMS",
    "AlfworldGame", "GameState", "TaskGoal",
]  # fmt: skip

MAX_BYTES = 4_000_000
"""Size limit for game files; the largest official one has 130,000 bytes."""


class GoalInputs(Protocol):
    """The part of a state that the goal depends on: a GameState, or a running engine.

    Objects and receptacles are numbers; `hot`, `cool`, `clean` and `toggled` are bit sets of them.
    """

    @property
    def location(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def contents(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def hot(self) -> int: ...
    @property
    def cool(self) -> int: ...
    @property
    def clean(self) -> int: ...
    @property
    def toggled(self) -> int: ...


@dataclass(frozen=True, eq=False)
class AlfworldGame:
    """One parsed game, shared by all engines that play it. For its tables see
    `problem.PddlProblem`.
    """

    name: str
    task: str  # "Your task is to: put a apple in fridge."
    sentences: Sentences
    cleaners: tuple[str, ...]  # receptacle types in which objects can be cleaned
    solvable: bool | None  # the flag in the file, which is not always right
    goal: TaskGoal
    start: GameState
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    receptacle_location: tuple[int, ...]
    openable: int
    objects: tuple[str, ...]
    object_types: tuple[str, ...]
    flags: tuple[int, ...]
    locations: tuple[str, ...]
    holders: dict[str, frozenset[int]]
    inside: dict[int, tuple[int, ...]]

    @classmethod
    def load(cls, path: str | os.PathLike[str], shuffle: Shuffle | None = None) -> AlfworldGame:
        """Reads a game file. Raises DataError, or Unrecognised if only the stock engine can play
        it.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size  # a buffer of MAX_BYTES would take longer than reading
                raw = file.read(min(size, MAX_BYTES) + 1)
            return cls.from_json(raw.decode("utf-8"), str(path), shuffle)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start} is not UTF-8, so this is not an ALFWorld game.") from None

    @classmethod
    def from_json(cls, text: str, name: str, shuffle: Shuffle | None = None) -> AlfworldGame:
        """Parses the text of a game file.

        `name` appears in errors and labels; `shuffle` randomizes the numbers in display names.
        """
        if len(text) > MAX_BYTES:
            raise DataError(f"{name}: larger than {MAX_BYTES:,} characters, so this is not an ALFWorld game.")
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{name}: line {error.lineno}: not JSON ({error.msg}): truncated or not a game.") from None
        except (RecursionError, ValueError) as error:
            raise DataError(f"{name}: line 1: not a game ({error}).") from None
        if not isinstance(data, dict):
            raise DataError(f"{name}: line 1: a game is a JSON object, not {type(data).__name__}.")
        for key in ("pddl_domain", "grammar", "pddl_problem"):
            if not isinstance(data.get(key), str):
                problem_text = f"is {type(data[key]).__name__}, not text" if key in data else "is missing"
                raise DataError(f"{name}: key {key!r} {problem_text}.")
        solvable = data.get("solvable")
        key = "pddl_domain"
        try:
            cleaners = read_domain(data[key])
            key = "grammar"
            head, task, tail = split_task(data[key])
            sentences, task = read_grammar(head, tail), read_task(task)
            key = "pddl_problem"
            problem = read_problem(data[key], shuffle)
        except Unrecognised as error:
            raise Unrecognised(f"{name}: key {key!r}: {error}.") from None
        except BrokenProblem as error:
            raise DataError(f"{name}: key {key!r}, line {error.line}: {error}.") from None
        return cls(name, task, sentences, cleaners, solvable if isinstance(solvable, bool) else None, *problem)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_tables"}

    @cached_property
    def receptacles_at(self) -> dict[int, tuple[int, ...]]:
        """Mapping from location to its receptacles; locations without receptacles are absent."""
        rows: dict[int, list[int]] = {}
        for r, location in enumerate(self.receptacle_location):
            rows.setdefault(location, []).append(r)
        return {location: tuple(rs) for location, rs in rows.items()}

    @cached_property
    def targets(self) -> frozenset[int]:
        """Objects that can satisfy the goal."""
        needed = {"clean": CLEANABLE, "heat": HEATABLE, "cool": COOLABLE}.get(TRANSFORMS.get(self.goal.kind, ""), 0)
        target_type = self.goal.object_type
        return frozenset(
            o for o, t in enumerate(self.object_types) if t == target_type and self.flags[o] & needed == needed
        )

    @cached_property
    def target_names(self) -> frozenset[str]:
        """Names of `targets`."""
        return frozenset(self.objects[o] for o in self.targets)

    @cached_property
    def target_word(self) -> str:
        """Class of the goal's object, with which the names of all targets start: 'apple'."""
        return self.goal.object_type.removesuffix("type")

    @cached_property
    def destinations(self) -> frozenset[int]:
        """Receptacles of the goal's type; empty for look_at_obj_in_light."""
        goal_type = self.goal.receptacle_type
        return frozenset(r for r, t in enumerate(self.receptacle_types) if t == goal_type and self.goal.kind != LIGHT)

    @cached_property
    def lamps(self) -> frozenset[int]:
        """Lamps of the goal's type; empty except for look_at_obj_in_light."""
        lamp_type = self.goal.receptacle_type
        return frozenset(
            o
            for o, t in enumerate(self.object_types)
            if t == lamp_type and self.flags[o] & TOGGLEABLE and self.goal.kind == LIGHT
        )

    @cached_property
    def appliances(self) -> dict[str, tuple[int, ...]]:
        """Mapping from 'clean', 'heat' and 'cool' to the receptacles that do it."""
        doers = {"clean": self.cleaners, "heat": ("microwavetype",), "cool": ("fridgetype",)}
        return {
            verb: tuple(r for r, t in enumerate(self.receptacle_types) if t in types) for verb, types in doers.items()
        }

    def is_won(self, now: GameState | GoalInputs) -> bool:
        """Tests whether the goal holds in a state; earlier states do not matter."""
        kind = self.goal.kind
        if kind == LIGHT:
            if now.held not in self.targets:
                return False
            here = self.receptacles_at.get(now.location, ())
            return any(now.toggled >> o & 1 for r in here for o in now.contents[r] if o in self.lamps)
        if kind in (PLACE, PLACE_TWO):
            done = -1
        else:
            done = now.clean if kind == CLEAN_AND_PLACE else now.hot if kind == HEAT_AND_PLACE else now.cool
            if not done:
                return False
        needed = 2 if kind == PLACE_TWO else 1
        for r in self.destinations:
            row = now.contents[r]
            if row and len([o for o in row if o in self.targets and done >> o & 1]) >= needed:
                return True
        return False

    def cannot_put_down(self, o: int) -> bool:
        """Tests whether no receptacle of the room can hold this object once it is taken."""
        return not self.holders.get(self.object_types[o])
