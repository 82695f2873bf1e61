"""Confidence intervals against hand-computed and published numbers; coverage on simulated results."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats.estimates import proportion
from harness.stats.intervals import (
    SHARE,
    Interval,
    bounded,
    mean_interval,
    paired,
    positive_share,
    square_and_add,
    student,
    success_interval,
    unbounded,
)
from harness.stats.ranges import known_ranges


def wilson(wins, n):
    """Returns Wilson's interval of a proportion."""
    return Interval(wins / n, *proportion(wins / n, n).interval(), n)


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


def binomial_tail(wins, n, p):
    """Returns the probability of at least `wins` successes."""
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(wins, n + 1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_bounds_of_zeros_and_ones_are_those_of_clopper_and_pearson(wins, n, confidence):
    wins, tail = min(wins, n), (1 - confidence) / 2
    interval = bounded([1.0] * wins + [0.0] * (n - wins), SHARE, confidence)
    assert interval.value == pytest.approx(wins / n) and interval.n == n
    if wins:
        assert binomial_tail(wins, n, interval.low) == pytest.approx(tail, abs=1e-6)
    else:
        assert interval.low == 0
    if wins < n:
        assert 1 - binomial_tail(wins + 1, n, interval.high) == pytest.approx(tail, abs=1e-6)
    else:
        assert interval.high == 1


def test_clopper_and_pearson_against_published_examples():
    # Newcombe (1998), Table I, method 5: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for wins, n, low, high in (
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ):
        interval = success_interval([True] * wins + [False] * (n - wins), range(n))
        assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_bounds_of_graded_values_equal_the_quantiles_of_random_weights():
    values = np.random.default_rng(1).beta(2, 1, 9)
    draws = np.random.default_rng(2).standard_exponential((200_000, 10))
    interval = bounded(values, (-1.0, 1.0))
    for bound, limit, quantile in ((interval.low, -1.0, 0.025), (interval.high, 1.0, 0.975)):
        means = draws @ np.append(values, limit) / draws.sum(axis=1)
        assert bound == pytest.approx(float(np.quantile(means, quantile)), abs=0.005)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 5), min_size=1, max_size=12))
def test_bounds_enclose_the_mean_and_stay_within_the_range(values):
    interval = bounded(values, (-3.0, 5.0))
    assert -3 <= interval.low <= interval.value <= interval.high <= 5


def test_the_interval_moves_and_stretches_with_the_unit():
    values = [0.0, 0.2, 0.9, 1.0, 1.0]
    plain, scaled = bounded(values, SHARE), bounded([10 * value - 3 for value in values], (-3.0, 7.0))
    assert scaled[:3] == pytest.approx((10 * plain.value - 3, 10 * plain.low - 3, 10 * plain.high - 3))


def test_many_values_are_grouped_without_a_visible_change():
    values = np.random.default_rng(0).random(4000)
    interval = bounded(values, SHARE)
    assert interval.value == pytest.approx(float(values.mean()))
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(4000), rel=0.02)


def test_the_probability_of_a_positive_sum_is_exact():
    # Two exponential variables: P(E1 > 3 E2) = 1/4. Gamma(2) against Exp: P(G > E) = 3/4.
    assert positive_share(np.array([1.0, -3.0]), np.ones(2)) == pytest.approx(0.25, abs=1e-7)
    assert positive_share(np.array([1.0, -1.0]), np.array([2.0, 1.0])) == pytest.approx(0.75, abs=1e-7)


def test_student_against_the_formula():
    interval = student([1.0, 2.0, 3.0, 6.0])
    assert interval.value == 3
    assert interval.high == pytest.approx(3 + 3.18245 * math.sqrt(14 / 3 / 4), abs=1e-4)


def test_a_skewed_sample_gets_more_room_on_its_long_side():
    values = [0.0, 0.1, 0.1, 0.2, 4.0]
    plain, adjusted = student(values), unbounded(values)
    assert adjusted.low == plain.low
    # Johnson (1978): the shift is the standard error times skewness (1 + 2 t**2) / (6 sqrt(n)).
    mean, deviation = 0.88, np.std(values, ddof=1)
    skewness = 5 / (4 * 3) * sum(((value - mean) / deviation) ** 3 for value in values)
    shift = deviation / np.sqrt(5) * skewness * (1 + 2 * 2.7764**2) / (6 * np.sqrt(5))
    assert adjusted.high == pytest.approx(plain.high + shift, rel=1e-4)
    mirrored = unbounded([-value for value in values])
    assert (mirrored.low, mirrored.high) == pytest.approx((-adjusted.high, -adjusted.low))
    assert unbounded([1.0, 2.0, 3.0])[:3] == pytest.approx(student([1.0, 2.0, 3.0])[:3])


def test_attempts_at_one_game_count_once():
    values = [0.0] * 10 + [1.0] * 10
    alone, grouped = mean_interval(values), mean_interval(values, [i // 5 for i in range(20)])
    assert alone.value == grouped.value == 0.5 and (alone.n, grouped.n) == (20, 4)
    assert grouped == mean_interval([0.0, 0.0, 1.0, 1.0]) and grouped.high - grouped.low > alone.high - alone.low


def test_empty_input_and_an_unknown_range_without_spread_give_no_bounds():
    for interval in (mean_interval([]), mean_interval([], limits=SHARE)):
        assert math.isnan(interval.value) and math.isnan(interval.low) and interval.n == 0
    for values, clusters in (([1.0, 0.0], ["a", "a"]), ([0.5] * 20, None)):
        interval = mean_interval(values, clusters)
        assert interval.value == 0.5 and math.isnan(interval.low) and math.isnan(interval.high)


def test_equal_results_of_known_range_are_not_certainty():
    interval = mean_interval([0.0] * 20, limits=SHARE)
    assert interval == Interval(0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 20)), 20, 0.0)
    tied = paired([0.0] * 20, SHARE)
    assert tied.low == pytest.approx(-interval.high) and tied.high == pytest.approx(interval.high)


def test_values_outside_the_stated_range_are_treated_as_of_unknown_range():
    assert mean_interval([0.5, 1.5, 0.7], limits=SHARE) == mean_interval([0.5, 1.5, 0.7])


def test_the_coverage_of_small_samples_is_nominal():
    """A small version of benchmarks/coverage.py: successes are rare, returns pile up at 0 or near 1."""
    rng = np.random.default_rng(0)
    draws = {
        "success": (rng.random((150, 10)) < 0.1, 0.1),
        "return": (np.where(rng.random((150, 10)) < 0.9, 1 - 0.9 * rng.beta(2, 8, (150, 10)), 0.0), 0.9 * 0.82),
    }
    for name, (samples, mean) in draws.items():
        intervals = [bounded(sample, SHARE) for sample in samples.astype(float)]
        covered = sum(interval.low <= mean <= interval.high for interval in intervals)
        assert covered >= 0.93 * len(intervals), name


def test_ranges_are_known_by_contract_and_by_declaration():
    sparse = known_ranges("VirtualHome-laundry-v0", "sparse")
    assert sparse == dict.fromkeys(("success", "progression", "reward", "discounted_return"), SHARE)
    assert known_ranges("BabyAI-goto-v0", "dense")["reward"] == SHARE
    assert "reward" not in known_ranges("BabyAI-goto-v0", "shaped")
    assert "reward" not in known_ranges("Overcooked-tomato_salad-v0", "dense")
    assert "reward" not in known_ranges("NoSuchTask-v0", "dense")


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
    assert success_interval([True, False, True, True], ["a", "a", "b", "b"]) == bounded([0.5, 1.0], SHARE)


def test_attempts_that_all_failed_or_all_succeeded_count_each_game_once():
    for win in (True, False):
        assert success_interval([win] * 6, ["a", "a", "b", "b", "c", "c"]) == success_interval([win] * 3, "abc")
