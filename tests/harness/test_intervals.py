"""Confidence intervals against hand-computed and published numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats import intervals
from harness.stats.intervals import bootstrap, square_and_add, success_interval, wilson


def test_wilson_against_worked_examples():
    # Newcombe (1998), Table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29, without continuity correction.
    for wins, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        interval = wilson(wins, n)
        assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_contains_its_estimate_and_stays_in_bounds(wins, n):
    wins = min(wins, n)
    interval = wilson(wins, n)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1


def test_a_clustered_bootstrap_is_wider():
    values = [0.0] * 10 + [1.0] * 10
    alone = bootstrap(values)
    grouped = bootstrap(values, [i // 5 for i in range(20)])
    assert alone.value == grouped.value == 0.5 and (alone.n, grouped.n) == (20, 4)
    assert grouped.high - grouped.low > alone.high - alone.low
    # The standard error of the mean of 20 coin flips is 0.112: a 95 % interval of about +-0.22.
    assert alone.high - alone.low == pytest.approx(0.44, abs=0.06)


def test_empty_input_gives_nan():
    assert math.isnan(wilson(0, 0).value) and math.isnan(bootstrap([]).value)
    single = bootstrap([1.0, 0.0], ["a", "a"])
    assert single.value == 0.5 and math.isnan(single.low) and single.n == 1


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [((56, 70), (48, 80), 0.0524, 0.3339), ((10, 10), (0, 20), 0.6791, 1.0), ((10, 10), (0, 10), 0.6075, 1.0)],
)
def test_difference_of_shares_against_published_examples(first, second, low, high):
    """Reproduces Newcombe (1998), Table II, method 10."""
    interval = square_and_add([wilson(*first)], [wilson(*second)])
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high) and interval.n == first[1] + second[1]


def test_the_interval_of_a_mean_over_two_places_is_narrower_by_root_two():
    first, second = wilson(30, 60), wilson(15, 60)
    single, double = square_and_add([first], [second]), square_and_add([first, first], [second, second])
    assert double.value == single.value and double.n == 2 * single.n
    assert double.high - double.low == pytest.approx((single.high - single.low) / math.sqrt(2))


def test_repeated_attempts_are_clustered():
    assert success_interval([True, False], ["a", "b"]) == wilson(1, 2)
    assert success_interval([True, False, True, True], ["a", "a", "b", "b"]).n == 2


def test_attempts_that_all_failed_or_all_succeeded_keep_a_wilson_interval():
    assert success_interval([False] * 6, ["a", "a", "b", "b", "c", "c"]) == wilson(0, 3)
    assert success_interval([True] * 6, ["a", "a", "b", "b", "c", "c"]) == wilson(3, 3)


def test_a_bootstrap_drawn_in_blocks_gives_the_same_interval(monkeypatch):
    at_once = bootstrap([0.0, 1.0, 0.5, 0.25] * 5)
    monkeypatch.setattr(intervals, "DRAWN_AT_ONCE", 130)
    assert bootstrap([0.0, 1.0, 0.5, 0.25] * 5) == at_once
