"""Grids, seen against unseen, and gaps, on real runs of small environments."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from envsuite.errors import BadKnob, DataError, UsageError
from harness.cli import generalize as command
from harness.generalization import generalize, grids
from harness.generalization.generalize import GridCell, GridModel, GridPlace, gaps, grid, split_places, splits
from harness.policies.server_weights import QUESTION
from harness.prompting.prompting import Prompting
from harness.prompting.rewording import WORDINGS
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.stats.intervals import Interval, bootstrap, wilson
from harness.types import Reply, episode
from tests import toys  # noqa: F401
from tests.api.server import running


def run(*words):
    with pytest.raises(SystemExit) as done:
        command.main([str(word) for word in words])
    return done.value.code


HILO = ["-e", "HiLo", "--module", "examples.hilo", "--axis", "size=8,64", "--axis", "max_steps=3,6", "-n", "20"]


def test_a_grid_is_played_written_and_drawn(tmp_path, capsys):
    assert run("-m", "random@size=8", *HILO, "-o", tmp_path) == 0
    said = capsys.readouterr().out
    assert "generalisation gap of random@size=8" in said and "n=80" in said
    found = json.loads((tmp_path / "grid.json").read_text())
    assert [one["name"] for one in found["axes"]] == ["size", "max_steps"]
    assert Counter((one["at"]["size"], one["seen"]) for one in found["cells"]) == {("8", True): 2, ("64", False): 2}
    for one in found["cells"]:
        summary = json.loads((tmp_path.joinpath(*one["run"].split("/")[-2:]) / "summary.json").read_text())
        assert (
            summary["success"]["value"] == one["mean"] and one["n"] == 20 and one["low"] <= one["mean"] <= one["high"]
        )
    seen, unseen = ([c["mean"] for c in found["cells"] if c["seen"] is side] for side in (True, False))
    assert found["gaps"][0]["mean"] == pytest.approx(sum(seen) / 2 - sum(unseen) / 2)
    assert found["gaps"][0]["low"] > 0  # a player by chance does find fewer of 64 numbers than of 8
    picture = ElementTree.fromstring((tmp_path / "heatmap.svg").read_text())
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{seen[0]:.2f}" in texts and sum("n=20" in (text or "") for text in texts) == 4


def test_a_grid_of_one_axis_shows_every_cell(tmp_path, capsys):
    assert run("-m", "expert", *HILO[:6], "-n", "2", "-o", tmp_path) == 0
    assert capsys.readouterr().out.count("1.00 [0.34, 1.00] n=2") == 2
    assert "not run" not in (tmp_path / "heatmap.svg").read_text()


def test_a_grid_goes_on_where_it_was_cut_and_a_dry_run_says_what_is_left(tmp_path, capsys):
    assert run("-m", "random", *HILO, "-o", tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.count("20 episodes to play, at most") == 4
    assert not list(tmp_path.iterdir())
    assert run("-m", "random", *HILO, "-o", tmp_path) == 0
    whole = (tmp_path / "grid.json").read_bytes()
    assert run("-m", "random", *HILO, "-o", tmp_path) == 2
    assert "continue with --resume" in capsys.readouterr().err
    first = sorted(tmp_path.glob("*/*/journal.jsonl"))[0]
    first.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:7]) + b'{"cut')
    (tmp_path / "grid.json").unlink()
    run("-m", "random", *HILO, "-o", tmp_path, "--dry-run")
    said = capsys.readouterr().out
    assert said.count("nothing to play") == 3 and "s per episode in earlier runs" in said
    assert run("-m", "random", *HILO, "-o", tmp_path, "--resume") == 0
    assert (tmp_path / "grid.json").read_bytes() == whole


def test_a_model_trained_outside_the_grid_is_told_why_it_has_no_gap(tmp_path, capsys):
    words = ["-e", "HiLo", "--module", "examples.hilo", "--axis", "size=8,64", "-n", "2", "--baselines", " expert, ,"]
    assert run("-m", "random@size=16", *words, "-o", tmp_path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no gap: no place of this grid is seen" in said and "expert" in said
    found = json.loads((tmp_path / "grid.json").read_text())
    assert found["models"] == ["random@size=16", "expert"]


def test_the_budget_is_for_the_whole_grid_and_not_for_each_of_its_runs(tmp_path, capsys):
    words = [
        "-e",
        "Signpost",
        "--module",
        "tests.toys",
        "--axis",
        "max_steps=1,2",
        "-n",
        "3",
        "-c",
        "1",
        "-o",
        tmp_path,
    ]
    with running() as server:
        server.says = "<action>up</action>"  # 14 tokens a turn: 42 for the first cell, 28 for each game of the second
        words += ["-m", "openai:small-model", "--base-url", server.url, "--baselines", "none"]
        assert run(*words, "--max-tokens-total", 60) == 3
        said = capsys.readouterr().err
        assert "--max-tokens-total 60 is used up after 1 of 3 episodes" in said
        assert run(*words, "--resume") == 0
        asked = [body["messages"] for body, _, _ in server.requests if QUESTION not in str(body["messages"])]
        assert len(asked) == 3 + 6


def test_several_models_are_the_first_axis_and_each_has_its_own_gap(tmp_path, capsys):
    assert run("-m", "random@size=8", "-m", "expert@size=64", *HILO[:-2], "-n", "5", "-o", tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["axes"][0] == {"name": "model", "values": ["random@size=8", "expert@size=64"]}
    assert [one["model"] for one in found["gaps"]] == ["random@size=8", "expert@size=64"]
    assert found["gaps"][1]["mean"] == 0.0


def test_a_gap_of_games_that_all_ended_alike_keeps_its_doubt(tmp_path, capsys):
    assert run("-m", "expert@size=8", *HILO[:-2], "-n", "10", "-o", tmp_path) == 0
    (gap,) = json.loads((tmp_path / "grid.json").read_text())["gaps"]
    assert gap["mean"] == 0.0 and gap["low"] < -0.1 and gap["high"] > 0.1


def test_a_gap_game_by_game_keeps_its_doubt_and_one_of_no_shares_has_no_bounds():
    task = registry.TASKS["HiLo-v0"]

    def gap(scores, spread, axis):
        sides = [{axis: value} for value in ("a", "b")]
        who = GridModel("m", {axis: "a"})
        return gaps([GridCell(who, GridPlace(at, task), spread, scores, "") for at in sides])[0]

    alike = dict.fromkeys(range(20), 1.0)
    paired = gap(alike, wilson(20, 20), "wording")
    assert paired.paired and paired.interval.n == 20 and paired.interval.low < -0.1 < 0.1 < paired.interval.high
    other = gap(alike, bootstrap(list(alike.values())), "size").interval  # a return of 1.0 each time
    assert other.value == 0.0 and math.isnan(other.low) and math.isnan(other.high)


def test_a_kept_grid_is_a_table_with_its_notes_and_its_picture(tmp_path, capsys):
    folder = tmp_path / "hilo"
    assert run("-m", "random@size=8", *HILO, "-o", folder) == 0
    (folder / "NOTES.md").write_text("Made for this test.\n")
    pages = grids.pages(tmp_path)
    assert pages[folder / "heatmap.svg"] == (folder / "heatmap.svg").read_text()
    found = json.loads((folder / "grid.json").read_text())
    page = pages[tmp_path / "README.md"]
    assert "## hilo\n\nMade for this test.\n" in page and "![heat map of hilo](hilo/heatmap.svg)" in page
    assert "| size ↓  max_steps → | 3 | 6 |" in page
    for size, mark in (("8", "**"), ("64", "")):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {size} |")]
        for steps, shown in zip(("3", "6"), row.split(" | ")[1:]):
            (cell,) = [one for one in found["cells"] if one["at"] == {"size": size, "max_steps": steps}]
            bounds = f"[{cell['low']:.2f}, {cell['high']:.2f}] n=20"
            assert shown.rstrip(" |") == f"{mark}{cell['mean']:.2f}{mark} {bounds}"
            assert (folder / cell["run"] / "results.jsonl").exists()
    assert f"- Gap of random@size=8: {found['gaps'][0]['mean']:+.3f} [" in page


def test_a_name_cannot_end_a_cell_of_the_page(tmp_path):
    place = GridPlace({"size": "8"}, registry.TASKS["HiLo-v0"])
    models = [GridModel("a|<b>", {}), GridModel("c", {})]
    cells = [GridCell(one, place, wilson(1, 2), {0: 1.0, 1: 0.0}, str(tmp_path / "grid" / "run")) for one in models]
    generalize.write_grid(tmp_path / "grid", "success", models, [place], cells)
    page = grids.pages(tmp_path)[tmp_path / "README.md"]
    assert "| a\\|&lt;b&gt; | 0.50" in page


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema_version": "envsuite-grid-9"}',
        '{"schema_version": "envsuite-grid-1"}',
        '{"schema_version": "envsuite-grid-1", "axes": [{"name": "x", "values": []}], "cells": [], "metric": "success"}',
        '{"schema_version": "envsuite-grid-1", "axes": [{"name": "x", "values": ["1"]}], "cells": [{"at": {"x": "1"}}], '
        '"metric": "success", "models": [], "gaps": []}',
    ],
)
def test_what_is_no_grid_on_disk_is_named(tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "grid.json").write_text(text)
    with pytest.raises(DataError, match=r"mine/grid\.json .* run envsuite-generalize again"):
        grids.pages(tmp_path)


def test_transfer_to_another_environment_is_an_axis(tmp_path):
    assert (
        run(
            "-m",
            "expert@task=HiLo",
            "--module",
            "tests.toys",
            "--axis",
            "task=HiLo,Signpost",
            "-n",
            "4",
            "-o",
            tmp_path,
        )
        == 0
    )
    found = json.loads((tmp_path / "grid.json").read_text())
    assert [one["task"] for one in found["cells"]] == ["HiLo-v0", "Signpost-v0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--axis", "world_size=2,4", "-e", "babyai"], "has no such knob"),
        (["--axis", "sise=2,4", "-e", "HiLo"], "Did you mean 'size'"),
        (["--axis", "size=1,4", "-e", "HiLo"], "cannot be '1': it takes 2..1024"),
        (["--axis", "size=4,4", "-e", "HiLo"], "none of them twice"),
        (["--axis", "size", "-e", "HiLo"], "not of the form"),
        (["-e", "HiLo"], "Name a grid"),
        (["--splits", "babyai-mission"], "Did you mean 'babyai-missions'"),
        (["--axis", "prompt-wording=plane", "-e", "HiLo"], "No wording 'plane'"),
        (["--axis", "split=tset", "-e", "HiLo"], "has no split 'tset'"),
        (["--axis", "task=babyai-*"], "a grid needs exactly one"),
        (["-e", "HiLo", "--axis", "size=4,8", "--ray-address", "auto", "--dry-run"], "needs --executor ray"),
    ],
)
def test_what_is_no_grid_is_refused_in_one_line_before_anything_is_played(words, said, tmp_path, capsys):
    assert run("-m", "random", "--module", "examples.hilo", *words, "-o", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", splits())
def test_every_named_split_has_both_sides_and_places_that_exist(name):
    places = split_places(name)
    assert {place.seen for place in places} == {True, False}
    for place in places:
        registry.overrides(place.task, dict(place.knobs))
        if place.split:
            assert place.split in (*place.task.splits, *place.task.split_ids)


def test_the_seen_and_the_unseen_side_of_a_split_are_really_played(tmp_path):
    assert run("-m", "expert", "--splits", "babyai-missions", "-n", "2", "-o", tmp_path) == 0
    found = json.loads((tmp_path / "grid.json").read_text())
    assert [(one["task"], one["seen"]) for one in found["cells"]] == [
        ("BabyAI-mixed-v0", True), ("BabyAI-mixed-heldout-v0", False),
    ]  # fmt: skip
    assert found["gaps"][0]["n"] == 4


def _cell(label, seen, scores):
    place = GridPlace({"prompt-wording": label}, registry.TASKS["HiLo-v0"], seen=seen)
    return GridCell(GridModel("m", {}), place, Interval(0, 0, 0, len(scores)), dict(enumerate(scores)), "run")


def test_the_same_games_in_other_words_are_compared_game_by_game():
    # every game is worth the same less in the second wording: paired there is no spread, and a return's gap has no interval then
    cells = [_cell("plain", True, [1.0, 0.5] * 10), _cell("synonyms", False, [0.5, 0.0] * 10)]
    (gap,) = gaps(cells)
    assert gap.paired and gap.interval.value == 0.5
    assert math.isnan(gap.interval.low) and math.isnan(gap.interval.high)
    (gap,) = gaps([cells[0], _cell("synonyms", False, [0.5, 0.0] * 9)])  # other games: no pairs
    assert not gap.paired and gap.interval.low < 0.5 < gap.interval.high


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz \n.,", max_size=40), st.sampled_from(sorted(WORDINGS)))
def test_every_wording_is_its_own_inverse(text, name):
    words = text + " Take the key and OPEN the door, then go forward. Grab, dax."
    assert WORDINGS[name](WORDINGS[name](words)) == words


class Reader:
    """Says the command that its prompt's last line tells it to say."""

    name, advice_kind, deterministic = "reader", "", True

    def __init__(self):
        self.read = []

    def act(self, prompts):
        self.read += [prompt.messages[-1]["content"] for prompt in prompts]
        return [Reply(re.search(r"Admissible commands: ([^,]+)", read).group(1)) for read in self.read[-len(prompts) :]]

    def close(self):
        pass


def test_a_reworded_game_is_played_to_the_same_end_by_who_reads_it():
    task = registry.TASKS["BabyAI-goto-v0"]
    runs = {}
    for name in ("plain", "invented"):
        reader = Reader()
        prompting = Prompting("bare", thinking=False, wording=name)
        (runs[name],) = rollout(reader, [episode(task, 3)], LocalExecutor(1, "sparse", ""), prompting, 6)
        runs[name].read = reader.read
    assert [turn.commands for turn in runs["plain"].turns] == [turn.commands for turn in runs["invented"].turns]
    assert all(not turn.fault for turn in runs["invented"].turns)
    assert "turn left" in runs["plain"].read[0] and "lorp left" in runs["invented"].read[0]
    assert "turn left" not in runs["invented"].read[0]


def test_knobs_of_another_task_are_refused_by_the_grid():
    with pytest.raises(BadKnob):
        grid("HiLo", {"size": ["2", "9999"]})
    args = command.parser().parse_args(["-m", "random@rooms=2", "-e", "HiLo", "--axis", "size=8,16"])
    with pytest.raises(UsageError, match="is no axis of this grid"):
        command._run(args, generalize.model("random@rooms=2"), grid("HiLo", {"size": ["8"]})[0])
