"""The PDDL problem of a game as tables of numbers.

Receptacles, objects and locations are numbered in the order of their lower-cased ids, which is the order of every list
the game prints. Sets of objects, receptacles or locations are bit masks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from sys import intern
from typing import NamedTuple

from envsuite.envs.alfworld.logic import (
    CLEANABLE,
    COOLABLE,
    HEATABLE,
    KNIFE,
    PORTABLE,
    SLICEABLE,
    TOGGLEABLE,
    VESSEL,
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
"""Task type -> what must be done to the object before it is placed."""

_FLAGS = {
    "pickupable": PORTABLE,
    "cleanable": CLEANABLE,
    "heatable": HEATABLE,
    "coolable": COOLABLE,
    "sliceable": SLICEABLE,
    "toggleable": TOGGLEABLE,
    "isreceptacleobject": VESSEL,
}
_PREDICATES = {
    "atlocation", "receptacleatlocation", "objectatlocation", "receptacletype", "objecttype", "inreceptacle",
    "inreceptacleobject", "cancontain", "openable", "iscool", *_FLAGS,
}  # fmt: skip

MAX_THINGS = 2_000
"""Receptacles, objects and locations together; official games have under 200. More would be slow and large, not a game."""

# The goals of ALFWorld's goal library, white space left out. No other goal is played.
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


class Goal(NamedTuple):
    """What wins: `kind` is the task type, the types as the file spells them, lower-case ('appletype')."""

    kind: str
    object_type: str
    receptacle_type: str
    """where to; for look_at_obj_in_light the type of the lamp, which is an object"""


class State(NamedTuple):
    """All that changes in a game: small, hashable, comparable; what two equal ones hold in store is the same."""

    location: int
    held: int  # object, or -1
    opened: int  # mask of receptacles
    contents: tuple[tuple[int, ...], ...]  # by receptacle: its objects, ascending
    places: tuple[int, ...]  # by object: mask of the locations its `objectAtLocation` facts name
    hot: int  # masks of objects
    cool: int
    clean: int
    sliced: int
    toggled: int
    taken: frozenset[tuple[int, int]]  # (object, receptacle) it was taken out of and not put back


class Problem(NamedTuple):
    """What a problem says; tuples over receptacles, objects and locations are in the order of their ids."""

    goal: Goal
    start: State
    receptacles: tuple[str, ...]  # names, "cabinet 3"
    receptacle_types: tuple[str, ...]
    receptacle_location: tuple[int, ...]
    openable: int  # mask of receptacles
    objects: tuple[str, ...]  # names
    object_types: tuple[str, ...]
    flags: tuple[int, ...]  # by object
    locations: tuple[str, ...]  # names, "loc 12"
    holders: dict[str, frozenset[int]]  # object type -> the receptacles that may hold it; absent: none
    inside: dict[int, tuple[int, ...]]  # vessel object -> objects that lie in it, for ever


class BrokenProblem(ValueError):
    """A malformed problem; `line` counts from 1 within its text."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_problem(text: str) -> Problem:
    """Parses a PDDL problem. Raises BrokenProblem, or Unrecognised for a goal ALFWorld has not."""
    return _Reader(text).problem()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        lower = text.lower()
        if ";" in lower:
            lower = re.sub(r";[^\n]*", "", lower)
        init, goal = lower.find("(:init"), lower.find("(:goal")
        if init < 0 or goal < init:
            what = "no (:init ...)" if init < 0 else "no (:goal ...) after (:init ...)"
            raise BrokenProblem(f"{what}: truncated or not a game", text.count("\n") + 1)
        self.goal_text = "".join(lower[goal:].split())
        body = lower[init + 6 : goal]
        facts = self._facts(body) or self._facts(re.sub(r"\(\s+", "(", body))
        if facts is None:
            raise self._malformed(init)
        self.facts = facts

    @staticmethod
    def _facts(body: str) -> dict[str, list[list[str]]] | None:
        """Predicate -> the words of its facts; None unless the body is nothing but flat facts."""
        facts: dict[str, list[list[str]]] = defaultdict(list)
        *pieces, close, rest = body.split(")")
        if close.strip() or rest.strip() or body.count("(") != len(pieces):
            return None
        for piece in pieces:
            words = piece.split()
            if not words:
                return None
            facts[words[0]].append(words)
        if not all(head.startswith("(") and len(head) > 1 for head in facts):
            return None
        return {head[1:]: rows for head, rows in facts.items()}

    def problem(self) -> Problem:
        unknown = self.facts.keys() - _PREDICATES
        if unknown:
            raise self._broken(f"no game starts with a fact {min(unknown)!r}", min(unknown))
        receptacle_type = self._function("receptacletype", "receptacle")
        receptacle_at = self._function("receptacleatlocation", "receptacle")
        object_type = self._function("objecttype", "object")
        at = self._pairs("objectatlocation")
        agents = self._function("atlocation", "agent")
        if len(agents) != 1 or not receptacle_type:
            raise self._broken("a game has one agent at a location, and receptacles", "atlocation")
        start = next(iter(agents.values()))
        rids, oids = sorted(receptacle_type), sorted(object_type)
        lids = sorted({start, *receptacle_at.values(), *(place for _, place in at)})
        if (things := len(rids) + len(oids) + len(lids)) > MAX_THINGS:
            raise self._broken(
                f"{things:,} receptacles, objects and locations, of {MAX_THINGS:,} at most", "objecttype"
            )
        rs, os, ls = ({entity: number for number, entity in enumerate(ids)} for ids in (rids, oids, lids))
        if receptacle_at.keys() != rs.keys():
            odd = min(receptacle_at.keys() ^ rs.keys())
            raise self._broken(f"receptacle {odd!r} needs both a type and a location", odd)
        twofold = (rs.keys() & os.keys()) | (ls.keys() & rs.keys()) | (ls.keys() & os.keys())
        if twofold:
            raise self._broken(f"{min(twofold)!r} is two things at once (object, receptacle, location)", min(twofold))
        flags = [KNIFE if object_type[oid] in ("knifetype", "butterknifetype") else 0 for oid in oids]
        for predicate, flag in _FLAGS.items():
            for o in self._which(predicate, os):
                flags[o] |= flag
        contents: list[set[int]] = [set() for _ in rids]
        for oid, rid in self._pairs("inreceptacle"):
            try:
                contents[rs[rid]].add(os[oid])
            except KeyError as stranger:
                raise self._unfit("inreceptacle", stranger) from None
        places = [0] * len(oids)
        for oid, lid in at:
            try:
                places[os[oid]] |= 1 << ls[lid]
            except KeyError as stranger:
                raise self._unfit("objectatlocation", stranger) from None
        names = spoken_names(rids + oids + lids)
        return Problem(
            goal=self._goal(),
            start=State(
                location=ls[start],
                held=-1,
                opened=0,
                contents=tuple([tuple(sorted(row)) for row in contents]),
                places=tuple(places),
                hot=0,
                cool=_mask(self._which("iscool", os)),
                clean=0,
                sliced=0,
                toggled=0,
                taken=frozenset(),
            ),
            receptacles=tuple([names[rid] for rid in rids]),
            receptacle_types=tuple([intern(receptacle_type[rid]) for rid in rids]),
            receptacle_location=tuple([ls[receptacle_at[rid]] for rid in rids]),
            openable=_mask(self._which("openable", rs)),
            objects=tuple([names[oid] for oid in oids]),
            object_types=tuple([intern(object_type[oid]) for oid in oids]),
            flags=tuple(flags),
            locations=tuple([names[lid] for lid in lids]),
            holders=self._holders([receptacle_type[rid] for rid in rids], set(object_type.values())),
            inside=self._inside(os),
        )

    def _holders(self, receptacle_types: list[str], object_types: set[str]) -> dict[str, frozenset[int]]:
        of_type: dict[str, int] = {}
        for r, kind in enumerate(receptacle_types):
            of_type[kind] = of_type.get(kind, 0) | 1 << r
        masks = dict.fromkeys(object_types, 0)
        for rtype, otype in self._pairs("cancontain"):
            if otype in masks and rtype in of_type:
                masks[otype] |= of_type[rtype]
        # classes that fit into the same places share one set
        sets = {mask: frozenset(r for r in range(len(receptacle_types)) if mask >> r & 1) for mask in {*masks.values()}}
        return {intern(kind): sets[mask] for kind, mask in masks.items() if mask}

    def _inside(self, os: dict[str, int]) -> dict[int, tuple[int, ...]]:
        # Six of the 340 games at hand hold a cycle here (a pan in itself, a pot in a plate in that pot). It is only
        # ever printed, one level deep, so a cycle is no error.
        inside: dict[int, set[int]] = {}
        for inner, outer in self._pairs("inreceptacleobject"):
            try:
                inside.setdefault(os[outer], set()).add(os[inner])
            except KeyError as stranger:
                raise self._unfit("inreceptacleobject", stranger) from None
        return {vessel: tuple(sorted(rows)) for vessel, rows in inside.items()}

    def _goal(self) -> Goal:
        for kind, pattern in _GOALS.items():
            compiled = _PATTERNS.get(kind)
            if compiled is None:
                compiled = _PATTERNS[kind] = re.compile(pattern)
            found = compiled.fullmatch(self.goal_text)
            if found:
                first, second = intern(found[1]), intern(found[2])
                return Goal(kind, second, first) if kind == LIGHT else Goal(kind, first, second)
        raise Unrecognised("its goal is none of the six task types")

    def _pairs(self, predicate: str) -> list[tuple[str, str]]:
        rows = self.facts.get(predicate, [])
        try:
            return [(a, b) for _, a, b in rows]
        except ValueError:
            odd = next(row for row in rows if len(row) != 3)
            raise self._broken(f"{predicate!r} takes two arguments, not {' '.join(odd[1:])!r}", " ".join(odd)) from None

    def _function(self, predicate: str, noun: str) -> dict[str, str]:
        pairs = self._pairs(predicate)
        table = dict(pairs)
        if len(table) != len(pairs):
            for entity, value in pairs:
                if table[entity] != value:
                    raise self._broken(f"{noun} {entity!r} has two facts {predicate!r}", f"{predicate} {entity}")
        return table

    def _which(self, predicate: str, numbers: dict[str, int]) -> list[int]:
        rows = self.facts.get(predicate, [])
        try:
            return [numbers[entity] for _, entity in rows]
        except (ValueError, KeyError):
            odd = next(row for row in rows if len(row) != 2 or row[1] not in numbers)
            what = "takes one argument" if len(odd) != 2 else "wants a thing that has a type"
            raise self._broken(f"{predicate!r} {what}, not {' '.join(odd[1:])!r}", " ".join(odd)) from None

    def _unfit(self, predicate: str, stranger: KeyError) -> BrokenProblem:
        (entity,) = stranger.args
        return self._broken(f"{predicate!r} cannot hold of {entity!r}, by its type or for want of one", entity)

    def _broken(self, message: str, near: str) -> BrokenProblem:
        words = r"\s+".join(re.escape(word) for word in near.split())
        found = re.search(words, self.text, re.IGNORECASE)
        return BrokenProblem(message, self.text.count("\n", 0, found.start() if found else len(self.text)) + 1)

    def _malformed(self, init: int) -> BrokenProblem:
        """The first line of the init section that holds anything but whole, flat facts."""
        lines = self.text.lower().split("\n")
        first = self.text.count("\n", 0, init)
        for number, line in enumerate(lines[first:], first + 1):
            rest = re.sub(r"\(\s*\w+(\s[^()]*)?\)", "", re.sub(r"\(:init|;.*", "", line)).strip()
            if rest and rest != ")":
                return BrokenProblem(f"no fact: {rest[:60]!r}", number)
        return BrokenProblem("facts that do not close: truncated or not a game", len(lines))


def spoken_names(ids: list[str]) -> dict[str, str]:
    """Returns the players' name of every id, a class and a number (docs/specs/alfworld.md, "Names")."""
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
    for entity in sorted(bases):
        base = bases[entity]
        names[entity] = intern(f"{base} {left[base]}")
        left[base] -= 1
    return names


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
