"""The native engine: a small state machine whose answers equal the stock engine's, byte for byte.

    engine = NativeEngine(AlfworldGame.load("game.tw-pddl"))
    feedback, admissible, won = engine.reset()
    feedback, admissible, won = engine.step("go to fridge 1")
    state = engine.get_state()  # small and hashable; engine.set_state(state) restores it

The rules are in docs/specs/alfworld.md.

The engine does not recompute the admissible commands on every turn. Moving selects a precomputed
list of destinations, and only the commands for the receptacles at the current location are
recomputed after a change. For locations that nobody has changed, feedback and commands are cached
per game, by location and object in hand.
"""

from __future__ import annotations

from bisect import bisect, insort
from typing import Any

from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.game import LIGHT, AlfworldGame, GameState
from envsuite.envs.alfworld.games.game_tables import Action, Commands, GameTables, View, enumeration, evict_oldest
from envsuite.envs.alfworld.games.logic import (
    CLEAN,
    CLEANABLE,
    CONTAINER,
    COOL,
    COOLABLE,
    HEATABLE,
    HOT,
    KNIFE,
    PICKUPABLE,
    SLICEABLE,
    SLICED,
    TOGGLEABLE,
    TOGGLED,
    Unrecognised,
)
from envsuite.envs.alfworld.stock import EngineReply
from envsuite.errors import UsageError

__all__ = ["NOTHING_HAPPENS", "AlfworldGame", "EngineReply", "GameState", "NativeEngine", "Unrecognised"]

NOTHING_HAPPENS = "Nothing happens."
"""Feedback to every command that is not admissible."""


class NativeEngine:
    """Plays one game. Every string is a legal command; inadmissible ones change nothing."""

    __slots__ = (
        "_changed", "_go", "_moving_can_win", "_tables", "clean", "contents", "cool", "dead_end", "game", "held",
        "hot", "location", "opened", "places", "revision", "sliced", "taken", "toggled", "view", "won",
    )  # fmt: skip

    location: int
    held: int
    opened: int
    contents: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]
    hot: int
    cool: int
    clean: int
    sliced: int
    toggled: int
    taken: frozenset[tuple[int, int]]
    won: bool
    revision: int
    """Counter that grows with every action on an object, and when walking wins the game."""
    view: View
    """the admissible commands and the action of each"""
    _changed: int
    """bit mask of locations whose receptacles may differ from the start state"""
    dead_end: bool
    """the object in hand can never be put down, and the task cannot be solved with it in hand"""

    def __init__(self, game: AlfworldGame) -> None:
        self.game = game
        tables: GameTables | None = game.__dict__.get("_tables")
        if tables is None:
            tables = game.__dict__["_tables"] = GameTables(game)
        self._tables = tables
        self._go, self._moving_can_win = tables.go, game.goal.kind == LIGHT
        self.revision = 0
        self.set_state(game.start)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.game, self.get_state(), self.revision)

    def reset(self) -> EngineReply:
        """Returns to the start state; the feedback describes the room and the task."""
        self.set_state(self.game.start)
        return EngineReply(self.opening, self.view[0], self.won)

    @property
    def opening(self) -> str:
        """Description of the room and the task, as `reset` returns it."""
        return self._tables.intro

    def step(self, command: str) -> EngineReply:
        """Executes a command."""
        return EngineReply(self.act(command), self.view[0], self.won)

    def act(self, command: str) -> str:
        """Executes a command and returns only the feedback; faster than `step`."""
        arrival = self._go.get(command)
        if arrival is None:
            action = self.view[1].get(command)
            if action is None:
                bare = command.strip()
                return NOTHING_HAPPENS if bare == command else self.act(bare)
            do, a, b = action
            return do(self, a, b)
        location = arrival.location
        if location == self.location:
            return NOTHING_HAPPENS
        self.location = location
        if self._changed >> location & 1:
            self._update_view()
            feedback = self._tables.arrive[arrival.r] % self._contents(arrival.r)
        else:
            if self.held >= 0:
                self._update_view()
            elif arrival.view:
                self.view = arrival.view
            else:
                self._update_view()
                arrival.view = self.view
            feedback = arrival.greeting
            if not feedback:
                feedback = arrival.greeting = self._tables.arrive[arrival.r] % self._contents(arrival.r)
        if self._moving_can_win and self.won != self.game.is_won(self):
            self.won = not self.won
            self.revision += 1
        return feedback

    def admissible(self) -> list[str]:
        """Returns all admissible commands in sorted order. The list must not be modified."""
        return self.view[0]

    def get_state(self) -> GameState:
        """Returns the full game state as a hashable value."""
        return GameState(
            self.location, self.held, self.opened, self.contents, self.places, self.hot, self.cool, self.clean,
            self.sliced, self.toggled, self.taken,
        )  # fmt: skip

    def set_state(self, state: GameState) -> None:
        """Restores a state that `get_state` returned for the same game; raises UsageError
        otherwise.
        """
        game = self.game
        if not isinstance(state, GameState) or (len(state.contents), len(state.places)) != (
            len(game.receptacles),
            len(game.objects),
        ):
            raise UsageError(f"Not a state of the game {game.name}: pass a value that its get_state() returned.")
        (
            self.location, self.held, self.opened, self.contents, self.places, self.hot, self.cool, self.clean,
            self.sliced, self.toggled, self.taken,
        ) = state  # fmt: skip
        self._changed = 0 if state is game.start else -1
        self._update_view()
        self._update_outcome()

    # ---- actions; each returns its feedback

    def _open(self, r: int, _: int) -> str:
        self.opened |= 1 << r
        self._mark_changed()
        return self.game.sentences.open % (self.game.receptacles[r], self._contents(r))

    def _close(self, r: int, _: int) -> str:
        self.opened &= ~(1 << r)
        self._mark_changed()
        return self.game.sentences.close % self.game.receptacles[r]

    def _take(self, o: int, r: int) -> str:
        contents, places = list(self.contents), list(self.places)
        contents[r] = tuple(item for item in contents[r] if item != o)
        places[o] &= ~(1 << self.location)
        self.contents, self.places = tuple(contents), tuple(places)
        self.held, self.taken = o, self.taken | {(o, r)}
        self._mark_changed()
        self._update_outcome(o)
        return self.game.sentences.take % (self.game.objects[o], self.game.receptacles[r])

    def _put(self, o: int, r: int) -> str:
        contents, places = list(self.contents), list(self.places)
        row = list(contents[r])
        if o not in row:
            insort(row, o)
        contents[r] = tuple(row)
        places[o] |= 1 << self.location
        self.contents, self.places = tuple(contents), tuple(places)
        self.held, self.taken = -1, self.taken - {(o, r)}
        self._mark_changed()
        self._update_outcome(o)
        return self.game.sentences.put % (self.game.objects[o], self.game.receptacles[r])

    def _clean(self, o: int, r: int) -> str:
        self.clean |= 1 << o
        self._update_outcome(o)
        return self.game.sentences.clean % (self.game.objects[o], self.game.receptacles[r])

    def _heat(self, o: int, r: int) -> str:
        self.hot |= 1 << o
        self.cool &= ~(1 << o)
        self._update_outcome(o)
        return self.game.sentences.heat % (self.game.objects[o], self.game.receptacles[r])

    def _cool(self, o: int, r: int) -> str:
        self.cool |= 1 << o
        self.hot &= ~(1 << o)
        self._update_outcome(o)
        return self.game.sentences.cool % (self.game.objects[o], self.game.receptacles[r])

    def _use(self, o: int, _: int) -> str:
        self.toggled |= 1 << o
        self._update_outcome()
        return self.game.sentences.use % self.game.objects[o]

    def _slice(self, o: int, knife: int) -> str:
        self.sliced |= 1 << o
        return self.game.sentences.slice % (self.game.objects[o], self.game.objects[knife])

    def _examine_receptacle(self, r: int, _: int) -> str:
        return self._contents(r)

    def _examine_object(self, o: int, _: int) -> str:
        game, sentences = self.game, self.game.sentences
        flags = game.flags[o]
        if flags & CONTAINER:
            return sentences.vessel % (game.objects[o], self._objects(game.inside.get(o, ())))
        for mask, flag in (
            (self.hot, HOT),
            (self.cool, COOL),
            (self.clean, CLEAN),
            (self.sliced, SLICED),
            (self.toggled, TOGGLED),
        ):
            if mask >> o & 1:
                flags |= flag
        return next(text for required, text in sentences.examine if required & flags == required) % game.objects[o]

    def _look(self, _: int, __: int) -> str:
        game, sentences = self.game, self.game.sentences
        here = game.receptacles_at.get(self.location)
        if here is None:
            return sentences.room % sentences.nothing
        beside = sorted((o, r) for o, r in self.taken if r in here and self.places[o] >> self.location & 1)
        return sentences.facing % (self._tables.facing[self.location], self._objects(tuple([o for o, _ in beside])))

    def _inventory(self, _: int, __: int) -> str:
        sentences = self.game.sentences
        return sentences.empty_handed if self.held < 0 else sentences.carrying % f"a {self.game.objects[self.held]}"

    def _help(self, _: int, __: int) -> str:
        return self.game.sentences.help or ""

    # ---- descriptions and admissible commands

    def _contents(self, r: int) -> str:
        tables, bit = self._tables, 1 << r
        if not tables.openable & bit:
            return tables.on[r] % self._objects(self.contents[r])
        if self.opened & bit:
            return tables.is_open[r] % self._objects(self.contents[r])
        return tables.is_closed[r]

    def _objects(self, rows: tuple[int, ...]) -> str:
        """Returns a list of objects in words: 'a mug 2, and a pen 1'."""
        tables = self._tables
        text = tables.lists.get(rows)
        if text is None:
            evict_oldest(tables.lists)
            text = tables.lists[rows] = enumeration(self.game.sentences, [tables.articled[o] for o in rows])
        return text

    def _update_outcome(self, o: int = -1) -> None:
        """Updates `won`, `dead_end` and `revision` after an action on `o` (-1: unknown object)."""
        self.revision += 1
        if o < 0 or o in self.game.targets:  # no other object can win the game
            self.won = self.game.is_won(self)
        stuck = self.held >= 0 and self.game.cannot_put_down(self.held)
        self.dead_end = stuck and solver.solve(self.game, self.get_state()) is None

    def _mark_changed(self) -> None:
        """Marks the current location as changed and updates the view."""
        self._changed |= 1 << self.location
        self._update_view()

    def _update_view(self) -> None:
        """Computes the admissible commands at this location, or takes them from the cache."""
        tables, location, held = self._tables, self.location, self.held
        mask, here = tables.receptacles_at[location]
        key: object
        if held >= 0 and self.game.flags[held] & KNIFE:  # slicing depends on where all objects are
            key = (location, held, self.opened & mask, *[self.contents[r] for r in here], self.places)
        elif not self._changed >> location & 1:
            key = (location, held)
        else:
            key = (location, held, self.opened & mask, *[self.contents[r] for r in here])
        view = tables.views.get(key)
        if view is None:
            evict_oldest(tables.views)
            view = tables.views[key] = self._view(here)
        self.view = view

    def _view(self, here: tuple[int, ...]) -> View:
        game, held, opened = self.game, self.held, self.opened
        receptacles, objects, flags = game.receptacles, game.objects, game.flags
        actions: dict[str, Action] = {
            "look": (NativeEngine._look, 0, 0),
            "inventory": (NativeEngine._inventory, 0, 0),
        }
        if game.sentences.help is not None:
            actions["help"] = (NativeEngine._help, 0, 0)
        for r in here:
            name, kind = receptacles[r], game.receptacle_types[r]
            accessible = True
            actions["examine " + name] = (NativeEngine._examine_receptacle, r, 0)
            if game.openable >> r & 1:
                accessible = bool(opened >> r & 1)
                if accessible:
                    actions["close " + name] = (NativeEngine._close, r, 0)
                else:
                    actions["open " + name] = (NativeEngine._open, r, 0)
            for o in self.contents[r]:
                if held < 0 and accessible and flags[o] & PICKUPABLE:
                    actions[f"take {objects[o]} from {name}"] = (NativeEngine._take, o, r)
                if flags[o] & TOGGLEABLE:
                    actions["use " + objects[o]] = (NativeEngine._use, o, 0)
            if held >= 0:
                if accessible and r in game.holders.get(game.object_types[held], ()):
                    actions[game.sentences.put_command % (objects[held], name)] = (NativeEngine._put, held, r)
                if kind in game.cleaners and flags[held] & CLEANABLE:
                    actions[f"clean {objects[held]} with {name}"] = (NativeEngine._clean, held, r)
                elif kind == "microwavetype" and flags[held] & HEATABLE:
                    actions[f"heat {objects[held]} with {name}"] = (NativeEngine._heat, held, r)
                elif kind == "fridgetype" and flags[held] & COOLABLE:
                    actions[f"cool {objects[held]} with {name}"] = (NativeEngine._cool, held, r)
        if held >= 0:
            actions["examine " + objects[held]] = (NativeEngine._examine_object, held, 0)
            if flags[held] & KNIFE:
                for o, places in enumerate(self.places):
                    if places >> self.location & 1 and flags[o] & SLICEABLE:
                        actions[f"slice {objects[o]} with {objects[held]}"] = (NativeEngine._slice, o, held)
        tables = self._tables
        local = sorted(actions)
        split = bisect(local, "go to ")  # no other verb sorts between two destinations
        away = tables.away.get(self.location)
        if away is None:
            away = [command for command, location in tables.destinations if location != self.location]
            tables.away[self.location] = away
        return Commands(local[:split] + away + local[split:]), actions


def _restore(game: AlfworldGame, state: GameState, revision: int) -> NativeEngine:
    """Rebuilds an engine from a pickle."""
    engine = NativeEngine(game)
    engine.set_state(state)
    engine.revision = revision
    return engine
