"""Saves and restores the state of a BabyAI engine as plain values, which any process can restore.

Objects are numbered as in the model of the episode. The engine to restore must have been reset to
the same seed, so that it has the same walls, doors, objects and mission.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envsuite.envs.babyai.model import NONE, GridModel

ABSENT = -1
"""Cell of an object that is not on the grid."""
_DESCRIPTIONS = ("desc", "desc_move", "desc_fixed")


class SavedGrid(NamedTuple):
    """State of an engine."""

    pose: tuple[int, int, int]  # x, y, heading
    steps: int
    held: int
    cells: tuple[int, ...]  # of each object
    positions: tuple[tuple[int, ...] | None, ...]  # `cur_pos` of each object, which the verifier reads
    doors: tuple[tuple[bool, bool], ...]  # whether each is open, and locked
    verifier: Any


def save_grid(engine: Any, model: GridModel) -> SavedGrid:
    """Returns the present state of an engine."""
    cells = [ABSENT] * len(model.objects)
    for cell, thing in enumerate(engine.grid.grid):
        if thing is not None and id(thing) in model.number:
            cells[model.number[id(thing)]] = cell
    x, y = engine.agent_pos
    return SavedGrid(
        (int(x), int(y), int(engine.agent_dir)),
        int(engine.step_count),
        _number(engine.carrying, model),
        tuple(cells),
        tuple(None if thing.cur_pos is None else tuple(map(int, thing.cur_pos)) for thing in model.objects),
        tuple((bool(door.is_open), bool(door.is_locked)) for door in model.door_things),
        _save_verifier(engine.instrs, model),
    )


def restore_grid(engine: Any, model: GridModel, saved: SavedGrid) -> None:
    """Puts an engine into a saved state of the same episode."""
    grid = engine.grid.grid
    for cell, thing in enumerate(grid):
        if thing is not None and id(thing) in model.number:
            grid[cell] = None
    for thing, cell, position in zip(model.objects, saved.cells, saved.positions, strict=True):
        if cell != ABSENT:
            grid[cell] = thing
        thing.cur_pos = None if position is None else np.array(position)
    for door, (is_open, is_locked) in zip(model.door_things, saved.doors, strict=True):
        door.is_open, door.is_locked = is_open, is_locked
    x, y, engine.agent_dir = saved.pose
    engine.agent_pos = (x, y)
    engine.step_count = saved.steps
    engine.carrying = None if saved.held == NONE else model.objects[saved.held]
    _restore_verifier(engine.instrs, model, saved.verifier)


def _number(thing: Any, model: GridModel) -> int:
    return NONE if thing is None else model.number[id(thing)]


def _save_verifier(instrs: Any, model: GridModel) -> Any:
    """Returns what the verifier of a mission remembers; nested like the mission."""
    if hasattr(instrs, "instr_a"):
        parts = _save_verifier(instrs.instr_a, model), _save_verifier(instrs.instr_b, model)
        return instrs.a_done, instrs.b_done, *parts
    positions = tuple(
        tuple((int(x), int(y)) for x, y in getattr(instrs, name).obj_poss)
        for name in _DESCRIPTIONS
        if hasattr(instrs, name)
    )
    carried = _number(instrs.preCarrying, model) if hasattr(instrs, "preCarrying") else None
    return carried, positions


def _restore_verifier(instrs: Any, model: GridModel, saved: Any) -> None:
    if hasattr(instrs, "instr_a"):
        instrs.a_done, instrs.b_done, first, second = saved
        _restore_verifier(instrs.instr_a, model, first)
        _restore_verifier(instrs.instr_b, model, second)
        return
    carried, positions = saved
    descriptions = [getattr(instrs, name) for name in _DESCRIPTIONS if hasattr(instrs, name)]
    for description, cells in zip(descriptions, positions, strict=True):
        description.obj_poss = list(cells)
    if carried is not None:
        instrs.preCarrying = None if carried == NONE else model.objects[carried]
