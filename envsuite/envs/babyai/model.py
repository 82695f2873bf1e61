"""BabyAI's dynamics and mission verifier on plain tuples, equal to minigrid's step for step.

The planner searches on this model: states are hashable, need no copying, and take microseconds to
step. A test walks the model and minigrid in parallel. The model reproduces quirks of the verifier:
only `drop` refreshes the target positions of 'go to'; one step may complete both parts of a
sequence; an object that is in hand before the verifier first looks is not noticed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
ACTIONS = range(6)
OPEN, CLOSED, LOCKED = range(3)
IN_HAND, DESTROYED, IN_BOX = -1, -2, -3  # positions of objects that are not on the grid
NONE = -1  # number that means: no object in hand


class GridState(NamedTuple):
    """Everything that determines the future of an episode."""

    cell: int  # position of the player, y * width + x
    heading: int
    held: int  # object in hand, or NONE
    where: tuple[int, ...]  # cell of each object, or HAND, GONE, BOXED
    doors: tuple[int, ...]  # OPEN, CLOSED, LOCKED
    marks: tuple[frozenset[int], ...]  # per clause: cells of its targets, for 'go to'
    stage: int  # current stage of a sequence
    done: tuple[bool, ...]  # which clauses of this stage are done
    fresh: bool  # whether the verifier has not yet noticed the object in hand


class Clause(NamedTuple):
    """One action of the mission; targets are object numbers, for `open` door numbers."""

    kind: str  # goto, pickup, open, putnext
    objects: frozenset[int]
    doors: frozenset[int]
    fixed: frozenset[int]  # objects next to which `putnext` puts the target
    fixed_doors: frozenset[int]
    strict: bool


class GridModel:
    """The constant part of an episode: walls, positions of doors, kinds of objects, and the
    mission.

    `stages` is a list of 1 or 2 lists of 1 or 2 clauses: a sequence has two stages, and "and"
    makes a stage of two clauses.
    """

    def __init__(self, engine: Any, cells: list[Any] | None = None, carrying: Any = None) -> None:
        """Reads an engine that has just been reset.

        If it has been stepped since, `cells` and `carrying` are its grid and the object in hand at the start.
        """
        self.width, self.height = engine.grid.width, engine.grid.height
        self.ahead = (1, self.width, -1, -self.width)
        if cells is None:
            cells, carrying = engine.grid.grid, engine.carrying
        self.walls = frozenset(i for i, thing in enumerate(cells) if thing is not None and thing.type == "wall")
        self.door_things = [thing for thing in cells if thing is not None and thing.type == "door"]
        self.door_cells = tuple(i for i, thing in enumerate(cells) if thing is not None and thing.type == "door")
        self.door_at = {cell: number for number, cell in enumerate(self.door_cells)}
        self.door_colors = tuple(door.color for door in self.door_things)
        self.objects: list[Any] = []  # the engine's, numbered
        self.content: dict[int, int] = {}  # box -> object in it
        for thing in [*cells, carrying]:
            if thing is not None and thing.type not in ("wall", "door"):
                self.objects.append(thing)
        for number, thing in enumerate(self.objects):  # the list grows during iteration: boxes in boxes
            if getattr(thing, "contains", None) is not None:
                self.content[number] = len(self.objects)
                self.objects.append(thing.contains)
        self.number = {id(thing): number for number, thing in enumerate(self.objects)}
        self._door_number = {id(door): number for number, door in enumerate(self.door_things)}
        self.boxes = frozenset(n for n, thing in enumerate(self.objects) if thing.type == "box")
        self.key_colors = {n: thing.color for n, thing in enumerate(self.objects) if thing.type == "key"}
        self._instrs, self.strict_order = _stages(engine.instrs)
        self.stages = [[self._clause(instr) for instr in stage] for stage in self._instrs]
        self._flat = [instr for stage in self._instrs for instr in stage]
        self.clauses = [clause for stage in self.stages for clause in stage]

    def _clause(self, instr: Any) -> Clause:
        kind = type(instr).__name__.removesuffix("Instr").lower()
        moved = instr.desc_move if kind == "putnext" else instr.desc
        objects, doors = self._split(moved)
        fixed, fixed_doors = self._split(instr.desc_fixed) if kind == "putnext" else (frozenset(), frozenset())
        return Clause(kind, objects, doors, fixed, fixed_doors, getattr(instr, "strict", False))

    def _split(self, described: Any) -> tuple[frozenset[int], frozenset[int]]:
        objects = frozenset(self.number[id(thing)] for thing in described.obj_set if id(thing) in self.number)
        doors = frozenset(self._door_number[id(thing)] for thing in described.obj_set if thing.type == "door")
        return objects, doors

    def state(self, engine: Any) -> GridState:
        """Returns the current state of the engine."""
        where = [DESTROYED] * len(self.objects)
        for cell, thing in enumerate(engine.grid.grid):
            if thing is not None and thing.type not in ("wall", "door"):
                where[self.number[id(thing)]] = cell
        held = NONE
        if engine.carrying is not None:
            held = self.number[id(engine.carrying)]
            where[held] = IN_HAND
        for box, content in self.content.items():
            if where[content] == DESTROYED and where[box] != DESTROYED:
                where[content] = IN_BOX
        doors = tuple(OPEN if d.is_open else LOCKED if d.is_locked else CLOSED for d in self.door_things)
        marks = tuple(
            frozenset(int(y) * self.width + int(x) for x, y in instr.desc.obj_poss)
            if clause.kind == "goto"
            else frozenset()
            for instr, clause in zip(self._flat, self.clauses, strict=True)
        )
        stage, done = progress(engine.instrs)
        active = self._instrs[stage]
        fresh = any(
            hasattr(instr, "preCarrying") and instr.preCarrying is not engine.carrying
            for instr, over in zip(active, done, strict=True)
            if not over
        )
        cell = int(engine.agent_pos[1]) * self.width + int(engine.agent_pos[0])
        return GridState(cell, int(engine.agent_dir), held, tuple(where), doors, marks, stage, done, fresh)

    # ---- dynamics

    def free(self, state: GridState, cell: int) -> bool:
        """Tests whether a cell is empty, so that an object can be dropped there."""
        return cell not in self.walls and cell not in self.door_at and cell not in state.where

    def applicable(self, state: GridState, action: int) -> bool:
        """Tests whether the action changes anything in the world."""
        if action in (LEFT, RIGHT):
            return True
        front = state.cell + self.ahead[state.heading]
        if front in self.walls:
            return False
        door = self.door_at.get(front)
        if door is not None:
            if action == FORWARD:
                return state.doors[door] == OPEN
            return action == TOGGLE and (
                state.doors[door] != LOCKED or self.key_colors.get(state.held) == self.door_colors[door]
            )
        if front in state.where:
            return (action == PICKUP and state.held == NONE) or (
                action == TOGGLE and state.where.index(front) in self.boxes
            )
        return action == FORWARD or (action == DROP and state.held != NONE)

    def step(self, state: GridState, action: int) -> tuple[GridState, str]:
        """Returns the next state and 'success', 'failure' or 'continue'."""
        cell, heading, held, where, doors, marks = state[:6]
        front = cell + self.ahead[heading]
        if action == LEFT:
            heading = (heading - 1) % 4
        elif action == RIGHT:
            heading = (heading + 1) % 4
        elif self.applicable(state, action):
            if action == FORWARD:
                cell = front
            elif action == PICKUP:
                held = where.index(front)
                where = _moved(where, held, IN_HAND)
            elif action == DROP:
                where, held = _moved(where, held, front), NONE
            elif front in self.door_at:
                door = self.door_at[front]
                doors = _moved(doors, door, CLOSED if doors[door] == OPEN else OPEN)
            else:
                box = where.index(front)
                where = _moved(where, box, DESTROYED)
                if box in self.content:
                    where = _moved(where, self.content[box], front)
        if action == DROP:
            marks = tuple(
                self._positions(clause.objects, clause.doors, where) if clause.kind == "goto" else old
                for clause, old in zip(self.clauses, marks, strict=True)
            )
        after = GridState(cell, heading, held, where, doors, marks, state.stage, state.done, False)
        return self._verify(after, action, NONE if state.fresh else state.held)

    def _positions(self, objects: frozenset[int], doors: frozenset[int], where: tuple[int, ...]) -> frozenset[int]:
        return frozenset([where[n] for n in objects if where[n] >= 0] + [self.door_cells[n] for n in doors])

    # ---- verifier

    def _verify(self, after: GridState, action: int, before: int) -> tuple[GridState, str]:
        stage = self.stages[after.stage]
        fulfilled = [
            done or self._is_fulfilled(clause, after, action, before, after.stage, i)
            for i, (clause, done) in enumerate(zip(stage, after.done, strict=True))
        ]
        if (
            len(stage) == 1
            and not fulfilled[0]
            and stage[0].strict
            and self._violates_strictness(stage[0], after, action)
        ):
            return after, "failure"
        if all(fulfilled):
            if after.stage + 1 == len(self.stages):
                return after, "success"
            # The next stage is verified immediately, without knowing what was in hand before.
            next_state = after._replace(stage=after.stage + 1, done=(False,) * len(self.stages[after.stage + 1]))
            return self._verify(next_state, action, NONE)
        if self.strict_order and after.stage == 0:
            early = [self._is_fulfilled(clause, after, action, before, 1, i) for i, clause in enumerate(self.stages[1])]
            if all(early):
                return after, "failure"
        return after._replace(done=tuple(fulfilled)), "continue"

    def _is_fulfilled(self, clause: Clause, after: GridState, action: int, before: int, stage: int, index: int) -> bool:
        if clause.kind == "goto":
            number = index + (len(self.stages[0]) if stage else 0)
            return after.cell + self.ahead[after.heading] in after.marks[number]
        if clause.kind == "pickup":
            return action == PICKUP and before == NONE and after.held in clause.objects
        if clause.kind == "open":
            if action != TOGGLE:
                return False
            door = self.door_at.get(after.cell + self.ahead[after.heading])
            return door in clause.doors and after.doors[door] == OPEN
        if action != DROP or before not in clause.objects or after.where[before] < 0:
            return False
        put = after.where[before]
        fixed = self._positions(clause.fixed, clause.fixed_doors, after.where)
        return any(put + step in fixed for step in self.ahead)

    def _violates_strictness(self, clause: Clause, after: GridState, action: int) -> bool:
        if clause.kind == "open":
            return action == TOGGLE and after.cell + self.ahead[after.heading] in self.door_at
        return clause.kind == "pickup" and action == PICKUP and after.held != NONE

    def is_lost(self, state: GridState) -> bool:
        """Tests whether a target has been destroyed, so that the mission cannot be completed."""

        def alive(objects: frozenset[int]) -> list[int]:
            return [n for n in objects if state.where[n] != DESTROYED]

        for number, clause in enumerate(self.clauses):
            stage, index = (0, number) if number < len(self.stages[0]) else (1, number - len(self.stages[0]))
            if stage < state.stage or (stage == state.stage and state.done[index]):
                continue
            if clause.kind == "goto":
                if not state.marks[number] and not alive(clause.objects):
                    return True
            elif clause.kind == "pickup":
                if not alive(clause.objects):
                    return True
            elif clause.kind == "putnext":
                moved, fixed = alive(clause.objects), alive(clause.fixed)
                if not moved or not (fixed or clause.fixed_doors) or (moved == fixed and len(moved) == 1):
                    return True
        return False


def progress(instrs: Any) -> tuple[int, tuple[bool, ...]]:
    """Returns the stage of an engine's verifier, and which of its clauses are done."""
    kind = type(instrs).__name__
    stage, part = 0, instrs
    if kind == "BeforeInstr":
        stage, part = (1, instrs.instr_b) if instrs.a_done == "success" else (0, instrs.instr_a)
    elif kind == "AfterInstr":
        stage, part = (1, instrs.instr_a) if instrs.b_done == "success" else (0, instrs.instr_b)
    if type(part).__name__ == "AndInstr":
        return stage, (part.a_done == "success", part.b_done == "success")
    return stage, (False,)


def share_done(instrs: Any) -> float:
    """Returns the share of a mission's clauses that are done."""
    if not hasattr(instrs, "instr_a"):
        return 0.0  # a single clause
    stage, done = progress(instrs)
    stages, _ = _stages(instrs)
    return (sum(map(len, stages[:stage])) + sum(done)) / sum(map(len, stages))


def _stages(instrs: Any) -> tuple[list[list[Any]], bool]:
    kind = type(instrs).__name__
    parts = [instrs]
    if kind == "BeforeInstr":
        parts = [instrs.instr_a, instrs.instr_b]
    elif kind == "AfterInstr":
        parts = [instrs.instr_b, instrs.instr_a]
    stages = [[p.instr_a, p.instr_b] if type(p).__name__ == "AndInstr" else [p] for p in parts]
    return stages, len(parts) == 2 and bool(instrs.strict)


def _moved(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return values[:index] + (value,) + values[index + 1 :]
