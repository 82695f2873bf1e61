"""Text and lists that follow from a game alone, computed once and shared by its engines."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

from envsuite.envs.alfworld.game import AlfworldGame
from envsuite.envs.alfworld.logic import KNIFE, Sentences

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
    """The result of a `go to` command: location, feedback and view.

    Feedback and view (with empty hands, in an unchanged location) are filled in on the first visit.
    """

    __slots__ = ("greeting", "location", "r", "view")

    def __init__(self, r: int, location: int) -> None:
        self.r, self.location, self.greeting = r, location, ""
        self.view: View | None = None


class GameTables:
    """Precomputed text of one game; `views`, `lists` and `away` fill up during play."""

    __slots__ = (
        "arrive", "articled", "away", "cannot_put_down", "destinations", "facing", "go", "intro", "is_closed",
        "is_open", "knives", "lists", "on", "openable", "receptacles_at", "views",
    )  # fmt: skip

    def __init__(self, game: AlfworldGame) -> None:
        sentences = game.sentences
        plain = [name.replace("%", "%%") for name in game.receptacles]
        self.go = {
            intern("go to " + name): Arrival(r, place)
            for r, (name, place) in enumerate(zip(game.receptacles, game.receptacle_location, strict=True))
        }
        places = [game.locations[place].replace("%", "%%") for place in game.receptacle_location]
        self.arrive = [
            sentences.arrive % (place, "%s") for place in (places if sentences.arrive_by_location else plain)
        ]
        self.is_open = [sentences.is_open % (name, "%s") for name in plain]
        self.is_closed = [sentences.is_closed % name for name in game.receptacles]
        self.on = [sentences.on % (name, "%s") for name in plain]
        self.articled = [intern("a " + name) for name in game.objects]
        self.destinations = [(command, self.go[command]) for command in sorted(self.go)]
        self.away: dict[int, list[str]] = {}  # location -> the destinations elsewhere
        self.facing: dict[int, str] = {}  # location -> its receptacles, listed
        self.openable = game.openable
        self.receptacles_at = {place: (sum(1 << r for r in rs), rs) for place, rs in game.receptacles_at.items()}
        self.receptacles_at.setdefault(game.start.location, (0, ()))
        self.knives = frozenset(o for o, flags in enumerate(game.flags) if flags & KNIFE)
        self.cannot_put_down = frozenset(o for o in range(len(game.objects)) if game.cannot_put_down(o))
        self.views: dict[object, View] = {}
        self.lists: dict[tuple[int, ...], str] = {}
        here = game.receptacles_at.get(game.start.location)
        rooms = [f"a {name}" for name in game.receptacles]
        if here is None:
            look = sentences.room % enumeration(sentences, rooms)
        else:
            look = sentences.facing % (enumeration(sentences, [game.receptacles[r] for r in here]), sentences.nothing)
        self.intro = sentences.intro % (look, game.task)


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
