"""Expert under partial observability: it knows the rules, the task, and what it has seen.

It has the same information as a player, so its number of commands, unlike the exact solver's, is a
realistic bound for an agent. It reads feedback and admissible commands. To find an object it next
visits the receptacle with the highest chance per command, estimated from the training games
(`priors.json`, which `python -m envsuite.envs.alfworld.partial GAME...` computes with `learn` from
200 official training games).
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
from envsuite.envs.alfworld.games.game import LIGHT, PLACE, PLACE_TWO, TRANSFORMS, AlfworldGame, GameState

APPLIANCES = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}
_SEEN = re.compile(r"(?:On the (\w+ \d+)|The (\w+ \d+) is open\. In it), you see (.*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_NAME = re.compile(r"a (\w+ \d+)")
_TAKE = re.compile(r"take (\w+ \d+) from (\w+ \d+)")
_PUT = re.compile(r"put (\w+ \d+) in/on (\w+ \d+)|move (\w+ \d+) to (\w+ \d+)")
_TREAT = re.compile(r"(clean|heat|cool) (\w+ \d+) with \w+ \d+")


class PartialExpert:
    """Follows one episode and proposes the next command.

    It receives the player's commands and replays them on its own engine. If it starts from a
    `state` in the middle of an episode, it knows only what is visible in that state.
    """

    def __init__(self, game: AlfworldGame, state: GameState | None = None) -> None:
        self._engine = NativeEngine(game)
        self._goal = game.goal
        self._target = game.goal.object_type.removesuffix("type")
        self._place = game.goal.receptacle_type.removesuffix("type")  # the lamp's class in look_at_obj_in_light
        self._verb = TRANSFORMS.get(game.goal.kind)
        self._num_commands = 0
        self._held: str | None = None
        self._contents: dict[str, set[str]] = {}  # receptacle -> objects seen in it; absent: not inspected
        self._closed: set[str] = set()
        self._treated: set[str] = set()  # objects that were cleaned, heated or cooled as the goal asks
        self._lamps: dict[str, str] = {}  # lamp -> a receptacle where it can be used
        self._refused: set[tuple[str, str]] = set()  # (object class, receptacle that cannot hold it)
        if state is not None:
            self._engine.set_state(state)
            inventory = _NAME.search(self._engine.step("inventory").feedback)
            self._held = inventory[1] if inventory else None
        self._admissible = self._engine.admissible()
        self._receptacles = {command[6:] for command in self._admissible if command.startswith("go to ")}
        self._receptacles |= {name for name in self._examinable() if name != self._held}
        self._update_view()

    def follow(self, commands: list[str]) -> None:
        """Updates the expert with the commands of the whole episode; known ones are skipped."""
        for command in commands[self._num_commands :]:
            self._observe(command.strip(), *self._engine.step(command)[:2])
        self._num_commands = len(commands)

    def _observe(self, command: str, feedback: str, admissible: list[str]) -> None:
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
        self._update_view()

    def _update_view(self) -> None:
        """Reads everything that the admissible commands reveal about this location."""
        for command in self._admissible:
            if took := _TAKE.fullmatch(command):
                self._contents.setdefault(took[2], set()).add(took[1])
            elif command.startswith("use "):
                for receptacle in self._here():
                    self._lamps[command[4:]] = receptacle

    def _examinable(self) -> list[str]:
        return [command[8:] for command in self._admissible if command.startswith("examine ")]

    def _here(self) -> list[str]:
        return [name for name in self._examinable() if name in self._receptacles]

    # ---- decisions

    def next_command(self) -> str | None:
        """Returns the next command; None if nothing is left to try."""
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
        """Puts a target into its destination; the second of two goes where the first one is."""
        there = [r for r in self._receptacles if _class(r) == self._place and (self._target, r) not in self._refused]
        first = self._first_of_two()
        here = self._here()

        def order(r: str) -> tuple[bool, bool, bool, bool, str]:
            return (
                first is not None and r != first,
                r not in here,
                r in self._closed,
                r not in self._contents,
                r,
            )

        return self._put_into(held, sorted(there, key=order))

    def _put_away(self, held: str) -> str | None:
        """Puts down a useless object, here if possible, else where such objects usually are."""
        put = next((command for command in self._admissible if _PUT.fullmatch(command)), None)
        if put:
            return put
        there = [r for r in self._receptacles if (_class(held), r) not in self._refused]
        return self._put_into(
            held, sorted(there, key=lambda r: (r in self._closed, -chance(_class(held), _class(r)), r))
        )

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
            self._refused.add((_class(held), receptacle))  # open and reachable, but the put command is not admissible
        return None

    def _first_of_two(self) -> str | None:
        """Returns the destination that already holds the first of two targets."""
        if self._goal.kind != PLACE_TWO:
            return None
        holding = [
            r for r, contents in self._contents.items() if _class(r) == self._place and self._targets_in(contents)
        ]
        return min(holding, default=None)

    def _targets_in(self, contents: Iterable[str]) -> list[str]:
        return sorted(name for name in contents if _class(name) == self._target)

    def _fetch(self) -> str | None:
        """Takes a target that has been seen."""
        first, here = self._first_of_two(), self._here()
        seen = [(r, o) for r, contents in self._contents.items() if r != first for o in self._targets_in(contents)]
        seen.sort(key=lambda pair: (pair[0] not in here, pair[0] in self._closed, pair))
        for receptacle, name in seen:
            if receptacle not in here:
                return f"go to {receptacle}"
            if f"open {receptacle}" in self._admissible:
                return f"open {receptacle}"
            if f"take {name} from {receptacle}" in self._admissible:
                return f"take {name} from {receptacle}"
            self._contents[receptacle].discard(name)  # seen, but cannot be taken
        return None

    def _search(self, object_class: str) -> str | None:
        """Goes to, opens or examines the unseen receptacle with the highest chance per command."""
        here = self._here()
        best: tuple[float, str, str] | None = None
        for receptacle in sorted(self._receptacles - self._contents.keys()):
            if (
                self._goal.kind in (PLACE, PLACE_TWO)
                and object_class == self._target
                and _class(receptacle) == self._place
            ):
                odds = 1e-6  # a target in its destination would make the task trivial
            else:
                odds = chance(object_class, _class(receptacle))
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


# ---- priors


@lru_cache(maxsize=1)
def priors() -> dict[str, Any]:
    """Returns `priors.json`, counts by object and receptacle class.

    `holds[object][receptacle]` is [receptacles that hold one, receptacles in rooms that have one],
    `closed[receptacle]` the share of them that start closed, `games` the number of games counted.
    """
    counts: dict[str, Any] = json.loads(files(__package__).joinpath("priors.json").read_text())
    return counts


@lru_cache(maxsize=4096)
def chance(object_class: str, receptacle: str) -> float:
    """Returns the chance that a receptacle holds an object, in a room that has one; both by class.

    For unknown pairs it falls back, with the weight of one count, to how often such a receptacle
    holds anything at all.
    """
    table = priors()["holds"]
    rows = [row[receptacle] for row in table.values() if receptacle in row]
    hits, trials = sum(row[0] for row in rows), sum(row[1] for row in rows)
    prior = (hits + 0.1) / (trials + 10)
    held, total = table.get(object_class, {}).get(receptacle, (0, 0))
    return float((held + prior) / (total + 1))


def closed_share(receptacle: str) -> float:
    """Returns the share of receptacles of this class that start closed."""
    return float(priors()["closed"].get(receptacle, 0.0))


def learn(games: Iterable[AlfworldGame]) -> dict[str, Any]:
    """Computes the counts of `priors` over the start states of games."""
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
        for object_class in set().union(*inside):
            for r, kind in enumerate(kinds):
                row = holds.setdefault(object_class, {}).setdefault(kind, [0, 0])
                row[0] += object_class in inside[r]
                row[1] += 1
    return {
        "games": count,
        "closed": {kind: round(row[0] / row[1], 3) for kind, row in sorted(closed.items())},
        "holds": {object_class: dict(sorted(rows.items())) for object_class, rows in sorted(holds.items())},
    }


def _class(name: str) -> str:
    return name.partition(" ")[0]


if __name__ == "__main__":
    print(json.dumps(learn(AlfworldGame.load(path) for path in sorted(sys.argv[1:])), separators=(",", ":")))
