"""Studies with several factors: cells, tables, and runs that processes share."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import pytest

pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.studies import curves, factorial, run, starts
from envsuite.errors import DataError, UsageError
from harness.suites import training_studies

PLAN = {
    "title": "Toys",
    "recipe": "demo",
    "factors": {
        "task": {"near": {"max_turns": "3"}, "far": {}},
        "start": {"a": {}, "b": {}},
        "method": {"poad": {"algorithm": "poad"}, "ntpo": {"algorithm": "ntpo"}},
    },
    "compare": "method",
    "outer": "start",
    "pairs": [["poad", "ntpo"]],
    "where": [{"if": {"task": "far", "method": "ntpo"}, "set": {"config.learning_rate": "1e-3", "max_turns": "9"}}],
    "first_seed": 7,
    "seeds": 2,
    "set": {"model.name": "models/{task}-{start}", "config.learning_rate": "1e-4"},
}


def record(variant: str, seed: int, success: list[float]) -> dict:
    updates = [
        {
            "update": number,
            "env_steps": 10 * number,
            "success": value,
            "entropy": 1.0,
            "explained_variance": 0.5,
            "policy_steps": 8.0,
        }
        for number, value in enumerate(success, start=1)
    ]
    evaluation = {"update": 0, "n": 1, "success": 0.0}
    about = {"task": "toy", "torch": "2", "threads": 1, "host": "x86_64", "cpu_seconds": 3.0}
    return {"variant": variant, "seed": seed, "updates": updates, "evals": [evaluation], **about}


def test_cells_take_settings_from_their_levels_then_from_rules_and_name_their_levels_in_values():
    cells = training_studies.cells(PLAN)
    assert [cell.variant for cell in cells[:3]] == ["near a poad", "near a ntpo", "near b poad"]
    assert cells[0].settings == {
        "model.name": "models/near-a",
        "config.learning_rate": "1e-4",
        "max_turns": "3",
        "algorithm": "poad",
    }
    assert cells[-1].settings["config.learning_rate"] == "1e-3" and cells[-1].settings["max_turns"] == "9"
    assert list(training_studies.seeds(PLAN)) == [7, 8]


def test_starts_are_the_units_of_a_mean_and_pairs_share_start_and_seed():
    values = {("a", 0): 0.2, ("a", 1): 0.4, ("b", 0): 0.9}
    interval = factorial.over_starts(values)
    assert interval.value == pytest.approx(0.6) and interval.n == 2  # the mean of 0.3 and 0.9, not of three runs
    half = 12.7062 * math.sqrt(2 * 0.3**2) / math.sqrt(2)
    assert interval.high - interval.value == pytest.approx(half, rel=1e-4)
    first = {("a", 0): record("x", 0, [0.5, 0.7]), ("b", 0): record("x", 0, [1.0, 1.0])}
    second = {("a", 0): record("y", 0, [0.3, 0.5]), ("b", 1): record("y", 1, [0.0, 0.0])}
    result = factorial.difference(first, second, factorial.area)
    assert result is not None and result.over_pairs.n == 1
    assert result.over_starts.value == pytest.approx(0.2)
    assert factorial.difference(first, {}, factorial.area) is None


def test_the_final_value_is_the_mean_of_the_last_updates():
    assert factorial.final(record("x", 0, [0.0] * 5 + [0.2, 0.4, 0.6, 0.8, 1.0])) == pytest.approx(0.6)


def test_names_of_many_curves_are_beside_the_picture():
    one = curves.LearningCurve([0.0, 100.0], [0.2, 0.4], [0.1, 0.3], [0.3, 0.5])
    few, many = ({str(n): one for n in range(count)} for count in (3, 4))
    assert 'viewBox="0 0 640 360"' in curves.picture(few) and 'viewBox="0 0 736 360"' in curves.picture(many)
    assert '<text x="640" y="304" fill=' in curves.picture(many)


def test_a_page_has_a_picture_and_tables_for_every_section_with_runs(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    for start, seed, shift in (("a", 7, 0.0), ("a", 8, 0.1), ("b", 7, 0.2)):
        for method, success in (("poad", 0.5), ("ntpo", 0.3)):
            stored = record(f"near {start} {method}", seed, [success + shift] * 6)
            training_studies.append(tmp_path / "runs.jsonl", stored)
    files = curves.rendered(tmp_path)
    text = files["README.md"]
    assert set(files) == {"README.md", "curves-near.svg"}
    assert "6 of 16 runs of the plan were run.\n\n## near\n\ntoy. Success" in text and "## far\n\nNot run yet." in text
    assert "| poad | 3 | 2 | 0.60 | 0.62 (0.00 to 1.00) |" in text and "| 48 in 6 updates | 3 |" in text
    assert "| poad - ntpo | 3 | +0.20 (+0.20 to +0.20) |" in text and "over pairs" in text
    (tmp_path / "other" / "study").mkdir(parents=True)
    (tmp_path / "other" / "study" / "plan.json").write_text(json.dumps(PLAN))
    assert "`task, start, method`: near, far x a, b x poad, ntpo | not run (16)" in curves.index(tmp_path / "other")


def test_differences_without_starts_are_simultaneous():
    first = {(str(seed), seed): record("x", seed, [value]) for seed, value in ((0, 0.5), (1, 0.9), (2, 0.7), (5, 1.0))}
    second = {(str(seed), seed): record("y", seed, [value]) for seed, value in ((2, 0.4), (1, 0.7), (0, 0.4))}
    result = factorial.difference(first, second, factorial.area, 2)  # differences 0.1, 0.2 and 0.3; 5 has no partner
    assert result is not None and result.over_pairs.n == 3 and result.over_starts.value == pytest.approx(0.2)
    assert result.over_starts.high - 0.2 == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert result.over_pairs.high - 0.2 == pytest.approx(6.205347 * 0.1 / math.sqrt(3), rel=1e-5)  # 97.5 %


def test_updates_that_only_warm_the_critic_have_neither_entropy_nor_policy_steps(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    warmed = record("near a poad", 7, [0.0, 0.5, 1.0])
    del warmed["updates"][0]["entropy"], warmed["updates"][0]["policy_steps"]
    training_studies.append(tmp_path / "runs.jsonl", warmed)
    row = next(line for line in curves.rendered(tmp_path)["README.md"].splitlines() if line.startswith("| poad |"))
    assert "| 1.00 -> 1.00 | 16 in 3 updates |" in row


def test_two_processes_share_the_runs_of_a_plan(tmp_path):
    trained = []

    def train(path, settings, variant, model):
        if not trained:  # in the middle of this run a second process does all that is left
            trained.append(variant)
            other = multiprocessing.get_context("fork").Process(target=run.run, args=(tmp_path, PLAN, math.inf, train))
            other.start()
            other.join()
        return record(variant, int(settings["seed"]), [1.0])

    assert run.run(tmp_path, PLAN, math.inf, train)
    stored = [(item["variant"], item["seed"]) for item in training_studies.read(tmp_path / "runs.jsonl")]
    assert len(stored) == len(set(stored)) == 16
    assert stored[-1] == ("near a poad", 7)  # it was claimed, so that the other process left it out


def test_what_another_process_is_still_running_is_named(tmp_path, capsys):
    def train(path, settings, variant, model):
        return record(variant, int(settings["seed"]), [1.0])

    with training_studies.lock(tmp_path, "far b ntpo 8"):
        assert run.run(tmp_path, PLAN, math.inf, train)
    assert "1 of 16 runs are still run by other processes" in capsys.readouterr().out
    assert run.run(tmp_path, PLAN, math.inf, train)
    assert "still run" not in capsys.readouterr().out


def test_runs_with_other_settings_than_the_plan_has_now_are_not_counted_as_its_runs(tmp_path):
    def train(path, settings, variant, model):
        return record(variant, int(settings["seed"]), [1.0])

    assert run.run(tmp_path, PLAN, math.inf, train)
    changed = {**PLAN, "set": {**PLAN["set"], "config.learning_rate": "3e-4", "updates": "9"}}
    with pytest.raises(DataError, match=r"'near a poad', seed 7, was run with another config.learning_rate, updates"):
        training_studies.stored_runs(tmp_path, changed)
    fewer = {**PLAN, "seeds": 1, "factors": {**PLAN["factors"], "task": {"far": {}}}}
    assert len(training_studies.stored_runs(tmp_path, fewer)) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factors": ["task"]}, "field 'factors' is not an object of levels"),
        ({"factors": {**PLAN["factors"], "start": {"a": 1}}}, "field 'factors' is not an object of levels"),
        ({"compare": "methods"}, "'compare' and 'outer' are two of task, start, method, not 'methods'"),
        ({"outer": "starts"}, "not 'method' and 'starts'"),
        ({"seeds": 0}, "'seeds' and 'first_seed' are whole numbers"),
        ({"first_seed": "7"}, "'seeds' and 'first_seed' are whole numbers"),
        ({"set": {"updates": 3}}, "field 'set' is not an object of texts"),
        ({"set": {"model.name": "models/{strat}"}}, "{strat} in the setting 'models/{strat}' is no factor"),
        ({"where": [{"if": {"task": "fra"}, "set": {}}]}, "for task = fra, which no cell has"),
        ({"where": [{"set": {}}]}, "field 'where' is not a list of objects"),
        ({"pairs": [["poad", "ppo"]]}, "of 'pairs' is not two of poad, ntpo"),
        ({"factors": {**PLAN["factors"], "task": {"x": {}, "x a": {}}, "start": {"a b": {}, "b": {}}}, "where": [],
          "set": {}}, "two cells have the same levels"),
    ],
)  # fmt: skip
def test_a_plan_that_contradicts_itself_is_refused_before_anything_runs(change, message, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **change}))
    with pytest.raises(DataError) as error:
        training_studies.plan_of(tmp_path)
    assert message in str(error.value)


def test_a_folder_without_a_plan_is_refused(tmp_path):
    for word, message in ((tmp_path / "typo", "typo is no folder with a plan"), (tmp_path, "No folder holds a plan")):
        with pytest.raises(UsageError, match=message):
            run._main([str(word)])


def test_every_start_of_a_plan_or_a_recipe_is_described():
    """A model in `models` or `runs` is not shipped: studies must be able to make it."""
    folders = sorted((Path(__file__).parents[2] / "leaderboards" / "training").glob("*/plan.json"))
    assert folders
    for path in folders:
        plan = training_studies.plan_of(path.parent)
        for cell in training_studies.cells(plan):
            name = recipes.load(recipes.find(plan["recipe"]), cell.settings).model.name
            assert name in starts.STARTS, f"{path}: {name}"
    for start in starts.STARTS.values():
        if "recipe" in start:
            recipe = recipes.load(recipes.find(start["recipe"]), start.get("set"))
            assert recipe.model.name in starts.STARTS and recipe.algorithm == "sft"
