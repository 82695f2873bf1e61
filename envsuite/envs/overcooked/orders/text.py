"""Texts of the kitchens with orders: instructions, observations, and what a command did."""

from __future__ import annotations

from envsuite.envs.overcooked.foods import FOODS, listing
from envsuite.envs.overcooked.grid import DOWN, LEFT, RIGHT, UP
from envsuite.envs.overcooked.orders.kitchen import BIN, BOARD, CRATE, HATCH, RACK, STOVE, Station
from envsuite.envs.overcooked.orders.rules import (
    BURNT,
    CHOPPED,
    GRILLED,
    RAW,
    Dish,
    Durations,
    Item,
    OrderGame,
    State,
    Thing,
    is_bowl,
    is_raw,
    is_ready,
)

FORMS = {RAW: "raw", CHOPPED: "chopped", GRILLED: "grilled", BURNT: "burnt"}
DIRECTIONS = {"north": UP, "east": RIGHT, "south": DOWN, "west": LEFT}
"""Direction of each command."""

INTRODUCTION = """\
You are the only cook in a small kitchen. Serve every order before its time runs out. If the time of one order runs \
out, the game is lost.

The map shows the kitchen from above, with north at the top. The symbols are: @ you, . floor, # wall, B cutting board, \
S stove, C counter, R bowl rack, H serving hatch, X bin, and a small letter for each food crate: {letters}. Stations \
of the same kind are numbered row by row from the top, each row from left to right. Rows and columns \
count from 1, at the top left."""

COMMANDS = """\
Each command takes one step of time. The commands north, east, south and west move you by one cell. If a station is \
there, you use it instead of moving. The command wait lets one step pass."""

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


def instructions(durations: Durations, changes: bool = False) -> str:
    """Returns the rules of the game for a player."""
    letters = listing([f"{letter} {food}" for food, letter in FOODS.items()])
    chops = "once" if durations.chops == 1 else f"{durations.chops} times"
    details = RULES.format(chops=chops, cooking=durations.cooking, burning=durations.burning)
    details += f"\n{CHANGES}" * changes
    return f"{INTRODUCTION.format(letters=letters)}\n\n{COMMANDS}\n\n{details}\n\nEach turn, answer with one command."


def thing_name(game: OrderGame, thing: Item | Dish) -> str:
    """Returns a thing with its article: "a raw tomato", "an empty bowl", "a bowl with chopped onion"."""
    if isinstance(thing, Item):
        return f"a {item_name(game, thing)}"
    return f"a bowl with {dish_name(game, thing)}" if thing else "an empty bowl"


def item_name(game: OrderGame, item: Item) -> str:
    """Returns a food with its form: "chopped tomato"."""
    return f"{FORMS[item.form]} {game.kitchen.foods[item.food]}"


def dish_name(game: OrderGame, dish: Dish) -> str:
    """Returns the foods of a dish: "chopped tomato and grilled onion"."""
    return listing([item_name(game, item) for item in sorted(dish)])


def objective(game: OrderGame) -> str:
    """Returns the goal of the game."""
    dishes = [f"a bowl with {dish_name(game, order.dish)}" for order in game.orders]
    if game.change is not None:
        return f"Serve every order in time. The first orders are {listing(dishes)}; one of them may change."
    return f"Serve {listing(dishes)}, each in time."


def observation(game: OrderGame, state: State) -> str:
    """Returns what the cook sees: the map, its place and hands, the things in the kitchen, and the orders."""
    kitchen = game.kitchen
    row, column = kitchen.grid.position(state.cell)
    rows = list(kitchen.rows)
    rows[row] = f"{rows[row][:column]}@{rows[row][column + 1 :]}"
    hands = "your hands are empty" if state.hand is None else f"you carry {thing_name(game, state.hand)}"
    around = [f"{_neighbour(game, state.cell, direction)} to the {name}" for name, direction in DIRECTIONS.items()]
    sentences = [f"You are in row {row + 1}, column {column + 1}, and {hands}.", f"There is {listing(around)}."]
    for slot, number in enumerate(kitchen.equipment.holders):
        thing = state.slots[slot]
        if thing is not None:
            sentences.append(_content(game, kitchen.stations[number], state, thing))
    orders = []
    for number, order in enumerate(game.orders):
        if number in state.served:
            orders.append(f"Order {number + 1} is served.")
        else:
            left = _steps(order.deadline - state.time)
            orders.append(f"Order {number + 1} is a bowl with {dish_name(game, order.dish)}: {left} left.")
    return "\n".join([*rows, " ".join(sentences), *orders])


def _steps(number: int) -> str:
    return f"{number} step{'s' * (number != 1)}"


def _neighbour(game: OrderGame, cell: int, direction: int) -> str:
    kitchen = game.kitchen
    neighbour = cell + kitchen.grid.delta[direction]
    if neighbour in kitchen.station_at:
        return kitchen.stations[kitchen.station_at[neighbour]].name
    return "floor" if kitchen.grid.is_floor[neighbour] else "a wall"


def _content(game: OrderGame, station: Station, state: State, thing: Item | Dish) -> str:
    """Returns a sentence about the thing on a station."""
    row, column = game.kitchen.grid.position(station.cell)
    work, durations = state.work[station.slot], game.durations
    more = ""
    if station.kind == STOVE and is_raw(thing):
        more = f", done in {_steps(durations.cooking - work)}"
    elif station.kind == STOVE and is_ready(thing):
        more = f", burnt in {_steps(durations.cooking + durations.burning - work)}"
    elif station.kind == BOARD and work:
        more = f", cut {'once' if work == 1 else f'{work} times'}"
    name = f"{station.name[0].upper()}{station.name[1:]}"
    return f"{name} in row {row + 1}, column {column + 1} holds {thing_name(game, thing)}{more}."


def event(game: OrderGame, before: State, after: State, station: Station) -> str:
    """Returns what the use of a station did, or why it did nothing."""
    if served := after.served - before.served:
        return f"You serve order {min(served) + 1}."
    hand, slot = before.hand, station.slot
    held = before.slots[slot] if slot >= 0 else None
    if before == after:
        return _refusal(game, station, hand, held)
    if hand is None and after.hand is not None:
        return f"You take {thing_name(game, after.hand)}."
    if hand is None:
        assert isinstance(held, Item)
        done = ", and it is chopped now" if is_ready(after.slots[slot]) else ""
        return f"You cut the {game.kitchen.foods[held.food]}{done}."
    thing = thing_name(game, hand).partition(" ")[2]
    if station.kind == BIN:
        return f"You throw the {thing} away." if after.hand is None else "You empty the bowl into the bin."
    if station.kind in (CRATE, RACK):
        return f"You put the {thing} back." if after.hand is None else f"You put the {thing} into a bowl."
    if after.hand is None:
        return f"You add the {thing} to the bowl." if is_bowl(held) else f"You put the {thing} on {station.name}."
    assert isinstance(held, Item)
    return f"You add the {item_name(game, held)} to the bowl."


def _refusal(game: OrderGame, station: Station, hand: Thing, held: Thing) -> str:
    """Returns why the use of a station changed nothing."""
    if station.kind in (CRATE, RACK):
        return "Your hands are full."
    if station.kind == BIN:
        return "You have nothing to throw away."
    if station.kind == HATCH:
        return "No order wants this bowl." if is_bowl(hand) else "The hatch takes only bowls."
    if station.kind == STOVE and hand is None and isinstance(held, Item):
        return f"The {game.kitchen.foods[held.food]} is not done yet."
    if hand is None:
        return f"There is nothing on {station.name}."
    if held is None:
        return "Only raw food goes on a stove."
    return f"{thing_name(game, hand).capitalize()} does not go with {thing_name(game, held)}."
