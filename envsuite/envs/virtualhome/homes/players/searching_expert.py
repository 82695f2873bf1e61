"""Expert that searches: it knows the rules, the goal, and what this episode has shown.

It has the same information as a player, so the number of its commands, unlike the exact planner's, is a fair bound.
For the part of the goal whose turn it is, it looks for the things that the part needs, first where people keep them
(`household.toml`), at the place with the highest chance per command. Once it has seen them it follows a shortest plan
in the part of the home that it knows. It takes what it needs on the way if both hands are free.
"""

from __future__ import annotations

from collections.abc import Iterable

from envsuite.envs.virtualhome.engine import (
    GRAB,
    OPEN,
    PUTBACK,
    PUTIN,
    STANDUP,
    WALK,
    HomeAction,
    HomeState,
)
from envsuite.envs.virtualhome.homes.conditions import Condition, GroundedGoal, Stage
from envsuite.envs.virtualhome.homes.goals import (
    Alternatives,
    GoalTracker,
    OrderedGoal,
    Part,
    conditions,
    groundings,
)
from envsuite.envs.virtualhome.homes.players.search import ReducedSearch, relevant_keys
from envsuite.envs.virtualhome.homes.rules import HomeRules
from envsuite.envs.virtualhome.homes.vocabulary import rooms_for, sort_of, usual_places

ANYWHERE = 0.01
"""weight of furniture where people do not keep an object; `usual_places` has the weights of all other furniture"""


class SearchingExpert:
    """Proposes commands for one episode from what the visited states have shown."""

    def __init__(self, rules: HomeRules, goal: OrderedGoal) -> None:
        self.rules, self.goal = rules, goal
        self._read = 0  # states of the history that were read
        self._rooms: set[int] = set()  # visited rooms
        self._objects: set[int] = set()  # loose things that were seen
        self._inspected: set[int] = set()  # furniture whose contents were seen
        self._planned: dict[tuple[HomeState, int], HomeAction] = {}

    def next(self, history: list[HomeState], number: int) -> HomeAction | None:
        """Returns the next command after the states of an episode, in the last of which part `number` has its turn."""
        for s in history[self._read :]:
            self._see(s)
        self._read = len(history)
        s = history[-1]
        if (s, number) not in self._planned:
            part = self.goal.parts[number]
            ways = self._known_ways(part, s)
            if not ways or not self._plan(ways, s, number):
                return self._search(part, s, number)
        return self._planned[s, number]

    def _see(self, s: HomeState) -> None:
        rules, home = self.rules, self.rules.home
        self._rooms.add(s.room)
        self._objects.update(home.bits(rules.visible(s) & home.movable))
        for piece in home.bits(home.fixed_in[s.room] & (home.surface | home.container)):
            if not piece & home.door & ~s.open and (not rules.nearsighted or home.root[piece] == s.near):
                self._inspected.add(piece)

    # ---- what a part needs

    def _knows(self, key: str) -> bool:
        home = self.rules.home
        bit = home.bit[key]
        if bit & home.room_mask:
            return True
        return bit in self._objects if bit & home.movable else bool(home.room_of[bit] in self._rooms)

    def _devices(self, needed: Iterable[Condition]) -> set[str]:
        processes = {c.y for c in needed if c.kind == "mark"}
        return {key for key, thing in self.rules.home.things.items() if thing.process in processes}

    def _furniture(self, part: Part) -> set[str]:
        """Returns the furniture that a part mentions, the appliances of its processes included."""
        home = self.rules.home
        needed = list(conditions(part))
        keys = {key for c in needed for key in ((c.x,) if c.kind == "mark" else (c.x, c.y)) if key in home.things}
        return self._devices(needed) | {key for key in keys if not home.things[key].movable}

    def _known_ways(self, part: Part, s: HomeState, second_choice: bool = False) -> list[Stage]:
        """Returns the ways to fix a part's choices for which everything has been seen."""
        if not all(self._knows(key) for key in self._furniture(part)):
            return []
        if any(c.kind == "bare" and self.rules.home.bit[c.x] not in self._inspected for c in conditions(part)):
            return []
        ways = groundings(part)
        if second_choice:
            last = [Alternatives(1, r.options[1:]) if isinstance(r, Alternatives) and r.ranked else r for r in part]
            ways = groundings(tuple(last))
        return [stage for stage in ways if all(self._knows(c.x) for c in stage)]

    # ---- plans in the known part of the home

    def _plan(self, ways: list[Stage], s: HomeState, number: int) -> bool:
        """Stores the commands of a shortest plan for one of some ways to do a part. Returns False without a plan."""
        rules, home = self.rules, self.rules.home
        before: tuple[Stage, ...] = ((),) * number
        goal = OrderedGoal(self.goal.text, (*before, self.goal.parts[number]), ())
        best: list[HomeAction] | None = None
        for stage in ways:
            grounded = GroundedGoal(self.goal.text, (*before, stage))
            keys = {key for key in relevant_keys(rules, s, grounded) if self._knows(key)}
            keys |= self._seen_at_goal(s, number)
            search = ReducedSearch(rules, goal, grounded, frozenset(keys))
            limit = len(best) if best else 1 << 20
            if search.bound_at(s, number) < limit:
                best = search.plan_below(s, number, limit) or best
        now, tracker = s, GoalTracker(rules, goal)
        for action in best or ():
            self._planned[now, number] = action
            after, error = rules.apply(now, action)
            assert not error, f"planned {action}, refused as {error}"
            now, _ = tracker.step(now, after, number)
        return bool(best) and bool(home.things)

    def _seen_at_goal(self, s: HomeState, number: int) -> set[str]:
        """Returns the seen objects at the furniture of a part: they may have to be moved away."""
        home = self.rules.home
        places = sum(home.bit[key] for key in self._furniture(self.goal.parts[number]))
        keys = set()
        for bit, on, inside in zip(home.movable_bits, s.on, s.inside, strict=True):
            if bit in self._objects and (on | inside) & places:
                keys.add(home.names[bit.bit_length() - 1])
        return keys

    # ---- search

    def _search(self, part: Part, s: HomeState, number: int) -> HomeAction | None:
        """Returns a command towards the most promising place, or to an object that is needed and in this room."""
        if s.sitting:
            return HomeAction(STANDUP)
        home = self.rules.home
        items = sorted({c.x for c in conditions(part) if c.x in home.things and home.things[c.x].movable})
        if s.right and s.left:  # searching needs a free hand for doors
            useful = {home.bit[key] for key in items}
            return self._put_down(s, s.left if s.right in useful else s.right, part)
        if not (s.right or s.left):
            for key in items:
                moved = any(c.x == key and c.kind != "absent" for c in conditions(part))
                if moved and self._knows(key) and self._room_of(s, home.bit[key]) == s.room:
                    return self._towards(s, home.bit[key], GRAB)
        weight, target = self._best_target(part, s, [key for key in items if not self._knows(key)])
        if weight <= ANYWHERE * len(items):
            ways = self._known_ways(part, s, second_choice=True)
            if ways and self._plan(ways, s, number):
                return self._planned[s, number]
        if not target:
            return None
        if target & home.room_mask:
            return HomeAction(WALK, target)
        return self._towards(s, target, OPEN)

    def _best_target(self, part: Part, s: HomeState, items: list[str]) -> tuple[float, int]:
        """Returns (weight, target): the room or furniture with the highest weight per command; (0, 0) without one."""
        home = self.rules.home
        missing = [key for key in self._furniture(part) if not self._knows(key)]
        weights = [usual_places(sort_of(item)) for item in items]
        bare = {c.x for c in conditions(part) if c.kind == "bare"}
        best = 0.0, 0.0, 0
        for room in home.room_bits:
            if room not in self._rooms:
                name = home.nouns[room]
                weight = 1.0 * sum(name in rooms_for(key) for key in missing) + ANYWHERE
                for usual in weights:
                    weight += sum(w for key, w in usual.items() if name in rooms_for(key) and not self._seen_piece(key))
                best = max(best, (weight / (3 if items else 2), weight, room))
                continue
            for piece in home.bits(home.fixed_in[room] & (home.surface | home.container)):
                if piece in self._inspected:
                    continue
                key = home.names[piece.bit_length() - 1]
                weight = sum(usual.get(key, ANYWHERE) for usual in weights) + (key in bare)
                closed = bool(piece & home.door & ~s.open)
                cost = 1 + (room != s.room) + closed - (home.root[piece] == s.near)
                best = max(best, (weight / max(cost, 1), weight, piece))
        return best[1], best[2]

    def _seen_piece(self, key: str) -> bool:
        home = self.rules.home
        return key in home.bit and home.room_of[home.bit[key]] in self._rooms

    def _room_of(self, s: HomeState, item: int) -> int:
        home = self.rules.home
        return s.inside[self.rules.index(item)] & home.room_mask

    def _towards(self, s: HomeState, target: int, verb: str) -> HomeAction | None:
        """Returns the next command on the way to take a loose thing or to look into a piece of furniture."""
        rules, home = self.rules, self.rules.home
        place = target
        if target & home.movable:
            i = rules.index(target)
            place = s.on[i] or s.inside[i] & ~home.room_mask
        room = home.room_of[place]
        if room != s.room:
            return HomeAction(WALK, room)
        if home.root[place] != s.near:
            return HomeAction(WALK, place)
        if place & home.door & ~s.open:
            return HomeAction(OPEN, place)
        return HomeAction(verb, target)

    def _put_down(self, s: HomeState, item: int, part: Part) -> HomeAction:
        """Returns the next command towards putting an object down in the known part of the home."""
        home = self.rules.home
        bare = sum(home.bit[c.x] for c in conditions(part) if c.kind == "bare")
        places = [bit for room in self._rooms for bit in home.bits(home.fixed_in[room] & ~bare)]
        fitting = [bit for bit in places if bit & home.surface or bit & home.container & (s.open | ~home.door)]
        if not fitting:
            return HomeAction(WALK, next(room for room in home.room_bits if room not in self._rooms))
        place = min(fitting, key=lambda bit: (home.root[bit] != s.near, home.room_of[bit] != s.room, bit))
        if home.room_of[place] != s.room:
            return HomeAction(WALK, home.room_of[place])
        if home.root[place] != s.near:
            return HomeAction(WALK, place)
        return HomeAction(PUTBACK if place & home.surface else PUTIN, item, place)
