"""Exports of finished runs, read back with the tools that define each format."""

import json

import pytest

from envsuite import registry
from harness import records
from harness.cli.data import main
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from tests import toys  # noqa: F401


@pytest.fixture
def run(tmp_path):
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", knobs={"max_steps": 4}, episodes=5, attempts=2)
    evaluate(config, tmp_path / "runs", lambda: make_policy("random"))
    folder = config.folder(tmp_path / "runs")
    # Typical model output: non-Latin text around the command, and a lone surrogate.
    lines = records.read_results(folder / "results.jsonl")
    lines[0]["steps"][0]["reply"] = "数 é \ud83d <action>5</action>"
    (folder / "results.jsonl").write_bytes(b"".join(map(records.dump, lines)))
    return folder


def export(run, kind, output):
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--to", kind, "-o", str(output)])
    assert stop.value.code == 0
    return records.read_results(run / "results.jsonl")


def assert_same(row, record):
    for name in ("task", "seed", "attempt", "success", "reward", "num_turns", "stop_reason"):
        assert row[name] == record[name]
    assert json.loads(row["knobs"]) == record["knobs"] == {"max_steps": 4}
    assert json.loads(row["labels"]) == record["labels"]
    assert [step["observation"] for step in row["steps"]] == [step["observation"] for step in record["steps"]]
    assert [step["commands"] for step in row["steps"]] == [step["commands"] for step in record["steps"]]
    assert [message["role"] for message in row["messages"]] == ["user"] + ["assistant", "user"] * record["num_turns"]


def test_parquet_holds_every_record_and_reads_back(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    stored = export(run, "parquet", tmp_path / "run.parquet")
    rows = parquet.read_table(tmp_path / "run.parquet").to_pylist()
    assert len(rows) == len(stored) == 10
    for row, record in zip(rows, stored, strict=True):
        assert_same(row, record)
    assert rows[0]["messages"][1]["content"] == "数 é ? <action>5</action>"


def test_an_existing_output_is_not_overwritten(run, tmp_path, capsys):
    (tmp_path / "run.parquet").mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--to", "parquet", "-o", str(tmp_path / "run.parquet")])
    assert stop.value.code == 2
    assert "exists: remove it" in capsys.readouterr().err


def test_predictions_hold_one_patch_per_instance_and_leave_broken_episodes_out(run, tmp_path):
    path = run / "results.jsonl"
    rows = records.read_results(path)[:5]
    for number, row in enumerate(rows):
        row["labels"] = {"instance": f"a__b-{number // 2}"}
        row["artifacts"] = {"patch": f"diff {number} é\n", "fault": "", "report": {}}
    rows[0]["stop_reason"] = "broken"
    path.write_bytes(b"".join(map(records.dump, rows)))
    export(run, "predictions", tmp_path / "preds.jsonl")
    predictions = [json.loads(line) for line in (tmp_path / "preds.jsonl").read_text().splitlines()]
    assert {row["instance_id"]: row["model_patch"] for row in predictions} == {
        "a__b-0": "diff 1 é\n",
        "a__b-1": "diff 2 é\n",
        "a__b-2": "diff 4 é\n",
    }
    assert {tuple(row) for row in predictions} == {("instance_id", "model_name_or_path", "model_patch")}


def test_a_run_without_patches_has_no_predictions(run, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--to", "predictions", "-o", str(tmp_path / "preds.jsonl")])
    assert stop.value.code == 2
    assert "No episode of" in capsys.readouterr().err
    assert not (tmp_path / "preds.jsonl").exists()
