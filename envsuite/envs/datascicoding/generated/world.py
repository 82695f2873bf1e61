"""Structural causal models: a graph among columns, a mechanism for the outcome, traps, and drift.

Rows are drawn from the model. The chance (or mean) of the outcome is an exact function of the recorded cells, so the
best possible prediction of each row is known. Later rows differ from training rows in three ways: the causes without
parents have another mean and spread, some columns no longer follow their parents (an intervention), and traps no longer
depend on the outcome. The mechanism of the outcome stays the same, so the best prediction does too.

A marker column says on which rows the entries of other columns are turned round. The outcome does not depend on it, and
an entry together with its mark stands for one reading, so the best prediction is that of the readings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding.generated import columns as kinds
from envsuite.envs.datascicoding.generated import graphs, themes
from envsuite.envs.datascicoding.generated.columns import CausalColumn, draw_column, turned_round
from envsuite.envs.datascicoding.generated.graphs import Graph, draw_graph
from envsuite.envs.datascicoding.generated.mechanisms import Term, draw_term
from envsuite.envs.datascicoding.generated.scores import expected_auc
from envsuite.envs.datascicoding.generated.streams import Stream

if TYPE_CHECKING:
    import pandas as pd

REFERENCE_ROWS = 2000
MARKER_WORDS = 4
FOLLOWS = 0.7
"""weight of the parents in a column that has parents; the rest is its own noise"""


@dataclass(frozen=True)
class Trap:
    """A column that follows the outcome in training rows and another row's outcome, at random, in later rows."""

    column: CausalColumn
    strength: float
    """distance between the two classes (for a number: of 1.2 standard deviations) in units of the trap's own noise"""
    direction: float
    partner: int | None
    """node on whose sign the direction depends, so that the trap alone predicts nothing; None for a plain trap"""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table: the cells as the player sees them, the outcomes, and what is true of them."""

    frame: pd.DataFrame
    outcomes: np.ndarray
    """[rows] class 0 or 1, or a number"""
    truth: np.ndarray
    """[rows] chance of class 1, or mean of the number"""


@dataclass(frozen=True, eq=False)
class World:
    """One structural causal model with its columns. `node_columns[k]` records node k; traps have no node."""

    graph_family: str
    mechanism_family: str
    theme: themes.Theme
    graph: Graph
    """parents of every node; the last nodes are unrelated to everything"""
    edges: tuple[tuple[Term, ...], ...]
    """of each node the terms of its parents"""
    node_columns: tuple[CausalColumn, ...]
    outcome: tuple[Term, ...]
    traps: tuple[Trap, ...]
    order: tuple[str, ...]
    """names of all columns as they appear in the table"""
    moved: tuple[float, ...]
    """of each node without parents: the mean in later rows"""
    cut: frozenset[int]
    """nodes that do not follow their parents in later rows"""
    numeric: bool
    gain: float
    offset: float
    noise: float
    """standard deviation of a numeric outcome around its mean"""
    marker: CausalColumn | None = None
    """column whose words say on which rows the entries of other columns are turned round"""

    def nodes(self, stream: Stream, rows: int, later: bool) -> np.ndarray:
        """Returns values of all nodes [rows, nodes], rounded to the grid."""
        return self.follow(stream.normal(rows, len(self.graph)), later)

    def follow(self, own: np.ndarray, later: bool) -> np.ndarray:
        """Returns the values of all nodes whose own noise is `own` [rows, nodes]."""
        z = np.zeros_like(own)
        for node, parents in enumerate(self.graph):
            z[:, node] = own[:, node]
            if parents and not (later and node in self.cut):
                followed = np.sum([term(z) for term in self.edges[node]], axis=0)
                z[:, node] = FOLLOWS * followed + np.sqrt(1 - FOLLOWS**2) * own[:, node]
            elif later and not parents:
                z[:, node] = self.moved[node] + 1.1 * own[:, node]
            z[:, node] = np.clip(np.round(z[:, node] / kinds.GRID) * kinds.GRID, -kinds.LARGEST, kinds.LARGEST)
        return z

    def absent(self, stream: Stream, rows: int) -> np.ndarray:
        """Returns the mask of cells in which nothing is recorded [rows, nodes]."""
        return stream.uniform(rows, len(self.graph)) < np.array([column.missing for column in self.node_columns])

    def seen(self, z: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """Returns the values on which the outcome depends [rows, nodes]."""
        parts = [column.seen(z[:, k], absent[:, k]) for k, column in enumerate(self.node_columns)]
        return np.stack(parts, axis=1)

    def truth(self, seen: np.ndarray) -> np.ndarray:
        """Returns the chance of class 1, or the mean of a numeric outcome [rows]."""
        score = self.offset + self.gain * np.sum([term(seen) for term in self.outcome], axis=0)
        return score if self.numeric else 1.0 / (1.0 + np.exp(-score))

    def sample(self, stream: Stream, rows: int, later: bool = False) -> Rows:
        """Draws rows of training, or later ones."""
        import pandas as pd

        z, absent = self.nodes(stream.fork("nodes"), rows, later), self.absent(stream.fork("absent"), rows)
        truth = self.truth(self.seen(z, absent))
        outcomes = self._outcomes(truth, stream.fork("outcomes"))
        marks = np.floor(MARKER_WORDS * stream.fork("marks").uniform(rows)).astype(int)
        cells = {
            column.name: column.cells(z[:, k], absent[:, k], marks, stream.fork("cells", k))
            for k, column in enumerate(self.node_columns)
        }
        if self.marker is not None:
            cells[self.marker.name] = np.array(self.marker.words, object)[marks]
        copied = outcomes
        if later:  # the outcomes of unrelated cases
            copied = self.training_outcomes(stream.fork("unrelated"), rows)
        for number, trap in enumerate(self.traps):
            partner = trap.partner
            signs = None if partner is None else self.node_columns[partner].entered(z[:, partner], marks) > 0
            cells[trap.column.name] = self._trap_cells(trap, copied, signs, stream.fork("trap", number))
        return Rows(pd.DataFrame({name: cells[name] for name in self.order}), outcomes, truth)

    def training_outcomes(self, stream: Stream, rows: int) -> np.ndarray:
        """Draws outcomes of training rows without their cells."""
        z, absent = self.nodes(stream.fork("nodes"), rows, False), self.absent(stream.fork("absent"), rows)
        return self._outcomes(self.truth(self.seen(z, absent)), stream.fork("outcomes"))

    def _outcomes(self, truth: np.ndarray, stream: Stream) -> np.ndarray:
        if self.numeric:
            return np.round(truth + self.noise * stream.normal(len(truth)), 3)
        return (stream.uniform(len(truth)) < truth).astype(int)

    def _trap_cells(self, trap: Trap, outcomes: np.ndarray, signs: np.ndarray | None, stream: Stream) -> np.ndarray:
        middle, spread = (self.offset, 0.6 * np.hypot(self.gain, self.noise)) if self.numeric else (0.5, 0.5)
        signal = 0.5 * trap.direction * trap.strength * (outcomes - middle) / spread
        if signs is not None:
            signal = signal * np.where(signs, 1.0, -1.0)
        values = (signal + stream.normal(len(outcomes))) / np.hypot(1.0, 0.5 * trap.strength)
        values = np.clip(values, -kinds.LARGEST, kinds.LARGEST)
        none = np.zeros(len(values), bool)
        return trap.column.cells(values, none, none, stream.fork("cells"))


def draw_world(settings: SimpleNamespace, seed: int) -> World:
    """Returns the model of a seed. `settings`: the knobs of `GeneratedTables`."""
    stream = Stream("world", seed)
    split = graphs.split_of(seed)
    graph_family, mechanism_family = stream.pick(graphs.families(split))
    theme = stream.pick(themes.THEMES[split])
    connected = max(graphs.SMALLEST, settings.columns - settings.unrelated)
    graph = draw_graph(graph_family, connected, stream.fork("graph")) + ((),) * settings.unrelated
    edges = tuple(
        tuple(
            draw_term(mechanism_family, (parent,), settings.nonlinear / 2, stream.fork("edge", node, parent))
            for parent in parents
        )
        for node, parents in enumerate(graph)
    )
    numeric = settings.outcome == "number" or (settings.outcome == "both" and bool(stream.below(2)))
    names = stream.sample(theme.columns, len(graph) + settings.traps)
    node_columns = _draw_columns(names, len(graph), settings, stream.fork("columns"))
    numbers = [node for node, column in enumerate(node_columns) if not column.effects and not column.missing]
    hidden = set(names[len(graph) :][: round(settings.hidden_traps * settings.traps)]) if numbers else set()
    traps = tuple(
        _draw_trap(name, settings, numbers if name in hidden else [], stream.fork("trap", name))
        for name in names[len(graph) :]
    )
    causes = sorted(stream.sample(range(connected), settings.causes))
    together = _draw_pairs(causes, settings, stream.fork("together"))
    if settings.hints:
        node_columns = _with_hints(node_columns, connected, together, stream.fork("hints"))
    marker = _draw_marker(stream.fork("marker")) if settings.turned else None
    if marker is not None:
        turned = set(stream.sample(range(len(graph)), round(settings.turned * len(graph))))
        node_columns = tuple(
            turned_round(column, marker, stream.fork("turned", column.name)) if k in turned else column
            for k, column in enumerate(node_columns)
        )
        names = [*names, marker.name]
    moved = tuple(settings.drift * stream.between(0.5, 1.0) * stream.sign() for _ in graph)
    children = [node for node, parents in enumerate(graph) if parents]
    cut = frozenset(stream.sample(children, round(settings.drift * len(children) / 2)))
    world = World(
        graph_family, mechanism_family, theme, graph, edges, node_columns, (), traps,
        tuple(stream.shuffled(names)), moved, cut, numeric, 1.0, 0.0, 1.0, marker,
    )  # fmt: skip
    world = _with_scaled_edges(world, stream.fork("scale"))
    return _with_outcome(world, [*((cause,) for cause in causes), *together], settings, stream.fork("outcome"))


def _draw_pairs(causes: Sequence[int], settings: SimpleNamespace, stream: Stream) -> list[tuple[int, int]]:
    """Draws the pairs of causes that act together."""
    pairs = [(causes[k], causes[(k + 1) % len(causes)]) for k in range(len(causes))] if len(causes) > 1 else []
    return stream.sample(pairs, round(settings.interactions * len(causes)))


def _draw_marker(stream: Stream) -> CausalColumn:
    words = tuple(stream.sample(stream.pick(themes.LEVEL_WORDS), MARKER_WORDS))
    return CausalColumn(stream.pick(themes.MARKERS), kinds.CATEGORY, themes.MARKER_NOTE, words=words)


def _with_hints(
    columns: tuple[CausalColumn, ...], connected: int, together: Sequence[tuple[int, int]], stream: Stream
) -> tuple[CausalColumn, ...]:
    """Returns the columns with notes on those without bearing and on pairs that act together."""
    notes = {k: stream.pick(themes.UNRELATED_NOTES) for k in range(connected, len(columns))}
    for first, second in together:
        hint = themes.TOGETHER_NOTE.format(other=columns[second].name)
        notes[first] = f"{notes[first]}; {hint}" if first in notes else hint
    return tuple(
        replace(column, note=f"{column.note}; {notes[k]}" if k in notes else column.note)
        for k, column in enumerate(columns)
    )


def _draw_columns(
    names: Sequence[str], count: int, settings: SimpleNamespace, stream: Stream
) -> tuple[CausalColumn, ...]:
    """Draws the kinds of the columns: shares of categories and text codes as the knobs say, other columns numbers."""
    text_codes, categories = round(settings.codes * count), round(settings.categories * count)
    drawn = [kinds.TEXT_CODE] * text_codes
    drawn += [(kinds.CATEGORY, kinds.NUMBER_CODE)[k % 2] for k in range(categories)]
    drawn += [(kinds.NUMBER, kinds.AMOUNT)[k % 2] for k in range(count - len(drawn))]
    kind_of = stream.shuffled(drawn[:count])
    missing = [settings.missing if k % 2 == 0 else 0.0 for k in range(count)]
    missing_of = stream.shuffled(missing)
    return tuple(
        draw_column(name, kind, share, stream.fork(name))
        for name, kind, share in zip(names[:count], kind_of, missing_of, strict=True)
    )


def _draw_trap(name: str, settings: SimpleNamespace, partners: Sequence[int], stream: Stream) -> Trap:
    column = draw_column(name, stream.pick((kinds.NUMBER, kinds.AMOUNT)), 0.0, stream)
    column = replace(column, note=stream.pick(themes.TRAP_NOTES))
    strength = settings.trap_strength * stream.between(0.8, 1.2)
    return Trap(column, strength, stream.sign(), stream.pick(partners) if partners else None)


def _with_scaled_edges(world: World, stream: Stream) -> World:
    """Returns the model with the terms of its edges scaled, node by node, on a reference sample."""
    edges: list[tuple[Term, ...]] = list(world.edges)
    own = stream.normal(REFERENCE_ROWS, len(world.graph))
    for node, parents in enumerate(world.graph):
        if not parents:
            continue
        z = replace(world, edges=tuple(edges)).follow(own, later=False)
        fitted = [term.fitted(z) for term in edges[node]]
        total = float(np.sum([term(z) for term in fitted], axis=0).std())
        edges[node] = tuple(replace(term, weight=term.weight / max(0.05, total)) for term in fitted)
    return replace(world, edges=tuple(edges))


def _with_outcome(world: World, causes: Sequence[tuple[int, ...]], settings: SimpleNamespace, stream: Stream) -> World:
    """Returns the model with the terms of its outcome, one for each cause or pair, scaled to the best score."""
    reference = stream.fork("reference")
    z = world.nodes(reference.fork("nodes"), REFERENCE_ROWS, later=False)
    seen = world.seen(z, world.absent(reference.fork("absent"), REFERENCE_ROWS))
    terms = [
        draw_term(world.mechanism_family, parents, settings.nonlinear, stream.fork("term", number)).fitted(seen)
        for number, parents in enumerate(causes)
    ]
    total = float(np.sum([term(seen) for term in terms], axis=0).std())
    terms = [replace(term, weight=term.weight / max(0.05, total)) for term in terms]
    signal = settings.signal + settings.signal_spread * stream.between(-1.0, 1.0)
    score = np.sum([term(seen) for term in terms], axis=0)
    if world.numeric:
        unit = 10.0 ** stream.between(0.0, 2.0)
        explained = 2.0 * signal - 1.0  # an R2 with the place in its range that `signal` has in that of the AUC
        noise = unit * float(np.sqrt((1.0 - explained) / explained))
        return replace(world, outcome=tuple(terms), gain=unit, offset=unit * stream.between(4.0, 9.0), noise=noise)
    rate = stream.between(0.3, 0.6)
    gain = _bisect(lambda g: _best_auc(score, g, rate) - signal, 0.1, 60.0)
    return replace(world, outcome=tuple(terms), gain=gain, offset=_offset(score, gain, rate))


def _best_auc(score: np.ndarray, gain: float, rate: float) -> float:
    chances = 1.0 / (1.0 + np.exp(-_offset(score, gain, rate) - gain * score))
    return expected_auc(chances, chances)


def _offset(score: np.ndarray, gain: float, rate: float) -> float:
    """Returns the offset at which class 1 has the share `rate`."""
    return _bisect(
        lambda offset: float(np.mean(1.0 / (1.0 + np.exp(-np.clip(offset + gain * score, -500, 500))))) - rate,
        -300.0,
        300.0,
    )


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Returns where a rising function crosses 0; the nearer end if it does not."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
