"""Paired comparison of runs: worked examples, and refusal of runs with different settings."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from envsuite.errors import UsageError
from harness.cli.compare import _repeats, main
from harness.cli.report import main as report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.stats.compare import DRAWS, EXACT_UP_TO, compare, holm, read_run, refuse_unlike, sign_flip, standing
from harness.stats.intervals import SHARE, bounded
from tests import toys  # noqa: F401


def run(out, model, **kwargs):
    config = RunConfig(
        task=registry.TASKS["HiLo-v0"], model=model, episodes=30, max_turns=2, knobs={"size": 64}, **kwargs
    )
    evaluate(config, out, lambda: make_policy(model))
    return read_run(config.folder(out))


def test_holm_against_the_textbook():
    # Holm (1979) on four p-values: 4 x .005, 3 x .01, 2 x .03, 1 x .04 made monotone
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_sign_flip_is_exact_for_few_games():
    assert sign_flip(np.array([1.0, 1, 1, 1, 1])) == pytest.approx(2 / 32)
    assert sign_flip(np.array([1.0, -1])) == 1.0
    assert sign_flip(np.zeros(9)) == 1.0


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=1, max_size=8))
def test_sign_flip_equals_its_definition(deltas):
    moved = [d for d in deltas if d]
    labellings = itertools.product((-1, 1), repeat=len(moved))
    sums = [abs(sum(s * d for s, d in zip(signs, moved, strict=True))) for signs in labellings]
    expected = sum(total >= abs(sum(moved)) - 1e-12 for total in sums) / len(sums)
    assert sign_flip(np.array(deltas)) == pytest.approx(expected)


def test_expert_beats_random_and_the_number_of_games_needed_follows_from_the_spread(tmp_path):
    runs = [run(tmp_path, "random"), run(tmp_path, "expert")]
    (comparison,) = compare(runs, effect=0.1)
    assert comparison.games == 30
    assert comparison.mean.low > 0.5
    assert comparison.p_holm < 0.001
    assert comparison.needed == pytest.approx(30 * (comparison.detectable / 0.1) ** 2, abs=1.01)


def test_records_that_differ_from_their_summary_are_named(tmp_path, capsys):
    folders = [run(tmp_path, name).path for name in ("random", "expert")]
    words = [*map(str, folders)]
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().err == ""
    file = folders[0] / "results.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    (folders[1] / "summary.json").unlink()
    for command, more in ((main, []), (report, ["-o", str(tmp_path / "page.html"), "--replay", "0"])):
        with pytest.raises(SystemExit) as stop:
            command([*words, *more])
        first, second = capsys.readouterr().err.splitlines()
        assert stop.value.code == 0 and f"{folders[0]}: the records differ from summary.json (results_hash)" in first
        assert f"{folders[1]}: summary.json is missing" in second and "envsuite replay --check" in second


def test_runs_with_different_settings_are_refused_unless_allowed(tmp_path):
    runs = [run(tmp_path, "random"), run(tmp_path, "expert", reward_mode="dense")]
    with pytest.raises(UsageError, match="reward_mode is 'sparse'"):
        refuse_unlike(runs)
    refuse_unlike(runs, ["reward_mode"])


def test_a_random_baseline_does_not_hide_that_two_models_had_different_prompting(tmp_path):
    floor = run(tmp_path, "random")
    short, long = (replace(floor, config={**floor.config, "prompting": {"history": n}}) for n in (1, 4))
    refuse_unlike([floor, short, short])
    with pytest.raises(UsageError, match="prompting is"):
        refuse_unlike([floor, short, long])


@pytest.mark.parametrize("n", [9, 40])
def test_sign_flip_counts_the_observed_labelling(n):
    deltas = np.random.default_rng(n).uniform(0.1, 1.0, n) * 1e6  # all of one sign: the two extreme labellings
    assert sign_flip(deltas) == pytest.approx(2 / 2**n if n <= EXACT_UP_TO else 1 / (DRAWS + 1))
    assert sign_flip(deltas) == sign_flip(deltas / 1e9)


def test_identical_runs_need_zero_further_games(tmp_path, capsys):
    only = run(tmp_path, "expert")
    (comparison,) = compare([only, only])
    assert (comparison.needed, comparison.p) == (0, 1.0)
    assert comparison.mean.value == 0
    assert comparison.mean.low < -0.1 and comparison.mean.high > 0.1  # both won all 30 games
    with pytest.raises(SystemExit):
        main([str(only.path), str(only.path)])
    assert "–" in capsys.readouterr().out


def test_a_run_that_won_all_or_no_games_keeps_an_interval(tmp_path, capsys):
    won = run(tmp_path, "expert")
    lost = replace(won, name="lost", records=[{**record, "success": False} for record in won.records])
    none_of_thirty = bounded([0.0] * 30, SHARE, 0.5)
    assert standing(won).mean == standing(won).success == bounded([1.0] * 30, SHARE)
    assert standing(lost, level=0.5).mean == standing(lost, level=0.5).success == none_of_thirty
    assert math.isnan(standing(lost).iqm.low)
    twice = replace(lost, records=[{**record, "attempt": n} for record in lost.records for n in (0, 1)])
    assert set(standing(twice, level=0.5).repeats.values()) == {none_of_thirty}
    assert _repeats([standing(twice, level=0.5)], "[50 %]").title.endswith("[50 %]")
    (comparison,) = compare([lost, won])
    assert comparison.mean == bounded([1.0] * 30, (-1.0, 1.0))
    (graded,) = compare([lost, lost], "progression")
    assert graded.mean == bounded([0.0] * 30, (-1.0, 1.0))
    counted = replace(lost, records=[{**record, "metrics": {"steps": 3.0}} for record in lost.records])
    (unknown,) = compare([counted, counted], "steps")  # equal results of unknown range
    assert unknown.mean.value == 0 and math.isnan(unknown.mean.low)
    with pytest.raises(SystemExit):
        main([str(won.path), str(won.path)])
    assert "[1.000, 1.000]" not in capsys.readouterr().out


def test_a_tiny_p_value_is_never_printed_as_zero(tmp_path, capsys):
    paths = [str(run(tmp_path, model).path) for model in ("idle", "expert")]
    with pytest.raises(SystemExit):
        main(paths)
    assert "<0.0001" in capsys.readouterr().out


def test_a_single_game_gives_a_wide_interval(tmp_path):
    single = replace(run(tmp_path, "expert"), records=run(tmp_path / "again", "expert").records[:1])
    (comparison,) = compare([single, single])
    assert comparison.games == comparison.mean.n == 1 and comparison.mean.high > 0.5 and comparison.p == 1.0
