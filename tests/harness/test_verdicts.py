"""The words on the cells of a table of published numbers."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest

from benchmarks.verdicts import SETTINGS, words
from envsuite.errors import DataError
from harness.stats.estimates import pooled, proportion
from harness.suites.published_numbers import numbers, parse
from harness.suites.verdicts import DIFFERS, Pair, judge


def word(ours, published, margin=0.1, **fields):
    (verdict,) = judge({0: Pair(ours, published, published.value if published else 1.0, **fields)}, margin).values()
    return verdict


def test_each_word_has_its_case():
    big = proportion(0.5, 5000)
    assert word(big, big).word == "agrees"
    assert word(proportion(0.9, 100), proportion(0.15, 100)).word == "differs"
    unsure = word(proportion(0.5, 100), proportion(0.52, 100))
    assert unsure.word == "cannot tell" and unsure.reason.startswith("needs n = ") and unsure.needed.both
    assert word(big, big, obstacle="metric: x").in_words() == "not comparable (metric: x)"


def test_99_of_100_beside_a_printed_1_without_games_is_not_differs():
    (printed,) = [
        number for number in numbers()
        if (number.key, number.method, number.task_variant) == ("verlog", "Verlog PPO", "goto")
    ]  # fmt: skip
    assert printed.spread.kind == "unknown" and printed.estimate() is None
    verdict = word(proportion(0.99, 100), printed.estimate())
    assert verdict.word == "cannot tell" and "differs if its n was 6" in verdict.reason
    assert word(proportion(0.3, 100), None).in_words().endswith("differs if its n was 5 or more)")


def test_a_score_without_a_range_cannot_be_told():
    assert word(None, proportion(0.5, 10)).reason == "a score outside [0, 1] has no likelihood here"
    (minutes,) = judge({0: Pair(proportion(0.5, 10), None, 154.0)}).values()
    assert minutes.word == "cannot tell" and "[0, 1]" in minutes.reason


@pytest.mark.parametrize("printed", [0.0, 0.17, 0.5, 1.0])
def test_one_game_decides_nothing(printed):
    for share in (0.0, 1.0):
        verdict = word(proportion(share, 1), proportion(printed, 100, 0.005))
        assert verdict.word == "cannot tell" and verdict.needed is not None


def test_what_several_seeds_need_is_counted_in_seeds():
    seeds = pooled([proportion(share, 200) for share in (0.4, 0.5, 0.6)])
    verdict = word(seeds, proportion(0.5, 2000), seeds=3)
    assert verdict.word == "cannot tell" and re.fullmatch(r"needs n = \d+ seeds", verdict.reason)


def test_the_words_are_adjusted_over_the_table():
    """A difference that is clear by itself is not clear as one of twenty."""
    pair = Pair(proportion(0.64, 100), proportion(0.5, 100), 0.5)
    assert judge({0: pair})[0].word == DIFFERS
    dull = Pair(proportion(0.5, 100), proportion(0.5, 100), 0.5)
    assert judge({0: pair, **dict.fromkeys(range(1, 20), dull)})[0].word == "cannot tell"


def test_equal_skill_rarely_differs():
    """A short form of benchmarks/verdicts.md: 200 tables of 8 cells."""
    rng = np.random.default_rng(1)
    tables = [words(SETTINGS[0], rng, 0.0) for _ in range(200)]
    assert sum(DIFFERS in table for table in tables) <= 16


def test_every_number_is_typed_and_the_kinds_are_counted():
    kinds = Counter((number.key, number.spread.kind) for number in numbers() if number.spread)
    assert kinds == {
        ("balrog", "standard error"): 309,
        ("glam", "interval"): 25,
        ("poad", "deviation over splits"): 6,
        ("poad", "unknown"): 12,
        ("gigpo", "unknown"): 78,
        ("verlog", "unknown"): 14,
        ("swegym", "unknown"): 12,
    }
    assert Counter(number.origin for number in numbers()) == {"printed": 1629, "figure": 53, "derived": 3}
    best = Counter(number.key for number in numbers() if number.best_of)
    assert best == {"alfworld": 133, "react": 35, "poad": 6}
    assert {number.total_games for number in numbers() if number.key == "glam" and number.games} == {2000}


def test_bounds_of_every_published_score_are_in_range():
    scales = {"percent": 0.01, "fraction": 1.0, "return": 1.0, "auc": 1.0}
    estimates = [number.estimate(scales[number.unit]) for number in numbers() if number.unit in scales]
    assert sum(estimate is not None for estimate in estimates) > 1000
    for estimate in estimates:
        if estimate is not None:
            low, high = estimate.interval()
            assert 0 <= low <= estimate.value <= high <= 1 and high - low < 1


def test_an_unexplained_spread_is_read_as_the_widest():
    base = dict.fromkeys(("key", "paper", "arxiv_or_venue", "table_or_figure", "env", "task_variant", "model", "method", "metric", "unit", "setup_notes", "source", "confidence"), "")  # fmt: skip
    plain = {**base, "split": None, "value": 0.6, "higher_is_better": True, "origin": "printed", "rounding": 0.005,
             "games": None, "seeds": 3, "splits": None, "best_of": None}  # fmt: skip

    def units(kind, **fields):
        return parse({**plain, "spread": {"kind": kind, "value": 0.05, **fields}}).estimate().units

    assert units("unknown") == units("standard error") == pytest.approx(0.24 / 0.05**2)
    assert units("deviation over seeds") == pytest.approx(3 * units("unknown"))
    assert units("interval", level=0.95) == pytest.approx(1.95996**2 * units("unknown"), rel=1e-4)
    number = parse({**plain, "spread": {"kind": "unknown", "value": 0.05}})
    assert number.estimate().df == 2 and parse({**plain, "spread": None}).estimate() is None


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": "best of 8"},
        {"games": 0},
        {"origin": "guessed"},
        {"spread": {"kind": "wide", "value": 1}},
        {"spread": {"kind": "interval", "value": 1}},
        {"rounding": 0},
        {"value": math.nan},
        {"n_seeds": 3},
    ],
)
def test_a_record_that_is_not_typed_is_named(change):
    record = json.loads(json.dumps(_record()))
    with pytest.raises(DataError, match="line 7 is not a published number"):
        parse({**record, **change}, "line 7")


def _record():
    import importlib.resources

    text = (importlib.resources.files("harness.suites") / "published.jsonl").read_text()
    return json.loads(text.splitlines()[0])
