"""Tables of published numbers, and their comparison with our runs, cell by cell."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness.cli import table as command
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.prompting import protocols
from harness.suites import measured, paper_pages, published, published_numbers, reproduce, suites, training_studies
from tests import toys  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
LISTED = [
    "poad-1", "poad-4", "poad-5", "poad-6", *(f"guide-{number}" for number in range(1, 14)), "verlog-babyai", "glam-4",
    "gigpo-alfworld", "balrog-babyai", "tales-alfworld", "agentgym-alfworld", "swegym-10",
]  # fmt: skip


def test_all_published_numbers_are_in_the_package():
    numbers = published_numbers.numbers()
    assert len(numbers) == 1685
    assert all(re.match("https://(arxiv.org/abs|github.com)/", number.source) and number.paper for number in numbers)


def test_every_listed_table_exists():
    assert not set(LISTED) - set(published.tables())


@pytest.mark.parametrize("name", published.tables())
def test_every_column_has_numbers_and_every_task_exists_and_belongs_to_the_suite(name):
    paper_table = published.table(name)
    playable = {registry.TASKS[task].id for task in suites.suite(paper_table.suite)["tasks"] if task in registry.TASKS}
    for column in paper_table.columns:
        assert any(column.name in row.cells for row in paper_table.rows), f"{column.name} is in no published row"
        if column.task:
            assert column.task in playable
            assert column.key[0] == column.task  # the column's knobs belong to the task
    for row, column in paper_table.footnotes:
        assert any(column in candidate.cells for candidate in paper_table.rows if candidate.label == row), (row, column)
    for row in paper_table.rows:  # a row names its command, or states that there is none
        assert row.command or "no command here" in row.cost


@pytest.mark.parametrize("name", published.tables())
def test_numbers_quoted_in_footnotes_are_in_the_published_tables(name):
    """Looks up every 'Table(s) N ... print(s) X' among the published numbers."""
    everything = published_numbers.numbers()
    for text in published.table(name).footnotes.values():
        for tables, value in re.findall(r"Tables? ([\d, and]+) prints? (0\.\d+)", text):
            for number in re.findall(r"\d+", tables):
                printed = [
                    entry.value for entry in everything
                    if entry.key == "guide" and entry.table_or_figure.split()[1] == number
                ]  # fmt: skip
                assert float(value) in printed, (name, number, value)


def test_some_footnotes_quote_contradictions():
    """Ensures that the loop of the previous test is not empty."""
    notes = [text for name in published.tables() for text in published.table(name).footnotes.values()]
    assert sum(bool(re.search(r"Tables? [\d, and]+ prints? 0\.\d+", text)) for text in notes) >= 1


def test_sample_cells_equal_the_papers():
    cells = {row.label: row.cells for row in published.table("guide-1").rows}
    assert cells["Qwen2.5-1.5B-Instruct, base (zero-shot)"]["w2-o3-q4"].value == 0.17
    rows = {row.label: row.cells for row in published.table("guide-5").rows}
    assert rows["Qwen2.5-1.5B-Instruct, multi-turn PPO, train w8-o3-q4"]["test w8-o12-q4"].value == 0.51
    seen = {row.label: row.cells for row in published.table("alfworld-4").rows}
    assert seen["GRU/transformer seq2seq (no LLM), BUTLER (DAgger, beam 10)"]["Pick & Place"].value == 0.61
    poad = {row.label: row.cells for row in published.table("poad-1").rows}
    assert poad["LLaMA2-7B, POAD"]["Food Preparation -> Cheese"].value == 0.7553


def summary(folder, model, **changes):
    base = {
        "task": "TextWorld-w2-o3-q4-v0", "knobs": {}, "model": model, "metrics": {}, "reward_mode": "sparse",
        "seeds": [1, 100], "panel": None, "episodes": 100,
        **{name: {"value": 0.1, "low": 0.05, "high": 0.18, "n": 100} for name in ("success", "reward", "progression")},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({**base, **changes}))


def test_a_run_fills_only_its_own_column_and_gives_the_cell_a_verdict(tmp_path):
    summary(tmp_path / "a", "qwen2.5-1.5b")
    paper_table = published.table("guide-1", [tmp_path])
    (ours,) = [row for row in paper_table.rows if row.ours]
    (cell,) = ours.cells.values()
    assert (cell.value, cell.low, cell.high, cell.n) == (0.1, 0.05, 0.18, 100)
    base, ppo = (row for row in paper_table.rows if not row.ours)
    assert paper_table.status(base, "w8-o3-q4") == paper_table.status(ppo, "w2-o3-q4") == "not run"
    assert paper_table.verdicts[base.label, "w2-o3-q4"].in_words() == (
        "not comparable (protocol: the printed number is that of 16 steps, ours has 12)"
    )


def test_a_row_of_ours_beside_a_published_one_gets_the_difference_and_a_word(tmp_path):
    summary(tmp_path / "a", "mine", task="TextWorld-w8-o3-q4-v0")
    ppo = "Qwen2.5-1.5B-Instruct, multi-turn PPO"
    trained = published.table("guide-1", [tmp_path], {ppo: ["mine"]})
    verdict = trained.verdicts[ppo, "w8-o3-q4"]
    assert verdict.word == "differs" and verdict.difference.value == pytest.approx(0.1 - 0.68)
    assert verdict.difference.high < -0.4 and verdict.p_differs < 1e-6
    (row,) = [row for row in trained.rows if row.label == ppo]
    assert trained.status(row, "w8-o3-q4") == "differs"


@pytest.mark.parametrize(
    ("words", "word"),
    [("", "agrees"), ("neutral", "agrees"), ("0123456789ab", "agrees"), ("published", "reproduced")],
)
def test_a_cell_is_reproduced_only_with_the_published_prompt(tmp_path, words, word):
    """68 % of 100,000 games beside the printed 68 %, with a margin that lets them agree."""
    guide = protocols.load("practitioners-guide")
    prompting = {"history": -1, "thinking": False, "admissible": "none"}
    if words:
        published_words = guide.published_id if words == "published" else words
        prompting |= {"grammar": "bare", "protocol": guide.name, "words": published_words}
    knobs = guide.knobs("textworld") if words else {}
    success = {"value": 0.68, "low": 0.67, "high": 0.69, "n": 100_000}
    changes = {"episodes": 100_000, "seeds": [1, 100_000], "success": success, "knobs": knobs, "prompting": prompting}
    summary(tmp_path / "a", "mine", task="TextWorld-w8-o3-q4-v0", **changes)
    ppo = "Qwen2.5-1.5B-Instruct, multi-turn PPO"
    table = published.table("guide-1", [tmp_path], {ppo: ["mine"]}, margin=0.4)
    assert table.left_out == []
    assert table.verdicts[ppo, "w8-o3-q4"].word == word
    assert any("reproduced: agrees, and" in line for line in paper_pages.notes(table))


def test_a_run_of_an_unknown_task_under_a_published_prompt_is_ignored(tmp_path):
    summary(tmp_path / "a", "mine", task="Elsewhere-v0", prompting={"protocol": "tales", "words": "neutral"})
    assert not any(row.ours for row in published.table("guide-1", [tmp_path]).rows)


def test_a_run_under_the_prompt_of_another_suite_is_left_out(tmp_path):
    prompting = {"grammar": "bare", "protocol": "tales", "words": "neutral"}
    summary(tmp_path / "a", "mine", knobs={"observations": "raw"}, prompting=prompting)
    (line,) = published.table("guide-1", [tmp_path]).left_out
    assert "protocol is tales, the suite's practitioners-guide" in line


def test_training_seeds_are_pooled_as_clusters(tmp_path):
    """Three seeds of very different success leave a wider interval than the same number of games of one model."""
    ppo = "Qwen2.5-1.5B-Instruct, multi-turn PPO"
    for name, wins in (("a", 0.9), ("b", 0.6), ("c", 0.3)):
        success = {"value": wins, "low": 0.0, "high": 1.0, "n": 100}
        summary(tmp_path / name, name, task="TextWorld-w8-o3-q4-v0", success=success)
    alone = {"value": 0.6, "low": 0.54, "high": 0.66, "n": 300}
    summary(tmp_path / "d", "d", task="TextWorld-w8-o3-q4-v0", success=alone, episodes=300, seeds=[1, 300])
    pooled = published.table("guide-1", [tmp_path], {ppo: ["a", "b", "c"]})
    single = published.table("guide-1", [tmp_path], {ppo: ["d"]})
    (row,) = [row for row in pooled.rows if row.label == ppo]
    cell = pooled.measured(row).cells["w8-o3-q4"]
    other = single.measured(row.__class__(ppo, False, {}, ("d",))).cells["w8-o3-q4"]
    assert (cell.seeds, cell.n) == (3, 300) and cell.value == pytest.approx(other.value)
    assert cell.high - cell.low > 3 * (other.high - other.low)
    text = paper_pages.as_markdown(pooled)
    assert "measured: a, b, c" in text and "n=300 in 3 seeds" in text and "two methods" not in text
    assert "two methods" in paper_pages.as_markdown(single)
    partly = published.table("guide-1", [tmp_path], {ppo: ["a", "b", "z"]})
    assert f"seeds without a run: z (of 3 for {ppo})" in paper_pages.notes(partly)


def test_training_seeds_of_different_protocols_are_refused(tmp_path):
    summary(tmp_path / "a", "a")
    summary(tmp_path / "b", "b", attempts=3)
    with pytest.raises(UsageError, match="are different protocols"):
        published.table("guide-1", [tmp_path], {"Qwen2.5-1.5B-Instruct, multi-turn PPO": ["a", "b"]})


def test_a_run_under_another_protocol_makes_its_cell_not_comparable(tmp_path):
    summary(tmp_path / "a", "qwen2.5-1.5b", task="TextWorld-w8-o3-q4-v0", sampling={"temperature": 0.0})
    paper_table = published.table("guide-1", [tmp_path])
    base = "Qwen2.5-1.5B-Instruct, base (zero-shot)"
    assert paper_table.verdicts[base, "w8-o3-q4"].in_words() == (
        "not comparable (protocol: temperature is 0.0, the suite's 0.4)"
    )


@pytest.mark.parametrize(
    ("name", "task", "metric", "reason"),
    [
        ("poad-1", "VirtualHome-cheese-v0", "success", "discount: success beside the printed episodic return"),
        ("guide-1", "TextWorld-w8-o3-q4-v0", "reward", "metric: reward beside the printed success rate"),
        ("poad-4", "DataSciCoding-pharyngitis-v0", "", "metric: the best of training is no mean"),
    ],
)
def test_another_quantity_is_not_comparable(tmp_path, name, task, metric, reason):
    row = next(row for row in published.table(name).rows if not row.ours)
    column = next(column.name for column in published.table(name).columns if column.task == task)
    seeds = [registry.TASKS[task].splits[suites.suite(published.tables()[name]["suite"])["split"] or "test"][0], 9]
    dense = {"reward_mode": suites.suite(published.tables()[name]["suite"])["reward"]}
    metrics = {"auc": {"value": 0.7, "low": 0.6, "high": 0.8, "n": 9}}
    summary(tmp_path / "a", "mine", task=task, metrics=metrics, seeds=seeds, **dense)
    paper_table = published.table(name, [tmp_path], {row.label: ["mine"]}, metric)
    verdict = paper_table.verdicts[row.label, column]
    assert verdict.word == "not comparable" and verdict.reason.startswith(reason), verdict


def test_a_mean_without_a_stored_deviation_counts_as_the_widest(tmp_path):
    number = {"value": 0.5, "low": 0.45, "high": 0.55, "n": 100}
    base = {"task": "VirtualHome-cheese-v0", "seeds": [registry.TASKS["VirtualHome-cheese-v0"].splits["test"][0], 100]}
    summary(tmp_path / "a", "old", metrics={"discounted_return": number}, **base)
    summary(tmp_path / "b", "new", metrics={"discounted_return": {**number, "deviation": 0.25}}, **base)
    new, old = (
        row.cells["Food Preparation -> Cheese"] for row in published.table("poad-1", [tmp_path]).rows if row.ours
    )
    assert old.estimate.units == 100 < new.estimate.units and (new.low, new.high) == (0.45, 0.55)


def test_auc_is_compared_and_its_spread_over_splits_is_kept(tmp_path):
    rows = published.table("poad-4", [ROOT / "leaderboards" / "tables" / "records"]).rows
    (expert,) = [row for row in rows if row.ours and row.label == "expert"]
    cell = expert.cells["balance_scale"]
    assert cell.value == pytest.approx(0.8398, abs=1e-4) and cell.over_splits == pytest.approx(0.0487, abs=1e-4)
    assert cell.low < cell.value - 0.05 and cell.high < 1  # ten equal episodes are one program on five splits
    for row in rows:
        assert all(0 <= cell.low < cell.high <= 1 for cell in row.cells.values())


def test_a_column_with_knobs_takes_runs_with_these_knobs(tmp_path):
    summary(tmp_path / "a", "random", knobs={"max_steps": 6})
    (ours,) = [row for row in published.table("guide-4", [tmp_path]).rows if row.ours]
    assert set(ours.cells) == {"max steps 6"}
    assert not [row for row in published.table("guide-1", [tmp_path]).rows if row.ours]


def test_the_larger_of_two_runs_with_one_protocol_is_shown(tmp_path):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", episodes=20, success={"value": 0.0, "low": 0.0, "high": 0.16, "n": 20})
    (ours,) = [row for row in published.table("guide-1", [tmp_path]).rows if row.ours]
    assert ours.cells["w2-o3-q4"].n == 100


def test_a_metric_that_no_run_has_raises_an_error(tmp_path):
    summary(
        tmp_path / "a",
        "random",
        repeats={"pass@2": None},
        metrics={"moves": {"value": 3.0, "low": 2, "high": 4, "n": 9}},
    )
    assert published.table("guide-1", [tmp_path], metric="moves").rows[-1].cells["w2-o3-q4"].value == 3.0
    with pytest.raises(UsageError, match=r"No run has a metric .sucess.: .* Did you mean .success."):
        published.table("guide-1", [tmp_path], metric="sucess")
    assert published.table("guide-1", metric="sucess").rows  # without runs the metric cannot be checked


def test_runs_with_different_protocols_in_one_table_are_refused(tmp_path):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", task="TextWorld-w8-o3-q4-v0", attempts=3)
    with pytest.raises(UsageError, match="different protocols of 'random': attempts is 3 in one and "):
        published.table("guide-1", [tmp_path])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_turns": 3}, "max_turns is 3, the suite's unset"),
        ({"reward_mode": "dense"}, "reward is dense, the suite's sparse"),
        ({"prompting": {"thinking": True}}, "thinking is on, the suite's off"),
        ({"prompting": {"wording": "invented"}}, "prompt_wording is invented, the suite's plain"),
        ({"prompting": {"grammar": "bare"}}, "action_grammar is bare, the suite's action"),
        ({"sampling": {"temperature": 0.0}}, "temperature is 0.0, the suite's 0.4"),
        ({"seeds": [1_000_000, 100]}, "first seed is 1000000, the suite's 1"),
    ],
)
def test_a_run_that_differs_from_its_suite_is_skipped_and_named(tmp_path, changes, message):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", episodes=500, **changes)
    paper_table = published.table("guide-1", [tmp_path])
    (ours,) = [row for row in paper_table.rows if row.ours]
    assert ours.cells["w2-o3-q4"].n == 100
    assert paper_table.left_out == [f"{tmp_path / 'b'}: {message}"]


@pytest.mark.parametrize(("max_turns", "listed"), [(None, True), (50, True), (200, True), (49, False)])
def test_limits_above_that_of_the_task_are_one_limit(tmp_path, max_turns, listed):
    panel = {"seeds": [0, 140], "panel": ["alfworld/valid_seen", "bf393197e137786e", 140], "by_task_type": {}}
    summary(tmp_path / "a", "random", task="ALFWorld-valid_seen-v0", max_turns=max_turns, **panel)
    assert (published.table("gigpo-alfworld", [tmp_path]).left_out == []) == listed


def test_columns_of_react_have_the_games_of_their_task_type():
    row = next(row for row in published.table("react-alfworld").rows if "ReAct (avg)" in row.label)
    counts = {name: cell.n for name, cell in row.cells.items()}
    assert counts == {"Pick": 24, "Clean": 31, "Heat": 23, "Cool": 21, "Look": 18, "Pick 2": 17, "All": 134}
    assert sum(counts.values()) == 2 * 134


def test_every_setting_fixed_by_a_suite_is_checked_in_a_models_run():
    config = RunConfig(registry.TASKS["TextWorld-w2-o3-q4-v0"], "smollm2-135m")
    settings = measured.settings({**config.identity(), "prompting": asdict(config.prompting)})
    elsewhere = {
        "split",
        "seed",
        "set",
        "episodes",
        "baseline_episodes",
        *suites.NOT_FLAGS,
    }  # games, knobs, their number
    for name, fixed in suites.read().items():
        assert not set(fixed) - elsewhere - settings.keys(), name


def test_runs_on_the_training_split_are_not_in_a_table(tmp_path):
    task = registry.TASKS["BabyAI-goto-v0"]
    for split in task.splits:
        config = RunConfig(task, "random", split=split, episodes=2)
        evaluate(config, tmp_path / split, lambda: make_policy("random"))
    paper_table = published.table("verlog-babyai", [tmp_path])
    (ours,) = [row for row in paper_table.rows if row.ours]
    assert [cell.n for cell in ours.cells.values()] == [2]
    assert len(paper_table.left_out) == 1 and "train/BabyAI-goto-v0--random" in paper_table.left_out[0]
    assert "first seed is 0, the suite's 1000000" in paper_table.left_out[0]


@pytest.mark.parametrize(
    ("table", "split", "panel", "message"),
    [
        ("gigpo-alfworld", "valid_seen", ["alfworld/valid_seen", "bf393197e137786e", 140], ""),
        ("gigpo-alfworld", "valid_seen", ["alfworld/valid_seen", "0000", 140], "the suite's all 140 games (panel bf39"),
        (
            "react-alfworld",
            "valid_unseen",
            ["alfworld/valid_unseen", "0000", 3],
            "of 3 games, the suite's all 134 games",
        ),
    ],
)
def test_runs_on_a_part_of_a_panel_are_not_in_a_table(tmp_path, table, split, panel, message):
    turns = suites.suite(published.tables()[table]["suite"])["max_turns"]
    played = {"seeds": [0, panel[2]], "panel": panel, "max_turns": turns, "by_task_type": {}}
    summary(tmp_path / "a", "random", task=f"ALFWorld-{split}-v0", **played)
    paper_table = published.table(table, [tmp_path])
    assert bool(paper_table.left_out) == bool(message)
    assert message in "".join(paper_table.left_out)


def test_another_schema_names_the_migration_and_a_truncated_summary_is_named(tmp_path):
    summary(tmp_path / "a", "random", schema_version="envsuite-record-2")
    with pytest.raises(DataError, match="use the version of envsuite"):
        published.table("guide-1", [tmp_path])
    (tmp_path / "a" / "summary.json").write_text('{"task": ')
    with pytest.raises(DataError, match=r"a/summary\.json is not a run's summary"):
        published.table("guide-1", [tmp_path])


def run(*words):
    with pytest.raises(SystemExit) as done:
        command.main([str(word) for word in words])
    return done.value.code


def test_a_table_plays_missing_cells_resumes_and_prints_them(tmp_path, capsys):
    args = ["verlog-babyai", "--run", "tiny", "-n", "2", "-o", tmp_path]
    assert run(*args, "--dry-run") == 0
    assert capsys.readouterr().out.count("2 episodes to play") == 8 and not list(tmp_path.iterdir())
    assert run(*args, "-m", "expert") == 0
    assert run(*args) == 0
    output = capsys.readouterr().out
    assert "ours: expert" in output and "ours: random" in output and "n=2" in output and "8 not run" in output
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/results.jsonl")}
    assert len(before) == 8
    assert run(*args, "--dry-run") == 0
    assert capsys.readouterr().out.count("nothing to play") == 8
    assert run(*args, "--json") == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/results.jsonl")} == before
    cells = json.loads(capsys.readouterr().out)["cells"]
    ours = [cell for cell in cells if cell["ours"]]
    assert len(ours) == 8 and all(cell["measured"]["n"] == 2 for cell in ours)
    theirs = [cell for cell in cells if not cell["ours"]]
    assert all(cell["status"] == "not run" and cell["command"] and cell["cost"] for cell in theirs)


def test_a_published_row_of_the_random_player_is_compared_with_ours(tmp_path, capsys):
    assert run("glam-4", "--run", "tiny", "-m", "random", "-n", "4", "-o", tmp_path, "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    (mine,) = [cell for cell in cells if cell["row"] == "none, Random" and cell["measured"]]
    assert mine["status"] == "cannot tell" and mine["published"]["printed"]["value"] == 0.15
    assert mine["verdict"]["difference"]["low"] < 0 < mine["verdict"]["difference"]["high"]


def test_columns_with_missing_games_are_named_and_the_others_are_played(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))  # nor in the user's cache
    args = ["react-alfworld", "--run", "tiny", "-o", tmp_path / "runs"]
    assert run(*args, "--dry-run") == 0
    assert "random  Pick: not played: ALFWORLD_DATA is not set" in capsys.readouterr().out
    assert run(*args) == 0
    assert "published cells" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["guide-2", "--run", "tiny"], "Nothing of table 'guide-2' can be played"),
        (["guide-1", "--run", "tiny", "--reward", "dense"], "fixes --reward sparse"),
        (["guide-1", "--row", "Qwen=random"], "has no row 'Qwen'"),
        (["guide-1", "--row", "Qwen"], "PUBLISHED=MODEL"),
        (["guide-1", "--row", "Qwen=a,a"], "names a model twice"),
        (["guide-1", "--row", "Qwen=a,,b"], "PUBLISHED=MODEL"),
        (["guide-1", "--margin", "2"], "margin is a difference of scores between 0 and 1, not 2.0"),
        (["giude-1"], "Did you mean 'guide-1'"),
    ],
)
def test_impossible_requests_raise_a_one_line_error(words, message, tmp_path, capsys):
    assert run(*words, "-o", tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_names_of_rows_and_models_may_contain_equals_signs():
    labels = [row.label for row in published.table("guide-13").rows]
    label = next(run for run in labels if "=" in run)
    assert command._row_and_models(f"{label}=runs/lr=1e-5/model", labels) == (label, ("runs/lr=1e-5/model",))
    assert command._row_and_models("none, Random=a,b", labels) == ("none, Random", ("a", "b"))


@pytest.mark.parametrize(
    "success",
    [
        {"value": "0.5", "low": 0.1, "high": 0.9, "n": 10},
        {"value": 0.5, "low": "0", "high": 0.9, "n": 10},
        {"value": 0.5, "low": 0.1, "high": 0.9, "n": -3},
        {"value": 0.5, "low": 0.1, "high": 0.9},
        [0.5],
    ],
)
def test_a_summary_without_valid_numbers_is_named(tmp_path, success):
    summary(tmp_path / "a", "random", success=success)
    with pytest.raises(DataError, match=r"a/summary\.json (has no valid 'success'|is not a run's summary)"):
        published.table("guide-1", [tmp_path])


def test_larger_sizes_include_the_runs_of_smaller_ones():
    table = published.table("poad-1")
    missing = {size: reproduce.missing_runs(table, size, {}) for size in reproduce.SIZES}
    assert {run.model for run in missing["tiny"]} == {"random", "expert"} < {run.model for run in missing["small"]}
    assert {run.config.episodes for run in missing["tiny"]} == {20}
    assert {run.config.episodes for run in missing["small"] if run.model == "random"} == {100}
    assert {run.model for run in missing["paper"]} == {"meta-llama/Llama-2-7b-hf"}


def test_a_study_is_listed_below_its_table_and_in_no_cell(tmp_path):
    """Prints several seeds of a small model with their interval, and names variants that were not run."""
    folder = tmp_path / "textworld-sparse"
    folder.mkdir()
    plan = {
        "title": "In small",
        "recipe": "textworld-guide",
        "factors": {"algorithm": {"ppo": {"algorithm": "ppo"}, "rloo": {"algorithm": "rloo"}}},
        "compare": "algorithm",
        "seeds": 3,
        "set": {},
    }
    (folder / "plan.json").write_text(json.dumps(plan))

    def line(seed, success):
        evals = [{"n": 32, "success": 0.25}, {"n": 32, "success": success}]
        return json.dumps({"variant": "ppo", "seed": seed, "updates": [{}], "evals": evals})

    (folder / "runs.jsonl").write_text("\n".join([line(0, 0.5), line(1, 0.75)]) + "\n")
    paper_table = published.table("guide-10", studies=tmp_path)
    assert paper_table.small == [
        "In small: algorithm: ppo 0.25 -> 0.62 [0.00, 1.00] (2 seeds); rloo not run; 32 held-out games a run"
    ]
    (folder / "runs.jsonl").write_text(line(0, 0.5) + "\n")
    (line_of_study,) = published.table("guide-10", studies=tmp_path).small
    assert "ppo 0.25 -> 0.50 (one seed, no interval); rloo not run; 32 held-out games a run" in line_of_study
    (folder / "runs.jsonl").unlink()
    assert published.table("guide-10", studies=tmp_path).small == ["In small: algorithm: ppo not run; rloo not run"]
    assert any(note.startswith("small trainings, whose models") for note in paper_pages.notes(paper_table))
    assert paper_table.rows == published.table("guide-10").rows
    with pytest.raises(DataError, match="is not a study"):
        published.table("guide-9", studies=tmp_path)


def test_a_corrupt_record_of_a_study_is_named_and_a_truncated_last_one_is_replaced(tmp_path):
    path = tmp_path / "runs.jsonl"

    def study_run(seed):
        return {"variant": "ppo", "seed": seed, "updates": [{}], "evals": [{"n": 1, "success": 1.0}]}

    training_studies.append(path, study_run(0))
    path.write_text(path.read_text() + '{"variant": "pp')
    assert training_studies.read(path) == [study_run(0)]
    training_studies.append(path, study_run(1))
    assert training_studies.read(path) == [study_run(0), study_run(1)]
    path.write_text(path.read_text().rstrip())  # complete except for the newline
    training_studies.append(path, study_run(2))
    assert training_studies.read(path) == [study_run(0), study_run(1), study_run(2)]
    with path.open() as same:  # another process appends to the same file
        training_studies.append(path, study_run(3))
        assert same.read() == path.read_text()
    for torn in ("nonsense\n", "{}\n", '{"variant": "ppo", "seed": 2, "updates": [], "evals": []}\n'):
        path.write_text(torn + json.dumps(study_run(3)) + "\n")
        with pytest.raises(DataError, match=r"runs\.jsonl:1 is not a run of a study"):
            training_studies.read(path)
    unset = {"title": "Small", "recipe": "textworld-guide", "factors": {"algorithm": {"ppo": {}}}, "seeds": 1}
    for plan in ([], unset):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(DataError, match="is not a study"):
            training_studies.plan_of(tmp_path)
