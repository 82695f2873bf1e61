"""Generalization in numbers: transfer within a test column, and differences between seen and unseen settings.

A column of a grid is one setting: all models play the same games there. The papers compare models within a column: a
transferred model with the specialist that was trained there, and with the base model before training (Practitioner's
Guide, Table 7; POAD, Table 1). `transfers` computes these differences game by game.

A difference between seen and unseen settings is the difference in difficulty plus the effect of training (`gaps`). The
adjusted gap removes difficulty: scores are scaled so that at every setting the random player has 0 and the expert 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.generalization.cells import EvaluatedModel, GridCell
from harness.stats.intervals import Interval, paired, square_and_add

SAME_GAMES = ("wording", "prompt-wording", "observation", "dialect")
"""axes that only change the wording of the same games"""
FLOOR, CEILING = "random", "expert"
"""players whose scores are 0 and 1 after adjustment"""


@dataclass(frozen=True)
class Transfer:
    """Score of a model at a setting it was not trained at, minus that of another model at the same setting."""

    model: EvaluatedModel
    reference: EvaluatedModel
    kind: str
    """specialist (trained at the setting) or base (before training)"""
    at: Mapping[str, str]
    interval: Interval


def transfers(cells: Sequence[GridCell]) -> list[Transfer]:
    """Returns transferred minus specialist, and transferred minus base, for each model and setting without training."""
    result = []
    for transferred in cells:
        if not is_trained(transferred.model) or transferred.model.was_trained_at(transferred.setting) is not False:
            continue
        for reference in cells:
            if reference.setting.at != transferred.setting.at or reference.model == transferred.model:
                continue
            specialist = is_trained(reference.model) and reference.model.was_trained_at(reference.setting)
            if not (specialist or reference.model.base):
                continue
            kind = "specialist" if specialist else "base"
            common = sorted(transferred.scores.keys() & reference.scores.keys())
            deltas = [transferred.scores[seed] - reference.scores[seed] for seed in common]
            interval = paired(deltas, transferred.limits)
            result.append(Transfer(transferred.model, reference.model, kind, transferred.setting.at, interval))
    return result


def is_trained(model: EvaluatedModel) -> bool:
    """Returns True unless the model is a base model, or the random player or the expert without training settings."""
    return not model.base and (bool(model.trained) or model.name not in (FLOOR, CEILING))


@dataclass(frozen=True)
class GeneralizationGap:
    """Difference between seen and unseen settings for one model."""

    model: EvaluatedModel
    seen: int
    unseen: int
    interval: Interval
    """seen minus unseen: difficulty plus transfer; difficulty alone for an untrained player"""
    paired: bool
    adjusted: Interval | None
    """the same after adjustment for difficulty; None without floor and ceiling at every setting"""


def gaps(cells: Sequence[GridCell]) -> list[GeneralizationGap]:
    """Returns the differences of each model with both seen and unseen cells."""
    result = []
    for label in dict.fromkeys(cell.model.label for cell in cells):
        own = [cell for cell in cells if cell.model.label == label and cell.scores]
        seen = [cell for cell in own if cell.model.was_trained_at(cell.setting) is True]
        unseen = [cell for cell in own if cell.model.was_trained_at(cell.setting) is False]
        if not (seen and unseen):
            continue
        common = set.intersection(*(set(cell.scores) for cell in own))
        same_games = _same_games(own) and all(len(cell.scores) == len(common) for cell in own)
        if same_games:
            deltas = [
                _mean(cell.scores[seed] for cell in seen) - _mean(cell.scores[seed] for cell in unseen)
                for seed in sorted(common)
            ]
            interval = paired(deltas, own[0].limits)
        else:
            interval = square_and_add([cell.interval for cell in seen], [cell.interval for cell in unseen])
        adjusted = _adjusted(seen, unseen, cells)
        result.append(GeneralizationGap(own[0].model, len(seen), len(unseen), interval, same_games, adjusted))
    return result


Triple = tuple[Interval, Interval, Interval]
"""score of the model, of the floor and of the ceiling at one setting"""


def _adjusted(seen: Sequence[GridCell], unseen: Sequence[GridCell], cells: Sequence[GridCell]) -> Interval | None:
    """Returns the adjusted gap; None if floor or ceiling is missing at a setting, or the player is untrained."""
    if not is_trained(seen[0].model):
        return None
    references = {
        (cell.model.name, tuple(cell.setting.at.items())): cell.interval for cell in cells if not cell.model.trained
    }
    sides: list[list[Triple]] = []
    for side in (seen, unseen):
        keys = [tuple(cell.setting.at.items()) for cell in side]
        if any((name, key) not in references for key in keys for name in (FLOOR, CEILING)):
            return None
        sides.append(
            [
                (cell.interval, references[FLOOR, key], references[CEILING, key])
                for cell, key in zip(side, keys, strict=True)
            ]
        )
    return adjusted_gap(*sides)


def adjusted_gap(seen: Sequence[Triple], unseen: Sequence[Triple]) -> Interval:
    """Returns the mean of (score - floor) / (ceiling - floor) over seen settings, minus that over unseen settings.

    The bounds add in squares the changes of the result when one score after the other moves to the end of its own
    interval (variance recovery: Zou and Donner, 2008, here for a function that is not linear). There are none if some
    setting has an expert that is not clearly better than the random player: with a ceiling or a floor at the end of its
    interval the two meet.
    """
    sides = (seen, unseen)
    first, second = (_mean(_scaled(*(score.value for score in triple)) for triple in side) for side in sides)
    value = first - second
    n = sum(triple[0].n for side in sides for triple in side)
    down = up = 0.0
    for sign, side in ((1.0, seen), (-1.0, unseen)):
        for triple in side:
            values = [estimate.value for estimate in triple]
            present = _scaled(*values)
            for index, estimate in enumerate(triple):
                ends = ([*values[:index], end, *values[index + 1 :]] for end in (estimate.low, estimate.high))
                moved = [sign * (_scaled(*moved_values) - present) / len(side) for moved_values in ends]
                down, up = math.hypot(down, min(*moved, 0.0)), math.hypot(up, max(*moved, 0.0))
                if any(map(math.isnan, moved)):
                    down = up = math.nan
    return Interval(value, value - down, value + up, n)


def _scaled(score: float, floor: float, ceiling: float) -> float:
    """Returns the score on the scale from floor (0) to ceiling (1); NaN if the ceiling is not above the floor."""
    return (score - floor) / (ceiling - floor) if ceiling > floor else math.nan


def _same_games(cells: Sequence[GridCell]) -> bool:
    """Returns True if the settings differ only in wording."""
    kinds = {
        (
            cell.setting.task.id,
            cell.setting.split,
            *sorted((k, v) for k, v in cell.setting.at.items() if k not in SAME_GAMES),
        )
        for cell in cells
    }
    return len(kinds) == 1


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return float(sum(numbers) / len(numbers))
