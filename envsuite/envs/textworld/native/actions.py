"""The commands that TextWorld's standard rules allow in a state, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from envsuite.envs.textworld.native.prose import render

NativeGame = Any  # the class in `game`, which imports this module
Answer = Callable[[], str]


def handed_over() -> str:
    """Stands for the answer to a command that only the interpreter can give."""
    raise AssertionError("A command that is handed over was played.")


def answers(game: NativeGame) -> dict[str, Answer]:
    """Returns the listed commands of the game's present state, with functions that play them."""
    names, room, status = game.names, game.room, game.status
    found: dict[str, Answer] = {
        "look": partial(_look, game),
        "inventory": lambda: f"\n{game.inventory()}\n\n\n",
    }
    for direction, (there, door) in game.exits[room].items():
        if door is None or status[door] == "open":
            found[f"go {direction}"] = partial(_go, game, there)
    here = game.contents[room]
    holders = [key for key in here if game.kind[key] in ("c", "s")]
    carried = game.contents["I"]
    for key in [*game.doors[room], *here, *carried]:
        found[f"examine {names[key]}"] = partial(_examine, game, key)
    for key in [*game.doors[room], *holders]:
        name = names[key]
        if key not in status:
            continue
        if status[key] == "closed":
            found[f"open {name}"] = partial(_open, game, key)
        tool = game.key_of.get(key)
        if tool is not None and game.place[tool] == "I":
            if status[key] == "closed":
                found[f"lock {name} with {names[tool]}"] = partial(_set, game, key, tool, "locked", "lock")
            if status[key] == "locked":
                found[f"unlock {name} with {names[tool]}"] = partial(_set, game, key, tool, "closed", "unlock")
        if status[key] == "open":
            found[f"close {name}"] = partial(_set, game, key, "", "closed", "close")
    for key in here:
        if key not in holders:
            found[f"take {names[key]}"] = partial(_take, game, key, "")
    for holder in holders:
        if game.kind[holder] == "c" and status[holder] != "open":
            continue
        for key in game.contents[holder]:
            found[f"take {names[key]} from {names[holder]}"] = partial(_take, game, key, holder)
            found[f"examine {names[key]}"] = partial(_examine, game, key)
        verb, link = ("insert", "into") if game.kind[holder] == "c" else ("put", "on")
        for key in carried:
            found[f"{verb} {names[key]} {link} {names[holder]}"] = partial(_put, game, key, holder, link)
    for key in carried:
        found[f"drop {names[key]}"] = partial(_drop, game, key)
        if game.kind[key] == "f":
            found[f"eat {names[key]}"] = partial(_eat, game, key)
    if any(game.rivals_in_scope(key) for key in game.rivals):
        for command, answer in found.items():
            found[command] = _clarified(game, command, answer)
    return found


def _clarified(game: NativeGame, command: str, answer: Answer) -> Answer:
    """Returns the answer to a command after the interpreter's note on how it read an unclear name.

    A name is unclear if its words are also words of another name in scope; what is taken from a
    place can only be in that place. The interpreter prefers the thing whose whole name is in the
    command, which is in lower case, and notes its choice: `(the key)`. From the first unclear name
    on, the note repeats the command: `(the key on the shelf)`.
    """
    things = [word for word in getattr(answer, "args", ())[1:] if word in game.kind and game.kind[word] != "r"]
    rivals = [game.rivals_in_scope(key) for key in things]
    if command.startswith("take ") and len(things) > 1:
        rivals[0] &= set(game.contents[things[1]])
    first = next((number for number, others in enumerate(rivals) if others), None)
    if first is None:
        return answer
    names = [game.names[key] for key in things]
    if not all(map(str.islower, names)) or any(others & set(things) for others in rivals):
        return handed_over
    if first == 0 and len(things) > 1:
        link = command.removesuffix(names[1]).rpartition(names[0])[2]
        note = link.join(game.definite[key] for key in things)
    else:
        note = game.definite[things[first]]
    return lambda: f"\n({note}){answer()}"


def _look(game: NativeGame) -> str:
    return f"\n{game.describe_room()}\n"


def _go(game: NativeGame, there: str) -> str:
    game.room = there
    game.update()
    return f"\n\n{game.describe_room()}\n"


def _set(game: NativeGame, key: str, _tool: str, status: str, verb: str) -> str:
    game.status[key] = status
    game.update()
    return f"\nYou {verb} {game.definite[key]}.\n\n"


def _open(game: NativeGame, key: str) -> str:
    game.status[key] = "open"
    game.update()
    inside = game.contents.get(key)
    revealing = f", revealing {game.listed(key)}" if inside else ""
    return f"\nYou open {game.definite[key]}{revealing}.\n\n"


def _take(game: NativeGame, key: str, holder: str) -> str:
    game.move(key, "I")
    if holder:
        return f"\nYou take the {game.names[key]} from the {game.names[holder]}.\n\n\n"
    return f"\nYou pick up the {game.names[key]} from the ground.\n\n\n"


def _put(game: NativeGame, key: str, holder: str, link: str) -> str:
    game.move(key, holder)
    return f"\nYou put the {game.names[key]} {link} the {game.names[holder]}.\n\n"


def _drop(game: NativeGame, key: str) -> str:
    game.move(key, game.room)
    return f"\nYou drop the {game.names[key]} on the ground.\n\n"


def _eat(game: NativeGame, key: str) -> str:
    game.move(key, "")
    return f"\nYou eat the {game.names[key]}. Not bad.\n\n"


def _examine(game: NativeGame, key: str) -> str:
    text = f"\n{render(game.texts[key], game)}\n\n"
    if game.contents.get(key) and game.status.get(key, "open") == "open":
        link = "In" if game.kind[key] == "c" else "On"
        verb = "is" if len(game.contents[key]) == 1 else "are"
        text += f"{link} the {game.names[key]} {verb} {game.listed(key)}.\n\n"
    return f"{text}\n"
