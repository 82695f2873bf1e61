"""The report before any browser sees it: what goes in, what is refused, and that the same runs give the same bytes."""

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness import report
from harness.cli.report import main
from harness.evaluate import RunConfig, evaluate
from harness.generalization import grids
from harness.policies import make_policy
from harness.report.transcripts import choose
from tests import toys  # noqa: F401

KEPT = Path(__file__).resolve().parents[2] / "leaderboards"


def played(folder, model="random", task="HiLo-v0", **settings):
    config = RunConfig(registry.TASKS[task], model, **{"episodes": 4, **settings})
    evaluate(config, folder, lambda: make_policy(model))
    return config.folder(folder)


def unpacked(page, name):
    packed = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', page).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_same_runs_give_the_same_bytes_and_every_episode_is_in_them(tmp_path):
    folder = played(tmp_path)
    first, second = (report.render(report.gather([folder])) for _ in range(2))
    assert first == second
    stored = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    columns = unpacked(first, "index")["columns"]
    assert columns["seed"] == [one["seed"] for one in stored]
    episodes = unpacked(first, "c0")
    assert [[step["c"] for step in one["steps"]] for one in episodes] == [
        [step["commands"] for step in one["steps"]] for one in stored
    ]
    secrets = [one["replay"]["expert"] for one in episodes]
    assert all(len(set(secret)) == 1 for secret in secrets)  # HiLo's expert knows the number from the start


def test_every_turn_of_a_team_names_the_agent_and_its_player(tmp_path):
    task, model = "Overcooked-AI-cramped_room-v0", "team:expert:greedy+random"
    folder = played(tmp_path, model, task, episodes=1, knobs={"partner": "team", "horizon": 30})
    stored = json.loads((folder / "results.jsonl").read_text().splitlines()[0])
    (episode,) = unpacked(report.render(report.gather([folder])), "c0")
    names = {1: "agent 1: expert:greedy", 2: "agent 2: random"}
    assert [step["a"] for step in episode["steps"]] == [names[step["agent"]] for step in stored["steps"]]
    assert set(names.values()) == {step["a"] for step in episode["steps"]}


def test_a_model_named_after_a_path_that_is_no_utf8_is_shown(tmp_path):
    folder = played(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model": "runs/caf\udce9/モデル"}))
    with pytest.raises(SystemExit) as stop:
        main([str(folder), "-o", str(tmp_path / "report.html")])
    assert stop.value.code == 0 and "runs/caf\\udce9/モデル" in (tmp_path / "report.html").read_text()


def test_a_stale_record_is_marked_and_the_replay_stops_there(tmp_path):
    folder = played(tmp_path)
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    victim = next(place for place, one in enumerate(lines) if one["num_turns"] > 2)
    lines[victim]["steps"][1]["observation"] = "as it was answered long ago"
    (folder / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    page = report.render(report.gather([folder]))
    again = unpacked(page, "c0")[victim]["replay"]
    assert again["difference"] == "the answer to turn 2 differs today"
    assert len(again["expert"]) == 2
    assert "1 of these did not come out as recorded" in page


def test_the_half_written_last_line_of_a_training_that_still_runs_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "update", "update": 1}\n{"kind": "upd')
    (curve,) = report.gather([tmp_path]).curves
    assert curve.updates == [{"kind": "update", "update": 1}]


def test_an_update_in_which_no_episode_ended_is_no_point_of_the_curve(tmp_path):
    lines = [
        {"kind": "update", "update": 1},
        {"kind": "update", "update": 2, "success": 0.5},
        {"kind": "update", "update": 3},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    page = report.render(report.gather([tmp_path]))
    assert page.count("<circle") == 1 and "50.0 on the episodes of update 2, nothing held out" in page
    (tmp_path / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert "nothing measured" in report.render(report.gather([tmp_path]))


def test_a_measurement_on_games_of_training_is_not_called_held_out(tmp_path):
    line = {"kind": "eval", "update": 4, "success": 0.5, "low": 0.2, "high": 0.8, "n": 9, "held_out": False}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert "n=9 after update 4, on games it trained on" in report.render(report.gather([tmp_path]))


def test_gzipped_records_and_boards_are_read(tmp_path):
    folder = played(tmp_path / "runs")
    stored = folder / "results.jsonl"
    (folder / "results.jsonl.gz").write_bytes(gzip.compress(stored.read_bytes()))
    stored.unlink()
    (run,) = report.gather([tmp_path / "runs"]).runs
    assert len(run.records) == 4 and report.gather([folder / "results.jsonl.gz"]).runs == [run]
    board = KEPT / "balrog-babyai"
    assert {run.name for run in report.gather([board]).runs} == {"random", "expert"}
    records = KEPT / "tables/records/BabyAI-goto-v0--random"
    assert [len(run.records) for run in report.gather([records]).runs] == [100]


def test_runs_of_one_task_under_different_protocols_get_a_table_each(tmp_path):
    capped, uncapped = played(tmp_path, max_turns=3), played(tmp_path, "expert")
    groups = report.gather([capped, uncapped]).groups()
    assert [[run.name for run in group] for group in groups] == [["random"], ["expert"]]
    (group,) = report.gather([capped, uncapped], ["max_turns"]).groups()
    assert [run.name for run in group] == ["random", "expert"]
    page = report.render(report.gather([capped, uncapped], ["max_turns"]), replays=0)
    assert "at most 3 turns or no cap on turns" in page


def test_two_runs_of_one_name_in_a_table_are_told_apart_by_their_id(tmp_path):
    folders = [played(tmp_path, max_turns=turns) for turns in (None, 3)]
    page = report.render(report.gather(folders, ["max_turns"]), replays=0)
    assert all(f"random ({folder.name[:6]})" in page for folder in folders)


def replace(folder, old, new, schema="record-1"):
    stored = (folder / "results.jsonl").read_text()
    assert old in stored
    (folder / "results.jsonl").write_text(stored.replace(old, new).replace("record-1", schema))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "results.jsonl").write_text("{}\n"), "results.jsonl:1 is not a record"),
        (
            lambda folder: replace(folder, '"commands":["', '"commands":[7,"'),
            "results.jsonl:1 is not a record (TypeError",
        ),
        (
            lambda folder: replace(folder, '"format":', '"shape":'),
            "results.jsonl:1 is not a record (KeyError: 'format')",
        ),
        (
            lambda folder: replace(folder, '"success":', '"won":', "record-2"),
            "use the version of envsuite that wrote the file",
        ),
        (lambda folder: (folder / "config.json").write_text('{"model": "x"}'), "config.json cannot be read"),
        (
            lambda folder: (folder / "config.json").write_text('{"model": "x", "schema_version": "envsuite-record-2"}'),
            "config.json has schema_version 'envsuite-record-2'",
        ),
        (lambda folder: (folder / "results.jsonl").unlink(), "finish it with --resume"),
        (lambda folder: (folder / "metrics.jsonl").write_text('{"kind": "sft"}\nnonsense\n'), "metrics.jsonl:2"),
        (lambda folder: (folder / "metrics.jsonl").write_text('{"kind": "eval", "update": 1}\n'), "metrics.jsonl:1"),
    ],
)
def test_damaged_input_is_named_in_one_line(tmp_path, capsys, spoil, said):
    folder = played(tmp_path)
    spoil(folder)
    with pytest.raises(SystemExit) as stop:
        main([str(folder), "-o", str(tmp_path / "report.html")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_would_be_too_large_is_refused_with_the_cure(tmp_path):
    with pytest.raises(UsageError, match="lower --replay, or raise --max-size"):
        report.render(report.gather([played(tmp_path)]), max_mb=0.0001)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no finished run, board"):
        report.gather([tmp_path / "empty"])


GRID = {
    "schema_version": "envsuite-grid-1",
    "metric": "success",
    "models": ["m"],
    "axes": [{"name": "size", "values": ["4", "8"]}, {"name": "max_steps", "values": ["2", "8"]}],
    "cells": [
        {"at": {"size": "4", "max_steps": "2"}, "mean": 0.5, "low": 0.2, "high": 0.8, "n": 9, "seen": True},
        {"at": {"size": "8", "max_steps": "2"}, "mean": None, "low": None, "high": None, "n": 0, "seen": False},
    ],
    "gaps": [],
}


def test_a_grid_is_read_with_what_was_not_run_left_open(tmp_path):
    (tmp_path / "grid.json").write_text(json.dumps(GRID))
    (grid,) = report.gather([tmp_path]).grids
    assert (grid.row_axis, grid.column_axis, grid.rows, grid.columns) == ("size", "max_steps", ["4", "8"], ["2", "8"])
    assert grid.cells["4", "2"]["value"] == 0.5
    assert ("8", "8") not in grid.cells
    page = report.render(report.gather([tmp_path]))
    assert page.count("not run") == 3
    assert "<b>50.0</b>" in page and 'class="h5 trained"' in page
    (tmp_path / "grid.json").write_text(json.dumps({**GRID, "metric": "reward"}))
    assert "<b>0.500 [0.200, 0.800]</b>" in report.render(report.gather([tmp_path]))
    (tmp_path / "grid.json").write_text(json.dumps({**GRID, "schema_version": "envsuite-grid-9"}))
    with pytest.raises(DataError, match="envsuite-grid-9"):
        report.gather([tmp_path])


def test_a_grid_of_one_axis_is_laid_out_as_on_its_page(tmp_path):
    cells = [{**one, "at": {"size": one["at"]["size"]}} for one in GRID["cells"]]
    (tmp_path / "grid.json").write_text(json.dumps({**GRID, "axes": GRID["axes"][:1], "cells": cells}))
    (grid,) = report.gather([tmp_path]).grids
    assert (grid.rows, grid.columns, grid.column_axis) == (["4", "8"], ["success"], "")
    assert (grid.rows, grid.columns, list(grid.cells)) == tuple(
        map(list, grids.layout(grids.read(tmp_path / "grid.json")))
    )
    page = report.render(report.gather([tmp_path]))
    assert 'size ↓</th><th scope="col">success</th>' in page and "<b>50.0</b>" in page


def test_every_run_has_its_share_of_the_room_for_pictures(tmp_path):
    task = "VirtualHome-food_preparation-v0"
    folders = [played(tmp_path, model, task, max_turns=3) for model in ("expert", "random")]
    whole = unpacked(report.render(report.gather(folders)), "c0")
    sizes = [sum(map(len, one["replay"]["images"])) for one in whole]
    assert len(sizes) == 8 and all(sizes)
    room = sum(sizes[:4]) / 2**20  # as much as the first run alone would take
    drawn = [
        bool(one["replay"]["images"]) for one in unpacked(report.render(report.gather(folders), picture_mb=room), "c0")
    ]
    assert drawn[0] and not drawn[3] and drawn[4] and not drawn[7]


def test_what_is_played_again_holds_failures_and_successes():
    found = [{"success": place > 6, "stop_reason": "failed"} for place in range(10)]
    assert choose(found, 4) == {0, 1, 7, 8}
    assert choose(found, 100) == set(range(10))
    assert choose(found[:3], 2) == {0, 1}
