"""The papers' tasks as published: action lists, observation vectors, offers, facts and success, quirks included.

Everything here follows docs/specs/virtualhome.md. Facts are codes in the order in which a paragraph tells
them; `text.py` puts them into our own words. Vector, offers and facts are functions of what the agent observes.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from envsuite.envs.virtualhome.engine import (
    GRAB,
    PUTBACK,
    SIT,
    STANDUP,
    SWITCHOFF,
    SWITCHON,
    WALK,
    Action,
    Engine,
    State,
)
from envsuite.envs.virtualhome.home import Home, Thing

ROOMS = ("kitchen", "bathroom", "bedroom", "livingroom")  # in the order of the vector
WALKS = ("livingroom", "kitchen", "bathroom", "bedroom")  # in the order of the actions
HORIZON = 50
GAMMA = 0.95


@cache
def data() -> dict[str, Any]:
    """homes.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("homes.toml").read_text())


def paper_tasks() -> tuple[str, ...]:
    """The names of the papers' eight tasks."""
    return tuple(data()["tasks"])


def apartment(keys: tuple[str, ...], **changes: dict[str, Any]) -> Home:
    """The published home with only the things of `keys` and what they stand on; `changes` replace their fields."""
    listed = data()["things"]
    wanted = set(keys)
    for key in keys:
        wanted.update(changes.get(key, {}).get("on", listed[key].get("on", ())))
    things = []
    for key, fields in listed.items():
        if key in wanted:
            fields = {**fields, **changes.get(key, {})}
            things.append(Thing(key, **{**fields, "on": tuple(fields.get("on", ()))}))
    return Home(data()["rooms"], things, "kitchen")


class Published:
    """A published task over the engine. `actions` are in the reference's order, `names` their canonical names."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    """of the observation vector"""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.engine = Engine(home)
        self.actions = tuple(self._action(name) for name in self.names)

    def _action(self, name: str) -> Action:
        verb, *nouns = name.split(":")
        return Action(verb, *(self.home.bit[noun] for noun in nouns))

    def vector(self, s: State, seen: int) -> tuple[int, ...]:
        """The 0/1 observation, in the order of `keys`. `seen` is `engine.visible(s)`."""
        raise NotImplementedError

    def offers(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """Indices of the actions the training wrapper offers."""
        raise NotImplementedError

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        """What a paragraph tells, in order: ROOM_LIST, ROOM, ..., GOAL, ASK."""
        raise NotImplementedError

    def success(self, vector: tuple[int, ...]) -> bool:
        """Whether the task is done."""
        raise NotImplementedError

    def subgoals(self, s: State) -> tuple[bool, ...]:
        """Our milestones on the way, for the dense reward; the published reward has none."""
        raise NotImplementedError


class Preparation(Published):
    """Food Preparation and its renamings: food in the closed appliance is success; nothing is ever switched on."""

    def __init__(self, food: str, appliance: str) -> None:
        """`food` and `appliance` as they are called in text; keys have '_' for ' '."""
        self.nouns = food, appliance
        self.food_key, self.appliance_key = food.replace(" ", "_"), appliance.replace(" ", "_")
        f, a = self.food_key, self.appliance_key
        walks = tuple(f"{WALK}:{room}" for room in WALKS)
        self.names = (*walks, f"walk:{f}", f"walk:{a}", f"grab:{f}", f"putin:{f}:{a}", f"open:{a}", f"close:{a}")
        see = (f"see_{f}", f"close_to_{f}", f"hold_{f}", f"see_{a}", f"close_to_{a}", f"is_{a}_open", f"{f}_in_{a}")
        self.keys = (*(f"in_{room}" for room in ROOMS), *see)
        home = apartment(("microwave", "pancake"))
        super().__init__(home.rename({"pancake": f, "microwave": a}))
        bit = self.home.bit
        self.food, self.appliance, self.kitchen = bit[f], bit[a], bit["kitchen"]
        self.home.nouns |= {self.food: food, self.appliance: appliance}
        self.rooms = tuple(bit[room] for room in ROOMS)

    def vector(self, s: State, seen: int) -> tuple[int, ...]:
        food, appliance = self.food, self.appliance
        f, a = bool(seen & food), bool(seen & appliance)
        kitchen, bathroom, bedroom, livingroom = self.rooms
        return (
            int(s.room == kitchen),
            int(s.room == bathroom),
            int(s.room == bedroom),
            int(s.room == livingroom),
            int(f),
            int(f and s.near & food > 0),
            int(f and s.right == food),
            int(a),
            int(a and s.near & appliance > 0),
            int(a and s.open & appliance > 0),
            int(f and s.inside[0] & appliance > 0),
        )

    def offers(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        kitchen, _, _, _, see, near, held, _, at, is_open, _ = vector
        here = (1, 2, 3, 0)[vector.index(1)]  # the index of the walk to where one is
        leave = tuple(i for i in range(4) if i != here)
        if not (kitchen and see):
            return leave
        if held:
            return (*leave, 4, 7, 8, 9) if at else (*leave, 4, 5)
        if near and at:
            return (*leave, 8, 9) if is_open else (*leave, 9)
        if near:
            return (*leave, 5, 6)
        return (*leave, 4, 8, 9) if at else (*leave, 4, 5)

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        kitchen, _, _, _, see, near, held, _, at, is_open, _ = vector
        said = ["ROOM_LIST", f"ROOM={ROOMS[vector.index(1)]}"]
        if not kitchen:
            said += ["SEE=none", "HOLD=food" if held else "HOLD=none"]
            return (*said, "GOAL", "ASK")
        said.append("SEE=food,appl" if see else "FOOD_IN_APPL")
        if held:
            said += ["HOLD=food", "NEAR=appl" if at else "FAR=appl"]
        elif not (near and at):
            said += ["HOLD=none", "NEAR=food" if near else "NEAR=appl" if at else "FAR=food,appl"]
        said.append(("APPL=open" if is_open else "APPL=not_open") if see else "APPL=closed")
        return (*said, "GOAL", "ASK")

    def success(self, vector: tuple[int, ...]) -> bool:
        return bool(vector[0] and not vector[4])

    def subgoals(self, s: State) -> tuple[bool, ...]:
        return s.right == self.food, bool(s.open & self.appliance), bool(s.inside[0] & self.appliance)


class Entertainment(Published):
    """Chips and milk to the living room, the tv on, and down on the sofa; the last free hand needs the coffee table."""

    names = (
        *(f"{WALK}:{room}" for room in WALKS),
        *(f"{WALK}:{thing}" for thing in ("chips", "milk", "coffeetable", "tv", "sofa")),
        *(f"{GRAB}:{item}" for item in ("chips", "milk")),
        *(f"{PUTBACK}:{item}:coffeetable" for item in ("chips", "milk")),
        *(f"{SWITCHON}:tv", f"{SWITCHOFF}:tv", f"{SIT}:sofa", STANDUP),
    )
    keys = (
        *(f"in_{room}" for room in ROOMS),
        *("see_chips", "close_to_chips", "hold_chips", "chips_on_coffeetable"),
        *("see_milk", "close_to_milk", "hold_milk", "milk_on_coffeetable"),
        *("see_tv", "close_to_tv", "is_face_tv", "is_tv_on", "see_sofa", "close_to_sofa", "is_sit_sofa"),
        *("see_coffeetable", "close_to_coffeetable"),
    )

    def __init__(self) -> None:
        super().__init__(apartment(("chips", "milk", "coffeetable", "tv", "sofa")))
        bit = self.home.bit
        self.rooms = tuple(bit[room] for room in ROOMS)
        self.chips, self.milk, self.table = bit["chips"], bit["milk"], bit["coffeetable"]
        self.tv, self.sofa = bit["tv"], bit["sofa"]

    def vector(self, s: State, seen: int) -> tuple[int, ...]:
        near, table = s.near, self.table
        flags = [int(s.room == room) for room in self.rooms]
        for i, item in enumerate((self.chips, self.milk)):
            if seen & item:
                held = s.right == item or s.left == item
                flags += (1, int(near & item > 0), int(held), int(s.on[i] & table > 0))
            else:
                flags += (0, 0, 0, 0)
        if seen & self.tv:  # tv, sofa and table stand in one room
            tv, sofa = self.tv, self.sofa
            flags += (1, int(near & tv > 0), int(s.facing & tv > 0), int(s.power & tv > 0))
            flags += (1, int(near & sofa > 0), int(s.seat & sofa > 0), 1, int(near & table > 0))
        else:
            flags += (0, 0, 0, 0, 0, 0, 0, 0, 0)
        return tuple(flags)

    def offers(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        see_c, near_c, hold_c, on_c, see_m, near_m, hold_m, on_m = vector[4:12]
        here = (1, 2, 3, 0)[vector.index(1)]
        leave = tuple(i for i in range(4) if i != here)
        if vector[0]:
            return leave + self._kitchen_offers(see_c, near_c, hold_c, see_m, near_m, hold_m)
        if not vector[3]:
            return leave
        tv_on, at_tv, at_sofa, seated, at_table = vector[15], vector[13], vector[17], vector[18], vector[20]
        if at_sofa:
            return leave if seated else (*leave, 6, 7, 15, 16) if tv_on else (*leave, 6, 7)
        if at_tv:
            return (*leave, 6, 8) if tv_on else (*leave, 6, 8, 13, 14)
        if at_table:
            if hold_c and hold_m:
                return (*leave, 7, 8, 11, 12)
            if hold_m:
                return (*leave, 7, 8) if on_c else (*leave, 7, 8, 12)
            if hold_c:
                return (*leave, 7, 8) if on_m else (*leave, 7, 8, 11)
            return leave
        return (*leave, 6, 7, 8)

    @staticmethod
    def _kitchen_offers(see_c: int, near_c: int, hold_c: int, see_m: int, near_m: int, hold_m: int) -> tuple[int, ...]:
        if see_c and see_m:
            if hold_c and hold_m:
                return ()
            if hold_c:
                return (10,) if near_m else (5,)
            if hold_m:
                return (9,) if near_c else (4,)
            return {(1, 1): (9, 10), (1, 0): (5, 9), (0, 1): (4, 10), (0, 0): (4, 5)}[near_c, near_m]
        if see_c:
            return () if hold_c else (9,) if near_c else (5,)  # the wrong walk: the milk is not here
        if see_m:
            return () if hold_m else (10,) if near_m else (4,)
        return ()

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        room = ROOMS[vector.index(1)]
        hold = ("HOLD=none", "HOLD=chips", "HOLD=milk", "HOLD=chips,milk")[vector[6] + 2 * vector[10]]
        if room == "kitchen":
            said = self._kitchen_facts(vector)
        elif room == "livingroom":
            near = vector[13] or vector[17] or vector[20]
            told = self._livingroom_facts(vector) if near else ["FAR=coffeetable,tv,sofa", hold]
            said = ["ROOM=livingroom;SEE=coffeetable,tv,sofa", *told]
        else:
            said = [f"ROOM={room};SEE=none", hold]
        return ("ROOM_LIST", *said, "GOAL", "ASK")

    @staticmethod
    def _kitchen_facts(vector: tuple[int, ...]) -> list[str]:
        see_c, near_c, hold_c, _, see_m, near_m, hold_m, _ = vector[4:12]
        seen = [name for name, see in (("chips", see_c), ("milk", see_m)) if see]
        said = [f"ROOM=kitchen;SEE={','.join(seen) or 'none'}"]
        near = {"chips": near_c, "milk": near_m}
        held = [name for name, hold in (("chips", hold_c), ("milk", hold_m)) if hold]
        place = lambda name: [f"NEAR={name}", f"NOT_HELD={name}"] if near[name] else [f"FAR={name}"]
        if len(held) == 2:
            return [*said, "HOLD=chips,milk"]
        if len(seen) == 2 and held:
            return [*said, *place("milk" if hold_c else "chips"), f"HOLD={held[0]}"]
        if len(seen) == 2:
            by = [fact for name in seen if near[name] for fact in place(name)]
            return [*said, *(by or ["FAR=chips,milk"]), "HOLD=none"]
        if seen:
            return [*said, *([f"HOLD={held[0]}"] if held else place(seen[0]))]
        return said

    @staticmethod
    def _livingroom_facts(vector: tuple[int, ...]) -> list[str]:
        hold_c, on_c, hold_m, on_m = vector[6], vector[7], vector[10], vector[11]
        at_tv, tv_on, seated, at_table = vector[13], vector[15], vector[18], vector[20]
        hand: list[str] = []
        if hold_c and hold_m:
            hand = ["HOLD=chips,milk"]
        elif hold_m:
            hand = ["ON_TABLE=chips;HOLD=milk" if on_c else "HOLD=milk"]
        elif hold_c:
            hand = ["HOLD=chips", "ON_TABLE=milk;HOLD=chips" if on_m else "HOLD=chips"]  # said twice, as published
        told_on = [f"TV=on;{fact}" for fact in hand] if tv_on else hand
        if at_table:
            put_one = (on_c and hold_m) or (on_m and hold_c)
            return ["FAR=tv" if put_one else "NEAR=coffeetable", *(hand or ["HOLD=none"])]
        if at_tv:
            return ["FAR=sofa" if tv_on else "NEAR=tv", *told_on]
        return ["SITTING" if seated else "NEAR=sofa", *told_on]

    def success(self, vector: tuple[int, ...]) -> bool:
        chips, milk = vector[5] or vector[7], vector[9] or vector[11]
        return bool(vector[3] and vector[14] and vector[15] and vector[18] and chips and milk)

    def subgoals(self, s: State) -> tuple[bool, ...]:
        at_hand = lambda i, item: s.right == item or s.left == item or bool(s.on[i] & self.table)
        return at_hand(0, self.chips), at_hand(1, self.milk), bool(s.power & self.tv)


@cache
def published(name: str) -> Published:
    """The published task of that name."""
    task = data()["tasks"][name]
    return Entertainment() if "items" in task else Preparation(task["food"], task["appliance"])
