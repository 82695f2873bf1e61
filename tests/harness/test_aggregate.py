"""Checks the estimators against their definitions and against rliable 1.2.0."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from harness.cli import compare as compare_cli
from harness.cli import eval as eval_cli
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.stats import aggregate
from harness.stats.intervals import SHARE, bounded
from tests import toys  # noqa: F401

RLIABLE = json.loads(Path(__file__).with_name("rliable.json").read_text())
"""Output of tests/golden/make_rliable.py, which runs rliable: scores [runs, tasks], estimates, bounds."""


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_and_pass_hat_k_equal_the_share_over_all_draws_of_k_attempts(wins, k):
    k = min(k, len(wins))
    draws = list(itertools.combinations(wins, k))
    assert aggregate.pass_at_k(len(wins), sum(wins), k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert aggregate.pass_hat_k(len(wins), sum(wins), k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_pass_at_k_equals_the_product_formula_of_the_codex_paper():
    for n, wins, k in ((200, 7, 1), (200, 7, 10), (200, 7, 100), (20, 15, 6)):
        printed = 1.0 if n - wins < k else 1.0 - np.prod(1.0 - k / np.arange(n - wins + 1, n + 1))
        assert aggregate.pass_at_k(n, wins, k) == pytest.approx(printed)


def test_k_larger_than_the_number_of_attempts_raises():
    with pytest.raises(ValueError, match="2 attempts give no estimate for 3"):
        aggregate.pass_at_k(2, 1, 3)


def test_games_with_too_few_attempts_are_skipped_and_n_counts_the_rest():
    repeats = aggregate.repeated([True, False, True, True, False], ["a", "a", "a", "b", "b"])
    assert set(repeats) == {"pass@1", "pass@2", "pass@3", "pass^1", "pass^2", "pass^3"}
    assert (repeats["pass@1"].n, repeats["pass@3"].n) == (2, 1)
    assert repeats["pass@2"].value == 1.0 and repeats["pass^2"].value == pytest.approx((1 / 3 + 0) / 2)
    assert aggregate.repeated([True, False], ["a", "b"]) == {}


def test_interquartile_mean_and_profile_equal_rliable():
    strata = list(np.array(RLIABLE["scores"]).T)
    assert RLIABLE["packages"]["rliable"] == "1.2.0" and RLIABLE["resamples"] == 20_000
    estimate = aggregate.interquartile_mean(strata, resamples=20_000)
    value, low, high = RLIABLE["iqm"]
    assert estimate.value == pytest.approx(value) and estimate.n == 50
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.003), pytest.approx(high, abs=0.003))
    ours = aggregate.profile(strata, RLIABLE["levels"], resamples=2000)
    for estimate, (value, low, high) in zip(ours.values(), RLIABLE["profile"], strict=True):
        assert estimate.value == pytest.approx(value)
        assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.021), pytest.approx(high, abs=0.021))


def test_resampling_keeps_the_number_of_games_of_every_task():
    # Two tasks without spread: resampling across tasks would vary the mean, resampling
    # within tasks cannot, so there are no bounds.
    result = aggregate.interquartile_mean([np.zeros(6), np.ones(6)])
    assert result.value == 0.5 and math.isnan(result.low) and math.isnan(result.high)
    alone = aggregate.interquartile_mean([np.array([0.3]), np.array([0.5])])
    assert math.isnan(alone.low) and alone.n == 2


def test_identical_shares_still_have_an_interval():
    repeats = aggregate.repeated([False] * 12, [game // 2 for game in range(12)])
    assert set(repeats.values()) == {bounded([0.0] * 6, SHARE)}
    assert aggregate.repeated([True] * 12, [game // 2 for game in range(12)])["pass^2"] == bounded([1.0] * 6, SHARE)
    assert math.isnan(aggregate.profile([np.zeros(5), np.ones(5)])[0.0].low)  # no resample differs
    assert aggregate.profile([np.zeros(5), np.zeros(5)])[0.5] == bounded([0.0] * 10, SHARE)
    # One task is always won, the other never: the first bound can only fall, the second only
    # rise, and each task has weight one half.
    both = aggregate.success_over_tasks([np.ones(10), np.zeros(20)])
    assert (both.value, both.n) == (0.5, 30)
    assert both.low == pytest.approx(0.5 - (1 - bounded([1.0] * 10, SHARE).low) / 2)
    assert both.high == pytest.approx(0.5 + bounded([0.0] * 20, SHARE).high / 2)
    assert aggregate.success_over_tasks([]).n == 0


def test_empty_scores_give_nan():
    for estimate in (aggregate.interquartile_mean([]), aggregate.profile([])[0.5]):
        assert math.isnan(estimate.value) and math.isnan(estimate.low) and estimate.n == 0


def folder(out, model, **kwargs):
    config = RunConfig(
        task=registry.TASKS["HiLo-v0"], model=model, episodes=12, attempts=4, max_turns=3, knobs={"size": 8}, **kwargs
    )
    evaluate(config, out, lambda: make_policy(model))
    return config.folder(out)


def test_pass_at_k_is_in_the_summary_and_printed_by_eval_and_compare(tmp_path, capsys):
    runs = [folder(tmp_path, "random"), folder(tmp_path, "expert")]
    summary = json.loads((runs[0] / "summary.json").read_text())
    assert summary["repeats"]["pass@1"]["value"] == pytest.approx(summary["success"]["value"])
    assert summary["repeats"]["pass^4"]["value"] <= summary["repeats"]["pass@4"]["value"]
    assert summary["repeats"]["pass@4"]["n"] == 12
    with pytest.raises(SystemExit):
        compare_cli.main([*map(str, runs), "--profile", "--metric", "progression"])
    output = capsys.readouterr().out
    assert "pass@4" in output and "pass^4" in output and "interquartile mean" in output and "above a score" in output
    with pytest.raises(SystemExit):
        eval_cli.main(
            ["-m", "random", "-e", "HiLo", "-e", "Signpost", "-n", "4", "-r", "2", "-o", str(tmp_path / "out")]
            + ["--num-workers", "0"]
        )
    output = capsys.readouterr().out
    assert "pass^2" in output and "over tasks" in output and "n=8" in output


def test_the_mean_over_tasks_combines_the_intervals_of_the_tasks():
    uniform, mixed = np.ones(3), np.array([1.0, 0.0, 1.0, 0.0])
    single = aggregate.success_over_tasks([uniform])
    assert single[:4] == pytest.approx(bounded(uniform, SHARE)[:4])
    both = aggregate.success_over_tasks([uniform, mixed])
    assert both.value == pytest.approx((1 + 0.5) / 2) and both.n == 7
    spread = (bounded(uniform, SHARE).value - bounded(uniform, SHARE).low, 0.5 - bounded(mixed, SHARE).low)
    assert both.low == pytest.approx(0.75 - np.hypot(*spread) / 2)
