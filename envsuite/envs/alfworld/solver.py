"""The exact shortest plan from any state, and how far the goal has come.

Moving between any two places costs one command, so a shortest plan is a shortest way through a few errands: put down
what is in the way, take an object, treat it, put it where it belongs. `solve` tries every sensible choice of object,
source, appliance and destination and counts the commands of each exactly; receptacles that differ in nothing that
matters are tried once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envsuite.envs.alfworld.game import LIGHT, PLACE_TWO, TRANSFORMS, Game, State
from envsuite.envs.alfworld.logic import PORTABLE

PUT, TAKE, TREAT, USE, GO = "put", "take", "treat", "use", "go"


class Errand(NamedTuple):
    """One thing to do at a receptacle: walking there and opening it are understood."""

    do: str
    o: int
    r: int


Plan = tuple[Errand, ...]
"""Errands in order; () where nothing is left to do."""


def remaining(game: Game, state: State) -> int | None:
    """Commands a shortest plan still needs, 0 when won; None where no plan exists."""
    found = solve(game, state)
    return None if found is None else found[0]


def next_command(game: Game, state: State) -> str | None:
    """The first command of a shortest plan; None when won or lost."""
    found = solve(game, state)
    if found is None or not found[1]:
        return None
    return next(_commands(game, state, found[1]))


def commands(game: Game, state: State) -> list[str] | None:
    """A shortest plan from `state` as commands; None where none exists."""
    found = solve(game, state)
    return None if found is None else list(_commands(game, state, found[1]))


def solve(game: Game, state: State) -> tuple[int, Plan] | None:
    """The length of a shortest plan in commands, and its errands; None where the task cannot be solved."""
    best: tuple[int, Plan] | None = None
    for plan in _plans(game, state):
        cost = _cost(game, state, plan)
        if best is None or cost < best[0]:
            best = cost, plan
            if cost == 0:
                break
    return best


def _cost(game: Game, state: State, plan: Plan) -> int:
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


def _commands(game: Game, state: State, plan: Plan) -> Iterator[str]:
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


def _plans(game: Game, state: State) -> Iterable[Plan]:
    """Plans among which a shortest one is."""
    if game.is_won(state):
        return ((),)
    sources = [
        (o, r)
        for r, row in enumerate(state.contents)
        if row and not game.targets.isdisjoint(row)
        for o in row
        if o in game.targets and o != state.held and game.flags[o] & PORTABLE
    ]
    if game.goal.kind == LIGHT:
        return _light_plans(game, state, sources)
    if game.goal.kind == PLACE_TWO:
        return _two_plans(game, state, sources)
    return _place_plans(game, state, sources)


def _light_plans(game: Game, state: State, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    for take, _ in _takes(game, state, sources, []):
        for r, row in enumerate(state.contents):
            for lamp in row:
                if lamp in game.lamps:
                    yield *take, Errand(GO if state.toggled >> lamp & 1 else USE, lamp, r)


def _place_plans(game: Game, state: State, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    verb = TRANSFORMS.get(game.goal.kind)
    appliances = game.appliances[verb] if verb else ()
    treated = {"clean": state.clean, "heat": state.hot, "cool": state.cool}[verb] if verb else -1
    targets = _destinations(game, state, [*(r for _, r in sources), *appliances])
    for take, o in _takes(game, state, sources, targets):
        origin = take[-1].r if take else -1
        stays = any(o in state.contents[r] for r in game.destinations if r != origin)  # it also lies where it belongs
        for treat in ((),) if treated >> o & 1 else [(Errand(TREAT, o, r),) for r in appliances]:
            if stays:
                yield *take, *treat
            for r in targets:
                yield *take, *treat, Errand(PUT, o, r)


def _two_plans(game: Game, state: State, sources: list[tuple[int, int]]) -> Iterator[Plan]:
    partly = [r for r in game.destinations if not game.targets.isdisjoint(state.contents[r])]
    targets = _destinations(game, state, [r for _, r in sources], partly)
    for take, o in _takes(game, state, sources, targets):
        for r in targets:
            there = [other for other in state.contents[r] if other in game.targets]
            if o in there:
                continue
            first = (*take, Errand(PUT, o, r))
            if there:
                yield first
                continue
            for other, source in sources:
                if other != o:
                    yield *first, Errand(TAKE, other, source), Errand(PUT, other, r)


def _takes(
    game: Game, state: State, sources: list[tuple[int, int]], targets: list[int]
) -> Iterator[tuple[tuple[Errand, ...], int]]:
    """Ways to have an object of the goal in hand: (errands, object)."""
    held = state.held
    if held in game.targets:
        yield (), held
    if held < 0:
        for o, source in sources:
            yield (Errand(TAKE, o, source),), o
        return
    where = game.receptacle_location
    near = {state.location, *(where[r] for _, r in sources)}
    for dump in _unlike(game, state, game.holders.get(game.object_types[held], ()), near, targets):
        for o, source in sources:
            yield (Errand(PUT, held, dump), Errand(TAKE, o, source)), o


def _destinations(game: Game, state: State, visited: list[int], keep: Iterable[int] = ()) -> list[int]:
    """Where the goal's object may be put: `visited` are receptacles a plan passes, `keep` those that differ anyway."""
    where = game.receptacle_location
    candidates = game.destinations & game.holders.get(game.goal.object_type, frozenset())
    near = {state.location, *(where[r] for r in visited)}
    found = _unlike(game, state, candidates, near)
    return found + [r for r in keep if r in candidates and r not in found]


def _unlike(
    game: Game, state: State, candidates: Iterable[int], near: set[int], prefer: Iterable[int] = ()
) -> list[int]:
    """The candidates that can make a difference: of those far from everything a plan passes one will do, an
    accessible one if there is one, else one of `prefer`; of those at one place all, unless one is accessible."""
    where, shut = game.receptacle_location, game.openable & ~state.opened
    by_place: dict[int, list[int]] = {}
    for r in candidates:
        by_place.setdefault(where[r] if where[r] in near else -1, []).append(r)
    found = []
    for place, rs in by_place.items():
        accessible = next((r for r in rs if not shut >> r & 1), None)
        if accessible is not None:
            found.append(accessible)
        elif place >= 0:
            found += rs
        else:
            found.append(next((r for r in rs if r in prefer), rs[0]))
    return found
