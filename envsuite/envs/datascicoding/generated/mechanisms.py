"""Families of mechanisms: functions of one or two causes, with parameters drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from envsuite.envs.datascicoding.generated.streams import Stream

Values = np.ndarray


def _step(p: tuple[float, ...], z: Values) -> Values:
    return (z > p[0]) + 0.5 * (z > p[0] + 0.9)


def _opposite_sides(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return ((a > p[0]) != (b > p[1])).astype(float)


def _wave(p: tuple[float, ...], z: Values) -> Values:
    return np.sin((2.0 + 0.5 * p[0]) * z + p[1])


def _wave_of_sum(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return np.sin(1.4 * (a + p[2] * b) + p[1])


def _power(p: tuple[float, ...], z: Values) -> Values:
    return (z - 0.5 * p[0]) ** 2


def _product(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return (a - 0.3 * p[0]) * (b - 0.3 * p[1])


def _peak(p: tuple[float, ...], z: Values) -> Values:
    return np.exp(-2.0 * (z - p[0]) ** 2)


def _hill(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return np.exp(-0.7 * ((a - p[0]) ** 2 + (b - p[1]) ** 2))


def _hinge(p: tuple[float, ...], z: Values) -> Values:
    return np.maximum(0.0, p[2] * (z - p[0]))


def _difference(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return np.abs(a - p[2] * b)


def _saturation(p: tuple[float, ...], z: Values) -> Values:
    return (z - p[0]) / (0.3 + np.abs(z - p[0]))


def _soft_product(p: tuple[float, ...], a: Values, b: Values) -> Values:
    return _saturation(p, a) * _saturation(p[1:], b)


MECHANISMS: dict[str, tuple[Callable[..., Values], Callable[..., Values]]] = {
    "steps": (_step, _opposite_sides),
    "waves": (_wave, _wave_of_sum),
    "powers": (_power, _product),
    "peaks": (_peak, _hill),
    "hinges": (_hinge, _difference),
    "saturations": (_saturation, _soft_product),
}
"""family -> (function of one cause, function of two causes)"""


@dataclass(frozen=True)
class Term:
    """A contribution of one or two causes: a linear part and a part of the family, each with variance 1 and mean 0.

    `center` and `scale` hold mean and standard deviation of the two parts in a reference sample.
    """

    family: str
    causes: tuple[int, ...]
    weight: float
    nonlinear: float
    """share of the family's function, 0 to 1"""
    parameters: tuple[float, ...]
    center: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 1.0)

    def parts(self, z: Values) -> tuple[Values, Values]:
        """Returns the linear part and the family's part for values `z` [rows, nodes], not yet standardized."""
        columns = [z[:, cause] for cause in self.causes]
        return sum(columns[1:], columns[0]), MECHANISMS[self.family][len(columns) - 1](self.parameters, *columns)

    def fitted(self, z: Values) -> Term:
        """Returns the term with mean and standard deviation of its parts measured on `z`."""
        parts = self.parts(z)
        center = (float(parts[0].mean()), float(parts[1].mean()))
        scale = (max(0.05, float(parts[0].std())), max(0.05, float(parts[1].std())))
        return Term(self.family, self.causes, self.weight, self.nonlinear, self.parameters, center, scale)

    def __call__(self, z: Values) -> Values:
        """Returns the contribution [rows]."""
        linear, own = ((part - c) / s for part, c, s in zip(self.parts(z), self.center, self.scale, strict=True))
        return self.weight * ((1.0 - self.nonlinear) * linear + self.nonlinear * own)


def draw_term(family: str, causes: tuple[int, ...], nonlinear: float, stream: Stream) -> Term:
    """Returns a random term of a family, not yet fitted."""
    weight = stream.sign() * stream.between(0.7, 1.3)
    parameters = (stream.between(-0.6, 0.6), stream.between(-0.6, 0.6), stream.sign())
    return Term(family, causes, weight, nonlinear, parameters)
