"""Estimates of bounded scores, and the comparison of two of them."""

import math

import pytest

from harness.stats import student
from harness.stats.estimates import (
    Estimate,
    compare,
    error_over_splits,
    fewest_games_that_differ,
    from_error,
    games_needed,
    mean,
    mean_over_splits,
    pooled,
    proportion,
)


@pytest.mark.parametrize(
    ("df", "probability", "expected"),
    [(1, 0.025, 12.7062), (4, 0.025, 2.7764), (9, 0.005, 3.2498), (29, 0.05, 1.6991), (math.inf, 0.025, 1.95996)],
)
def test_quantiles_equal_the_printed_table_of_students_t(df, probability, expected):
    assert student.quantile(probability, df) == pytest.approx(expected, abs=1e-4)
    assert student.tail(expected, df) == pytest.approx(probability, abs=1e-5)
    assert student.tail(-expected, df) == pytest.approx(1 - probability, abs=1e-5)


def test_a_rounded_share_becomes_the_exact_one_if_only_one_explains_it():
    assert proportion(0.33, 12, 0.005) == Estimate(4 / 12, 12, games=12)
    assert proportion(0.333, 3000, 0.0005) == Estimate(0.333, 3000, slack=0.0005, games=3000)


def test_a_mean_of_equal_games_is_not_certain_and_bounds_stay_in_range():
    low, high = mean(0.0, 0.0, 100).interval()
    assert low == 0 and high == pytest.approx(proportion(0.0, 100).interval()[1], rel=0.05)
    low, high = mean(0.998, 0.01, 10).interval()
    assert 0 < low < 0.998 < high <= 1


def test_more_episodes_do_not_reduce_the_error_over_splits():
    few, many = (mean_over_splits(0.8, 0.0, games, 0.05, 5) for games in (10, 1000))
    assert few.interval() == pytest.approx(many.interval(), abs=1e-3)
    assert math.sqrt(few.value * (1 - few.value) / few.units) == pytest.approx(error_over_splits(0.05, 5), rel=0.1)


def test_seeds_widen_the_interval_by_their_spread():
    alike = pooled([proportion(0.6, 100)] * 3)
    spread = pooled([proportion(share, 100) for share in (0.5, 0.6, 0.7)])
    assert alike.value == spread.value == pytest.approx(0.6)
    low, high = alike.interval()
    wider_low, wider_high = spread.interval()
    assert wider_low < low and wider_high > high
    one = proportion(0.6, 100)
    assert pooled([one]) is one
    assert high - low >= 0.99 * (one.interval()[1] - one.interval()[0])  # the seeds may have played the same games


def test_p_values_are_the_levels_of_the_interval():
    first, second = Estimate(0.501, 4e6), Estimate(0.5, 5e6)  # t is normal with so many games
    quantile = student.quantile(compare(first, second, 0.1).p_differs / 2, math.inf)
    down = first.value - first.bounds(quantile)[0]
    up = second.bounds(quantile)[1] - second.value
    assert first.value - second.value - math.hypot(down, up) == pytest.approx(0, abs=1e-9)


def test_the_order_of_the_sides_changes_only_the_sign():
    first, second = proportion(0.9, 50), from_error(0.7, 0.05, None, 4)
    forward, backward = compare(first, second, 0.1), compare(second, first, 0.1)
    assert forward.value == -backward.value and forward.low == pytest.approx(-backward.high)
    assert forward[3:] == pytest.approx(backward[3:])


def test_equal_scores_agree_with_enough_games_and_never_differ():
    few, many = (compare(proportion(0.5, games), proportion(0.5, games), 0.1) for games in (50, 1000))
    assert few.p_differs == many.p_differs == 1
    assert few.p_agrees > 0.05 > many.p_agrees
    assert compare(proportion(0.5, 1000), proportion(0.61, 1000), 0.1).p_agrees == 1


def test_rounding_widens_the_interval():
    first = proportion(0.5, 100)
    exact, rounded = (compare(first, Estimate(0.6, 100, slack=slack), 0.1) for slack in (0.0, 0.05))
    assert rounded.low == pytest.approx(exact.low - 0.05) and rounded.p_differs > exact.p_differs


def test_the_games_needed_give_an_answer():
    first, second = proportion(0.5, 100), Estimate(0.5, 10_000, games=10_000)
    needed = games_needed(first, second, 0.1)
    assert needed is not None and not needed.both
    assert compare(proportion(0.5, needed.games), second, 0.1).p_agrees < 0.05
    assert compare(proportion(0.4, needed.games), second, 0.1).p_differs < 0.05
    assert compare(proportion(0.5, needed.games // 4), second, 0.1).p_agrees > 0.05
    both = games_needed(first, proportion(0.5, 50), 0.1)
    assert both is not None and both.both and both.games > 2 * needed.games * 0.9
    assert games_needed(first, from_error(0.5, 0.2, None), 0.1) is None


def test_an_unknown_number_of_games_is_turned_into_a_condition():
    games = fewest_games_that_differ(proportion(0.3, 100), 1.0, 0.05)
    assert games is not None and 1 < games < 10
    assert compare(proportion(0.3, 100), Estimate(1.0, games), 0.1).p_differs <= 0.05
    assert compare(proportion(0.3, 100), Estimate(1.0, games - 1), 0.1).p_differs > 0.05
    assert fewest_games_that_differ(proportion(0.5, 10), 0.5, 0.05) is None
