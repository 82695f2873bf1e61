"""Parser for the PDDL problem of a game, which becomes tables of numbers.

Receptacles, objects and locations are numbered in the order of their lower-cased ids, which is the
order of every list the game prints. Sets of objects, receptacles or locations are bit masks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from sys import intern
from typing import NamedTuple

from envsuite.envs.alfworld.games.logic import (
    CLEANABLE,
    CONTAINER,
    COOLABLE,
    HEATABLE,
    KNIFE,
    PICKUPABLE,
    SLICEABLE,
    TOGGLEABLE,
    Unrecognised,
)

PLACE, CLEAN_AND_PLACE, HEAT_AND_PLACE, COOL_AND_PLACE, PLACE_TWO, LIGHT = (
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
    "look_at_obj_in_light",
)
TASK_TYPES = (PLACE, LIGHT, CLEAN_AND_PLACE, HEAT_AND_PLACE, COOL_AND_PLACE, PLACE_TWO)

TRANSFORMS = {CLEAN_AND_PLACE: "clean", HEAT_AND_PLACE: "heat", COOL_AND_PLACE: "cool"}
"""Task type -> the verb that must be applied to the object before it is placed."""

_FLAGS = {
    "pickupable": PICKUPABLE,
    "cleanable": CLEANABLE,
    "heatable": HEATABLE,
    "coolable": COOLABLE,
    "sliceable": SLICEABLE,
    "toggleable": TOGGLEABLE,
    "isreceptacleobject": CONTAINER,
}
_PREDICATES = {
    "atlocation", "receptacleatlocation", "objectatlocation", "receptacletype", "objecttype", "inreceptacle",
    "inreceptacleobject", "cancontain", "openable", "iscool", *_FLAGS,
}  # fmt: skip

MAX_ENTITIES = 2_000
"""Limit on receptacles, objects and locations together; official games have fewer than 200."""

# The goals of ALFWorld's goal library without white space; other goals are not recognised.
_PROPERTY = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}
_WRAP = r"\(:goal\(and\(exists\(\?r-receptacle\)\(exists\(\?o-object\)\(and%s\)\)\)\)\)\)*"
_ONE = r"\(%sable\?o\)\(objecttype\?o(\w+)\)\(receptacletype\?r(\w+)\)\(%s\?o\)\(inreceptacle\?o\?r\)"
_GOALS = {
    PLACE: _WRAP % r"\(inreceptacle\?o\?r\)\(objecttype\?o(\w+)\)\(receptacletype\?r(\w+)\)",
    **{kind: _WRAP % (_ONE % (verb, _PROPERTY[verb])) for kind, verb in TRANSFORMS.items()},
    PLACE_TWO: r"\(:goal\(and\(exists\(\?r-receptacle\)\(exists\(\?o1-object\)\(and\(objecttype\?o1(\w+)\)"
    r"\(receptacletype\?r(\w+)\)\(inreceptacle\?o1\?r\)\(exists\(\?o2-object\)\(and\(not\(=\?o1\?o2\)\)"
    r"\(objecttype\?o2\1\)\(receptacletype\?r\2\)\(inreceptacle\?o2\?r\)\)\)\)\)\)\)\)*",
    LIGHT: r"\(:goal\(and\(exists\(\?ot-object\?r-receptacle\?a-agent\?l-location\)\(and\(objecttype\?ot(\w+)\)"
    r"\(toggleable\?ot\)\(istoggled\?ot\)\(receptacleatlocation\?r\?l\)\(atlocation\?a\?l\)\(inreceptacle\?ot\?r\)\)\)"
    r"\(exists\(\?o-object\?a-agent\)\(and\(objecttype\?o(\w+)\)\(holds\?a\?o\)\)\)\)\)*",
}
_PATTERNS: dict[str, re.Pattern[str]] = {}


Shuffle = Callable[[list[str]], None]
"""Shuffles a list in place, like `random.shuffle`."""


class TaskGoal(NamedTuple):
    """The goal: `kind` is the task type; types are lower-case as in the file ('appletype')."""

    kind: str
    object_type: str
    receptacle_type: str
    """the destination; for look_at_obj_in_light the type of the lamp, which is an object"""


class GameState(NamedTuple):
    """The part of a game that changes: small, hashable and comparable."""

    location: int
    held: int  # object, or -1
    opened: int  # mask of receptacles
    contents: tuple[tuple[int, ...], ...]  # by receptacle: its objects, ascending
    places: tuple[int, ...]  # by object: mask of the locations of its `objectAtLocation` facts
    hot: int  # masks of objects
    cool: int
    clean: int
    sliced: int
    toggled: int
    taken: frozenset[tuple[int, int]]  # (object, receptacle) pairs: taken out and not put back


class PddlProblem(NamedTuple):
    """A parsed problem; tuples over receptacles, objects and locations follow the order of ids."""

    goal: TaskGoal
    start: GameState
    receptacles: tuple[str, ...]  # names, "cabinet 3"
    receptacle_types: tuple[str, ...]
    receptacle_location: tuple[int, ...]
    openable: int  # mask of receptacles
    objects: tuple[str, ...]  # names
    object_types: tuple[str, ...]
    flags: tuple[int, ...]  # by object
    locations: tuple[str, ...]  # names, "loc 12"
    holders: dict[str, frozenset[int]]  # object type -> receptacles that can hold it; absent: none
    inside: dict[int, tuple[int, ...]]  # container object -> objects in it, which never change


class BrokenProblem(ValueError):
    """A malformed problem; `line` counts from 1 within its text."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_problem(text: str, shuffle: Shuffle | None = None) -> PddlProblem:
    """Parses a PDDL problem; `shuffle` randomizes the numbers in display names.

    Raises BrokenProblem, or Unrecognised if the goal is not ALFWorld's.
    """
    return _ProblemReader(text).problem(shuffle)


class _ProblemReader:
    def __init__(self, text: str) -> None:
        self.text = text
        lower = text.lower()
        if ";" in lower:
            lower = re.sub(r";[^\n]*", "", lower)
        init, goal = lower.find("(:init"), lower.find("(:goal")
        if init < 0 or goal < init:
            missing = "no (:init ...)" if init < 0 else "no (:goal ...) after (:init ...)"
            raise BrokenProblem(f"{missing}: truncated or not a game", text.count("\n") + 1)
        self.goal_text = "".join(lower[goal:].split())
        body = lower[init + 6 : goal]
        facts = self._facts(body) or self._facts(re.sub(r"\(\s+", "(", body))
        if facts is None:
            raise self._first_malformed_line(init)
        self.facts = facts

    @staticmethod
    def _facts(body: str) -> dict[str, list[list[str]]] | None:
        """Maps each predicate to the words of its facts; None unless the body consists of flat
        facts.
        """
        facts: dict[str, list[list[str]]] = defaultdict(list)
        *pieces, close, tail = body.split(")")
        if close.strip() or tail.strip() or body.count("(") != len(pieces):
            return None
        for piece in pieces:
            words = piece.split()
            if not words:
                return None
            facts[words[0]].append(words)
        if not all(head.startswith("(") and len(head) > 1 for head in facts):
            return None
        return {head[1:]: rows for head, rows in facts.items()}

    def problem(self, shuffle: Shuffle | None = None) -> PddlProblem:
        unknown = self.facts.keys() - _PREDICATES
        if unknown:
            raise self._broken(f"a game cannot start with a fact {min(unknown)!r}", min(unknown))
        receptacle_type = self._unique_values("receptacletype", "receptacle")
        receptacle_at = self._unique_values("receptacleatlocation", "receptacle")
        object_type = self._unique_values("objecttype", "object")
        at = self._pairs("objectatlocation")
        agents = self._unique_values("atlocation", "agent")
        if len(agents) != 1 or not receptacle_type:
            raise self._broken("a game needs one agent at a location, and receptacles", "atlocation")
        start = next(iter(agents.values()))
        rids, oids = sorted(receptacle_type), sorted(object_type)
        lids = sorted({start, *receptacle_at.values(), *(place for _, place in at)})
        if (count := len(rids) + len(oids) + len(lids)) > MAX_ENTITIES:
            raise self._broken(
                f"{count:,} receptacles, objects and locations, but at most {MAX_ENTITIES:,} are supported",
                "objecttype",
            )
        rs, os, ls = ({entity: number for number, entity in enumerate(ids)} for ids in (rids, oids, lids))
        if receptacle_at.keys() != rs.keys():
            offender = min(receptacle_at.keys() ^ rs.keys())
            raise self._broken(f"receptacle {offender!r} needs both a type and a location", offender)
        ambiguous = (rs.keys() & os.keys()) | (ls.keys() & rs.keys()) | (ls.keys() & os.keys())
        if ambiguous:
            raise self._broken(
                f"{min(ambiguous)!r} has more than one type of object, receptacle and location", min(ambiguous)
            )
        flags = [KNIFE if object_type[oid] in ("knifetype", "butterknifetype") else 0 for oid in oids]
        for predicate, flag in _FLAGS.items():
            for o in self._entities_with(predicate, os):
                flags[o] |= flag
        contents: list[set[int]] = [set() for _ in rids]
        for oid, rid in self._pairs("inreceptacle"):
            try:
                contents[rs[rid]].add(os[oid])
            except KeyError as missing:
                raise self._wrong_type("inreceptacle", missing) from None
        places = [0] * len(oids)
        for oid, lid in at:
            try:
                places[os[oid]] |= 1 << ls[lid]
            except KeyError as missing:
                raise self._wrong_type("objectatlocation", missing) from None
        names = display_names(rids + oids + lids) if shuffle is None else self._shuffled_names(shuffle)
        return PddlProblem(
            goal=self._goal(),
            start=GameState(
                location=ls[start],
                held=-1,
                opened=0,
                contents=tuple([tuple(sorted(row)) for row in contents]),
                places=tuple(places),
                hot=0,
                cool=_mask(self._entities_with("iscool", os)),
                clean=0,
                sliced=0,
                toggled=0,
                taken=frozenset(),
            ),
            receptacles=tuple([names[rid] for rid in rids]),
            receptacle_types=tuple([intern(receptacle_type[rid]) for rid in rids]),
            receptacle_location=tuple([ls[receptacle_at[rid]] for rid in rids]),
            openable=_mask(self._entities_with("openable", rs)),
            objects=tuple([names[oid] for oid in oids]),
            object_types=tuple([intern(object_type[oid]) for oid in oids]),
            flags=tuple(flags),
            locations=tuple([names[lid] for lid in lids]),
            holders=self._holders([receptacle_type[rid] for rid in rids], set(object_type.values())),
            inside=self._inside(os),
        )

    def _shuffled_names(self, shuffle: Shuffle) -> dict[str, str]:
        """Returns display names as ALFWorld's domain randomization draws them.

        It shuffles all ids of the problem, types and agent included, before it numbers them.
        """
        ids = sorted({word for rows in self.facts.values() for row in rows for word in row[1:]})
        shuffle(ids)
        return display_names(ids, in_order=True)

    def _holders(self, receptacle_types: list[str], object_types: set[str]) -> dict[str, frozenset[int]]:
        of_type: dict[str, int] = {}
        for r, kind in enumerate(receptacle_types):
            of_type[kind] = of_type.get(kind, 0) | 1 << r
        masks = dict.fromkeys(object_types, 0)
        for rtype, otype in self._pairs("cancontain"):
            if otype in masks and rtype in of_type:
                masks[otype] |= of_type[rtype]
        # classes that fit into the same receptacles share one set
        sets = {mask: frozenset(r for r in range(len(receptacle_types)) if mask >> r & 1) for mask in {*masks.values()}}
        return {intern(kind): sets[mask] for kind, mask in masks.items() if mask}

    def _inside(self, os: dict[str, int]) -> dict[int, tuple[int, ...]]:
        # Some official games contain a cycle here (a pan in itself, a pot in a plate in that pot). Only one level is
        # ever printed, so a cycle is not an error.
        inside: dict[int, set[int]] = {}
        for inner, outer in self._pairs("inreceptacleobject"):
            try:
                inside.setdefault(os[outer], set()).add(os[inner])
            except KeyError as missing:
                raise self._wrong_type("inreceptacleobject", missing) from None
        return {vessel: tuple(sorted(rows)) for vessel, rows in inside.items()}

    def _goal(self) -> TaskGoal:
        for kind, pattern in _GOALS.items():
            compiled = _PATTERNS.get(kind)
            if compiled is None:
                compiled = _PATTERNS[kind] = re.compile(pattern)
            match = compiled.fullmatch(self.goal_text)
            if match:
                first, second = intern(match[1]), intern(match[2])
                return TaskGoal(kind, second, first) if kind == LIGHT else TaskGoal(kind, first, second)
        raise Unrecognised("its goal is not one of the six task types")

    def _pairs(self, predicate: str) -> list[tuple[str, str]]:
        rows = self.facts.get(predicate, [])
        try:
            return [(a, b) for _, a, b in rows]
        except ValueError:
            offender = next(row for row in rows if len(row) != 3)
            raise self._broken(
                f"{predicate!r} takes two arguments, not {' '.join(offender[1:])!r}", " ".join(offender)
            ) from None

    def _unique_values(self, predicate: str, noun: str) -> dict[str, str]:
        pairs = self._pairs(predicate)
        table = dict(pairs)
        if len(table) != len(pairs):
            for entity, value in pairs:
                if table[entity] != value:
                    raise self._broken(f"{noun} {entity!r} has two facts {predicate!r}", f"{predicate} {entity}")
        return table

    def _entities_with(self, predicate: str, numbers: dict[str, int]) -> list[int]:
        rows = self.facts.get(predicate, [])
        try:
            return [numbers[entity] for _, entity in rows]
        except (ValueError, KeyError):
            offender = next(row for row in rows if len(row) != 2 or row[1] not in numbers)
            reason = "takes one argument" if len(offender) != 2 else "needs an entity that has a type"
            raise self._broken(f"{predicate!r} {reason}, not {' '.join(offender[1:])!r}", " ".join(offender)) from None

    def _wrong_type(self, predicate: str, missing: KeyError) -> BrokenProblem:
        (entity,) = missing.args
        return self._broken(f"{predicate!r} does not apply to {entity!r}: its type is wrong or missing", entity)

    def _broken(self, message: str, near: str) -> BrokenProblem:
        words = r"\s+".join(re.escape(word) for word in near.split())
        match = re.search(words, self.text, re.IGNORECASE)
        return BrokenProblem(message, self.text.count("\n", 0, match.start() if match else len(self.text)) + 1)

    def _first_malformed_line(self, init: int) -> BrokenProblem:
        """Reports the first line of the init section that is not a list of flat facts."""
        lines = self.text.lower().split("\n")
        first = self.text.count("\n", 0, init)
        for number, line in enumerate(lines[first:], first + 1):
            remainder = re.sub(r"\(\s*\w+(\s[^()]*)?\)", "", re.sub(r"\(:init|;.*", "", line)).strip()
            if remainder and remainder != ")":
                return BrokenProblem(f"not a fact: {remainder[:60]!r}", number)
        return BrokenProblem("unbalanced parentheses: truncated or not a game", len(lines))


def display_names(ids: list[str], in_order: bool = False) -> dict[str, str]:
    """Maps ids to the names players see: class and number (docs/specs/alfworld.md, "Names").

    Numbers count down along the sorted ids, or along the ids as given if `in_order`.
    """
    names: dict[str, str] = {}
    bases: dict[str, str] = {}
    left: dict[str, int] = {}
    for entity in ids:
        base, bar, _ = entity.partition("_bar_")
        if not bar:
            names[entity] = entity + " "
            continue
        if "basin" in entity:
            base += "basin"
        bases[entity] = base
        left[base] = left.get(base, 0) + 1
    for entity in bases if in_order else sorted(bases):
        base = bases[entity]
        names[entity] = intern(f"{base} {left[base]}")
        left[base] -= 1
    return names


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
