"""Texts of a service: instructions, observations, and what a command did."""

from __future__ import annotations

from envsuite.envs.overcooked.kitchen import FLOOR, all_foods
from envsuite.envs.overcooked.service.engine import (
    BOWL,
    BURNT,
    CHOPPED,
    GRILLED,
    NOTHING,
    RAW,
    Rules,
    Service,
    State,
    is_raw,
)
from envsuite.envs.overcooked.service.layout import BIN, BOARD, CRATE, HATCH, RACK, STOVE, Station
from envsuite.envs.overcooked.service.outlook import items_of
from envsuite.envs.overcooked.text import listing

FORMS = {RAW: "raw", CHOPPED: "chopped", GRILLED: "grilled", BURNT: "burnt"}
DIRECTIONS = {"north": 3, "east": 0, "south": 1, "west": 2}
"""Command of each direction of the engine."""

INTRODUCTION = """\
You are the only cook in a small kitchen. Serve every order before its time runs out. If the time of one order runs \
out, the game is lost.

The map shows the kitchen from above, with north at the top. The symbols are: @ you, . floor, # wall, B cutting board, \
S stove, C counter, R bowl rack, H serving hatch, X bin, and a small letter for each food crate: {letters}. Stations \
of the same kind are numbered row by row from the top, each row from left to right. Rows and columns \
count from 1, at the top left."""

PRIMITIVE = """\
Each command takes one step of time. The commands north, east, south and west move you by one cell. If a station is \
there, you use it instead of moving. The command wait lets one step pass."""

STATION = """\
The command "use" with the name of a station, for example "use the bin", walks to the station on the shortest way and \
uses it. Every cell of the walk takes one step of time, and so does the use. With empty hands you cut the food on a \
board until it is done, and you wait at a stove until its food is done. The command wait lets one step pass."""

RULES = """\
- You carry one thing at a time: a food, or a bowl. A bowl holds several chopped or grilled foods.
- A crate gives you a raw food, and the rack gives you an empty bowl. Both take back what they gave. If you use the \
rack while you carry a chopped or grilled food, you get a bowl that holds it.
- To chop a food, put it raw on a board, and use the board {chops} with empty hands. A raw food on a board stays there \
until it is chopped.
- To grill a food, put it raw on a stove. It is grilled after {cooking} steps, and {burning} steps later it is burnt.
- To fill a bowl, use a chopped or grilled food while you carry the bowl, or use the bowl while you carry the food.
- A board, a stove or a counter holds one thing. If you use an empty one, you put down what you carry; with empty \
hands you take what is there. Only raw food goes on a stove, and it stays there until it is grilled.
- The hatch takes a bowl that holds exactly the foods of an order, and nothing else. Orders may be served in any \
sequence.
- The bin takes any food, and empties a bowl. Burnt food is of no other use. Crates and racks never run empty.
- A command that does nothing takes a step of time, too. With 1 step left, an order can still be served by that step."""


CHANGES = """\
- An order that is not served yet may be withdrawn once during the game, and another one comes in its place. You are \
told when it happens. The other orders stay as they are."""


def instructions(control: str, rules: Rules, changes: bool = False) -> str:
    """Returns the rules of the game for a player."""
    letters = listing([f"{letter} {food}" for food, letter in all_foods().items()])
    chops = "once" if rules.chops == 1 or control == "station" else f"{rules.chops} times"
    how = PRIMITIVE if control == "primitive" else STATION
    details = RULES.format(chops=chops, cooking=rules.cooking, burning=rules.burning)
    details += f"\n{CHANGES}" * changes
    return f"{INTRODUCTION.format(letters=letters)}\n\n{how}\n\n{details}\n\nEach turn, answer with one command."


def thing_name(service: Service, thing: int) -> str:
    """Returns a thing with its article: "a raw tomato", "an empty bowl", "a bowl with chopped onion"."""
    if thing == BOWL:
        return "an empty bowl"
    if thing > BOWL:
        return f"a bowl with {dish_name(service, thing - BOWL)}"
    return f"a {item_name(service, thing)}"


def item_name(service: Service, item: int) -> str:
    """Returns a food with its form: "chopped tomato"."""
    return f"{FORMS[item & 3]} {service.layout.foods[item >> 2]}"


def dish_name(service: Service, dish: int) -> str:
    """Returns the foods of a dish: "chopped tomato and grilled onion"."""
    return listing([item_name(service, item) for item in items_of(dish)])


def objective(service: Service) -> str:
    """Returns the goal of the game."""
    dishes = [f"a bowl with {dish_name(service, order.dish)}" for order in service.orders]
    if service.change is not None:
        return f"Serve every order in time. The first orders are {listing(dishes)}; one of them may change."
    return f"Serve {listing(dishes)}, each in time."


def observation(service: Service, state: State) -> str:
    """Returns what the cook sees: the map, its place and hands, the things in the kitchen, and the orders."""
    layout = service.layout
    row, column = layout.kitchen.position(state.cell)
    rows = list(layout.rows)
    rows[row] = f"{rows[row][:column]}@{rows[row][column + 1 :]}"
    hands = "your hands are empty" if state.hand == NOTHING else f"you carry {thing_name(service, state.hand)}"
    sentences = [f"You are in row {row + 1}, column {column + 1}, and {hands}."]
    around = [f"{_neighbour(service, state.cell, number)} to the {name}" for name, number in DIRECTIONS.items()]
    sentences.append(f"There is {listing(around)}.")
    sentences += [
        _content(service, layout.stations[number], state, state.slots[slot])
        for slot, number in enumerate(layout.holders)
        if state.slots[slot] != NOTHING
    ]
    orders = []
    for i, order in enumerate(service.orders):
        if state.served >> i & 1:
            orders.append(f"Order {i + 1} is served.")
        else:
            dish, left = dish_name(service, order.dish), order.deadline - state.time
            orders.append(f"Order {i + 1} is a bowl with {dish}: {left} step{'s' * (left != 1)} left.")
    return "\n".join([*rows, " ".join(sentences), *orders])


def _neighbour(service: Service, cell: int, direction: int) -> str:
    layout = service.layout
    there = cell + layout.kitchen.delta[direction]
    if there in layout.station_at:
        return layout.stations[layout.station_at[there]].name
    return "floor" if layout.kitchen.kind[there] == FLOOR else "a wall"


def _content(service: Service, station: Station, state: State, thing: int) -> str:
    """Returns a sentence about the thing on a station."""
    row, column = service.layout.kitchen.position(station.cell)
    work, rules = state.work[station.slot], service.rules
    more = ""
    if station.kind == STOVE and thing & 3 != BURNT:
        raw = is_raw(thing)
        left = rules.cooking - work if raw else rules.cooking + rules.burning - work
        more = f", {'done' if raw else 'burnt'} in {left} step{'s' * (left != 1)}"
    elif station.kind == BOARD and work:
        more = f", cut {'once' if work == 1 else f'{work} times'}"
    name = f"{station.name[0].upper()}{station.name[1:]}"
    return f"{name} in row {row + 1}, column {column + 1} holds {thing_name(service, thing)}{more}."


def event(service: Service, before: State, after: State, station: Station) -> str:
    """Returns what the use of a station did, or why it did nothing."""
    if after.served != before.served:
        return f"You serve order {(after.served & ~before.served).bit_length()}."
    hand, slot = before.hand, station.slot
    held = before.slots[slot] if slot >= 0 else NOTHING
    if (hand, held) == (after.hand, after.slots[slot] if slot >= 0 else NOTHING):
        if slot >= 0 and after.work[slot] > before.work[slot] and station.kind == BOARD:
            return f"You cut the {service.layout.foods[held >> 2]}."
        return _refusal(service, station, hand, held)
    thing = thing_name(service, hand).partition(" ")[2]
    if hand == NOTHING:
        if after.hand != NOTHING:
            return f"You take {thing_name(service, after.hand)}."
        return f"You cut the {service.layout.foods[held >> 2]}, and it is chopped now."
    if station.kind == BIN:
        return f"You throw the {thing} away." if after.hand == NOTHING else "You empty the bowl into the bin."
    if station.kind in (CRATE, RACK):
        return f"You put the {thing} back." if after.hand == NOTHING else f"You put the {thing} into a bowl."
    if after.hand == NOTHING:
        return f"You add the {thing} to the bowl." if held >= BOWL else f"You put the {thing} on {station.name}."
    return f"You add the {item_name(service, held)} to the bowl."


def _refusal(service: Service, station: Station, hand: int, held: int) -> str:
    """Returns why the use of a station changed nothing."""
    if station.kind in (CRATE, RACK):
        return "Your hands are full."
    if station.kind == BIN:
        return "You have nothing to throw away."
    if station.kind == HATCH:
        return "No order wants this bowl." if hand >= BOWL else "The hatch takes only bowls."
    if station.kind == STOVE and hand == NOTHING and held != NOTHING:
        return f"The {service.layout.foods[held >> 2]} is not done yet."
    if hand == NOTHING:
        return f"There is nothing on {station.name}."
    if station.kind == STOVE and held == NOTHING:
        return "Only raw food goes on a stove."
    return f"{thing_name(service, hand).capitalize()} does not go with {thing_name(service, held)}."
