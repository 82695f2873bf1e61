"""Text and lists that follow from a game alone, computed once and shared by its engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.logic import Sentences

MAX_CACHED = 256
"""Number of views, and of lists of objects, cached per game; the oldest entry is evicted."""

Action = tuple[Callable[..., str], int, int]
"""(method of NativeEngine, its two arguments)"""


class Commands(list[str]):
    """A shared list of commands that raises TypeError on modification; `list(commands)` copies it."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("The admissible commands are shared between turns: change a copy, list(commands).")

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[list[str]]]:
        return list, (list(self),)  # copies and pickles are plain lists


View = tuple[Commands, dict[str, Action]]
"""The admissible commands, and the action of each command other than `go to`."""


class Arrival:
    """The result of a `go to` command: receptacle `r`, location, feedback (`greeting`) and view.

    Feedback and view (with empty hands, in an unchanged location) are filled in on the first visit.
    """

    __slots__ = ("greeting", "location", "r", "view")

    def __init__(self, r: int, location: int) -> None:
        self.r, self.location, self.greeting = r, location, ""
        self.view: View | None = None


class LazyTable(dict[int, Any]):
    """A table over receptacles, objects or locations that computes each entry on its first use."""

    def __init__(self, compute: Callable[[int], Any]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, key: int) -> Any:
        value = self[key] = self.compute(key)
        return value


class GameTables:
    """Text and lists of one game, computed on first use."""

    __slots__ = (
        "arrive", "articled", "away", "destinations", "facing", "game", "go", "intro", "is_closed", "is_open", "lists",
        "on", "openable", "receptacles_at", "views",
    )  # fmt: skip

    def __init__(self, game: AlfworldGame) -> None:
        self.game = game
        self.openable = game.openable
        self.go = {
            "go to " + name: Arrival(r, place)
            for r, (name, place) in enumerate(zip(game.receptacles, game.receptacle_location, strict=True))
        }
        self.destinations = sorted((command, arrival.location) for command, arrival in self.go.items())
        self.arrive = LazyTable(self._arrive)
        self.is_open = LazyTable(lambda r: game.sentences.is_open % (escape(game.receptacles[r]), "%s"))
        self.is_closed = LazyTable(lambda r: game.sentences.is_closed % game.receptacles[r])
        self.on = LazyTable(lambda r: game.sentences.on % (escape(game.receptacles[r]), "%s"))
        self.articled = LazyTable(lambda o: "a " + game.objects[o])
        self.facing = LazyTable(self._facing)
        self.receptacles_at = LazyTable(self._receptacles_at)
        self.away: dict[int, list[str]] = {}  # location -> the destinations elsewhere
        self.views: dict[object, View] = {}
        self.lists: dict[tuple[int, ...], str] = {}
        self.intro = self._intro()

    def _intro(self) -> str:
        game, sentences = self.game, self.game.sentences
        if game.start.location in game.receptacle_location:
            look = sentences.facing % (self.facing[game.start.location], sentences.nothing)
        else:
            look = sentences.room % enumeration(sentences, [f"a {name}" for name in game.receptacles])
        return sentences.intro % (look, game.task)

    def _arrive(self, r: int) -> str:
        """Returns the template of the feedback on arrival at a receptacle; its slot is for the contents."""
        game = self.game
        place = game.locations[game.receptacle_location[r]]
        return game.sentences.arrive % (
            escape(place if game.sentences.arrive_by_location else game.receptacles[r]),
            "%s",
        )

    def _facing(self, location: int) -> str:
        """Returns the receptacles at a location in words."""
        game = self.game
        return enumeration(game.sentences, [game.receptacles[r] for r in self.receptacles_at[location][1]])

    def _receptacles_at(self, location: int) -> tuple[int, tuple[int, ...]]:
        """Returns the receptacles at a location, as a bit mask and as a tuple."""
        receptacles = tuple([r for r, place in enumerate(self.game.receptacle_location) if place == location])
        return sum(1 << r for r in receptacles), receptacles


def escape(name: str) -> str:
    """Escapes a name for use in a %-template."""
    return name.replace("%", "%%")


def evict_oldest(cache: dict[Any, Any]) -> None:
    """Removes the oldest entry of a full cache."""
    if len(cache) >= MAX_CACHED:
        del cache[next(iter(cache))]


def enumeration(sentences: Sentences, items: list[str]) -> str:
    """Joins items in words: 'nothing', 'x', 'x, and y', 'x, y, and z'."""
    if not items:
        return sentences.nothing
    if len(items) == 1:
        return items[0]
    return sentences.comma.join(items[:-1]) + sentences.last_comma + items[-1]
