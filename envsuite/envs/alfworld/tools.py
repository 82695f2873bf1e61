"""Tools of ALFWorld: one function per verb."""

from envsuite.tools import Tool

_OBJECT = {"object": "the object with its number, such as apple 1"}
_RECEPTACLE = {"receptacle": "the receptacle with its number, such as fridge 1"}
_BOTH = _OBJECT | _RECEPTACLE


def _tools(put: Tool) -> tuple[Tool, ...]:
    return (
        Tool("look", "Looks around you.", "look"),
        Tool("inventory", "Lists what you carry.", "inventory"),
        Tool("go_to", "Walks to a receptacle.", "go to {receptacle}", _RECEPTACLE),
        Tool("open", "Opens a receptacle.", "open {receptacle}", _RECEPTACLE),
        Tool("close", "Closes a receptacle.", "close {receptacle}", _RECEPTACLE),
        Tool("take", "Takes an object from a receptacle.", "take {object} from {receptacle}", _BOTH),
        put,
        Tool("examine", "Describes an object or a receptacle.", "examine {thing}", {"thing": "its name and number"}),
        Tool("use", "Turns a lamp on.", "use {object}", _OBJECT),
        Tool("clean", "Cleans an object at a sink.", "clean {object} with {receptacle}", _BOTH),
        Tool("heat", "Heats an object at a microwave.", "heat {object} with {receptacle}", _BOTH),
        Tool("cool", "Cools an object at a fridge.", "cool {object} with {receptacle}", _BOTH),
        Tool(
            "slice",
            "Slices an object with a knife in your hand.",
            "slice {object} with {knife}",
            _OBJECT | {"knife": "the knife with its number, such as knife 1"},
        ),
        Tool("help", "Lists the commands.", "help"),
    )


TOOLS = {
    "2.1.1": _tools(Tool("put", "Puts an object into or onto a receptacle.", "put {object} in/on {receptacle}", _BOTH)),
    "0.4": _tools(Tool("move", "Puts an object into or onto a receptacle.", "move {object} to {receptacle}", _BOTH)),
}
"""Tools by the dialect of the game."""
