"""Is A better than B? Paired differences on the same episodes.

The unit is the game: attempts at one (task, knobs, seed) are averaged first, because they are not independent. Intervals
are percentile bootstraps over games, p-values sign-flip permutation tests (exact where there are few games), adjusted
over all pairs by Holm (1979).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from envsuite.errors import DataError, UsageError
from envsuite.types import knobs_json
from harness import records
from harness.records import Record, is_broken
from harness.stats.aggregate import Game, game_scores, interquartile_mean, profile, repeated
from harness.stats.intervals import Interval, bootstrap, paired, success_interval

PROTOCOL = (
    "envsuite",
    "task",
    "knobs",
    "seeds",
    "attempts",
    "reward_mode",
    "max_turns",
    "panel",
    "sampling",
    "prompting",
)
"""What must be equal for two numbers to be comparable; the model is what is compared"""

NEEDED = ("task", "knobs", "seeds", "attempts", "reward_mode", "run_id")
"""what every config.json tells beside the model"""

EXACT_UP_TO = 14  # 2**14 sign patterns are enumerated; beyond that they are drawn
DRAWS = 20_000


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration and its scored records."""

    name: str
    path: Path
    config: dict[str, Any]
    records: list[Record]


@dataclass(frozen=True)
class Difference:
    """One pair, second less first."""

    first: str
    second: str
    games: int
    mean: Interval
    p: float
    p_holm: float
    detectable: float
    """smallest true difference these games would show with the asked power at the asked level"""
    needed: int
    """games needed to show `effect`; 0 where the differences have no spread to reckon with"""


def read_run(path: Path, keep_broken: bool = False) -> Run:
    """A run folder, or its results.jsonl; broken episodes are left out unless they are asked for."""
    if not path.exists():
        raise DataError(f"There is no {path}: name the folder of a finished run.")
    folder = path if path.is_dir() else path.parent
    file = records.results_file(folder)
    if not file.exists():
        cure = "finish it with --resume" if (folder / "journal.jsonl").exists() else "name the folder of a finished run"
        raise DataError(f"{folder} holds no results.jsonl: {cure}.")
    try:
        config = json.loads((folder / "config.json").read_text())
        schema, name = config["schema_version"], str(config["model"])
        if schema == records.SCHEMA:
            for key in NEEDED:
                config[key]
            config["seeds"][0], config["seeds"][1]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / 'config.json'} cannot be read ({type(error).__name__}: {error}): it is needed to compare like with like."
        ) from error
    if schema != records.SCHEMA:
        raise DataError(f"{folder / 'config.json'} has schema_version {schema!r}: {records.schema_cure(schema)}.")
    run = Run(name, folder, config, records.read_results(file))
    return run if keep_broken else scored(run)


def scored(run: Run) -> Run:
    """The run without its broken episodes."""
    return replace(run, records=[one for one in run.records if not is_broken(one)])


def refuse_unlike(runs: Sequence[Run], allow: Iterable[str] = ()) -> None:
    """Raises UsageError naming the first setting in which two runs differ, the `allow`ed ones apart."""
    allowed = set(allow)
    # Every pair: the floor, which has no prompting, must not stand between two models that were prompted differently.
    for first, other in itertools.combinations(runs, 2):
        for field in PROTOCOL:
            mine, theirs = first.config.get(field), other.config.get(field)
            # Random and expert have no prompting and no sampling: nothing there can differ.
            one_has_none = field in ("sampling", "prompting") and None in (mine, theirs)
            if mine != theirs and field not in allowed and not one_has_none:
                raise UsageError(
                    f"{first.path} and {other.path} are different protocols: {field} is {mine!r} in one and {theirs!r} "
                    f"in the other. Run them alike, or say --allow {field}."
                )


def scores(run: Run, metric: str) -> dict[Game, float]:
    """The mean of `metric` per game. Raises UsageError where a record has no such metric."""
    try:
        return game_scores(run.records, metric)
    except KeyError:
        known = sorted({name for one in run.records for name in one["metrics"]})
        raise UsageError(
            f"{run.path} has no metric {metric!r}: it has {', '.join(['success', 'reward', 'progression', *known])}."
        ) from None


@dataclass(frozen=True)
class Standing:
    """One run by itself."""

    name: str
    success: Interval
    mean: Interval
    """of the metric, over games"""
    iqm: Interval
    """of the metric: the mean of the middle half of the games"""
    repeats: dict[str, Interval]
    profile: dict[float, Interval]
    """share of games above each threshold"""


def standing(run: Run, metric: str = "success", level: float = 0.05) -> Standing:
    """What is said of a run before it is compared; intervals of 1 - `level`."""
    found = scores(run, metric)
    strata = [np.array(list(found.values()))]
    wins, games = _wins(run)
    return Standing(
        name=run.name,
        success=success_interval(wins, games, 1 - level),
        mean=_mean(run, found, metric, level),
        iqm=interquartile_mean(strata, confidence=1 - level),
        repeats=repeated(wins, games, 1 - level),
        profile=profile(strata, confidence=1 - level),
    )


def _wins(run: Run) -> tuple[list[bool], list[Game]]:
    games = [(one["task"], knobs_json(one["knobs"]), one["seed"]) for one in run.records]
    return [bool(one["success"]) for one in run.records], games


def _mean(run: Run, found: dict[Game, float], metric: str, level: float) -> Interval:
    """The mean of `metric` over the games of `found`, with the interval that every table has of it."""
    if metric != "success":
        return bootstrap(list(found.values()), confidence=1 - level)
    kept = [(win, game) for win, game in zip(*_wins(run), strict=True) if game in found]
    return success_interval([win for win, _ in kept], [game for _, game in kept], 1 - level)


def compare(
    runs: Sequence[Run], metric: str = "success", effect: float = 0.05, level: float = 0.05, power: float = 0.8
) -> list[Difference]:
    """Every pair of runs, on the games both have."""
    found = []
    for one, other in itertools.combinations(runs, 2):
        mine, theirs = scores(one, metric), scores(other, metric)
        common = sorted(mine.keys() & theirs.keys())
        if not common:
            raise UsageError(f"{one.path} and {other.path} have no game in common.")
        deltas = np.array([theirs[game] - mine[game] for game in common])
        second, first = (
            [_mean(run, {game: all_of[game] for game in common}, metric, level)]
            for run, all_of in ((other, theirs), (one, mine))
        )
        spread = float(deltas.std(ddof=1)) if len(deltas) > 1 else math.nan
        reach = NormalDist().inv_cdf(1 - level / 2) + NormalDist().inv_cdf(power)
        found.append(
            Difference(
                first=one.name,
                second=other.name,
                games=len(common),
                mean=paired(deltas.tolist(), second, first, confidence=1 - level),
                p=sign_flip(deltas),
                p_holm=math.nan,
                detectable=reach * spread / math.sqrt(len(deltas)),
                needed=math.ceil((reach * spread / effect) ** 2) if spread > 0 else 0,
            )
        )
    adjusted = holm([one.p for one in found])
    return [Difference(**{**vars(one), "p_holm": p}) for one, p in zip(found, adjusted, strict=True)]


def sign_flip(deltas: np.ndarray) -> float:
    """Two-sided p of a mean of 0 under exchange of the pair's labels; [n] differences."""
    moved = deltas[deltas != 0]
    if not len(moved):
        return 1.0
    # A sum in another order differs in its last digits, in proportion to its terms: still the same labelling.
    observed = abs(moved.sum()) - 1e-12 * np.abs(moved).sum()
    if len(moved) <= EXACT_UP_TO:
        signs = np.array(list(itertools.product((-1, 1), repeat=len(moved))))
        return float((np.abs(signs @ moved) >= observed).mean())
    rng, hits = np.random.default_rng(0), 0
    block = max(1, 2_000_000 // len(moved))  # draws at a time: thousands of games would fill the memory
    for start in range(0, DRAWS, block):
        signs = rng.choice((-1, 1), size=(min(block, DRAWS - start), len(moved)))
        hits += int((np.abs(signs @ moved) >= observed).sum())
    return (hits + 1) / (DRAWS + 1)  # the observed labelling is one of the draws (Phipson & Smyth, 2010)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = least
    return adjusted
