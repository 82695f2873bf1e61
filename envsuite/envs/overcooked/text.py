"""Observations as facts and sentences, and the parsing of commands.

The facts and their order follow the published wrapper (docs/specs/overcooked.md, "Text and offers"); the
sentences are our own. Facts that cannot occur in the published kitchens with one cook (things left on counters, other
cooks) are inserted between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from envsuite.envs.overcooked.engine import CHOP, DELIVER, GET_BOWL, GET_FOOD, GO_TO_BOARD, Macro, Simulation
from envsuite.envs.overcooked.kitchen import COUNTER
from envsuite.envs.overcooked.motion import CHOPS
from envsuite.messages import MOST_CHARACTERS

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

TEAM = """

Several cooks share the kitchen and the order. Each turn says which of them you command; the others go on with what \
they are doing."""
MEMBER = """

Several cooks share the kitchen and the order, and you are one of them. The others decide for themselves, and go on \
with what they are doing while you decide."""
MESSAGES = f"""

You may add a message of at most {MOST_CHARACTERS} characters, which takes no time. The others read it at their next \
turn. Write it after the command: COMMAND; say: MESSAGE. A message without a command costs a step of time."""
REALTIME = """

A turn is one step of time. To go on with a command, give it again; another command takes its place."""


def team_rules(own: bool, say: bool, realtime: bool) -> str:
    """Returns the part of the instructions about several cooks; `own` is True if each cook has its own player."""
    return (MEMBER if own else TEAM) + (REALTIME if realtime else "") + (MESSAGES if say else "")


def facts(sim: Simulation, cook: int) -> list[Fact]:
    """Returns everything that `cook` sees in its square view, as hashable tuples.

    In order: ("cook", number, total) with several cooks; ("boards", n); ("at_home", names); ("board", number, *item)
    per visible occupied board; ("counter", *item); ("other", number, *item) per visible other cook; ("agent", board or
    0, *item); ("goal", foods). An item is (food, "chopped" | "unchopped"), (bowl,), (bowl, foods) or ("nothing",).
    """
    kitchen, lying, n_foods = sim.kitchen, sim.lying, sim.n_foods
    here, kind, homes = sim.cell[cook], kitchen.kind, kitchen.homes
    sees = kitchen.near(here, sim.radius)
    visible_facts: list[Fact] = [("boards", len(kitchen.boards))]
    if len(sim.cell) > 1:
        visible_facts.insert(0, ("cook", cook + 1, len(sim.cell)))
    at_home, moved = [], []
    for thing, where in enumerate(sim.place):
        if sees[where] and kind[where] == COUNTER and lying[where] == thing:
            touched = sim.chops[thing] if thing < n_foods else sim.contents[thing - n_foods]
            if where == homes[thing] and not touched:
                at_home.append(sim.names[thing])
            else:
                moved.append(("counter", *_item(sim, thing)))
    if at_home:
        visible_facts.append(("at_home", tuple(at_home)))
    for number, board in enumerate(kitchen.boards):
        if sees[board] and lying[board] >= 0:
            visible_facts.append(("board", number + 1, *_item(sim, lying[board])))
    visible_facts += moved
    if len(sim.cell) > 1:
        for index, cell in enumerate(sim.cell):
            if index != cook and sees[cell]:
                visible_facts.append(("other", index + 1, *_item(sim, sim.hand[index])))
    beside = kitchen.beside[here]
    visible_facts.append(("agent", beside[0][0] + 1 if beside else 0, *_item(sim, sim.hand[cook])))
    visible_facts.append(("goal", sim.order))
    return visible_facts


def _item(sim: Simulation, thing: int) -> Fact:
    if thing < 0:
        return ("nothing",)
    if thing < sim.n_foods:
        return sim.names[thing], "chopped" if sim.chops[thing] >= CHOPS else "unchopped"
    foods = sim.contents[thing - sim.n_foods]
    if not foods:
        return (sim.names[thing],)
    return sim.names[thing], tuple(sim.names[food] for food in sorted(foods))


def vector(sim: Simulation, cook: int, task: Sequence[int] = ()) -> list[int]:
    """Returns the published observation vector as raw integers.

    Row and column of each food (with its chops), bowl, board, delivery and cook, then the `task` one-hot vector; zeros
    for everything out of view.
    """
    kitchen = sim.kitchen
    sees = kitchen.near(sim.cell[cook], sim.radius)
    numbers: list[int] = []
    for thing, cell in enumerate(sim.place):
        seen = sees[cell]
        numbers += kitchen.position(cell) if seen else (0, 0)
        if thing < sim.n_foods:
            numbers.append(sim.chops[thing] if seen else 0)
    for cell in (*kitchen.boards, *kitchen.deliveries, *sim.cell):
        numbers += kitchen.position(cell) if sees[cell] else (0, 0)
    return [*numbers, *task]


def sentence(fact: Fact, boards: int, texts: str = "v0") -> str:
    """Returns a fact as a sentence; `boards` is the number of boards (a single one is called "the board").

    In `texts` v1 a numbered bowl has no article.
    """
    kind, items = fact[0], fact[1:]
    if kind == "boards":
        return (
            "This kitchen has a single cutting board." if boards == 1 else f"This kitchen has {boards} cutting boards."
        )
    if kind == "at_home":
        numbered = [texts == "v1" and name.startswith("bowl ") for name in items[0]]
        names = listing([name if plain else f"the {name}" for name, plain in zip(items[0], numbered, strict=True)])
        return f"{names} can be seen where {'it is' if len(items[0]) == 1 else 'they are'} kept.".capitalize()
    if kind == "board":
        return f"{_board(items[0], boards).capitalize()} has {_thing(items[1:])} on it."
    if kind == "counter":
        return f"{_thing(items).capitalize()} has been left on a counter."
    if kind == "cook":
        return f"You are cook {items[0]} of {items[1]}."
    if kind == "other":
        return f"Cook {items[0]} is nearby with {_thing(items[1:])}."
    if kind == "agent":
        where = f"At {_board(items[0], boards)} you" if items[0] else "You"
        return f"{where} have empty hands." if items[1] == "nothing" else f"{where} are carrying {_thing(items[1:])}."
    foods = listing([f"chopped {name}" for name in items[0]])
    return f"The order is one bowl with {foods} and nothing more, so your next move is to"


def _board(number: int, boards: int) -> str:
    return "the board" if boards == 1 else f"board {number}"


def _thing(item: Fact) -> str:
    name = item[0]
    if name == "nothing":
        return "empty hands"
    if name.startswith("bowl"):
        article = "a bowl" if name == "bowl" else name
        if len(item) == 1:
            return "an empty bowl" if name == "bowl" else f"{name}, empty"
        return f"{article} of {listing([f'chopped {food}' for food in item[1]])}"
    return f"{'a chopped' if item[1] == 'chopped' else 'a raw'} {name}"


def listing(words: Sequence[str]) -> str:
    """Joins words as in "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@lru_cache(maxsize=4096)
def phrase(label: str) -> str:
    """Returns the command that stands for a label of `offers`."""
    kind, _, argument = label.partition(":")
    first, _, last = argument.partition(":")
    board = f"board {last}" if last else "the board"
    match kind:
        case "pickup":
            return f"fetch the {argument}"
        case "into_bowl":
            return f"add the {argument} to the bowl"
        case "take_bowl":
            empty = "empty " if first == "empty" else ""
            number = last if first == "empty" else first
            return f"fetch the {empty}bowl" if not number else f"fetch {empty}bowl {number}"
        case "fill":
            return (
                f"drop the {first} into the {last} and take it"
                if last == "bowl"
                else f"drop the {first} into {last} and take it"
            )
        case "place":
            return f"set the {first} on {board}"
        case "goto_board":
            return "head for the board" if not argument else f"head for board {argument}"
        case "gather":
            return f"scoop the {first} off {board}"
        case "add":
            return f"join the {first} to the bowl on {board}"
        case "serve":
            return "hand in the dish" if argument == "dish" else "hand in nothing"
        case "refuse":
            return f"hand in the {argument}, which was not ordered"
        case "chop":
            return f"cut {argument} up" if argument == "nothing" else f"cut the {argument} up"
        case "place_on_counter":
            return f"leave the {argument} on a counter"
        case _:
            return "head for a counter"


def spellings(macro: Macro, foods: Sequence[str], bowls: int, boards: int) -> Iterable[str]:
    """Yields every accepted spelling of a macro-action: its name, and its label in any state."""
    names = ["bowl"] if bowls == 1 else [f"bowl {i + 1}" for i in range(bowls)]
    i = macro.which
    which = f":{i + 1}" if boards > 1 else ""
    yield macro.name
    if macro.verb == GET_FOOD:
        labels = [f"pickup:{foods[i]}", f"pickup:chopped {foods[i]}", f"into_bowl:{foods[i]}"]
    elif macro.verb == GET_BOWL:
        number = f":{i + 1}" if bowls > 1 else ""
        labels = [f"take_bowl{number}", f"take_bowl:empty{number}", f"pickup:{names[i]}"]
        labels += [f"fill:{food}:{names[i]}" for food in foods]
    elif macro.verb == GO_TO_BOARD:
        labels = [f"goto_board{which}", *(f"place:{thing}{which}" for thing in (*foods, *names))]
        labels += [f"{kind}:{food}{which}" for food in foods for kind in ("gather", "add")]
    elif macro.verb == DELIVER:
        labels = ["serve:dish", "serve:nothing", *(f"refuse:{thing}" for thing in (*foods, *names))]
    elif macro.verb == CHOP:
        labels = ["chop:nothing", *(f"chop:{food}" for food in foods)]
    else:
        labels = ["goto_counter", *(f"place_on_counter:{thing}" for thing in (*foods, *names))]
    yield from map(phrase, labels)


@lru_cache(maxsize=256)
def commands(macros: tuple[Macro, ...], foods: tuple[str, ...], bowls: int, boards: int) -> dict[str, Macro]:
    """Returns the macro-action of every command that a kitchen understands."""
    table = {spelling: macro for macro in macros for spelling in spellings(macro, foods, bowls, boards)}
    table["wait"] = next(macro for macro in macros if macro.verb == CHOP)
    return table


def normalise(command: str) -> str:
    """Returns a command in lower case without extra spaces, quotes or a final full stop."""
    return re.sub(r"\s+", " ", command).strip(" .!\"'`").lower()
