"""The native engine: the stock engine's answers, to the letter, from a small state machine
(docs/specs/alfworld.md).

    engine = NativeEngine(Game.load("game.tw-pddl"))
    feedback, admissible, won = engine.reset()
    feedback, admissible, won = engine.step("go to fridge 1")
    state = engine.get_state()  # small and hashable; engine.set_state(state) goes back to it

The admissible list is kept, not computed: moving swaps a precomputed list of destinations, and only what can be done
with the receptacles at hand is looked at again after a change there. What a place that nobody has touched yet shows and
allows is kept once per game, by place and object in hand.
"""

from __future__ import annotations

from bisect import bisect, insort

from envsuite.envs.alfworld import solver
from envsuite.envs.alfworld.game import LIGHT, Game, State
from envsuite.envs.alfworld.logic import (
    CLEAN,
    CLEANABLE,
    COOL,
    COOLABLE,
    HEATABLE,
    HOT,
    KNIFE,
    PORTABLE,
    SLICEABLE,
    SLICED,
    TOGGLEABLE,
    TOGGLED,
    VESSEL,
    Unrecognised,
)
from envsuite.envs.alfworld.seam import Answer
from envsuite.envs.alfworld.table import Action, Commands, Table, View, listed, make_room
from envsuite.errors import UsageError

__all__ = ["NOTHING_HAPPENS", "Answer", "Game", "NativeEngine", "State", "Unrecognised"]

NOTHING_HAPPENS = "Nothing happens."
"""What any command that is not admissible is answered."""


class NativeEngine:
    """Plays one game. Any string may be said; what is not admissible changes nothing."""

    __slots__ = (
        "_changed", "_go", "_moving_counts", "_table", "clean", "contents", "cool", "dead_end", "deeds", "game", "held",
        "hot", "location", "opened", "places", "sliced", "taken", "toggled", "view", "won",
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
    deeds: int
    """grows with whatever is done to an object, and where walking wins; equal numbers mean that nothing was done"""
    view: View
    """what can be said now, and what it does"""
    _changed: int
    """mask of the locations where a receptacle may no longer be as it was at the start"""
    dead_end: bool
    """what is held can never be put down, and the task cannot be solved with it in hand"""

    def __init__(self, game: Game) -> None:
        self.game = game
        table: Table | None = game.__dict__.get("_table")
        if table is None:
            table = game.__dict__["_table"] = Table(game)
        self._table = table
        self._go, self._moving_counts = table.go, game.goal.kind == LIGHT
        self.deeds = 0
        self.set_state(game.start)

    def reset(self) -> Answer:
        """Back to the start; the feedback is the room and the task."""
        self.set_state(self.game.start)
        return Answer(self.opening, self.view[0], self.won)

    @property
    def opening(self) -> str:
        """The room and the task: what `reset` says. A new engine stands at the start already."""
        return self._table.intro

    def step(self, command: str) -> Answer:
        """Does what an admissible command says."""
        return Answer(self.act(command), self.view[0], self.won)

    def act(self, command: str) -> str:
        """`step` for who reads `won` and `admissible()` himself: returns the feedback alone."""
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
            self._look_around()
            feedback = self._table.arrive[arrival.r] % self._contents(arrival.r)
        else:
            if self.held >= 0:
                self._look_around()
            elif arrival.view:
                self.view = arrival.view
            else:
                self._look_around()
                arrival.view = self.view
            feedback = arrival.greeting
            if not feedback:
                feedback = arrival.greeting = self._table.arrive[arrival.r] % self._contents(arrival.r)
        if self._moving_counts and self.won != self.game.is_won(self):
            self.won = not self.won
            self.deeds += 1
        return feedback

    def admissible(self) -> list[str]:
        """Every command that would now be understood, as plain strings sort. Not to be changed."""
        return self.view[0]

    def get_state(self) -> State:
        """All that changes, as a hashable value."""
        return State(
            self.location, self.held, self.opened, self.contents, self.places, self.hot, self.cool, self.clean,
            self.sliced, self.toggled, self.taken,
        )  # fmt: skip

    def set_state(self, state: State) -> None:
        """Goes to a state `get_state` gave for the same game. Raises UsageError for anything else."""
        game = self.game
        if not isinstance(state, State) or (len(state.contents), len(state.places)) != (
            len(game.receptacles),
            len(game.objects),
        ):
            raise UsageError(f"This is no state of the game {game.name}: only what its get_state() gave can be set.")
        (
            self.location, self.held, self.opened, self.contents, self.places, self.hot, self.cool, self.clean,
            self.sliced, self.toggled, self.taken,
        ) = state  # fmt: skip
        self._changed = 0 if state is game.start else -1
        self._look_around()
        self._judge()

    # ---- what commands do; each returns its feedback -----------------------------------------------------------------

    def _open(self, r: int, _: int) -> str:
        self.opened |= 1 << r
        self._touch()
        return self.game.sentences.open % (self.game.receptacles[r], self._contents(r))

    def _close(self, r: int, _: int) -> str:
        self.opened &= ~(1 << r)
        self._touch()
        return self.game.sentences.close % self.game.receptacles[r]

    def _take(self, o: int, r: int) -> str:
        contents, places = list(self.contents), list(self.places)
        contents[r] = tuple(other for other in contents[r] if other != o)
        places[o] &= ~(1 << self.location)
        self.contents, self.places = tuple(contents), tuple(places)
        self.held, self.taken = o, self.taken | {(o, r)}
        self._touch()
        self._judge(o)
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
        self._touch()
        self._judge(o)
        return self.game.sentences.put % (self.game.objects[o], self.game.receptacles[r])

    def _clean(self, o: int, r: int) -> str:
        self.clean |= 1 << o
        self._judge(o)
        return self.game.sentences.clean % (self.game.objects[o], self.game.receptacles[r])

    def _heat(self, o: int, r: int) -> str:
        self.hot |= 1 << o
        self.cool &= ~(1 << o)
        self._judge(o)
        return self.game.sentences.heat % (self.game.objects[o], self.game.receptacles[r])

    def _cool(self, o: int, r: int) -> str:
        self.cool |= 1 << o
        self.hot &= ~(1 << o)
        self._judge(o)
        return self.game.sentences.cool % (self.game.objects[o], self.game.receptacles[r])

    def _use(self, o: int, _: int) -> str:
        self.toggled |= 1 << o
        self._judge()
        return self.game.sentences.use % self.game.objects[o]

    def _slice(self, o: int, knife: int) -> str:
        self.sliced |= 1 << o
        return self.game.sentences.slice % (self.game.objects[o], self.game.objects[knife])

    def _examine_receptacle(self, r: int, _: int) -> str:
        return self._contents(r)

    def _examine_object(self, o: int, _: int) -> str:
        game, says = self.game, self.game.sentences
        flags = game.flags[o]
        if flags & VESSEL:
            return says.vessel % (game.objects[o], self._objects(game.inside.get(o, ())))
        for mask, flag in (
            (self.hot, HOT),
            (self.cool, COOL),
            (self.clean, CLEAN),
            (self.sliced, SLICED),
            (self.toggled, TOGGLED),
        ):
            if mask >> o & 1:
                flags |= flag
        return next(text for asked, text in says.examine if asked & flags == asked) % game.objects[o]

    def _look(self, _: int, __: int) -> str:
        game, says = self.game, self.game.sentences
        here = game.here.get(self.location)
        if here is None:
            return says.room % says.nothing
        beside = sorted((o, r) for o, r in self.taken if r in here and self.places[o] >> self.location & 1)
        facing = self._table.facing.get(self.location)
        if facing is None:
            facing = self._table.facing[self.location] = listed(says, [game.receptacles[r] for r in here])
        return says.facing % (facing, self._objects(tuple([o for o, _ in beside])))

    def _inventory(self, _: int, __: int) -> str:
        says = self.game.sentences
        return says.empty_handed if self.held < 0 else says.carrying % f"a {self.game.objects[self.held]}"

    def _help(self, _: int, __: int) -> str:
        return self.game.sentences.help or ""

    # ---- what there is to see ----------------------------------------------------------------------------------------

    def _contents(self, r: int) -> str:
        table, bit = self._table, 1 << r
        if not table.openable & bit:
            return table.on[r] % self._objects(self.contents[r])
        if self.opened & bit:
            return table.is_open[r] % self._objects(self.contents[r])
        return table.is_closed[r]

    def _objects(self, rows: tuple[int, ...]) -> str:
        """'a mug 2, and a pen 1'."""
        table = self._table
        text = table.lists.get(rows)
        if text is None:
            make_room(table.lists)
            text = table.lists[rows] = listed(self.game.sentences, [table.articled[o] for o in rows])
        return text

    def _judge(self, o: int = -1) -> None:
        """After anything was done to an object: to `o`, or there is no telling to which."""
        self.deeds += 1
        if o < 0 or o in self.game.targets:  # in hand or in place, clean or hot, no other object counts
            self.won = self.game.is_won(self)
        hopeless = self.held in self._table.stuck and solver.solve(self.game, self.get_state()) is None
        self.dead_end = hopeless

    def _touch(self) -> None:
        """Notes that something changed at this location."""
        self._changed |= 1 << self.location
        self._look_around()

    def _look_around(self) -> None:
        """Finds what can be done with the receptacles here and the object in hand; seen before, it is looked up."""
        table, location, held = self._table, self.location, self.held
        mask, here = table.here[location]
        key: object
        if held in table.knives:  # only who holds a knife looks at more than contents
            key = (location, held, self.opened & mask, *[self.contents[r] for r in here], self.places)
        elif not self._changed >> location & 1:
            key = (location, held)
        else:
            key = (location, held, self.opened & mask, *[self.contents[r] for r in here])
        view = table.views.get(key)
        if view is None:
            make_room(table.views)
            view = table.views[key] = self._view(here)
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
                if held < 0 and accessible and flags[o] & PORTABLE:
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
        table = self._table
        local = sorted(actions)
        split = bisect(local, "go to ")  # no other verb sorts between two destinations
        away = table.away.get(self.location)
        if away is None:
            away = [command for command, to in table.destinations if to.location != self.location]
            table.away[self.location] = away
        return Commands(local[:split] + away + local[split:]), actions
