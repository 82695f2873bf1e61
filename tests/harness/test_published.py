"""Published numbers are there, and ours are laid beside them cell by cell, or refused."""

import json
import re
from dataclasses import asdict

import pytest

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness.cli import table as command
from harness.cli.common import paper_tables
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.suites import measured, published, reproduce, suites, training_studies
from harness.suites.paper_table import TableCell, verdict
from harness.suites.plan import RunRequest
from tests import toys  # noqa: F401

LISTED = [
    "poad-1", "poad-4", "poad-5", *(f"guide-{number}" for number in range(1, 14)), "verlog-babyai", "glam-4",
    "gigpo-alfworld", "balrog-babyai",
]  # fmt: skip


def test_all_published_numbers_are_in_the_package():
    found = published.records()
    assert len(found) == 1687
    assert all(one["source"] and one["paper"] for one in found)


def test_every_listed_table_is_there():
    assert not set(LISTED) - set(published.tables())


@pytest.mark.parametrize("name", published.tables())
def test_every_column_has_numbers_and_every_task_exists_and_belongs_to_the_suite(name):
    found = published.table(name)
    playable = {registry.TASKS[task].id for task in suites.suite(found.suite)["tasks"] if task in registry.TASKS}
    for column in found.columns:
        assert any(column.name in row.cells for row in found.rows), f"{column.name} is in no published row"
        if column.task:
            assert column.task in playable
            assert column.key[0] == column.task  # its knobs are knobs of the task
    for row, column in found.footnotes:
        assert any(column in one.cells for one in found.rows if one.label == row), (row, column)
    for row in found.rows:  # whatever was not run says how it would be, or that it cannot be
        assert row.command or "no command here" in row.cost


@pytest.mark.parametrize("name", published.tables())
def test_contradictions_in_footnotes_are_numbers_that_are_really_printed(name):
    """Each 'Table(s) N ... print(s) X' is looked up among the printed numbers."""
    everything = published.records()
    for text in published.table(name).footnotes.values():
        for tables, value in re.findall(r"Tables? ([\d, and]+) prints? (0\.\d+)", text):
            for number in re.findall(r"\d+", tables):
                printed = [
                    one["value"] for one in everything
                    if one["key"] == "guide" and one["table_or_figure"].split()[1] == number
                ]  # fmt: skip
                assert float(value) in printed, (name, number, value)


def test_some_footnotes_quote_contradictions():
    """The loop over quoted numbers above is not a loop over nothing."""
    notes = [text for name in published.tables() for text in published.table(name).footnotes.values()]
    assert sum(bool(re.search(r"Tables? [\d, and]+ prints? 0\.\d+", text)) for text in notes) >= 1


def test_the_printed_numbers_are_the_papers():
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
        "seeds": [1, 100], "panel": None, "episodes": 100, "success": {"value": 0.1, "low": 0.05, "high": 0.18, "n": 100},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({**base, **changes}))


def test_a_run_stands_in_its_own_column_alone_and_gives_that_cell_its_verdict(tmp_path):
    summary(tmp_path / "a", "qwen2.5-1.5b")
    found = published.table("guide-1", [tmp_path])
    (ours,) = [row for row in found.rows if row.ours]
    assert ours.cells == {"w2-o3-q4": TableCell(0.1, 0.05, 0.18, 100)}
    base, ppo = (row for row in found.rows if not row.ours)
    assert found.status(base, "w2-o3-q4") == "within interval"
    assert found.status(base, "w8-o3-q4") == found.status(ppo, "w2-o3-q4") == "not run"
    trained = published.table("guide-1", [tmp_path], {ppo.label: "qwen2.5-1.5b"})
    assert trained.status(next(row for row in trained.rows if row.label == ppo.label), "w2-o3-q4") == "deviates"


def test_a_column_with_knobs_takes_runs_with_these_knobs(tmp_path):
    summary(tmp_path / "a", "random", knobs={"max_steps": 6})
    (ours,) = [row for row in published.table("guide-4", [tmp_path]).rows if row.ours]
    assert set(ours.cells) == {"max steps 6"}
    assert not [row for row in published.table("guide-1", [tmp_path]).rows if row.ours]


def test_of_two_runs_of_one_protocol_the_larger_stands(tmp_path):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", episodes=20, success={"value": 0.0, "low": 0.0, "high": 0.16, "n": 20})
    (ours,) = [row for row in published.table("guide-1", [tmp_path]).rows if row.ours]
    assert ours.cells["w2-o3-q4"].n == 100


def test_a_metric_that_no_run_has_is_said_and_not_taken_for_runs_that_are_missing(tmp_path):
    summary(
        tmp_path / "a",
        "random",
        repeats={"pass@2": None},
        metrics={"moves": {"value": 3.0, "low": 2, "high": 4, "n": 9}},
    )
    assert published.table("guide-1", [tmp_path], metric="moves").rows[-1].cells["w2-o3-q4"].value == 3.0
    with pytest.raises(UsageError, match=r"No run has a metric .sucess.: .* Did you mean .success."):
        published.table("guide-1", [tmp_path], metric="sucess")
    assert published.table("guide-1", metric="sucess").rows  # nothing was run: nothing is known


def test_runs_of_different_protocols_in_one_table_are_refused_by_name(tmp_path):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", task="TextWorld-w8-o3-q4-v0", attempts=3)
    with pytest.raises(UsageError, match="different protocols of 'random': attempts is 3 in one and "):
        published.table("guide-1", [tmp_path])


@pytest.mark.parametrize(
    ("other", "said"),
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
def test_a_run_that_was_not_played_as_the_suite_asks_is_left_out_and_named(tmp_path, other, said):
    summary(tmp_path / "a", "random")
    summary(tmp_path / "b", "random", episodes=500, **other)
    found = published.table("guide-1", [tmp_path])
    (ours,) = [row for row in found.rows if row.ours]
    assert ours.cells["w2-o3-q4"].n == 100
    assert found.left_out == [f"{tmp_path / 'b'}: {said}"]


def test_every_setting_that_a_suite_fixes_is_looked_up_in_a_models_run():
    config = RunConfig(registry.TASKS["TextWorld-w2-o3-q4-v0"], "smollm2-135m")
    told = measured.settings({**config.identity(), "prompting": asdict(config.prompting)})
    elsewhere = {
        "split",
        "seed",
        "set",
        "episodes",
        "baseline_episodes",
        *suites.NOT_FLAGS,
    }  # games, knobs, their number
    for name, fixed in suites.read().items():
        assert not set(fixed) - elsewhere - told.keys(), name


def test_games_of_the_training_split_stand_in_no_table(tmp_path):
    task = registry.TASKS["BabyAI-goto-v0"]
    for split in task.splits:
        config = RunConfig(task, "random", split=split, episodes=2)
        evaluate(config, tmp_path / split, lambda: make_policy("random"))
    found = published.table("verlog-babyai", [tmp_path])
    (ours,) = [row for row in found.rows if row.ours]
    assert [cell.n for cell in ours.cells.values()] == [2]
    assert len(found.left_out) == 1 and "train/BabyAI-goto-v0--random" in found.left_out[0]
    assert "first seed is 0, the suite's 1000000" in found.left_out[0]


@pytest.mark.parametrize(
    ("table", "split", "panel", "said"),
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
def test_games_of_a_part_of_a_panel_stand_in_no_table(tmp_path, table, split, panel, said):
    turns = suites.suite(published.tables()[table]["suite"])["max_turns"]
    played = {"seeds": [0, panel[2]], "panel": panel, "max_turns": turns, "by_task_type": {}}
    summary(tmp_path / "a", "random", task=f"ALFWorld-{split}-v0", **played)
    found = published.table(table, [tmp_path])
    assert bool(found.left_out) == bool(said)
    assert said in "".join(found.left_out)


def test_another_schema_says_how_to_migrate_and_a_torn_summary_is_named(tmp_path):
    summary(tmp_path / "a", "random", schema_version="envsuite-record-2")
    with pytest.raises(DataError, match="to migrate, upgrade"):
        published.table("guide-1", [tmp_path])
    (tmp_path / "a" / "summary.json").write_text('{"task": ')
    with pytest.raises(DataError, match=r"a/summary\.json is not a run's summary"):
        published.table("guide-1", [tmp_path])


def test_verdicts():
    assert verdict(TableCell(0.17), TableCell(0.15, 0.1, 0.2, 100)) == "within interval"
    assert verdict(TableCell(0.17, 0.14, 0.2), TableCell(0.15, 0.1, 0.2, 100)) == "reproduced"
    assert verdict(TableCell(0.9), TableCell(0.15, 0.1, 0.2, 100)) == "deviates"
    assert verdict(TableCell(0.9), TableCell(0.15)) == "no interval"


def run(*words):
    with pytest.raises(SystemExit) as done:
        command.main([str(word) for word in words])
    return done.value.code


def test_a_table_runs_what_is_missing_goes_on_and_prints_it(tmp_path, capsys):
    asked = ["verlog-babyai", "--run", "tiny", "-n", "2", "-o", tmp_path]
    assert run(*asked, "--dry-run") == 0
    assert capsys.readouterr().out.count("2 episodes to play") == 8 and not list(tmp_path.iterdir())
    assert run(*asked, "-m", "expert") == 0
    assert run(*asked) == 0
    said = capsys.readouterr().out
    assert "ours: expert" in said and "ours: random" in said and "n=2" in said and "8 not run" in said
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/results.jsonl")}
    assert len(before) == 8
    assert run(*asked, "--dry-run") == 0
    assert capsys.readouterr().out.count("nothing to play") == 8
    assert run(*asked, "--json") == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/results.jsonl")} == before
    cells = json.loads(capsys.readouterr().out)["cells"]
    ours = [one for one in cells if one["ours"]]
    assert len(ours) == 8 and all(one["measured"]["n"] == 2 for one in ours)
    others = [one for one in cells if not one["ours"]]
    assert all(one["status"] == "not run" and one["command"] and one["cost"] for one in others)


def test_a_published_row_of_the_random_player_is_compared_with_ours(tmp_path, capsys):
    assert run("glam-4", "--run", "tiny", "-m", "random", "-n", "4", "-o", tmp_path, "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    (mine,) = [one for one in cells if one["row"] == "none, Random" and one["measured"]]
    assert mine["status"] in ("reproduced", "within interval", "deviates") and mine["published"]["value"] == 0.15


def test_columns_whose_games_are_not_here_are_named_and_the_table_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))  # nor in the user's cache
    asked = ["react-alfworld", "--run", "tiny", "-o", tmp_path / "runs"]
    assert run(*asked, "--dry-run") == 0
    assert "random  Pick: not played: ALFWORLD_DATA is not set" in capsys.readouterr().out
    assert run(*asked) == 0
    assert "published cells" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["guide-2", "--run", "tiny"], "Nothing of table 'guide-2' can be played"),
        (["guide-1", "--run", "tiny", "--reward", "dense"], "fixes --reward sparse"),
        (["guide-1", "--row", "Qwen=random"], "has no row 'Qwen'"),
        (["guide-1", "--row", "Qwen"], "PUBLISHED=MODEL"),
        (["giude-1"], "Did you mean 'guide-1'"),
    ],
)
def test_what_a_table_cannot_do_is_said_in_one_line(words, said, tmp_path, capsys):
    assert run(*words, "-o", tmp_path) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_row_and_a_model_may_have_equals_signs_in_their_names():
    labels = [row.label for row in published.table("guide-13").rows]
    label = next(one for one in labels if "=" in one)
    assert command._row_and_model(f"{label}=runs/lr=1e-5/model", labels) == (label, "runs/lr=1e-5/model")
    assert command._row_and_model("none, Random=random", labels) == ("none, Random", "random")


def test_larger_sizes_ask_for_all_that_smaller_ones_ask():
    table = published.table("poad-1")
    found = {size: reproduce.missing_runs(table, size, RunRequest("random")) for size in reproduce.SIZES}
    assert {one.model for one in found["tiny"]} == {"random", "expert"} < {one.model for one in found["small"]}
    assert {one.config.episodes for one in found["tiny"]} == {20}
    assert {one.config.episodes for one in found["small"] if one.model == "random"} == {100}
    assert {one.model for one in found["paper"]} == {"meta-llama/Llama-2-7b-hf"}


def test_a_study_stands_below_its_table_and_in_no_cell(tmp_path):
    """Several seeds of a small model are told with their interval; what was not run is told too."""
    folder = tmp_path / "textworld-sparse"
    folder.mkdir()
    plan = {
        "title": "In small",
        "recipe": "textworld-guide",
        "vary": "algorithm",
        "variants": ["ppo", "rloo"],
        "seeds": 3,
        "set": {},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    line = lambda seed, won: json.dumps({
        "variant": "ppo", "seed": seed, "updates": [{}], "evals": [{"n": 32, "success": 0.25}, {"n": 32, "success": won}],
    })  # fmt: skip
    (folder / "runs.jsonl").write_text("\n".join([line(0, 0.5), line(1, 0.75)]) + "\n")
    found = published.table("guide-10", studies=tmp_path)
    assert found.small == [
        "In small: algorithm: ppo 0.25 -> 0.62 [0.00, 1.00] (2 seeds); rloo not run; 32 held-out games a run"
    ]
    (folder / "runs.jsonl").write_text(line(0, 0.5) + "\n")
    (said,) = published.table("guide-10", studies=tmp_path).small
    assert "ppo 0.25 -> 0.50 (one seed, no interval); rloo not run; 32 held-out games a run" in said
    (folder / "runs.jsonl").unlink()
    assert published.table("guide-10", studies=tmp_path).small == ["In small: algorithm: ppo not run; rloo not run"]
    assert any(note.startswith("small trainings, whose models") for note in paper_tables.notes(found))
    assert found.rows == published.table("guide-10").rows
    with pytest.raises(DataError, match="is not a study"):
        published.table("guide-9", studies=tmp_path)


def test_a_torn_record_of_a_study_is_named_and_a_half_written_one_gives_way_to_the_next(tmp_path):
    path = tmp_path / "runs.jsonl"
    one = lambda seed: {"variant": "ppo", "seed": seed, "updates": [{}], "evals": [{"n": 1, "success": 1.0}]}
    training_studies.append(path, one(0))
    path.write_text(path.read_text() + '{"variant": "pp')
    assert training_studies.read(path) == [one(0)]
    training_studies.append(path, one(1))
    assert training_studies.read(path) == [one(0), one(1)]
    path.write_text(path.read_text().rstrip())  # whole, but for the end of its line
    training_studies.append(path, one(2))
    assert training_studies.read(path) == [one(0), one(1), one(2)]
    with path.open() as same:  # what another process has open to add to is still this file
        training_studies.append(path, one(3))
        assert same.read() == path.read_text()
    for torn in ("nonsense\n", "{}\n", '{"variant": "ppo", "seed": 2, "updates": [], "evals": []}\n'):
        path.write_text(torn + json.dumps(one(3)) + "\n")
        with pytest.raises(DataError, match=r"runs\.jsonl:1 is not a run of a study"):
            training_studies.read(path)
    unset = {"recipe": "textworld-guide", "vary": "algorithm", "variants": ["ppo"], "seeds": 1}
    for plan in ([], unset):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(DataError, match="is not a study"):
            training_studies.plan_of(tmp_path)
