"""Families of causal graphs among the features, and how the splits divide them.

A graph is a tuple with the parents of each node; a parent has a smaller number than its child. Families differ in
properties that do not depend on the names of nodes, so that no graph of one family is equal to a graph of another up to
renaming.
"""

from __future__ import annotations

from envsuite.envs.datascicoding.generated.mechanisms import MECHANISMS
from envsuite.envs.datascicoding.generated.streams import Stream

Graph = tuple[tuple[int, ...], ...]

GRAPHS = ("chain", "star", "tree", "layers", "ladder", "mesh")
SMALLEST = 5
"""nodes of the smallest graph that every family has"""

TRAIN, VALIDATION, TEST = "train", "valid", "test"
SPLITS = {
    TRAIN: range(0, 1_000_000),
    VALIDATION: range(1_000_000, 1_001_000),
    TEST: range(1_001_000, 1_002_000),
}


def split_of(seed: int) -> str:
    """Returns the split of a seed. Seeds outside of all ranges belong to training."""
    return next((name for name, seeds in SPLITS.items() if seed in seeds), TRAIN)


def families(split: str) -> list[tuple[str, str]]:
    """Returns the pairs (graph family, mechanism family) from which a split draws.

    Of the 36 pairs training has 24, validation 6 and test 6. Every graph family and every mechanism family is in every
    split, but no pair is in two splits.
    """
    remainders = {TRAIN: (0, 1, 2, 3), VALIDATION: (4,), TEST: (5,)}[split]
    pairs = ((g, m) for g in range(len(GRAPHS)) for m in range(len(MECHANISMS)))
    names = tuple(MECHANISMS)
    return [(GRAPHS[g], names[m]) for g, m in pairs if (g + m) % 6 in remainders]


def draw_graph(family: str, nodes: int, stream: Stream) -> Graph:
    """Returns a random graph of a family with at least `SMALLEST` nodes."""
    if family == "chain":
        return ((), *((k - 1,) for k in range(1, nodes)))
    if family == "star":
        return ((), *((0,) for _ in range(1, nodes)))
    if family == "tree":
        return ((), (0,), (0,), (1,), *((stream.below(k),) for k in range(4, nodes)))
    if family == "layers":
        roots = nodes // 2
        return (*(() for _ in range(roots)), *(_two_of(roots, stream) for _ in range(roots, nodes)))
    if family == "ladder":
        return ((), (0,), *((k - 2, k - 1) for k in range(2, nodes)))
    if family == "mesh":
        return ((), (), (), (0, 1), (2, 3), *(_two_of(k, stream) for k in range(5, nodes)))
    raise ValueError(f"no family of graphs is called {family!r}")


def _two_of(bound: int, stream: Stream) -> tuple[int, int]:
    first, second = sorted(stream.sample(range(bound), 2))
    return first, second
