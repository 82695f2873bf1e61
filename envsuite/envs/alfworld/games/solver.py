"""Exact shortest plans from any state, and the number of commands they need.

Moving between any two locations costs one command, so a shortest plan is a shortest sequence of a
few subtasks: put down the object in hand, take an object, treat it, put it into its destination.
`solve` enumerates all useful choices of object, source, appliance and destination and counts the
commands of each exactly. Receptacles that are interchangeable are tried only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envsuite.envs.alfworld.games.game import LIGHT, PLACE_TWO, TRANSFORMS, AlfworldGame, GameState
from envsuite.envs.alfworld.games.logic import PICKUPABLE

PUT, TAKE, TREAT, USE, GO = "put", "take", "treat", "use", "go"


class Subtask(NamedTuple):
    """An action at a receptacle; walking there and opening it are implied."""

    do: str
    o: int
    r: int


Plan = tuple[Subtask, ...]
"""Subtasks in order; empty if nothing is left to do."""


def remaining(game: AlfworldGame, state: GameState) -> int | None:
    """Returns the number of commands of a shortest plan, 0 if won; None if no plan exists."""
    solution = solve(game, state)
    return None if solution is None else solution[0]


def next_command(game: AlfworldGame, state: GameState) -> str | None:
    """Returns the first command of a shortest plan; None if won or lost."""
    solution = solve(game, state)
    if solution is None or not solution[1]:
        return None
    return next(_commands(game, state, solution[1]))


def commands(game: AlfworldGame, state: GameState) -> list[str] | None:
    """Returns a shortest plan from `state` as commands; None if none exists."""
    solution = solve(game, state)
    return None if solution is None else list(_commands(game, state, solution[1]))


def solve(game: AlfworldGame, state: GameState) -> tuple[int, Plan] | None:
    """Returns the length of a shortest plan and its subtasks; None if the task cannot be solved."""
    best: tuple[int, Plan] | None = None
    for plan in _plans(game, state):
        cost = _cost(game, state, plan)
        if best is None or cost < best[0]:
            best = cost, plan
            if cost == 0:
                break
    return best


def _cost(game: AlfworldGame, state: GameState, plan: Plan) -> int:
    at, opened, where, openable = state.location, state.opened, game.receptacle_location, game.openable
    cost = 0
    for do, _, r in plan:
        if where[r] != at:
            at = where[r]
            cost += 1
        if do in (PUT, TAKE):
            bit = 1 << r
            if openable & bit and not opened & bit:
                opened |= bit
                cost += 1
        if do != GO:
            cost += 1
    return cost


def _commands(game: AlfworldGame, state: GameState, plan: Plan) -> Iterator[str]:
    at, opened, where = state.location, state.opened, game.receptacle_location
    verb = TRANSFORMS.get(game.goal.kind)
    for do, o, r in plan:
        receptacle, name = game.receptacles[r], game.objects[o]
        if where[r] != at:
            at = where[r]
            yield f"go to {receptacle}"
        if do in (PUT, TAKE) and game.openable >> r & 1 and not opened >> r & 1:
            opened |= 1 << r
            yield f"open {receptacle}"
        if do == PUT:
            yield game.sentences.put_command % (name, receptacle)
        elif do == TAKE:
            yield f"take {name} from {receptacle}"
        elif do == TREAT:
            yield f"{verb} {name} with {receptacle}"
        elif do == USE:
            yield f"use {name}"


def _plans(game: AlfworldGame, state: GameState) -> Iterable[Plan]:
    """Returns candidate plans, one of which is shortest."""
    if game.is_won(state):
        return ((),)
    sources = [
        (o, r)
        for r, row in enumerate(state.contents)
        if row and not game.targets.isdisjoint(row)
        for o in row
        if o in game.targets and o != state.held and game.flags[o] & PICKUPABLE
    ]
    if game.goal.kind == LIGHT:
        return _light_plans(game, state, sources)
    if game.goal.kind == PLACE_TWO:
        return _two_plans(game, state, sources)
    return _place_plans(game, state, sources)


def _light_plans(game: AlfworldGame, state: GameState, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    for take, _ in _takes(game, state, sources, []):
        for r, row in enumerate(state.contents):
            for lamp in row:
                if lamp in game.lamps:
                    yield *take, Subtask(GO if state.toggled >> lamp & 1 else USE, lamp, r)


def _place_plans(game: AlfworldGame, state: GameState, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    verb = TRANSFORMS.get(game.goal.kind)
    appliances = game.appliances[verb] if verb else ()
    treated = {"clean": state.clean, "heat": state.hot, "cool": state.cool}[verb] if verb else -1
    targets = _destinations(game, state, [*(r for _, r in sources), *appliances])
    for take, o in _takes(game, state, sources, targets):
        origin = take[-1].r if take else -1
        stays = any(
            o in state.contents[r] for r in game.destinations if r != origin
        )  # a copy of it is still in a destination
        for treat in ((),) if treated >> o & 1 else [(Subtask(TREAT, o, r),) for r in appliances]:
            if stays:
                yield *take, *treat
            for r in targets:
                yield *take, *treat, Subtask(PUT, o, r)


def _two_plans(game: AlfworldGame, state: GameState, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    partly = [r for r in game.destinations if not game.targets.isdisjoint(state.contents[r])]
    targets = _destinations(game, state, [r for _, r in sources], partly)
    for take, o in _takes(game, state, sources, targets):
        for r in targets:
            there = [second for second in state.contents[r] if second in game.targets]
            if o in there:
                continue
            first = (*take, Subtask(PUT, o, r))
            if there:
                yield first
                continue
            for second, source in sources:
                if second != o:
                    yield *first, Subtask(TAKE, second, source), Subtask(PUT, second, r)


def _takes(
    game: AlfworldGame, state: GameState, sources: list[tuple[int, int]], targets: list[int]
) -> Iterator[tuple[tuple[Subtask, ...], int]]:
    """Yields ways to get an object of the goal into the hand: (subtasks, object)."""
    held = state.held
    if held in game.targets:
        yield (), held
    if held < 0:
        for o, source in sources:
            yield (Subtask(TAKE, o, source),), o
        return
    where = game.receptacle_location
    near = {state.location, *(where[r] for _, r in sources)}
    for dump in _distinct_receptacles(game, state, game.holders.get(game.object_types[held], ()), near, targets):
        for o, source in sources:
            yield (Subtask(PUT, held, dump), Subtask(TAKE, o, source)), o


def _destinations(game: AlfworldGame, state: GameState, visited: list[int], keep: Iterable[int] = ()) -> list[int]:
    """Returns the receptacles worth considering as the destination.

    `visited` are receptacles on the way of a plan, `keep` are always included if they are
    candidates.
    """
    where = game.receptacle_location
    candidates = game.destinations & game.holders.get(game.goal.object_type, frozenset())
    near = {state.location, *(where[r] for r in visited)}
    distinct = _distinct_receptacles(game, state, candidates, near)
    return distinct + [r for r in keep if r in candidates and r not in distinct]


def _distinct_receptacles(
    game: AlfworldGame, state: GameState, candidates: Iterable[int], near: set[int], prefer: Iterable[int] = ()
) -> list[int]:
    """Removes interchangeable candidates.

    Among candidates far from the plan's locations, one is enough: an accessible one if there is
    one, otherwise one of `prefer`. At each location of the plan, all are kept unless one is
    accessible.
    """
    where, shut = game.receptacle_location, game.openable & ~state.opened
    by_place: dict[int, list[int]] = {}
    for r in candidates:
        by_place.setdefault(where[r] if where[r] in near else -1, []).append(r)
    selected = []
    for place, rs in by_place.items():
        accessible = next((r for r in rs if not shut >> r & 1), None)
        if accessible is not None:
            selected.append(accessible)
        elif place >= 0:
            selected += rs
        else:
            selected.append(next((r for r in rs if r in prefer), rs[0]))
    return selected
