"""Paired comparison of runs on the same games.

The unit is the game: attempts at one (task, knobs, seed) are averaged first, because they are not independent.
`harness.stats.intervals` computes the intervals. p-values come from sign-flip permutation tests (exact for few
games), adjusted over all pairs by Holm (1979).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from envsuite import reading
from envsuite.errors import DataError, EnvsuiteError, UsageError
from envsuite.types import knobs_json
from harness import records
from harness.prompting.prompting import Prompting
from harness.records import Record, is_broken
from harness.stats.aggregate import Game, game_scores, interquartile_mean, profile, repeated
from harness.stats.intervals import Interval, Range, mean_interval, paired, success_interval
from harness.stats.ranges import known_ranges

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
"""settings that must be equal for two results to be comparable; only the model may differ"""

CONFIG: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "model", "reward_mode", "run_id"), str),
    **{"knobs": dict, "seeds": list, "attempts": int},
}
"""fields of a run's config.json that every reader needs, with their types"""
OPTIONAL: dict[str, type] = {
    **{"max_turns": int, "panel": list, "sampling": dict, "prompting": dict, "envsuite": str, "weights": object},
}
"""fields that may be missing or null"""

EXACT_UP_TO = 14
"""games up to which all sign patterns are enumerated; for more games they are drawn"""
DRAWS = 20_000


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration and its records."""

    name: str
    path: Path
    config: dict[str, Any]
    records: list[Record]
    warning: str = ""
    """says that the records differ from summary.json, or that it is missing"""


@dataclass(frozen=True)
class Difference:
    """The difference of one pair of runs: second minus first."""

    first: str
    second: str
    games: int
    mean: Interval
    p: float
    p_holm: float
    detectable: float
    """smallest true difference that these games would show with the requested power and level"""
    needed: int
    """games needed to show `effect`; 0 if the differences have no spread"""


def read_run(path: Path, keep_broken: bool = False) -> Run:
    """Reads a run folder, or the folder of a results.jsonl. Broken episodes are dropped unless `keep_broken`.

    The folder may come from anybody. Raises DataError with one line if a file is missing, damaged or not of the
    expected types.
    """
    if not path.exists():
        raise DataError(f"There is no {path}: name the folder of a finished run.")
    folder = path if path.is_dir() else path.parent
    file = records.results_file(folder)
    if not file.exists():
        cure = "finish it with --resume" if (folder / "journal.jsonl").exists() else "name the folder of a finished run"
        raise DataError(f"{folder} holds no results.jsonl: {cure}.")
    config_file = folder / "config.json"
    try:
        config = reading.read_json(config_file)
        schema = config["schema_version"]
        if schema == records.SCHEMA:
            check_config(config)
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{config_file} cannot be read ({type(error).__name__}: {error}): it is needed to compare like with like."
        ) from error
    if schema != records.SCHEMA:
        raise DataError(f"{config_file} has schema_version {schema!r}: {records.schema_cure()}.")
    run = Run(config["model"], folder, config, records.read_results(file), _warning(file))
    return run if keep_broken else scored(run)


def _warning(file: Path) -> str:
    """Returns a warning if the hash of a run's records differs from its summary, or no summary states it; else ''."""
    path = file.parent / "summary.json"
    try:
        expected = reading.read_json(path).get("results_hash", "")
    except (DataError, ValueError, AttributeError):
        expected = ""
    check = "check them with envsuite replay --check"
    if not expected:
        missing = "holds no results_hash" if path.exists() else "is missing"
        return f"{file.parent}: summary.json {missing}, so nothing shows that the records are complete: {check}"
    if expected != records.results_hash(file):
        return f"{file.parent}: the records differ from summary.json (results_hash): {check}"
    return ""


def check_config(config: dict[str, Any]) -> None:
    """Raises LookupError, TypeError or ValueError if a configuration lacks a field or a field has the wrong type."""
    records.check_types(config, CONFIG)
    records.check_types(config, {name: (kind, type(None)) for name, kind in OPTIONAL.items() if name in config})
    first, count = config["seeds"]
    records.check_types([first, count], {0: int, 1: int})
    if panel := config.get("panel"):
        records.check_types(panel, {0: str, 1: str, 2: int})
    if sampling := config.get("sampling"):
        records.check_types(sampling, {"temperature": (int, float, type(None))} if "temperature" in sampling else {})
    if prompting := config.get("prompting"):
        try:
            Prompting(**prompting)
        except EnvsuiteError as error:
            raise ValueError(f"prompting: {error}") from None


def scored(run: Run) -> Run:
    """Returns the run without its broken episodes."""
    return replace(run, records=[record for record in run.records if not is_broken(record)])


def unlike(first: Run, second: Run, allow: Iterable[str] = ()) -> str:
    """Returns the first setting in which two runs differ, except those in `allow`; '' if they are comparable.

    Settings that the run of another harness does not state are not compared.
    """
    allowed = {*allow, *first.config.get("unstated", ()), *second.config.get("unstated", ())}
    for field in PROTOCOL:
        values = first.config.get(field), second.config.get(field)
        # Players without a model have no prompting and no sampling, so these cannot differ.
        without_model = field in ("sampling", "prompting") and None in values
        if values[0] != values[1] and field not in allowed and not without_model:
            return field
    return ""


def refuse_unlike(runs: Sequence[Run], allow: Iterable[str] = ()) -> None:
    """Raises UsageError if any two runs differ in a setting outside `allow`."""
    # All pairs are checked: two models with different prompting must not both be compared with the random player.
    for first, second in itertools.combinations(runs, 2):
        if field := unlike(first, second, allow):
            raise UsageError(
                f"{first.path} and {second.path} are different protocols: {field} is "
                f"{first.config.get(field)!r} in one "
                f"and {second.config.get(field)!r} in the other. Run them alike, or add --allow {field}."
            )


def scores(run: Run, metric: str) -> dict[Game, float]:
    """Returns the mean of `metric` per game. Raises UsageError if a record has no such metric."""
    try:
        return game_scores(run.records, metric)
    except KeyError:
        known = sorted({name for record in run.records for name in record["metrics"]})
        raise UsageError(
            f"{run.path} has no metric {metric!r}: it has {', '.join(['success', 'reward', 'progression', *known])}."
        ) from None


@dataclass(frozen=True)
class Standing:
    """The results of one run by itself."""

    name: str
    success: Interval
    mean: Interval
    """mean of the metric over games"""
    iqm: Interval
    """interquartile mean of the metric: the mean of the middle half of the games"""
    repeats: dict[str, Interval]
    profile: dict[float, Interval]
    """share of games above each threshold"""


def standing(run: Run, metric: str = "success", level: float = 0.05) -> Standing:
    """Summarises a run by itself, with intervals of confidence 1 - `level`."""
    by_game = scores(run, metric)
    strata = [np.array(list(by_game.values()))]
    wins, games = _wins(run)
    return Standing(
        name=run.name,
        success=success_interval(wins, games, 1 - level),
        mean=mean_interval(list(by_game.values()), limits=_limits(run, metric), confidence=1 - level),
        iqm=interquartile_mean(strata, confidence=1 - level),
        repeats=repeated(wins, games, 1 - level),
        profile=profile(strata, confidence=1 - level),
    )


def _wins(run: Run) -> tuple[list[bool], list[Game]]:
    games = [(record["task"], knobs_json(record["knobs"]), record["seed"]) for record in run.records]
    return [bool(record["success"]) for record in run.records], games


def _limits(run: Run, metric: str) -> Range | None:
    """Returns the range of `metric` in the games of `run`; None if it is unknown."""
    return known_ranges(run.config["task"], run.config["reward_mode"]).get(metric)


def compare(
    runs: Sequence[Run], metric: str = "success", effect: float = 0.05, level: float = 0.05, power: float = 0.8
) -> list[Difference]:
    """Compares every pair of runs on the games that both played. Raises UsageError if a pair shares no game."""
    by_game = [scores(run, metric) for run in runs]
    pairs = [
        _difference(runs[i], runs[j], by_game[i], by_game[j], metric, effect, level, power)
        for i, j in itertools.combinations(range(len(runs)), 2)
    ]
    adjusted = holm([pair.p for pair in pairs])
    return [replace(pair, p_holm=p) for pair, p in zip(pairs, adjusted, strict=True)]


def _difference(
    first: Run,
    second: Run,
    before: dict[Game, float],
    after: dict[Game, float],
    metric: str,
    effect: float,
    level: float,
    power: float,
) -> Difference:
    common = sorted(before.keys() & after.keys())
    if not common:
        raise UsageError(f"{first.path} and {second.path} have no game in common.")
    deltas = np.array([after[game] - before[game] for game in common])
    spread = float(deltas.std(ddof=1)) if len(deltas) > 1 else math.nan
    reach = NormalDist().inv_cdf(1 - level / 2) + NormalDist().inv_cdf(power)
    return Difference(
        first=first.name,
        second=second.name,
        games=len(common),
        mean=paired(deltas.tolist(), _limits(first, metric), confidence=1 - level),
        p=sign_flip(deltas),
        p_holm=math.nan,
        detectable=reach * spread / math.sqrt(len(deltas)),
        needed=math.ceil((reach * spread / effect) ** 2) if spread > 0 else 0,
    )


def sign_flip(deltas: np.ndarray) -> float:
    """Returns the two-sided p-value of a zero mean under random signs of the differences [n]."""
    moved = deltas[deltas != 0]
    if not len(moved):
        return 1.0
    # Sums in another order differ in their last digits, so equal labellings need a tolerance.
    observed = abs(moved.sum()) - 1e-12 * np.abs(moved).sum()
    if len(moved) <= EXACT_UP_TO:
        signs = np.array(list(itertools.product((-1, 1), repeat=len(moved))))
        return float((np.abs(signs @ moved) >= observed).mean())
    rng, hits = np.random.default_rng(0), 0
    block = max(1, 2_000_000 // len(moved))  # draws at a time, to bound the memory
    for start in range(0, DRAWS, block):
        signs = rng.choice((-1, 1), size=(min(block, DRAWS - start), len(moved)))
        hits += int((np.abs(signs @ moved) >= observed).sum())
    return (hits + 1) / (DRAWS + 1)  # the observed labelling is one of the draws (Phipson & Smyth, 2010)


def holm(ps: Sequence[float]) -> list[float]:
    """Returns p-values adjusted by Holm's step-down method, in the order of `ps`."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = least
    return adjusted
