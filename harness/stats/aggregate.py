"""Numbers over several attempts and several tasks: pass@k, pass^k, interquartile mean, performance profiles.

The unit is the game, as everywhere: attempts at one game are brought together first. Over tasks, resampling is
stratified: every task keeps its number of games (Agarwal et al., Deep RL at the Edge of the Statistical Precipice,
NeurIPS 2021, section 4; their runs are our games).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from envsuite.types import knobs_json
from harness.records import Record, is_broken
from harness.stats.intervals import Interval, share, square_and_add, wilson

Game = tuple[str, str, int]
CHUNK = 100
"""resamples held in memory at once"""
THRESHOLDS = tuple(number / 10 for number in range(10))
"""at which a performance profile is printed: the share of scores above each"""


def pass_at_k(n: int, wins: int, k: int) -> float:
    """Unbiased chance that one of `k` attempts wins, from `wins` of `n`: 1 - C(n-c, k)/C(n, k) (Chen et al., 2021, eq. 1).

    Examples:
        >>> pass_at_k(n=10, wins=5, k=1)
        0.5
    """
    _check(n, wins, k)
    return 1.0 - math.comb(n - wins, k) / math.comb(n, k)


def pass_hat_k(n: int, wins: int, k: int) -> float:
    """Unbiased chance that all of `k` attempts win: C(c, k)/C(n, k) (Yao et al., tau-bench, 2024, section 3)."""
    _check(n, wins, k)
    return math.comb(wins, k) / math.comb(n, k)


def _check(n: int, wins: int, k: int) -> None:
    if not 0 <= wins <= n or not 1 <= k <= n:
        raise ValueError(f"{wins} wins in {n} attempts say nothing of {k} attempts")


def repeated(wins: Sequence[bool], games: Sequence[Hashable], confidence: float = 0.95) -> dict[str, Interval]:
    """pass@k and pass^k for k = 1, 2, 4, ... and the most attempts there are; {} where no game has two.

    `wins` [n], `games` [n]. A game with fewer than k scored attempts is left out at that k, which its n shows.
    """
    tally: dict[Hashable, list[bool]] = defaultdict(list)
    for win, game in zip(wins, games, strict=True):
        tally[game].append(win)
    most = max(map(len, tally.values()), default=0)
    if most < 2:
        return {}
    ks = sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})
    found = {}
    for name, estimate in (("pass@", pass_at_k), ("pass^", pass_hat_k)):
        for k in ks:
            chances = [estimate(len(one), sum(one), k) for one in tally.values() if len(one) >= k]
            found[f"{name}{k}"] = share(chances, confidence)
    return found


def game_scores(records: Iterable[Record], metric: str = "success") -> dict[Game, float]:
    """The mean of `metric` per game. Broken episodes are left out; KeyError where a record lacks the metric."""
    values: dict[Game, list[float]] = defaultdict(list)
    for one in records:
        if is_broken(one):
            continue
        value = one[metric] if metric in ("success", "reward", "progression") else one["metrics"][metric]
        values[one["task"], knobs_json(one["knobs"]), one["seed"]].append(float(value))
    return {game: sum(found) / len(found) for game, found in values.items()}


def task_scores(records: Iterable[Record], metric: str = "success") -> list[np.ndarray]:
    """One array of game scores per (task, knobs), in the order of their names: the strata of what follows."""
    strata: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (task, knobs, _), score in sorted(game_scores(records, metric).items()):
        strata[task, knobs].append(score)
    return [np.array(strata[key]) for key in sorted(strata)]


Statistic = Callable[[list[np.ndarray]], np.ndarray]
"""of resamples: per task [resamples, games] -> [resamples], or [resamples, several]"""


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half of each row [rows, n]: a quarter of the values, rounded down, is dropped at each end."""
    cut = values.shape[1] // 4
    return np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1)  # type: ignore[no-any-return]


def interquartile_mean(scores: Sequence[np.ndarray], **options: Any) -> Interval:
    """The mean of the middle half of all scores, whatever their task; `scores` per task, [games] each."""
    return stratified(scores, lambda drawn: trimmed_mean(np.concatenate(drawn, axis=1)), **options)[0]


def mean_over_tasks(scores: Sequence[np.ndarray], **options: Any) -> Interval:
    """The mean of the tasks' means: every task counts the same however many games it has."""
    return stratified(scores, _mean_of_means, **options)[0]


def success_over_tasks(scores: Sequence[np.ndarray]) -> Interval:
    """`mean_over_tasks` of shares. Where a task's games all ended alike resampling cannot tell how little that says: then
    the tasks' own intervals are added up.
    """
    if all(len(set(one.tolist())) > 1 for one in scores):
        return mean_over_tasks(scores)
    return square_and_add([share(one.tolist()) for one in scores], [])


def profile(
    scores: Sequence[np.ndarray], thresholds: Sequence[float] = THRESHOLDS, **options: Any
) -> dict[float, Interval]:
    """Share of scores above each threshold (the run-score distribution of Agarwal et al., section 4.2)."""

    if not any(map(len, scores)):
        return {level: Interval(math.nan, math.nan, math.nan, 0) for level in thresholds}

    def shares(drawn: list[np.ndarray]) -> np.ndarray:
        pooled = np.concatenate(drawn, axis=1)
        return np.stack([(pooled > level).mean(axis=1) for level in thresholds], axis=1)

    found = zip(thresholds, stratified(scores, shares, **options), strict=True)
    level = options.get("confidence", 0.95)
    return {at: wilson(round(one.value * one.n), one.n, level) if one.value in (0, 1) else one for at, one in found}


def difference(first: Sequence[np.ndarray], second: Sequence[np.ndarray], **options: Any) -> Interval:
    """Mean over the tasks of `first` less mean over those of `second`, of different games. n counts both."""
    count = len(first)
    statistic = lambda drawn: _mean_of_means(drawn[:count]) - _mean_of_means(drawn[count:])
    return stratified([*first, *second], statistic, **options)[0]


def _mean_of_means(drawn: list[np.ndarray]) -> np.ndarray:
    means: np.ndarray = np.mean([one.mean(axis=1) for one in drawn], axis=0)
    return means


def stratified(
    scores: Sequence[np.ndarray],
    statistic: Statistic,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Interval]:
    """Each value of `statistic` with the percentile interval of a bootstrap that resamples games within each task.

    `scores`: per task, [games] each; every task has one game or more. n counts games. No bounds where no task has two
    games, or where the resamples give the same: that is no certainty.
    """
    n = sum(map(len, scores))
    if not n:
        return [Interval(math.nan, math.nan, math.nan, 0)]
    values = np.atleast_1d(statistic([one[None] for one in scores])[0])
    if max(map(len, scores)) == 1:
        return [Interval(float(value), math.nan, math.nan, n) for value in values]
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, resamples, CHUNK):
        rows = min(CHUNK, resamples - start)
        parts.append(statistic([one[rng.integers(len(one), size=(rows, len(one)))] for one in scores]))
    drawn = np.concatenate(parts).reshape(resamples, -1)
    tail = (1 - confidence) / 2
    lows, highs = np.quantile(drawn, [tail, 1 - tail], axis=0)
    alike = highs - lows < 1e-12
    bounds = np.where(alike, math.nan, [lows, highs])
    return [
        Interval(float(value), float(low), float(high), n) for value, low, high in zip(values, *bounds, strict=True)
    ]
