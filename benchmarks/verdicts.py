"""Simulates the verdicts of `envsuite table`: how often a word is wrong, and how often a difference is found.

    python -m benchmarks.verdicts > benchmarks/verdicts.md

Each simulated table has a true score per cell. The published side and ours are drawn from it, the published numbers
are rounded as papers round them, and `harness.suites.verdicts.judge` gives the words.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.stats.estimates import Estimate, mean, mean_over_splits, pooled, proportion
from harness.suites.published_numbers import PublishedNumber, Spread
from harness.suites.verdicts import AGREES, DIFFERS, Pair, judge

DIFFERENCES = (0.1, 0.2, 0.3)
"""true differences at which power is measured"""

Draw = Callable[[np.random.Generator, float], Estimate]
"""draws one side's estimate of a true score"""


class Setting(NamedTuple):
    """One kind of table."""

    name: str
    cells: int
    scores: tuple[float, float]
    """true scores are drawn uniformly from this range"""
    published: Draw
    ours: Draw
    margin: float = 0.1


def printed(value: float, decimals: int, **fields: object) -> PublishedNumber:
    """Returns a published number that was rounded to `decimals`."""
    words = ("key", "paper", "arxiv_or_venue", "table_or_figure", "env", "task_variant", "split", "model", "method")
    empty = dict.fromkeys((*words, "metric", "unit", "setup_notes", "source", "confidence"), "")
    unknown = dict.fromkeys(("games", "seeds", "splits", "spread", "best_of"))
    return PublishedNumber(
        **{**empty, **unknown, **fields},  # type: ignore[arg-type]
        value=round(value, decimals),
        higher_is_better=True,
        origin="printed",
        rounding=0.5 * 10**-decimals,
    )


def known(number: PublishedNumber) -> Estimate:
    estimate = number.estimate()
    assert estimate is not None
    return estimate


def printed_share(games: int, error: bool = False) -> Draw:
    """Draws a printed success rate, with its standard error if `error`."""

    def draw(rng: np.random.Generator, score: float) -> Estimate:
        share = rng.binomial(games, score) / games
        spread = Spread("standard error", round(float(np.sqrt(share * (1 - share) / games)), 4)) if error else None
        return known(printed(share, 2, games=games, spread=spread))

    return draw


def our_share(games: int) -> Draw:
    return lambda rng, score: proportion(rng.binomial(games, score) / games, games)


RETURN_OF_SUCCESS = 0.95**4 / 4 / (1 - 0.75 * 0.95)
"""mean of 0.95 ** (3 + steps) for a geometric number of steps with parameter 1/4"""


def returns(rng: np.random.Generator, score: float, games: int) -> np.ndarray:
    """Draws returns of 0.95 per step after success: longer games where success is rarer, and `score` on average."""
    steps = 3 + rng.geometric(0.25, size=games)
    return (rng.random(games) < min(1.0, score / RETURN_OF_SUCCESS)) * 0.95**steps


def printed_return(games: int) -> Draw:
    return lambda rng, score: known(printed(float(returns(rng, score, games).mean()), 4, games=games))


def our_return(games: int) -> Draw:
    def draw(rng: np.random.Generator, score: float) -> Estimate:
        values = returns(rng, score, games)
        return mean(float(values.mean()), float(values.std(ddof=1)), games)

    return draw


def auc(rng: np.random.Generator, score: float) -> tuple[float, float]:
    """Draws the mean and the deviation of the AUC over 5 halves of one data set, which are correlated by a half."""
    deviation = 0.06 * (1 - score) + 0.005
    splits = score + deviation * (rng.normal() + rng.normal(size=5)) / np.sqrt(2)
    splits = np.clip(splits, 0, 1)
    return float(splits.mean()), float(splits.std(ddof=1))


def printed_auc(rng: np.random.Generator, score: float) -> Estimate:
    value, deviation = auc(rng, score)
    return known(printed(value, 4, splits=5, spread=Spread("deviation over splits", max(0.01, round(deviation, 2)))))


def our_auc(rng: np.random.Generator, score: float) -> Estimate:
    value, deviation = auc(rng, score)
    return mean_over_splits(value, 0.0, 10, deviation, 5)


def trained(rng: np.random.Generator, score: float, seeds: int, games: int) -> list[float]:
    """Draws one success rate per training seed. The seeds' true scores deviate by 0.05; all play one panel of games."""
    skills = np.clip(rng.normal(score, 0.05, size=seeds), 0, 1)
    hardness = np.random.default_rng(round(score * 1e9)).random(games)
    return [float((0.5 * (rng.random(games) < skill) + 0.5 * (hardness < skill)).mean()) for skill in skills]


def printed_seeds(rng: np.random.Generator, score: float) -> Estimate:
    shares = trained(rng, score, 3, 128)
    spread = Spread("deviation over seeds", max(0.001, round(float(np.std(shares, ddof=1)), 3)))
    return known(printed(float(np.mean(shares)), 3, games=None, seeds=3, spread=spread))


def our_seeds(rng: np.random.Generator, score: float) -> Estimate:
    return pooled([proportion(round(share * 140) / 140, 140) for share in trained(rng, score, 3, 140)])


SETTINGS = (
    Setting("success, 8 cells, 100 games beside 100", 8, (0.0, 1.0), printed_share(100), our_share(100)),
    Setting("success, 8 cells, 100 beside 25", 8, (0.0, 1.0), printed_share(100), our_share(25)),
    Setting("success near 0, 8 cells, 100 beside 100", 8, (0.0, 0.05), printed_share(100), our_share(100)),
    Setting("success near 1, 8 cells, 100 beside 20", 8, (0.95, 1.0), printed_share(100), our_share(20)),
    Setting("success with SE, 25 cells, 10 beside 10", 25, (0.0, 1.0), printed_share(10, True), our_share(10)),
    Setting("success, 7 cells, 1,000 beside 400", 7, (0.0, 1.0), printed_share(1000), our_share(400)),
    Setting("return, 24 cells, 100 beside 100", 24, (0.0, 0.7), printed_return(100), our_return(100)),
    Setting("return, 24 cells, 100 beside 20", 24, (0.0, 0.7), printed_return(100), our_return(20)),
    Setting("AUC, 6 cells, 5 splits beside 5", 6, (0.55, 0.995), printed_auc, our_auc, 0.05),
    Setting("success, 7 cells, 3 seeds beside 3", 7, (0.1, 0.95), printed_seeds, our_seeds),
)


class Shares(NamedTuple):
    """Shares of tables with a false word, and shares of cells with each word."""

    false_differs: float
    false_agrees: float
    agrees: float
    power: list[float]


def words(setting: Setting, rng: np.random.Generator, shift: float) -> list[str]:
    """Returns the words of one table whose published scores are `shift` away from ours."""
    low, high = setting.scores
    cells = {}
    for cell in range(setting.cells):
        score = rng.uniform(low, high)
        theirs = score + shift if score + shift <= 1 and (score - shift < 0 or rng.random() < 0.5) else score - shift
        published = setting.published(rng, min(1.0, max(0.0, theirs)))
        cells[cell] = Pair(setting.ours(rng, score), published, published.value)
    return [verdict.word for verdict in judge(cells, setting.margin).values()]


def simulate(setting: Setting, tables: int, seed: int = 0) -> Shares:
    rng = np.random.default_rng(seed)
    equal = [words(setting, rng, 0.0) for _ in range(tables)]
    apart = [words(setting, rng, setting.margin) for _ in range(tables)]
    few = max(1, tables // 5)
    power = [
        float(np.mean([word == DIFFERS for _ in range(few) for word in words(setting, rng, shift)]))
        for shift in DIFFERENCES
    ]
    return Shares(
        float(np.mean([DIFFERS in table for table in equal])),
        float(np.mean([AGREES in table for table in apart])),
        float(np.mean([word == AGREES for table in equal for word in table])),
        power,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="settings whose name contains this")
    args = parser.parse_args()
    print("| table | false differs | false agrees | agrees, if equal | " + " | ".join(map(str, DIFFERENCES)) + " |")
    print("|---|--:|--:|--:|" + "--:|" * len(DIFFERENCES), flush=True)
    for setting in SETTINGS:
        if args.only in setting.name:
            shares = simulate(setting, args.tables, args.seed)
            numbers = (*shares[:3], *shares.power)
            print(f"| {setting.name} | " + " | ".join(f"{100 * share:.1f}" for share in numbers) + " |", flush=True)


if __name__ == "__main__":
    main()
