"""minigrid's BabyAI levels as engines: no output, bounded generation, built from a few settings.

Importing this module imports minigrid (written for version 3.2). The dynamics are unchanged, so an
engine and `gym.make("BabyAI-...")` play the same game for the same seed, unless that game cannot be
won (`reason_unwinnable`): then the next layout of the same seed is used, and counted.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # minigrid imports pygame, which prints a message

import gymnasium as gym
import minigrid  # noqa: F401  registers its levels
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from envsuite.envs.babyai.view import FORWARD
from envsuite.errors import EngineFailure, UsageError

MAX_LAYOUTS = 20_000  # the hardest published settings reject a few hundred
MAX_DRAWS = 500_000
FORWARD_ACTION = 2  # actions below it turn, those above it touch objects

HELD_OUT_OBJECTS = frozenset({("box", "yellow"), ("key", "red"), ("door", "red"), ("ball", "green"), ("door", "grey")})
"""Objects that no training mission of BabyAI-Text names and every test mission names, as in its
code."""
OPEN_COLORS = {"train": ("blue", "green", "purple", "yellow"), "test": ("grey", "red")}


class BoundedLevel:
    """Mixin that removes printing, endless generation and images from a minigrid level.

    minigrid prints each rejected layout and retries forever. Here they are counted in `rejected`,
    and EngineFailure is raised after MAX_LAYOUTS layouts or MAX_DRAWS random numbers.
    """

    rejected = 0  # layouts
    impossible = 0  # rejected layouts that minigrid would have used although they cannot be won
    draws = 0

    def _gen_grid(self: Any, width: int, height: int) -> None:
        self.rejected = self.impossible = self.draws = 0
        while True:
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
                if reason := reason_unwinnable(self):
                    self.impossible += 1
                    raise RejectSampling(reason)
                break
            except (RejectSampling, RecursionError) as reason:
                self.rejected += 1
                if self.rejected >= MAX_LAYOUTS:
                    raise self._generation_failure(
                        f"{self.rejected:,} layouts were rejected, the last for: {reason}"
                    ) from None
        self.surface = self.mission = self.instrs.surface(self)

    def _rand_int(self: Any, low: int, high: int) -> int:
        # Some loops of the generators never end; all of them draw their numbers here.
        self.draws += 1
        if self.draws > MAX_DRAWS:
            raise self._generation_failure(f"{MAX_DRAWS:,} random numbers were drawn for one layout")
        return self.np_random.integers(low, high)

    def _generation_failure(self: Any, why: str) -> EngineFailure:
        return EngineFailure(
            f"{type(self).__name__} cannot generate a game for this seed ({why}): use another seed or other settings."
        )

    def step(self: Any, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Steps as minigrid does, without its numpy arrays for turns and moves."""
        if action > FORWARD_ACTION:
            result: tuple[dict[str, Any], float, bool, bool, dict[str, Any]] = super().step(action)  # type: ignore[misc]
            return result
        self.step_count += 1
        if action < FORWARD_ACTION:
            self.agent_dir = (self.agent_dir + (1 if action else -1)) % 4
        else:
            x, y = self._front()
            thing = self.grid.grid[y * self.grid.width + x]
            if thing is None or thing.can_overlap():
                self.agent_pos = (x, y)
        status = self._verify_move(action)
        reward = self._reward() if status == "success" else 0
        return {}, reward, status != "continue", self.step_count >= self.max_steps, {}

    def _verify_move(self: Any, action: int) -> str:
        """Returns 'success', 'failure' or 'continue' after a turn or a move."""
        if type(self.instrs) is GoToInstr:  # minigrid compares arrays, which takes longer than all the rest
            return "success" if self._front() in self.instrs.desc.obj_poss else "continue"
        status: str = self.instrs.verify(action)
        return status

    def _front(self: Any) -> tuple[int, int]:
        x, y = self.agent_pos
        dx, dy = FORWARD[self.agent_dir]
        return int(x) + dx, int(y) + dy

    def update_objs_poss(self: Any, instr: Any = None) -> None:
        """Updates the positions of the objects that the mission names, without scanning the grid for each."""
        described = list(_descriptions(self.instrs if instr is None else instr))
        tracked = {id(thing) for description in described for thing in description.obj_set}
        width = self.grid.width
        positions = {
            id(thing): (index % width, index // width)
            for index, thing in enumerate(self.grid.grid)
            if thing is not None and id(thing) in tracked
        }
        for description in described:
            description.obj_poss = sorted(
                positions[id(thing)] for thing in description.obj_set if id(thing) in positions
            )

    def gen_obs(self) -> dict[str, Any]:
        """Returns nothing: text comes from the live state, and an image takes most of a step's
        time.
        """
        return {}


def reason_unwinnable(engine: Any) -> str:
    """Returns why the mission of a new layout cannot be done; '' if no reason is known.

    minigrid 3.2 generates three kinds of such games. GoToImpUnlock may lock the key into the room
    that it opens, because it compares numpy integers with `is`. In two thirds of
    OpenDoorsOrder*Debug the mission is a sequence of strict openings, whose second part is verified
    with the command that completes the first one, and fails. PickupDistDebug, where a wrong object in hand ends the
    game, may shut its targets in behind other objects.
    """
    instrs = engine.instrs
    parts = [getattr(instrs, name, None) for name in ("instr_a", "instr_b")]
    if not isinstance(instrs, AndInstr) and all(isinstance(part, OpenInstr) and part.strict for part in parts):
        return "the strict second part fails when the first is done"
    if isinstance(instrs, PickupInstr) and instrs.strict and not _can_pick_up_first(engine, instrs):
        return "every target is behind objects that may not be picked up"
    items = [item for item in engine.grid.grid if item is not None]
    if not any(item.type == "door" and item.is_locked for item in items):
        return ""
    reached = _reachable_objects(engine)
    for described in _descriptions(instrs):
        if not any(id(item) in reached for item in described.find_matching_objs(engine)[0]):
            return "a target is behind a lock whose key cannot be reached"
    return ""


def _can_pick_up_first(engine: Any, instrs: Any) -> bool:
    """Returns True if the player can stand before a target without moving another object; boxes can be opened."""
    # "a grey object" also describes the walls
    targets = {id(item) for item in instrs.desc.find_matching_objs(engine)[0] if item.can_pickup()}
    pending, seen = [(int(engine.agent_pos[0]), int(engine.agent_pos[1]))], set()
    while pending:
        x, y = pending.pop()
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            item = engine.grid.get(*cell)
            if id(item) in targets:
                return True
            if cell not in seen and (item is None or (item.type == "box" and item.contains is None)):
                seen.add(cell)
                pending.append(cell)
    return False


def _reachable_objects(engine: Any) -> set[int]:
    """Returns the `id`s of the objects that can be reached, with found keys and movable obstacles."""
    reached: set[int] = set()
    colors: set[str] = set()
    while True:
        known = len(colors)
        pending, seen = [(int(engine.agent_pos[0]), int(engine.agent_pos[1]))], set()
        while pending:
            x, y = pending.pop()
            if (x, y) in seen:
                continue
            seen.add((x, y))
            item = engine.grid.get(x, y)
            if item is not None:
                reached.add(id(item))
                inside = getattr(item, "contains", None)
                colors |= {key.color for key in (item, inside) if key is not None and key.type == "key"}
                if item.type == "wall" or (item.type == "door" and item.is_locked and item.color not in colors):
                    continue
            pending += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
        if len(colors) == known:
            return reached


def _descriptions(instrs: Any) -> Iterator[ObjDesc]:
    for name in ("desc", "desc_move", "desc_fixed"):
        if hasattr(instrs, name):
            yield getattr(instrs, name)
    for name in ("instr_a", "instr_b"):
        if hasattr(instrs, name):
            yield from _descriptions(getattr(instrs, name))


@cache
def engine_class(level: type) -> type:
    """Returns `level` with the mixin BoundedLevel."""
    if verifier.use_done_actions:
        raise UsageError(
            "BABYAI_DONE_ACTIONS is set, which changes what every BabyAI mission counts as done: unset it and restart."
        )
    return type(level.__name__, (BoundedLevel, level), {})


def build_level(name: str, view: int, max_steps: int) -> Any:
    """Builds the registered level 'BabyAI-<name>-v*'; `max_steps=0` keeps the level's own cap."""
    spec = next(spec for spec in gym.registry.values() if spec.id.rpartition("-v")[0] == f"BabyAI-{name}")
    assert isinstance(spec.entry_point, str)
    module, _, cls = spec.entry_point.partition(":")
    level = getattr(importlib.import_module(module), cls)
    return engine_class(level)(**spec.kwargs, **_common(view, max_steps))


def build_local(kind: str, missions: str, room_size: int, distractors: int, view: int, max_steps: int) -> Any:
    """Builds the mixed local level of BabyAI-Text for one kind of mission."""
    return engine_class(LocalLevel)(kind, missions, room_size, distractors, **_common(view, max_steps))


def build_composed(
    room_size: int,
    rows: int,
    columns: int,
    distractors: int,
    actions: tuple[str, ...],
    mission: tuple[str, ...],
    locked: float,
    locations: bool,
    view: int,
    max_steps: int,
) -> Any:
    """Builds minigrid's general level with missions composed as requested."""
    return engine_class(LevelGen)(
        room_size=room_size,
        num_rows=rows,
        num_cols=columns,
        num_dists=distractors,
        action_kinds=actions,
        instr_kinds=mission,
        locked_room_prob=locked,
        locations=locations,
        **_common(view, max_steps),
    )


def _common(view: int, max_steps: int) -> dict[str, Any]:
    return {"agent_view_size": view, **({"max_steps": max_steps} if max_steps else {})}


class LocalLevel(RoomGridLevel):
    """MixedTrainLocal and MixedTestLocal of BabyAI-Text, with the kind of mission as an argument.

    One room (for `open`: two, of which one is locked and empty). Objects are drawn with repetition
    and can all be reached without moving any. Layouts are drawn until the mission belongs to
    `missions`.
    """

    instrs: Any

    def __init__(self, kind: str, missions: str, room_size: int, distractors: int, **common: Any) -> None:
        self.kind, self.missions, self.distractors = kind, missions, distractors
        self.unblocking = False  # read by validate_instrs
        super().__init__(room_size=room_size, num_rows=1, num_cols=2 if kind == "open" else 1, **common)

    def gen_mission(self) -> None:
        if self.kind == "open":
            self.instrs = self._open()
            return
        self.place_agent(0, 0)
        objects = self._place_distractors(0, self.distractors + (1 if self.kind in ("goto", "pickup") else 2))
        first = self._rand_elem(objects)
        if self.kind in ("goto", "pickup"):
            named = [first]
        else:
            named = [first, self._second(first, objects)]
        inside = [(item.type, item.color) in HELD_OUT_OBJECTS for item in named]
        if any(inside) if self.missions == "train" else not all(inside):
            raise RejectSampling(f"not a mission of {self.missions}")
        words = [ObjDesc(item.type, item.color) for item in named]
        if self.kind == "goto":
            self.instrs = GoToInstr(*words)
        elif self.kind == "pickup":
            self.instrs = PickupInstr(*words)
        elif self.kind == "putnext":
            self.instrs = PutNextInstr(*words)
        elif self._rand_bool():
            self.instrs = BeforeInstr(PickupInstr(words[0]), GoToInstr(words[1]))
        else:
            self.instrs = AfterInstr(GoToInstr(words[1]), PickupInstr(words[0]))

    def _place_distractors(self, column: int, count: int) -> list[Any]:
        objects = self.add_distractors(column, 0, num_distractors=count, all_unique=False)
        self.check_objs_reachable()
        return objects

    def _second(self, first: Any, objects: list[Any]) -> Any:
        """Draws another target; it may look like the first one only if there are two such objects."""
        alike = sum((item.type, item.color) == (first.type, first.color) for item in objects)
        while True:
            second = self._rand_elem(objects)
            if alike > 1 or (second.type, second.color) != (first.type, first.color):
                return second

    def _open(self) -> OpenInstr:
        locked = self._rand_int(0, 2)
        door, _ = self.add_door(locked, 0, 2 * locked, self._rand_elem(OPEN_COLORS[self.missions]), locked=True)
        self.add_object(1 - locked, 0, "key", door.color)
        self.connect_all()
        self.add_distractors(1 - locked, 0, num_distractors=self.distractors, all_unique=False)
        self.place_agent(1 - locked, 0)
        self.check_objs_reachable()
        named = self.missions == "test" or self._rand_bool()
        return OpenInstr(ObjDesc("door", door.color if named else None))
