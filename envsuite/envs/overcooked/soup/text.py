"""Texts of Overcooked-AI: instructions, observations of each cook, and commands."""

from __future__ import annotations

from envsuite.envs.overcooked.foods import listing, normalise
from envsuite.envs.overcooked.soup.engine import (
    DISH,
    IDLE,
    MOST_ONIONS,
    NOTHING,
    ONION,
    SOUP,
    Pot,
    SoupKitchen,
    SoupState,
)
from envsuite.envs.overcooked.soup.layout import (
    COOKS,
    COUNTER,
    DISHES,
    DOWN,
    FLOOR,
    INTERACT,
    LEFT,
    ONIONS,
    POT,
    RIGHT,
    STAY,
    UP,
    WINDOW,
)
from envsuite.messages import MOST_CHARACTERS

COMMANDS = {"up": UP, "down": DOWN, "left": LEFT, "right": RIGHT, "stay": STAY, "interact": INTERACT}
NAMES = {action: name for name, action in COMMANDS.items()}
UNKNOWN = f"This command is unknown, so you stay where you are. The commands are {listing(list(COMMANDS))}."

RULES = """\
Two cooks share a small kitchen and make onion soups. Serve as many soups of {most} onions as you can in {horizon} \
steps.

The map shows the kitchen from above. The symbols are: 1 and 2 the cooks, . floor, X counter, O onion crate, D dish \
rack, P pot, S serving window. Rows and columns count from 1, at the top left. In every step, both cooks act at the \
same time.

- up, down, left and right turn a cook in that direction and move it by one cell if there is floor and no cook. \
If both cooks want the same cell, or want to swap cells, neither moves.
- interact uses the cell in front of the cook, and stay does nothing.
- A cook carries one thing at a time. With empty hands you take an onion from the crate, a dish from the rack, or what \
lies on a counter. You can put what you carry on an empty counter.
- An onion goes into a pot that does not cook and has fewer than {most} onions. {start}
- A soup cooks for {cook_time} steps. Then interact with the pot while you carry a dish to take the soup, and \
interact with a serving window to serve it. Only a soup of {most} onions counts."""
START = "Interact with a pot with empty hands to start it; it starts with any number of onions, and takes no more then."
AUTOMATIC = "A pot with {most} onions starts by itself."

BOTH = """

Each turn says which of the two cooks you command. The step takes place when both cooks have a command."""
OWN = """

You are one of the cooks, and the other one decides for itself."""
MESSAGES = f"""

You may add a message of at most {MOST_CHARACTERS} characters, which takes no time. The other cook reads it at its \
next turn. Write it after the command: COMMAND; say: MESSAGE."""
LAST = """

Each turn, answer with one command."""


def instructions(kitchen: SoupKitchen, horizon: int, own: bool, say: bool) -> str:
    """Returns the instructions; `own` is True if the player commands one cook only."""
    start = (AUTOMATIC if kitchen.automatic else START).format(most=MOST_ONIONS)
    rules = RULES.format(most=MOST_ONIONS, horizon=horizon, start=start, cook_time=kitchen.cook_time)
    return rules + (OWN if own else BOTH) + (MESSAGES if say else "") + LAST


def objective(horizon: int, goal: int) -> str:
    """Returns the objective."""
    least = "one soup" if goal == 1 else f"{goal} soups"
    return f"Serve as many soups of {MOST_ONIONS} onions as you can in {horizon} steps, and at least {least}."


def action_of(command: str) -> int | None:
    """Returns the action of a command, or None if it is unknown."""
    words = normalise(command)
    for verb in ("move ", "go "):
        words = words.removeprefix(verb)
    return COMMANDS.get(words)


def observation(kitchen: SoupKitchen, state: SoupState, cook: int, soups: int, horizon: int) -> str:
    """Returns everything in the kitchen in words, as cook `cook` is told it."""
    layout = kitchen.layout
    served = f"{soups} soup{'' if soups == 1 else 's'} served"
    facing = state.cells[cook] + layout.delta[state.facing[cook]]
    lines = [
        draw(kitchen, state),
        f"Step {state.time} of {horizon}, {served}. You are cook {cook + 1} of {COOKS}, {_pose(kitchen, state, cook)}.",
        f"In front of you is {_front(kitchen, state, facing)}.",
    ]
    lines += [f"Cook {i + 1} is {_pose(kitchen, state, i)}." for i in range(COOKS) if i != cook]
    lines += [
        f"The pot in {place(kitchen, cell)} {pot_state(kitchen, pot)}."
        for cell, pot in zip(layout.pots, state.pots, strict=True)
    ]
    lines += [
        f"There is {thing_name(thing)} on the counter in {place(kitchen, cell)}."
        for cell, thing in zip(layout.counters, state.counters, strict=True)
        if thing != NOTHING
    ]
    return "\n".join(lines)


def draw(kitchen: SoupKitchen, state: SoupState) -> str:
    """Returns the map."""
    layout = kitchen.layout
    symbols = ["." if kind == FLOOR else kind for kind in layout.kind]
    for cook, cell in enumerate(state.cells):
        symbols[cell] = str(cook + 1)
    return "\n".join("".join(symbols[at : at + layout.columns]) for at in range(0, len(symbols), layout.columns))


def place(kitchen: SoupKitchen, cell: int) -> str:
    """Returns row and column of a cell in words."""
    row, column = kitchen.layout.position(cell)
    return f"row {row + 1}, column {column + 1}"


def _pose(kitchen: SoupKitchen, state: SoupState, cook: int) -> str:
    held = state.hands[cook]
    carried = "empty hands" if held == NOTHING else f"{thing_name(held)} in hand"
    return f"in {place(kitchen, state.cells[cook])}, facing {NAMES[state.facing[cook]]}, with {carried}"


def thing_name(thing: int) -> str:
    """Returns a thing with its article."""
    if thing > SOUP:
        return f"a soup of {_onions(thing - SOUP)}"
    return {ONION: "an onion", DISH: "a dish"}[thing]


def _onions(number: int) -> str:
    return f"{number} onion{'' if number == 1 else 's'}"


def _front(kitchen: SoupKitchen, state: SoupState, cell: int) -> str:
    """Returns the name of a cell that a cook faces."""
    layout = kitchen.layout
    kind = layout.kind[cell]
    if kind == FLOOR:
        return f"cook {state.cells.index(cell) + 1}" if cell in state.cells else "floor"
    if kind == COUNTER:
        thing = state.counters[layout.slot[cell]]
        return "an empty counter" if thing == NOTHING else f"a counter with {thing_name(thing)}"
    if kind == POT:
        return f"the pot in {place(kitchen, cell)}"
    return {ONIONS: "an onion crate", DISHES: "a dish rack", WINDOW: "a serving window"}[kind]


def pot_state(kitchen: SoupKitchen, pot: Pot) -> str:
    """Returns what a pot does, as the end of a sentence."""
    onions, clock = pot
    if not onions:
        return "is empty"
    if clock == IDLE:
        return f"has {_onions(onions)} and does not cook"
    left = kitchen.cook_time - clock
    soup = f"a soup of {_onions(onions)}"
    return f"cooks {soup}, {left} step{'' if left == 1 else 's'} left" if left > 0 else f"has {soup}, ready to be taken"
