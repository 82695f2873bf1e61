"""Published tasks with all quirks: action lists, observation vectors, offered actions, facts and success tests.

Everything here follows docs/specs/virtualhome.md. Facts are codes in the order of the paragraph that states them;
`text.py` turns them into our own words. Vector, offers and facts depend only on what the agent observes.
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
    HomeAction,
    HomeEngine,
    HomeState,
)
from envsuite.envs.virtualhome.home import Home, Thing

ROOMS = ("kitchen", "bathroom", "bedroom", "livingroom")  # in the order of the vector
WALKS = ("livingroom", "kitchen", "bathroom", "bedroom")  # in the order of the actions
HORIZON = 50
GAMMA = 0.95


@cache
def data() -> dict[str, Any]:
    """Returns the parsed apartment.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("apartment.toml").read_text())


def paper_tasks() -> tuple[str, ...]:
    """Returns the names of the eight published tasks."""
    return tuple(data()["tasks"])


def apartment(keys: tuple[str, ...], **changes: dict[str, Any]) -> Home:
    """Returns the published home reduced to the things in `keys` and their supports; `changes` override fields."""
    all_things = data()["things"]
    selected = set(keys)
    for key in keys:
        selected.update(changes.get(key, {}).get("on", all_things[key].get("on", ())))
    things = []
    for key, fields in all_things.items():
        if key in selected:
            fields = {**fields, **changes.get(key, {})}
            things.append(Thing(key, **{**fields, "on": tuple(fields.get("on", ()))}))
    return Home(data()["rooms"], things, "kitchen")


class Published:
    """Base class of the published tasks; `actions` and their `names` follow the order of the reference."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    """names of the entries of the observation vector"""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.engine = HomeEngine(home)
        self.actions = tuple(self._action(name) for name in self.names)

    def _action(self, name: str) -> HomeAction:
        verb, *nouns = name.split(":")
        return HomeAction(verb, *(self.home.bit[noun] for noun in nouns))

    def vector(self, s: HomeState, seen: int) -> tuple[int, ...]:
        """Returns the 0/1 observation vector in the order of `keys`; `seen` is `engine.visible(s)`."""
        raise NotImplementedError

    def offers(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the indices of the actions that the published wrapper offers."""
        raise NotImplementedError

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        """Returns the facts of the paragraph, in order: ROOM_LIST, ROOM, ..., GOAL, ASK."""
        raise NotImplementedError

    def success(self, vector: tuple[int, ...]) -> bool:
        """Returns True if the observation vector counts as success."""
        raise NotImplementedError

    def subgoals(self, s: HomeState) -> tuple[bool, ...]:
        """Returns which of our subgoals hold, for the dense reward; the published reward has none."""
        raise NotImplementedError


class Preparation(Published):
    """Food Preparation and its variants: success is food in the closed appliance, which is never switched on."""

    def __init__(self, food: str, appliance: str) -> None:
        """`food` and `appliance` are nouns of the text; their keys replace spaces by underscores."""
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

    def vector(self, s: HomeState, seen: int) -> tuple[int, ...]:
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
        kitchen, _, _, _, see, near, holds, _, at, is_open, _ = vector
        here = (1, 2, 3, 0)[vector.index(1)]  # index of the walk to the current room
        leave = tuple(i for i in range(4) if i != here)
        if not (kitchen and see):
            return leave
        if holds:
            return (*leave, 4, 7, 8, 9) if at else (*leave, 4, 5)
        if near and at:
            return (*leave, 8, 9) if is_open else (*leave, 9)
        if near:
            return (*leave, 5, 6)
        return (*leave, 4, 8, 9) if at else (*leave, 4, 5)

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        kitchen, _, _, _, see, near, holds, _, at, is_open, _ = vector
        facts = ["ROOM_LIST", f"ROOM={ROOMS[vector.index(1)]}"]
        if not kitchen:
            facts += ["SEE=none", "HOLD=food" if holds else "HOLD=none"]
            return (*facts, "GOAL", "ASK")
        facts.append("SEE=food,appl" if see else "FOOD_IN_APPL")
        if holds:
            facts += ["HOLD=food", "NEAR=appl" if at else "FAR=appl"]
        elif not (near and at):
            facts += ["HOLD=none", "NEAR=food" if near else "NEAR=appl" if at else "FAR=food,appl"]
        facts.append(("APPL=open" if is_open else "APPL=not_open") if see else "APPL=closed")
        return (*facts, "GOAL", "ASK")

    def success(self, vector: tuple[int, ...]) -> bool:
        return bool(vector[0] and not vector[4])

    def subgoals(self, s: HomeState) -> tuple[bool, ...]:
        return s.right == self.food, bool(s.open & self.appliance), bool(s.inside[0] & self.appliance)


class Entertainment(Published):
    """Entertainment: chips and milk in the living room, the tv on, the agent on the sofa.

    Switching needs a free hand, so that one item must be put on the coffee table first.
    """

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

    def vector(self, s: HomeState, seen: int) -> tuple[int, ...]:
        near, table = s.near, self.table
        flags = [int(s.room == room) for room in self.rooms]
        for i, item in enumerate((self.chips, self.milk)):
            if seen & item:
                holds = s.right == item or s.left == item
                flags += (1, int(near & item > 0), int(holds), int(s.on[i] & table > 0))
            else:
                flags += (0, 0, 0, 0)
        if seen & self.tv:  # tv, sofa and table are in one room
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
            return (
                () if hold_c else (9,) if near_c else (5,)
            )  # published quirk: a walk to the milk, which is not visible
        if see_m:
            return () if hold_m else (10,) if near_m else (4,)
        return ()

    def facts(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        room = ROOMS[vector.index(1)]
        hold = ("HOLD=none", "HOLD=chips", "HOLD=milk", "HOLD=chips,milk")[vector[6] + 2 * vector[10]]
        if room == "kitchen":
            facts = self._kitchen_facts(vector)
        elif room == "livingroom":
            near = vector[13] or vector[17] or vector[20]
            nearby_facts = self._livingroom_facts(vector) if near else ["FAR=coffeetable,tv,sofa", hold]
            facts = ["ROOM=livingroom;SEE=coffeetable,tv,sofa", *nearby_facts]
        else:
            facts = [f"ROOM={room};SEE=none", hold]
        return ("ROOM_LIST", *facts, "GOAL", "ASK")

    @staticmethod
    def _kitchen_facts(vector: tuple[int, ...]) -> list[str]:
        see_c, near_c, hold_c, _, see_m, near_m, hold_m, _ = vector[4:12]
        seen = [name for name, see in (("chips", see_c), ("milk", see_m)) if see]
        facts = [f"ROOM=kitchen;SEE={','.join(seen) or 'none'}"]
        near = {"chips": near_c, "milk": near_m}
        holds = [name for name, hold in (("chips", hold_c), ("milk", hold_m)) if hold]

        def place(name: str) -> list[str]:
            return [f"NEAR={name}", f"NOT_HELD={name}"] if near[name] else [f"FAR={name}"]

        if len(holds) == 2:
            return [*facts, "HOLD=chips,milk"]
        if len(seen) == 2 and holds:
            return [*facts, *place("milk" if hold_c else "chips"), f"HOLD={holds[0]}"]
        if len(seen) == 2:
            by = [fact for name in seen if near[name] for fact in place(name)]
            return [*facts, *(by or ["FAR=chips,milk"]), "HOLD=none"]
        if seen:
            return [*facts, *([f"HOLD={holds[0]}"] if holds else place(seen[0]))]
        return facts

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
            hand = ["HOLD=chips", "ON_TABLE=milk;HOLD=chips" if on_m else "HOLD=chips"]  # stated twice, as published
        tv_facts = [f"TV=on;{fact}" for fact in hand] if tv_on else hand
        if at_table:
            put_one = (on_c and hold_m) or (on_m and hold_c)
            return ["FAR=tv" if put_one else "NEAR=coffeetable", *(hand or ["HOLD=none"])]
        if at_tv:
            return ["FAR=sofa" if tv_on else "NEAR=tv", *tv_facts]
        return ["SITTING" if seated else "NEAR=sofa", *tv_facts]

    def success(self, vector: tuple[int, ...]) -> bool:
        chips, milk = vector[5] or vector[7], vector[9] or vector[11]
        return bool(vector[3] and vector[14] and vector[15] and vector[18] and chips and milk)

    def subgoals(self, s: HomeState) -> tuple[bool, ...]:

        def at_hand(i: int, item: int) -> bool:
            return s.right == item or s.left == item or bool(s.on[i] & self.table)

        return at_hand(0, self.chips), at_hand(1, self.milk), bool(s.power & self.tv)


@cache
def published(name: str) -> Published:
    """Returns a published task by name."""
    task = data()["tasks"][name]
    return Entertainment() if "items" in task else Preparation(task["food"], task["appliance"])
