"""Texts of the salad kitchens: observations as facts and sentences, offered commands, and their parsing.

The facts, the labels of offered commands and their order are the published ones
(docs/specs/overcooked.md, "Text and offers"); the sentences are our own.
A published label can promise an effect that the macro-action does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from envsuite.envs.overcooked.foods import listing
from envsuite.envs.overcooked.salad.engine import (
    CHOP,
    CHOPS,
    DELIVER,
    GET_BOWL,
    GET_FOOD,
    GO_TO_BOARD,
    NOTHING,
    Macro,
    Simulation,
)
from envsuite.envs.overcooked.salad.kitchen import Kitchen

Fact = tuple[Any, ...]

INSTRUCTIONS = """\
You cook in a small kitchen. Foods lie on counters; there are cutting boards, bowls, and a delivery counter.

To serve an order: fetch each food it names, set it on a free board, cut it up there, and gather the chopped foods in \
one bowl; then hand the bowl in. You carry one thing at a time, and only a bowl can hold several. Cutting needs empty \
hands and takes place at the board you stand at. A bowl in your hands is filled by fetching chopped food; chopped food \
in your hands goes into a bowl you fetch. The bowl must hold exactly what was ordered: anything else that is handed in \
goes back to where it was kept, and its foods are raw again.

You see only what is near you, but your commands find their way to things out of sight. Each command may take several \
steps of time, and time is limited.

Each turn, answer with one command, spelled as it is offered."""
UNKNOWN = "Nobody here knows that command. "


def facts(sim: Simulation) -> list[Fact]:
    """Returns everything that the cook sees in its square view, as hashable tuples.

    In order: ("boards", n); ("at_home", names); ("board", number, *item) per visible occupied board; ("agent", board or
    0, *item); ("goal", foods). An item is (food, "chopped" | "unchopped"), ("bowl",), ("bowl", foods) or ("nothing",).
    """
    kitchen = sim.kitchen
    seen = kitchen.window(sim.cell, sim.radius)
    visible_facts: list[Fact] = [("boards", len(kitchen.boards))]
    at_home = [
        name for name, place, home in zip(kitchen.names, sim.place, kitchen.homes, strict=True) if place == home in seen
    ]
    if at_home:
        visible_facts.append(("at_home", tuple(at_home)))
    for number, board in enumerate(kitchen.boards, 1):
        if board in seen and (item := sim.item_on(board)) != NOTHING:
            visible_facts.append(("board", number, *_item(sim, item)))
    beside = kitchen.boards_beside[sim.cell]
    visible_facts.append(("agent", beside[0] + 1 if beside else 0, *_item(sim, sim.hand)))
    visible_facts.append(("goal", sim.order))
    return visible_facts


def _item(sim: Simulation, item: int) -> Fact:
    if item == NOTHING:
        return ("nothing",)
    name = sim.kitchen.names[item]
    if sim.is_food(item):
        return name, "chopped" if sim.chops[item] >= CHOPS else "unchopped"
    if not sim.contents:
        return (name,)
    return name, tuple(sim.kitchen.names[food] for food in sorted(sim.contents))


def vector(sim: Simulation, task: Sequence[int] = ()) -> list[int]:
    """Returns the published observation vector as raw integers.

    Row and column of each food (with its chops), bowl, board, delivery and the cook, then the `task` one-hot vector;
    zeros for everything out of view.
    """
    kitchen = sim.kitchen
    seen = kitchen.window(sim.cell, sim.radius)
    numbers: list[int] = []
    for item, cell in enumerate(sim.place):
        numbers += kitchen.position(cell) if cell in seen else (0, 0)
        if sim.is_food(item):
            numbers.append(sim.chops[item] if cell in seen else 0)
    for cell in (*kitchen.boards, kitchen.delivery, sim.cell):
        numbers += kitchen.position(cell) if cell in seen else (0, 0)
    return [*numbers, *task]


@lru_cache(maxsize=4096)
def sentence(fact: Fact, boards: int) -> str:
    """Returns a fact as a sentence; `boards` is the number of boards (a single one is called "the board")."""
    kind, items = fact[0], fact[1:]
    if kind == "boards":
        return (
            "This kitchen has a single cutting board." if boards == 1 else f"This kitchen has {boards} cutting boards."
        )
    if kind == "at_home":
        names = listing([f"the {name}" for name in items[0]])
        return f"{names} can be seen where {'it is' if len(items[0]) == 1 else 'they are'} kept.".capitalize()
    if kind == "board":
        return f"{_board(items[0], boards).capitalize()} has {_item_words(items[1:])} on it."
    if kind == "agent":
        subject = f"At {_board(items[0], boards)} you" if items[0] else "You"
        if items[1] == "nothing":
            return f"{subject} have empty hands."
        return f"{subject} are carrying {_item_words(items[1:])}."
    foods = listing([f"chopped {name}" for name in items[0]])
    return f"The order is one bowl with {foods} and nothing more, so your next move is to"


def _board(number: int, boards: int) -> str:
    return "the board" if boards == 1 else f"board {number}"


def _item_words(item: Fact) -> str:
    name = item[0]
    if name != "bowl":
        return f"{'a chopped' if item[1] == 'chopped' else 'a raw'} {name}"
    if len(item) == 1:
        return "an empty bowl"
    return f"a bowl of {listing([f'chopped {food}' for food in item[1]])}"


def label(sim: Simulation, macro: Macro) -> str:
    """Returns the published label of a macro-action in the current state."""
    kitchen, hand = sim.kitchen, sim.hand
    which = f":{macro.number + 1}" if len(kitchen.boards) > 1 else ""
    if macro.kind == GET_FOOD:
        return f"{'into_bowl' if hand == kitchen.bowl else 'pickup'}:{kitchen.foods[macro.number]}"
    if macro.kind == GET_BOWL:
        shows_contents = len(kitchen.boards) == 1 or _is_seen_filled(sim)
        return "take_bowl" if shows_contents else "take_bowl:empty"
    if macro.kind == GO_TO_BOARD:
        if hand != NOTHING and not sim.is_chopped(hand):
            return f"place:{kitchen.names[hand]}{which}"
        return "goto_board" + which
    if macro.kind == DELIVER:
        return "serve:dish" if hand != NOTHING else "serve:nothing"
    food = _food_beside(sim)
    return f"chop:{kitchen.foods[food]}" if food != NOTHING else "chop:nothing"


def _is_seen_filled(sim: Simulation) -> bool:
    """Returns True if the bowl holds food and is in the cook's hand, or on a board in view."""
    bowl = sim.kitchen.bowl
    cell = sim.place[bowl]
    on_visible_board = cell in sim.kitchen.boards and cell in sim.kitchen.window(sim.cell, sim.radius)
    return bool(sim.contents) and (sim.hand == bowl or on_visible_board)


def _food_beside(sim: Simulation) -> int:
    """Returns the food on the first board next to the cook that holds one, or NOTHING."""
    items = [sim.item_on(sim.kitchen.boards[number]) for number in sim.kitchen.boards_beside[sim.cell]]
    return next((item for item in items if sim.is_food(item)), NOTHING)


def phrase(label: str) -> str:
    """Returns the command that stands for a label."""
    kind, _, argument = label.partition(":")
    first, _, last = argument.partition(":")
    board = f"board {last}" if last else "the board"
    match kind:
        case "pickup":
            return f"fetch the {argument}"
        case "into_bowl":
            return f"add the {argument} to the bowl"
        case "take_bowl":
            return "fetch the empty bowl" if argument == "empty" else "fetch the bowl"
        case "place":
            return f"set the {first} on {board}"
        case "goto_board":
            return "head for the board" if not argument else f"head for board {argument}"
        case "serve":
            return "hand in the dish" if argument == "dish" else "hand in nothing"
    return f"cut {argument} up" if argument == "nothing" else f"cut the {argument} up"


def _spellings(macro: Macro, kitchen: Kitchen) -> Iterable[str]:
    """Yields every accepted spelling of a macro-action: its name, and its label in any state."""
    yield macro.name
    which = f":{macro.number + 1}" if len(kitchen.boards) > 1 else ""
    if macro.kind == GET_FOOD:
        labels = [f"{kind}:{kitchen.foods[macro.number]}" for kind in ("pickup", "into_bowl")]
    elif macro.kind == GET_BOWL:
        labels = ["take_bowl", "take_bowl:empty"]
    elif macro.kind == GO_TO_BOARD:
        labels = ["goto_board" + which, *(f"place:{name}{which}" for name in kitchen.names)]
    elif macro.kind == DELIVER:
        labels = ["serve:dish", "serve:nothing"]
    else:
        labels = ["chop:nothing", *(f"chop:{food}" for food in kitchen.foods)]
    yield from map(phrase, labels)


def commands(macros: Sequence[Macro], kitchen: Kitchen) -> dict[str, Macro]:
    """Returns the macro-action of every command that a kitchen understands."""
    table = {spelling: macro for macro in macros for spelling in _spellings(macro, kitchen)}
    table["wait"] = next(macro for macro in macros if macro.kind == CHOP)
    return table
