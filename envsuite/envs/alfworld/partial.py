"""The expert under partial observability: it knows the rules and the task, and of the room only what it has seen.

That is what a player can know, so its number of commands, not the exact solver's, is the honest bound for an agent. It
reads feedback and admissible commands like any player. What it has not found it looks for where such things were found in
the training games: next comes the receptacle with the most chance per command (`priors.json`, learned by `learn` from the
200 official training games at hand: `python -m envsuite.envs.alfworld.partial GAME...`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Any

from envsuite.envs.alfworld.engine import NOTHING_HAPPENS, NativeEngine
from envsuite.envs.alfworld.game import LIGHT, PLACE, PLACE_TWO, TRANSFORMS, Game, State

APPLIANCES = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}
_SEEN = re.compile(r"(?:On the (\w+ \d+)|The (\w+ \d+) is open\. In it), you see (.*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_NAME = re.compile(r"a (\w+ \d+)")
_TAKE = re.compile(r"take (\w+ \d+) from (\w+ \d+)")
_PUT = re.compile(r"put (\w+ \d+) in/on (\w+ \d+)|move (\w+ \d+) to (\w+ \d+)")
_TREAT = re.compile(r"(clean|heat|cool) (\w+ \d+) with \w+ \d+")


class PartialExpert:
    """Follows one episode and says what it would do next.

    It is given what the player said, and hears the answers from an engine of its own. From a `state` in the middle of
    an episode it starts knowing nothing but what it can see from there.
    """

    def __init__(self, game: Game, state: State | None = None) -> None:
        self._engine = NativeEngine(game)
        self._goal = game.goal
        self._target = game.goal.object_type.removesuffix("type")
        self._place = game.goal.receptacle_type.removesuffix("type")  # the lamp's class in look_at_obj_in_light
        self._verb = TRANSFORMS.get(game.goal.kind)
        self._followed = 0
        self._held: str | None = None
        self._contents: dict[str, set[str]] = {}  # receptacle -> what it was seen to hold; absent: not seen into
        self._closed: set[str] = set()
        self._treated: set[str] = set()  # objects in hand when the goal's verb was done to them
        self._lamps: dict[str, str] = {}  # lamp -> a receptacle where it can be used
        self._refused: set[tuple[str, str]] = set()  # (object class, receptacle) it cannot be put into
        if state is not None:
            self._engine.set_state(state)
            inventory = _NAME.search(self._engine.step("inventory").feedback)
            self._held = inventory[1] if inventory else None
        self._admissible = self._engine.admissible()
        self._receptacles = {command[6:] for command in self._admissible if command.startswith("go to ")}
        self._receptacles |= {name for name in self._examined() if name != self._held}
        self._look_around()

    def follow(self, commands: list[str]) -> None:
        """Takes in what was said since: `commands` is the whole episode, of which it remembers how much it knows."""
        for command in commands[self._followed :]:
            self._note(command.strip(), *self._engine.step(command)[:2])
        self._followed = len(commands)

    def _note(self, command: str, feedback: str, admissible: list[str]) -> None:
        self._admissible = admissible
        if feedback == NOTHING_HAPPENS:
            return
        if took := _TAKE.fullmatch(command):
            self._held = took[1]
            self._contents.setdefault(took[2], set()).discard(took[1])
        elif put := _PUT.fullmatch(command):
            self._held = None
            self._contents.setdefault(put[2] or put[4], set()).add(put[1] or put[3])
        elif treated := _TREAT.fullmatch(command):
            if treated[1] == self._verb:
                self._treated.add(treated[2])
            elif treated[1] in ("heat", "cool") and self._verb != "clean":
                self._treated.discard(treated[2])
        elif command.startswith("close "):
            self._closed.add(command[6:])
        if seen := _SEEN.search(feedback):
            receptacle = seen[1] or seen[2]
            self._contents[receptacle] = set(_NAME.findall(seen[3]))
            self._closed.discard(receptacle)
        elif closed := _CLOSED.search(feedback):
            self._closed.add(closed[1])
        self._look_around()

    def _look_around(self) -> None:
        """What the admissible commands give away of everything at hand."""
        for command in self._admissible:
            if took := _TAKE.fullmatch(command):
                self._contents.setdefault(took[2], set()).add(took[1])
            elif command.startswith("use "):
                for receptacle in self._here():
                    self._lamps[command[4:]] = receptacle

    def _examined(self) -> list[str]:
        return [command[8:] for command in self._admissible if command.startswith("examine ")]

    def _here(self) -> list[str]:
        return [name for name in self._examined() if name in self._receptacles]

    # ---- deciding ----------------------------------------------------------------------------------------------------

    def next_command(self) -> str | None:
        """What to do now; None when nothing is left to try."""
        if self._engine.won:
            return None
        if self._held is None:
            return self._fetch() or self._search(self._target)
        if _class(self._held) != self._target:
            return self._put_away(self._held)
        if self._goal.kind == LIGHT:
            return self._light()
        if self._verb and self._held not in self._treated:
            return self._treat(self._held, self._verb)
        return self._deliver(self._held)

    def _light(self) -> str | None:
        for command in self._admissible:
            if command.startswith("use ") and _class(command[4:]) == self._place:
                return command
        for receptacle, contents in self._contents.items():
            self._lamps.update((name, receptacle) for name in contents if _class(name) == self._place)
        known = [receptacle for lamp, receptacle in sorted(self._lamps.items()) if _class(lamp) == self._place]
        return f"go to {known[0]}" if known else self._search(self._place)

    def _treat(self, held: str, verb: str) -> str | None:
        for command in self._admissible:
            if command.startswith(f"{verb} {held} with "):
                return command
        appliances = sorted(r for r in self._receptacles if _class(r) in APPLIANCES[verb])
        return f"go to {appliances[0]}" if appliances else None

    def _deliver(self, held: str) -> str | None:
        """Puts a target where it belongs: for two, where the other one is."""
        there = [r for r in self._receptacles if _class(r) == self._place and (self._target, r) not in self._refused]
        begun = self._begun()
        here = self._here()
        order = lambda r: (
            begun is not None and r != begun,
            r not in here,
            r in self._closed,
            r not in self._contents,
            r,
        )
        return self._put_into(held, sorted(there, key=order))

    def _put_away(self, held: str) -> str | None:
        """Puts down what is of no use: here if anything here takes it, else where such things are found."""
        put = next((command for command in self._admissible if _PUT.fullmatch(command)), None)
        if put:
            return put
        likely = lambda r: chance(_class(held), _class(r))
        there = [r for r in self._receptacles if (_class(held), r) not in self._refused]
        return self._put_into(held, sorted(there, key=lambda r: (r in self._closed, -likely(r), r)))

    def _put_into(self, held: str, receptacles: list[str]) -> str | None:
        here = self._here()
        for receptacle in receptacles:
            if receptacle not in here:
                return f"go to {receptacle}"
            if f"open {receptacle}" in self._admissible:
                return f"open {receptacle}"
            for command in (f"put {held} in/on {receptacle}", f"move {held} to {receptacle}"):
                if command in self._admissible:
                    return command
            self._refused.add((_class(held), receptacle))  # open and at hand, and yet not to be put there
        return None

    def _begun(self) -> str | None:
        """Where the first of two already lies."""
        if self._goal.kind != PLACE_TWO:
            return None
        holding = [r for r, contents in self._contents.items() if _class(r) == self._place and self._among(contents)]
        return min(holding, default=None)

    def _among(self, contents: Iterable[str]) -> list[str]:
        return sorted(name for name in contents if _class(name) == self._target)

    def _fetch(self) -> str | None:
        """Takes a target that was seen somewhere."""
        begun, here = self._begun(), self._here()
        seen = [(r, o) for r, contents in self._contents.items() if r != begun for o in self._among(contents)]
        order = lambda pair: (pair[0] not in here, pair[0] in self._closed, pair)
        for receptacle, name in sorted(seen, key=order):
            if receptacle not in here:
                return f"go to {receptacle}"
            if f"open {receptacle}" in self._admissible:
                return f"open {receptacle}"
            if f"take {name} from {receptacle}" in self._admissible:
                return f"take {name} from {receptacle}"
            self._contents[receptacle].discard(name)  # listed, but not to be had
        return None

    def _search(self, wanted: str) -> str | None:
        """Looks into the receptacle with the most chance per command among those not seen into."""
        here = self._here()
        best: tuple[float, str, str] | None = None
        for receptacle in sorted(self._receptacles - self._contents.keys()):
            if self._goal.kind in (PLACE, PLACE_TWO) and wanted == self._target and _class(receptacle) == self._place:
                odds = 1e-6  # would it lie there, there were no task
            else:
                odds = chance(wanted, _class(receptacle))
            if receptacle not in here:
                cost, command = 1.0 + closed_share(_class(receptacle)), f"go to {receptacle}"
                if receptacle in self._closed:
                    cost = 2.0
            elif f"open {receptacle}" in self._admissible:
                cost, command = 1.0, f"open {receptacle}"
            else:
                cost, command = 1.0, f"examine {receptacle}"
            if best is None or odds / cost > best[0]:
                best = odds / cost, receptacle, command
        return best[2] if best else None


# ---- priors ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def priors() -> dict[str, Any]:
    """`holds[object][receptacle] = [receptacles that hold one, receptacles of rooms that have one]`, by class;
    `closed[receptacle]` = share of them that start closed; `games` = how many were counted."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("priors.json").read_text())
    return found


@lru_cache(maxsize=4096)
def chance(wanted: str, receptacle: str) -> float:
    """The chance that a receptacle of this class holds an object of that class, in a room that has one.

    A pair never counted falls back, with the weight of one count, to how often the receptacle holds anything at all.
    """
    table = priors()["holds"]
    rows = [row[receptacle] for row in table.values() if receptacle in row]
    seen, of = sum(row[0] for row in rows), sum(row[1] for row in rows)
    usual = (seen + 0.1) / (of + 10)
    held, total = table.get(wanted, {}).get(receptacle, (0, 0))
    return float((held + usual) / (total + 1))


def closed_share(receptacle: str) -> float:
    """Share of the receptacles of this class that start closed."""
    return float(priors()["closed"].get(receptacle, 0.0))


def learn(games: Iterable[Game]) -> dict[str, Any]:
    """Counts for `priors` over the start states of games."""
    holds: dict[str, dict[str, list[int]]] = {}
    closed: dict[str, list[int]] = {}
    count = 0
    for game in games:
        count += 1
        kinds = [kind.removesuffix("type") for kind in game.receptacle_types]
        inside = [{game.object_types[o].removesuffix("type") for o in row} for row in game.start.contents]
        for r, kind in enumerate(kinds):
            row = closed.setdefault(kind, [0, 0])
            row[0] += game.openable >> r & 1
            row[1] += 1
        for wanted in set().union(*inside):
            for r, kind in enumerate(kinds):
                row = holds.setdefault(wanted, {}).setdefault(kind, [0, 0])
                row[0] += wanted in inside[r]
                row[1] += 1
    return {
        "games": count,
        "closed": {kind: round(row[0] / row[1], 3) for kind, row in sorted(closed.items())},
        "holds": {wanted: dict(sorted(rows.items())) for wanted, rows in sorted(holds.items())},
    }


def _class(name: str) -> str:
    return name.partition(" ")[0]


if __name__ == "__main__":
    print(json.dumps(learn(Game.load(path) for path in sorted(sys.argv[1:])), separators=(",", ":")))
