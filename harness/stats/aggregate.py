"""Aggregates over attempts and tasks: pass@k, pass^k, interquartile mean, performance profiles.

The unit is the game: attempts at one game are averaged first. Resampling over tasks is stratified, so that every task
keeps its number of games (Agarwal et al., Deep RL at the Edge of the Statistical Precipice, NeurIPS 2021, section 4;
their runs correspond to our games).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from envsuite.types import knobs_json
from harness.records import Record, is_broken
from harness.stats.intervals import SHARE, Interval, mean_interval, square_and_add

Game = tuple[str, str, int]
CHUNK = 100
"""resamples held in memory at once"""
THRESHOLDS = tuple(number / 10 for number in range(10))
"""thresholds of a printed performance profile, which gives the share of scores above each"""


def pass_at_k(n: int, wins: int, k: int) -> float:
    """Returns the unbiased estimate that at least one of `k` attempts wins, given `wins` of `n`.

    1 - C(n - wins, k) / C(n, k) (Chen et al., 2021, eq. 1).

    Examples:
        >>> pass_at_k(n=10, wins=5, k=1)
        0.5
    """
    _check(n, wins, k)
    return 1.0 - math.comb(n - wins, k) / math.comb(n, k)


def pass_hat_k(n: int, wins: int, k: int) -> float:
    """Returns the unbiased estimate that all of `k` attempts win, given `wins` of `n`.

    C(wins, k) / C(n, k) (Yao et al., tau-bench, 2024, section 3).
    """
    _check(n, wins, k)
    return math.comb(wins, k) / math.comb(n, k)


def _check(n: int, wins: int, k: int) -> None:
    if not 0 <= wins <= n or not 1 <= k <= n:
        raise ValueError(f"{wins} wins in {n} attempts give no estimate for {k} attempts")


def repeated(wins: Sequence[bool], games: Sequence[Hashable], confidence: float = 0.95) -> dict[str, Interval]:
    """Returns pass@k and pass^k for k = 1, 2, 4, ... up to the largest number of attempts; {} if no game has two.

    `wins` [n], `games` [n]. A game with fewer than k scored attempts does not count at that k, as the n of the interval
    shows.
    """
    outcomes_by_game: dict[Hashable, list[bool]] = defaultdict(list)
    for win, game in zip(wins, games, strict=True):
        outcomes_by_game[game].append(win)
    most = max(map(len, outcomes_by_game.values()), default=0)
    if most < 2:
        return {}
    ks = sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})
    estimates = {}
    for name, estimate in (("pass@", pass_at_k), ("pass^", pass_hat_k)):
        for k in ks:
            chances = [
                estimate(len(outcomes), sum(outcomes), k)
                for outcomes in outcomes_by_game.values()
                if len(outcomes) >= k
            ]
            estimates[f"{name}{k}"] = mean_interval(chances, limits=SHARE, confidence=confidence)
    return estimates


def game_scores(records: Iterable[Record], metric: str = "success") -> dict[Game, float]:
    """Returns the mean of `metric` per game, without broken episodes. Raises KeyError if a record lacks the metric."""
    values: dict[Game, list[float]] = defaultdict(list)
    for record in records:
        if is_broken(record):
            continue
        value = record[metric] if metric in ("success", "reward", "progression") else record["metrics"][metric]
        values[record["task"], knobs_json(record["knobs"]), record["seed"]].append(float(value))
    return {game: sum(scores) / len(scores) for game, scores in values.items()}


def task_scores(records: Iterable[Record], metric: str = "success") -> list[np.ndarray]:
    """Returns one array of game scores per (task, knobs), sorted by name: the strata of the bootstrap."""
    strata: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (task, knobs, _), score in sorted(game_scores(records, metric).items()):
        strata[task, knobs].append(score)
    return [np.array(strata[key]) for key in sorted(strata)]


Statistic = Callable[[list[np.ndarray]], np.ndarray]
"""function of resamples, per task [resamples, games], to [resamples] or [resamples, values]"""


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the middle half of each row [rows, n].

    Drops a quarter of the values, rounded down, on each side.
    """
    cut = values.shape[1] // 4
    return np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1)  # type: ignore[no-any-return]


def interquartile_mean(scores: Sequence[np.ndarray], **options: Any) -> Interval:
    """Returns the mean of the middle half of all scores; `scores` holds one array [games] per task."""
    return stratified(scores, lambda drawn: trimmed_mean(np.concatenate(drawn, axis=1)), **options)[0]


def success_over_tasks(scores: Sequence[np.ndarray]) -> Interval:
    """Returns the mean of the tasks' success rates, from the intervals of the tasks."""
    return square_and_add([mean_interval(games.tolist(), limits=SHARE) for games in scores], [])


def profile(
    scores: Sequence[np.ndarray], thresholds: Sequence[float] = THRESHOLDS, **options: Any
) -> dict[float, Interval]:
    """Returns the share of scores above each threshold (run-score distribution, Agarwal et al., section 4.2)."""

    if not any(map(len, scores)):
        return {level: Interval(math.nan, math.nan, math.nan, 0) for level in thresholds}

    def shares(drawn: list[np.ndarray]) -> np.ndarray:
        pooled = np.concatenate(drawn, axis=1)
        return np.stack([(pooled > level).mean(axis=1) for level in thresholds], axis=1)

    confidence = options.get("confidence", 0.95)
    intervals = {}
    for level, interval in zip(thresholds, stratified(scores, shares, **options), strict=True):
        if interval.value in (0, 1):
            interval = mean_interval([interval.value] * interval.n, limits=SHARE, confidence=confidence)
        intervals[level] = interval
    return intervals


def stratified(
    scores: Sequence[np.ndarray],
    statistic: Statistic,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Interval]:
    """Returns each value of `statistic` with a percentile bootstrap interval, resampling games within each task.

    `scores` holds one array [games] per task with at least one game each; n counts games. There are no bounds if no
    task has two games, or if all resamples agree, since that is not certainty.
    """
    n = sum(map(len, scores))
    if not n:
        return [Interval(math.nan, math.nan, math.nan, 0)]
    values = np.atleast_1d(statistic([games[None] for games in scores])[0])
    if max(map(len, scores)) == 1:
        return [Interval(float(value), math.nan, math.nan, n) for value in values]
    rng = np.random.default_rng(seed)
    batches = []
    for start in range(0, resamples, CHUNK):
        rows = min(CHUNK, resamples - start)
        batches.append(statistic([games[rng.integers(len(games), size=(rows, len(games)))] for games in scores]))
    drawn = np.concatenate(batches).reshape(resamples, -1)
    tail = (1 - confidence) / 2
    lows, highs = np.quantile(drawn, [tail, 1 - tail], axis=0)
    alike = highs - lows < 1e-12
    bounds = np.where(alike, math.nan, [lows, highs])
    return [
        Interval(float(value), float(low), float(high), n) for value, low, high in zip(values, *bounds, strict=True)
    ]
