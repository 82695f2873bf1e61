"""Generalisation grids and gaps between seen and unseen settings, on runs of small environments."""

import json
import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from envsuite.errors import BadKnob, DataError, UsageError
from harness.cli import generalize as command
from harness.cli import replay as replay_command
from harness.generalization import cells as parts
from harness.generalization import generalize, grid_check, grids
from harness.generalization.cells import EvaluatedModel, GridCell, GridSetting
from harness.generalization.generalize import grid, split_settings, splits
from harness.generalization.transfer import adjusted_gap, gaps, transfers
from harness.policies.connections.server_weights import QUESTION
from harness.prompting.prompting import Prompting
from harness.prompting.rewording import WORDINGS
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.stats.intervals import SHARE, Interval, mean_interval, success_interval
from harness.types import Reply, episode
from tests import toys  # noqa: F401
from tests.api.server import running


def run(*words):
    """Runs the command in this process, without workers; returns its exit code."""
    with pytest.raises(SystemExit) as done:
        command.main(["--num-workers", "0", *map(str, words)])
    return done.value.code


HILO = [
    "-e",
    "HiLo",
    "--module",
    "examples.hilo",
    "--axis",
    "size=8,64",
    "--axis",
    "max_steps=3,6",
    "-n",
    "20",
]


def test_a_grid_is_played_written_and_drawn(tmp_path, capsys):
    assert run("-m", "random@size=8", *HILO, "-o", tmp_path) == 0
    output = capsys.readouterr().out
    assert "seen minus unseen of random@size=8: +" in output and "n=80" in output
    assert "adjusted for difficulty, random@size=8: needs random and expert in the grid" in output
    grid_file = json.loads((tmp_path / "grid.json").read_text())
    assert [axis["name"] for axis in grid_file["axes"]] == ["size", "max_steps"]
    sides = Counter((cell["at"]["size"], cell["seen"]) for cell in grid_file["cells"])
    assert sides == {("8", True): 2, ("64", False): 2}
    for cell in grid_file["cells"]:
        summary = json.loads((tmp_path.joinpath(*cell["run"].split("/")[-2:]) / "summary.json").read_text())
        assert summary["success"]["value"] == cell["mean"] and cell["n"] == 20
        assert cell["low"] <= cell["mean"] <= cell["high"]
    seen, unseen = ([c["mean"] for c in grid_file["cells"] if c["seen"] is side] for side in (True, False))
    assert grid_file["gaps"][0]["mean"] == pytest.approx(sum(seen) / 2 - sum(unseen) / 2)
    assert grid_file["gaps"][0]["low"] > 0  # random play guesses fewer of 64 numbers than of 8
    assert f"{seen[0]:.2f}" in output and output.count("n=20") == 4


def test_a_grid_of_one_axis_shows_every_cell(tmp_path, capsys):
    assert run("-m", "expert", *HILO[:6], "-n", "2", "-o", tmp_path) == 0
    output = capsys.readouterr().out
    assert output.count("1.00 [0.16, 1.00] n=2") == 2 and "not run" not in output


def test_an_interrupted_grid_resumes_and_a_dry_run_counts_the_remaining_episodes(tmp_path, capsys):
    assert run("-m", "random", *HILO, "-o", tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.count("20 episodes to play, at most") == 4
    assert not list(tmp_path.iterdir())
    assert run("-m", "random", *HILO, "-o", tmp_path) == 0
    complete = (tmp_path / "grid.json").read_bytes()
    assert run("-m", "random", *HILO, "-o", tmp_path) == 2
    assert "continue with --resume" in capsys.readouterr().err
    first = sorted(tmp_path.glob("*/*/journal.jsonl"))[0]
    first.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:7]) + b'{"cut')
    (tmp_path / "grid.json").unlink()
    run("-m", "random", *HILO, "-o", tmp_path, "--dry-run")
    output = capsys.readouterr().out
    assert output.count("nothing to play") == 3 and "s per episode in earlier runs" in output
    assert run("-m", "random", *HILO, "-o", tmp_path, "--resume") == 0
    assert (tmp_path / "grid.json").read_bytes() == complete


def test_a_model_without_a_seen_place_gets_a_reason_instead_of_a_gap(tmp_path, capsys):
    words = ["-e", "HiLo", "--module", "examples.hilo", "--axis", "size=8,64", "-n", "2", "--baselines", " expert, ,"]
    assert run("-m", "random@size=16", *words, "-o", tmp_path) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "no difference of seen and unseen: no setting of this grid is seen" in output and "expert" in output
    grid_file = json.loads((tmp_path / "grid.json").read_text())
    assert grid_file["models"] == ["random@size=16", "expert"]


def test_the_token_budget_covers_the_whole_grid(tmp_path, capsys):
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
        server.says = "<action>up</action>"  # 14 tokens a turn: 42 for cell 1, 28 a game of cell 2
        words += ["-m", "openai:small-model", "--base-url", server.url, "--baselines", "none"]
        assert run(*words, "--max-tokens-total", 60) == 3
        error = capsys.readouterr().err
        assert "--max-tokens-total 60 is used up after 1 of 3 episodes" in error
        assert run(*words, "--resume") == 0
        conversations = [body["messages"] for body, _, _ in server.requests if QUESTION not in str(body["messages"])]
        assert len(conversations) == 3 + 6


def test_several_models_form_the_first_axis_and_each_has_a_gap(tmp_path, capsys):
    assert run("-m", "random@size=8", "-m", "expert@size=64", *HILO[:-2], "-n", "5", "-o", tmp_path, "--json") == 0
    grid_file = json.loads(capsys.readouterr().out)
    assert grid_file["axes"][0] == {"name": "model", "values": ["random@size=8", "expert@size=64"]}
    assert [gap_row["model"] for gap_row in grid_file["gaps"]] == ["random@size=8", "expert@size=64"]
    assert grid_file["gaps"][1]["mean"] == 0.0


def test_a_gap_of_games_with_equal_results_keeps_an_interval(tmp_path, capsys):
    assert run("-m", "expert@size=8", *HILO[:-2], "-n", "10", "-o", tmp_path) == 0
    (gap,) = json.loads((tmp_path / "grid.json").read_text())["gaps"]
    assert gap["mean"] == 0.0 and gap["low"] < -0.1 and gap["high"] > 0.1


def test_equal_results_give_a_gap_with_bounds_where_the_range_is_known():
    task = registry.TASKS["HiLo-v0"]
    alike = dict.fromkeys(range(20), 1.0)

    def gap(axis, limits):
        sides = [{axis: value} for value in ("a", "b")]
        who, spread = EvaluatedModel("m", {axis: "a"}), mean_interval(list(alike.values()), limits=limits)
        return gaps([GridCell(who, GridSetting(at, task), spread, alike, "", limits=limits) for at in sides])[0]

    for axis, paired in (("wording", True), ("size", False)):
        known, unknown = gap(axis, SHARE), gap(axis, None)
        assert known.paired is paired and known.interval.low < -0.1 < 0.1 < known.interval.high
        assert unknown.interval.value == 0.0 and math.isnan(unknown.interval.low) and math.isnan(unknown.interval.high)
    assert gap("wording", SHARE).interval.n == 20


def test_a_stored_grid_renders_as_a_table_with_notes(tmp_path, capsys):
    folder = tmp_path / "hilo"
    assert run("-m", "random@size=8", *HILO, "-o", folder) == 0
    (folder / "NOTES.md").write_text("Made for this test.\n")
    pages = grids.pages(tmp_path)
    grid_file = json.loads((folder / "grid.json").read_text())
    page = pages[tmp_path / "README.md"]
    assert "## hilo\n\nMade for this test.\n" in page
    assert "| size ↓  max_steps → | 3 | 6 |" in page
    for size, mark in (("8", "**"), ("64", "")):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {size} |")]
        for steps, printed in zip(("3", "6"), row.split(" | ")[1:], strict=True):
            (cell,) = [cell for cell in grid_file["cells"] if cell["at"] == {"size": size, "max_steps": steps}]
            bounds = f"[{cell['low']:.2f}, {cell['high']:.2f}] n=20"
            assert printed.rstrip(" |") == f"{mark}{cell['mean']:.2f}{mark} {bounds}"
            assert (folder / cell["run"] / "results.jsonl").exists()
    assert f"- seen minus unseen of random@size=8: {grid_file['gaps'][0]['mean']:+.3f} [" in page


def test_a_model_name_is_escaped_in_the_table(tmp_path):
    setting = GridSetting({"size": "8"}, registry.TASKS["HiLo-v0"])
    models = [EvaluatedModel("a|<b>", {}), EvaluatedModel("c", {})]
    cells = [
        GridCell(
            model, setting, success_interval([True, False], [0, 1]), {0: 1.0, 1: 0.0}, str(tmp_path / "grid" / "run")
        )
        for model in models
    ]
    generalize.write_grid(tmp_path / "grid", "success", models, [setting], cells)
    page = grids.pages(tmp_path)[tmp_path / "README.md"]
    assert "| a\\|&lt;b&gt; | 0.50" in page


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema_version": "envsuite-grid-9"}',
        '{"schema_version": "envsuite-grid-1"}',
        '{"schema_version": "envsuite-grid-1", "axes": [{"name": "x", "values": []}], "cells": [], '
        '"metric": "success"}',
        '{"schema_version": "envsuite-grid-1", "axes": [{"name": "x", "values": ["1"]}], '
        '"cells": [{"at": {"x": "1"}}], "metric": "success", "models": [], "gaps": []}',
    ],
)
def test_an_invalid_grid_file_is_named(tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "grid.json").write_text(text)
    with pytest.raises(DataError, match=r"mine/grid\.json .* run envsuite generalize again"):
        grids.pages(tmp_path)


def test_transfer_to_another_environment_is_an_axis(tmp_path):
    words = ["--module", "tests.toys", "--axis", "task=HiLo,Signpost", "-n", "4", "-o", tmp_path]
    assert run("-m", "expert@task=HiLo", *words) == 0
    grid_file = json.loads((tmp_path / "grid.json").read_text())
    assert [cell["task"] for cell in grid_file["cells"]] == ["HiLo-v0", "Signpost-v0"]


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_an_invalid_grid_is_refused_with_a_one_line_error_before_any_episode(words, message, tmp_path, capsys):
    assert run("-m", "random", "--module", "examples.hilo", *words, "-o", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", splits())
def test_every_named_split_has_both_sides_and_places_that_exist(name):
    settings = split_settings(name)
    assert {setting.seen for setting in settings} == {True, False}
    for setting in settings:
        registry.overrides(setting.task, dict(setting.knobs))
        if setting.split:
            assert setting.split in (*setting.task.splits, *setting.task.split_ids)


def test_both_sides_of_a_named_split_are_played(tmp_path):
    assert run("-m", "expert", "--splits", "babyai-missions", "-n", "2", "-o", tmp_path) == 0
    grid_file = json.loads((tmp_path / "grid.json").read_text())
    assert [(cell["task"], cell["seen"]) for cell in grid_file["cells"]] == [
        ("BabyAI-mixed-v0", True), ("BabyAI-mixed-heldout-v0", False),
    ]  # fmt: skip
    assert grid_file["gaps"][0]["n"] == 4


def _cell(label, seen, scores):
    setting = GridSetting({"prompt-wording": label}, registry.TASKS["HiLo-v0"], seen=seen)
    interval = mean_interval(scores, limits=SHARE)
    return GridCell(EvaluatedModel("m", {}), setting, interval, dict(enumerate(scores)), "run", limits=SHARE)


def test_two_wordings_of_the_same_games_are_compared_in_pairs():
    cells = [_cell("plain", True, [1.0, 0.5] * 10), _cell("synonyms", False, [0.5, 0.0] * 10)]
    (gap,) = gaps(cells)
    assert gap.paired and gap.interval == mean_interval([0.5] * 20, limits=(-1.0, 1.0))
    (gap,) = gaps([cells[0], _cell("synonyms", False, [0.5, 0.0] * 9)])  # different games, no pairs
    assert not gap.paired and gap.interval.low < 0.5 < gap.interval.high


def _place(size, seen=None):
    return GridSetting({"size": size}, registry.TASKS["HiLo-v0"], seen=seen)


def _scored(model, size, scores):
    interval = mean_interval(scores, limits=SHARE)
    return GridCell(model, _place(size), interval, dict(enumerate(scores)), "run", limits=SHARE)


def test_a_transferred_model_is_compared_with_the_specialist_and_the_base_model_on_the_same_games():
    small, large = EvaluatedModel("small", {"size": "8"}), EvaluatedModel("large", {"size": "64"})
    base = EvaluatedModel("base", {}, base=True)
    cells = [
        _scored(small, "8", [1.0, 1.0, 1.0, 0.0]),
        _scored(small, "64", [1.0, 0.0, 1.0, 0.0]),
        _scored(large, "64", [1.0, 1.0, 1.0, 1.0]),
        _scored(base, "64", [0.0, 0.0, 1.0, 0.0]),
    ]
    found = {(one.model.label, one.reference.label): one for one in transfers(cells)}
    assert set(found) == {("small@size=8", "large@size=64"), ("small@size=8", "base")}
    specialist, before = found.values()
    assert (specialist.kind, before.kind) == ("specialist", "base") and specialist.at == {"size": "64"}
    assert specialist.interval == mean_interval([0.0, -1.0, 0.0, -1.0], limits=(-1.0, 1.0))
    assert before.interval.value == 0.25 and before.interval.n == 4
    assert [gap.model for gap in gaps(cells)] == [small]  # the base model has no seen setting


def test_the_adjusted_gap_scales_scores_from_random_player_to_expert():
    def triple(score, floor, ceiling, n=40):
        return tuple(Interval(value, max(0, value - 0.1), min(1, value + 0.1), n) for value in (score, floor, ceiling))

    easy, hard = triple(0.6, 0.2, 1.0), triple(0.3, 0.0, 0.6)
    gap = adjusted_gap([easy], [hard])
    assert gap.value == pytest.approx(0.5 - 0.5) and gap.low < 0 < gap.high and gap.n == 80
    # One side by hand: the score moves by 0.1 / 0.8; the floor to 0.1 or 0.3; the ceiling to 0.9 or 1.
    up = [0.1 / 0.8, 0.5 / 0.9 - 0.5, 0.4 / 0.7 - 0.5]
    down = [0.1 / 0.6, 0.5 - 0.2 / 0.5, 0.5 - 0.3 / 0.7]
    assert gap.high == pytest.approx(math.sqrt(sum(change**2 for change in up + down)), abs=1e-9)
    assert math.isnan(adjusted_gap([easy], [triple(0.3, 0.3, 0.35)]).low)  # floor and ceiling meet
    assert math.isnan(adjusted_gap([easy], [triple(0.3, 0.5, 0.5)]).value)


def test_an_untrained_player_has_no_adjusted_gap_though_one_place_is_easier(tmp_path, capsys):
    words = ["-m", "random@size=8", "--baselines", "random,expert", "-e", "HiLo", "--module", "examples.hilo"]
    assert run(*words, "--axis", "size=8,64", "--axis", "max_steps=3", "-n", "20", "-o", tmp_path) == 0
    output = capsys.readouterr().out
    assert "difficulty plus transfer" in output and "difficulty alone" not in output
    (gap,) = json.loads((tmp_path / "grid.json").read_text())["gaps"]
    assert gap["low"] > 0  # guessing among 8 numbers is easier than among 64
    assert gap["adjusted"]["mean"] == 0 and gap["adjusted"]["low"] < 0 < gap["adjusted"]["high"]


def test_a_stored_grid_is_checked_against_its_records(tmp_path, capsys):
    words = ["-m", "random@size=8", "-m", "expert@size=64", "--base", "random", *HILO[:-2], "-n", "5"]
    assert run(*words, "-o", tmp_path / "hilo") == 0
    file = tmp_path / "hilo" / "grid.json"
    assert list(grid_check.faults(file.parent)) == []
    with pytest.raises(SystemExit) as done:
        replay_command.main(["--check", str(tmp_path), "--module", "examples.hilo"])
    assert done.value.code == 0 and "replayed the same, 0 differ" in capsys.readouterr().out
    stored = json.loads(file.read_text())
    for change, message in (
        (
            {"cells": [{**stored["cells"][0], "mean": 0.123}, *stored["cells"][1:]]},
            "mean is 0.123, and its records give",
        ),
        ({"cells": [{**stored["cells"][0], "run": "../x"}, *stored["cells"][1:]]}, "is outside the grid's folder"),
        ({"cells": [{**stored["cells"][0], "run": "gone"}, *stored["cells"][1:]]}, "holds no records of episodes"),
        ({"cells": [{**stored["cells"][0], "task": "Signpost-v0"}, *stored["cells"][1:]]}, "not of Signpost-v0"),
        ({"transfers": []}, "transfers has 0 entries"),
        ({"gaps": [{**stored["gaps"][0], "mean": 0.9}, *stored["gaps"][1:]]}, "gaps[0].mean is 0.9"),
    ):
        file.write_text(json.dumps({**stored, **change}))
        assert message in " ".join(grid_check.faults(file.parent))
    with pytest.raises(SystemExit) as done:
        replay_command.main(["--check", str(tmp_path), "--module", "examples.hilo"])
    assert done.value.code == 1 and "gaps[0].mean is 0.9" in capsys.readouterr().err


def test_a_grid_of_three_axes_is_a_block_with_named_axes():
    axes = [{"name": name, "values": values} for name, values in (("model", ["m" * 60, "n"]), ("a", list("12")))]
    axes.append({"name": "b", "values": list("345")})
    stored = {"metric": "success", "models": ["m" * 60, "n"], "axes": axes, "cells": [], "gaps": []}
    rows, columns, _ = grids.layout(stored)
    assert (len(rows), columns) == (4, ["3", "4", "5"])
    assert grids.axis_names(stored) == ("model, a", "b")


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz \n.,", max_size=40), st.sampled_from(sorted(WORDINGS)))
def test_every_wording_is_its_own_inverse(text, name):
    words = text + " Take the key and OPEN the door, then go forward. Grab, dax."
    assert WORDINGS[name](WORDINGS[name](words)) == words


class Reader:
    """Policy that replies with the first admissible command of its prompt."""

    name, advice_kind, deterministic = "reader", "", True

    def __init__(self):
        self.read = []

    def act(self, prompts):
        self.read += [prompt.messages[-1]["content"] for prompt in prompts]
        return [Reply(re.search(r"Admissible commands: ([^,]+)", read).group(1)) for read in self.read[-len(prompts) :]]

    def close(self):
        pass


def test_a_policy_that_reads_commands_plays_a_reworded_game_identically():
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


def test_invalid_knobs_and_axes_are_refused():
    with pytest.raises(BadKnob):
        grid("HiLo", {"size": ["2", "9999"]})
    args = command.parser().parse_args(["-m", "random@rooms=2", "-e", "HiLo", "--axis", "size=8,16"])
    with pytest.raises(UsageError, match="is no axis of this grid"):
        command._run(command.read_call(args), parts.model("random@rooms=2"), grid("HiLo", {"size": ["8"]})[0])
