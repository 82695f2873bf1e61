"""What a game's engines share: every fixed piece of text and list that follows from the Game alone, made once."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

from envsuite.envs.alfworld.game import Game
from envsuite.envs.alfworld.logic import KNIFE, Sentences

MAX_KEPT = 256
"""Situations at a place, and lists of objects, remembered per game; beyond, the oldest is forgotten."""

Action = tuple[Callable[..., str], int, int]
"""(a method of NativeEngine, its two arguments)"""


class Commands(list[str]):
    """A list that is shared, and therefore refuses to be changed; `list(commands)` gives one that does not."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("The admissible commands are shared between turns: change a copy, list(commands).")

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[list[str]]]:
        return list, (list(self),)  # copies and pickles are plain lists


View = tuple[Commands, dict[str, Action]]
"""All that is admissible somewhere, and what those commands do that are not walking."""


class Arrival:
    """What `go to` a receptacle leads to; with the feedback while nothing at the place has changed, and what can be done
    there with empty hands, both filled in on the first visit."""

    __slots__ = ("greeting", "location", "r", "view")

    def __init__(self, r: int, location: int) -> None:
        self.r, self.location, self.greeting = r, location, ""
        self.view: View | None = None


class Table:
    """Of one game; `views`, `lists` and `away` fill up in play."""

    __slots__ = (
        "arrive", "articled", "away", "destinations", "facing", "go", "here", "intro", "is_closed",
        "is_open", "knives", "lists", "on", "openable", "stuck", "views",
    )  # fmt: skip

    def __init__(self, game: Game) -> None:
        says = game.sentences
        plain = [name.replace("%", "%%") for name in game.receptacles]
        self.go = {
            intern("go to " + name): Arrival(r, place)
            for r, (name, place) in enumerate(zip(game.receptacles, game.receptacle_location))
        }
        places = [game.locations[place].replace("%", "%%") for place in game.receptacle_location]
        self.arrive = [says.arrive % (place, "%s") for place in (places if says.arrive_by_location else plain)]
        self.is_open = [says.is_open % (name, "%s") for name in plain]
        self.is_closed = [says.is_closed % name for name in game.receptacles]
        self.on = [says.on % (name, "%s") for name in plain]
        self.articled = [intern("a " + name) for name in game.objects]
        self.destinations = [(command, self.go[command]) for command in sorted(self.go)]
        self.away: dict[int, list[str]] = {}  # location -> the destinations elsewhere
        self.facing: dict[int, str] = {}  # location -> its receptacles, listed
        self.openable = game.openable
        self.here = {place: (sum(1 << r for r in rs), rs) for place, rs in game.here.items()}
        self.here.setdefault(game.start.location, (0, ()))
        self.knives = frozenset(o for o, flags in enumerate(game.flags) if flags & KNIFE)
        self.stuck = frozenset(o for o in range(len(game.objects)) if game.stuck(o))
        self.views: dict[object, View] = {}
        self.lists: dict[tuple[int, ...], str] = {}
        here = game.here.get(game.start.location)
        rooms = [f"a {name}" for name in game.receptacles]
        if here is None:
            look = says.room % listed(says, rooms)
        else:
            look = says.facing % (listed(says, [game.receptacles[r] for r in here]), says.nothing)
        self.intro = says.intro % (look, game.task)


def make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= MAX_KEPT:
        del kept[next(iter(kept))]


def listed(says: Sentences, items: list[str]) -> str:
    """'nothing', 'x', 'x, and y', 'x, y, and z'."""
    if not items:
        return says.nothing
    if len(items) == 1:
        return items[0]
    return says.comma.join(items[:-1]) + says.last_comma + items[-1]
