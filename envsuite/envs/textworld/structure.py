"""Structure of a generated game: its facts and quests up to the names of things and the compass.

Two games have the same structure if renaming things of the same kind, and turning or mirroring the
compass, makes their facts and quests equal. `structure_digest` computes a canonical form, and
`split_of` assigns every structure to one split, so that games of different splits never share one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

SPLIT_SHARES = (("test", 2), ("valid", 2), ("train", 6))
"""Tenths of the structures in each split."""

_TEST_END, _VALID_END = 40_000, 50_000
_WAYS = ("north", "east", "south", "west")

Relation = tuple[str, tuple[str, ...]]
Kind = tuple[str, str]


def split_of(digest: str) -> str:
    """Returns the split of a structure. It depends on nothing else, so it is the same for all settings."""
    tenth = int(digest, 16) % 10
    for split, share in SPLIT_SHARES:
        if tenth < share:
            return split
        tenth -= share
    raise AssertionError("the shares add up to ten tenths")


def split_of_seed(seed: int) -> str:
    """Returns the split of a seed, by the ranges of the Practitioner's Guide.

    Seeds below 40,000 are for testing, those below 50,000 for validation, and all others for training.
    """
    if seed < _TEST_END:
        return "test"
    return "valid" if seed < _VALID_END else "train"


def structure_digest(serialised: Mapping[str, Any]) -> str:
    """Returns 16 hex digits of the structure of a serialised game: `world` and `quests`.

    Maps, doors, kinds and places of things, and the conditions of quests count. Names, prose, the
    order of facts, and the directions of the compass (eight symmetries) do not.
    """
    kinds: dict[str, Kind] = {}
    relations: set[Relation] = set()

    def add(fact: Mapping[str, Any], prefix: str, *nodes: str) -> None:
        arguments = []
        for argument in fact["arguments"]:
            node = f"thing {argument['name']}"
            kinds[node] = ("thing", argument["type"])
            arguments.append(node)
        name = fact["name"]
        way = name.removesuffix("_of")
        if way in _WAYS:
            name = "way"
            arguments.append(f"way {way}")
        relations.add((prefix + name, (*nodes, *arguments)))

    for number, way in enumerate(_WAYS):
        kinds[f"way {way}"] = ("way", "")
        relations.add(("opposite", (f"way {way}", f"way {_WAYS[(number + 2) % 4]}")))
    for fact in serialised["world"]:
        add(fact, "")
    for number, quest in enumerate(serialised["quests"]):
        quest_node = f"quest {number}"
        kinds[quest_node] = ("quest", json.dumps([quest["reward"], quest["optional"], quest["repeatable"]]))
        for kind in ("win_events", "fail_events"):
            for position, event in enumerate(quest[kind]):
                event_node = f"{kind} {number} {position}"
                kinds[event_node] = ("event", kind)
                relations.add(("part", (quest_node, event_node)))
                for fact in event["condition"]["preconditions"]:
                    add(fact, "condition ", event_node)
    form = _CanonicalForm(kinds, sorted(relations)).certificate()
    return hashlib.sha256(json.dumps(form).encode()).hexdigest()[:16]


class _CanonicalForm:
    """Canonical form of a coloured relational structure, by refinement and individualisation."""

    def __init__(self, kinds: Mapping[str, Kind], relations: list[Relation]) -> None:
        self._nodes = sorted(kinds)
        numbers = {node: number for number, node in enumerate(self._nodes)}
        self._relations = [(name, tuple(numbers[node] for node in nodes)) for name, nodes in relations]
        self._set = set(self._relations)
        self._of: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in self._nodes]
        for relation in self._relations:
            for node in set(relation[1]):
                self._of[node].append(relation)
        self._labels = [kinds[node] for node in self._nodes]
        ranks = {label: rank for rank, label in enumerate(sorted({json.dumps(label) for label in self._labels}))}
        self._start = [ranks[json.dumps(label)] for label in self._labels]

    def certificate(self) -> Any:
        """Returns a value that two structures share exactly if they are isomorphic."""
        return min(self._certificates(self._refine(self._start)))

    def _certificates(self, colors: list[int]) -> Iterator[Any]:
        """Yields the form under every choice that refinement leaves open, except for equivalent ones."""
        cell = self._first_open_cell(colors)
        if not cell:
            labels = [label for _, label in sorted(zip(colors, self._labels, strict=True))]
            yield labels, sorted([name, [colors[node] for node in nodes]] for name, nodes in self._relations)
            return
        tried: list[int] = []
        for node in cell:
            if any(self._interchangeable(node, earlier) for earlier in tried):
                continue
            tried.append(node)
            chosen = [2 * color for color in colors]
            chosen[node] -= 1
            yield from self._certificates(self._refine(chosen))

    def _refine(self, colors: list[int]) -> list[int]:
        """Splits the colours until nodes of one colour have the same relations to all colours."""
        count = len(set(colors))
        while True:
            signatures = []
            for node, relations in enumerate(self._of):
                around = sorted(
                    (name, [colors[neighbor] for neighbor in nodes], [neighbor == node for neighbor in nodes])
                    for name, nodes in relations
                )
                signatures.append((colors[node], around))
            ordered = sorted(signatures)
            ranks: dict[str, int] = {}
            for signature in ordered:
                ranks.setdefault(repr(signature), len(ranks))
            colors = [ranks[repr(signature)] for signature in signatures]
            if len(ranks) == count:
                return colors
            count = len(ranks)

    def _first_open_cell(self, colors: list[int]) -> list[int]:
        """Returns the nodes of the first colour that several nodes share; [] if there is none."""
        cells: dict[int, list[int]] = {}
        for node, color in enumerate(colors):
            cells.setdefault(color, []).append(node)
        return next((cells[color] for color in sorted(cells) if len(cells[color]) > 1), [])

    def _interchangeable(self, first: int, second: int) -> bool:
        """Tests whether swapping two nodes leaves all relations as they are."""
        swap = {first: second, second: first}
        return all(
            (name, tuple(swap.get(node, node) for node in nodes)) in self._set
            for name, nodes in (*self._of[first], *self._of[second])
        )
