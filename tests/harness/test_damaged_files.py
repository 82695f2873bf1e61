"""Damaged run folders, boards, curves and grids: a command ends with one line and exit code 2."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from envsuite import reading, registry
from envsuite.errors import DataError
from harness import records
from harness.cli.compare import main as compare
from harness.cli.replay import main as replay
from harness.cli.report import main as report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from tests import toys  # noqa: F401

DEEP = "[" * 100_000 + "]" * 100_000
GRID = {
    "schema_version": "envsuite-grid-1",
    "metric": "success",
    "models": ["random"],
    "axes": [{"name": "size", "values": ["8", "16"]}],
    "cells": [{"at": {"size": "8"}, "mean": 0.5, "low": 0.1, "high": 0.9, "n": 4, "seen": True}],
    "gaps": [{"model": "random", "seen": 1, "unseen": 1, "mean": 0.1, "low": None, "high": None, "n": 4}],
}
EVAL = {"kind": "eval", "update": 4, "success": 0.5, "low": 0.2, "high": 0.8, "n": 9}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[dict, str]:
    """The configuration and the records of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", episodes=2, max_turns=3)
    evaluate(config, folder, lambda: make_policy("random"))
    folder = config.folder(folder)
    return json.loads((folder / "config.json").read_text()), (folder / "results.jsonl").read_text()


def code_and_error(command, words, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        command([str(word) for word in words])
    return stop.value.code, capsys.readouterr().err


def spoiled(record: str, **fields) -> str:
    """The first record with some fields replaced; the others stay."""
    first, *others = record.splitlines()
    return "\n".join([json.dumps({**json.loads(first), **fields}), *others]) + "\n"


RECORDS = {
    "deep": lambda text: text + DEEP + "\n",
    "no JSON": lambda text: text + "nonsense\n",
    "no object": lambda text: text + "[]\n",
    "null": lambda text: text + "null\n",
    "NaN": lambda text: text.replace('"reward":0.0', '"reward":NaN', 1),
    "Infinity": lambda text: text.replace('"reward":0.0', '"reward":Infinity', 1),
    "huge float": lambda text: text.replace('"reward":0.0', '"reward":1e999', 1),
    "huge integer": lambda text: text.replace('"attempt":0', '"attempt":' + "9" * 400, 1),
    "seed beyond 64 bits": lambda text: spoiled(text, seed=10**30),
    "duplicate key": lambda text: text.replace('"attempt":0', '"attempt":0,"attempt":1', 1),
    "bytes that are no UTF-8": lambda text: text.encode() + b'{"a": "\xff"}\n',
    "cut off": lambda text: text[:-20],
    "text for a number": lambda text: spoiled(text, reward="1"),
    "list for a dictionary": lambda text: spoiled(text, metrics=[1]),
    "text in metrics": lambda text: spoiled(text, metrics={"moves": "three"}),
    "number in labels": lambda text: spoiled(text, labels={"task_type": 3}),
    "steps of numbers": lambda text: spoiled(text, steps=[1, 2]),
    "commands of numbers": lambda text: spoiled(
        text, steps=[{"commands": [1], "observation": "", "reward": 0, "fault": ""}]
    ),
    "faults missing": lambda text: spoiled(text, faults={}),
    "another schema": lambda text: spoiled(text, schema_version="envsuite-record-9"),
}


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("command", [report, compare, replay], ids=["report", "compare", "replay"])
def test_damaged_records_end_in_one_line(command, kind, run, tmp_path, capsys):
    config, results = run
    (tmp_path / "config.json").write_text(json.dumps(config))
    damaged = RECORDS[kind](results)
    assert damaged != results
    (tmp_path / "results.jsonl").write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    words = {report: [tmp_path, "-o", tmp_path / "report.html"], compare: [tmp_path, tmp_path], replay: [tmp_path]}
    code, error = code_and_error(command, words[command], capsys)
    assert code == 2 and error.startswith("error: ") and error.count("\n") == 1, error


CONFIGS = {
    "no object": lambda config: [],
    "no seeds": lambda config: {key: value for key, value in config.items() if key != "seeds"},
    "seeds of text": lambda config: {**config, "seeds": ["0", "2"]},
    "one seed": lambda config: {**config, "seeds": [0]},
    "task of numbers": lambda config: {**config, "task": 3},
    "model that is a list": lambda config: {**config, "model": ["random"]},
    "knobs that are a list": lambda config: {**config, "knobs": []},
    "attempts of text": lambda config: {**config, "attempts": "1"},
    "a short panel": lambda config: {**config, "panel": ["name"]},
    "prompting of text": lambda config: {**config, "prompting": "plain"},
    "prompting with unknown fields": lambda config: {**config, "prompting": {"shell": "rm"}},
    "an unknown grammar": lambda config: {**config, "prompting": {"grammar": "none"}},
    "temperature of text": lambda config: {**config, "sampling": {"temperature": "hot"}},
    "run_id that is null": lambda config: {**config, "run_id": None},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_damaged_configuration_ends_in_one_line(kind, run, tmp_path, capsys):
    config, results = run
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind](config)))
    (tmp_path / "results.jsonl").write_text(results)
    code, error = code_and_error(report, [tmp_path, "-o", tmp_path / "report.html"], capsys)
    assert code == 2 and "config.json" in error and error.count("\n") == 1, error


CURVES = {
    "success of text": {**EVAL, "success": "0.5"},
    "no update": {key: value for key, value in EVAL.items() if key != "update"},
    "update that is null": {**EVAL, "update": None},
    "an unknown kind": {**EVAL, "kind": "other"},
    "a kind that is a list": {**EVAL, "kind": []},
    "low that is null": {**EVAL, "low": None},
}


@pytest.mark.parametrize("kind", CURVES)
def test_a_damaged_learning_curve_ends_in_one_line(kind, tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(CURVES[kind]) + "\n" + json.dumps(EVAL) + "\n")
    code, error = code_and_error(report, [tmp_path, "-o", tmp_path / "report.html"], capsys)
    assert code == 2 and "metrics.jsonl:1" in error and error.count("\n") == 1, error


GRIDS = {
    "seven axes": {**GRID, "axes": [{"name": f"a{n}", "values": list(map(str, range(20)))} for n in range(7)]},
    "no axes": {**GRID, "axes": []},
    "an axis without values": {**GRID, "axes": [{"name": "size", "values": []}]},
    "values that are numbers": {**GRID, "axes": [{"name": "size", "values": [8, 16]}]},
    "a cell without a place": {**GRID, "cells": [{**GRID["cells"][0], "at": {}}]},
    "a mean of text": {**GRID, "cells": [{**GRID["cells"][0], "mean": "0.5"}]},
    "n that is null": {**GRID, "cells": [{**GRID["cells"][0], "n": None}]},
    "a gap without a mean": {**GRID, "gaps": [{**GRID["gaps"][0], "mean": None}]},
    "models that are numbers": {**GRID, "models": [1]},
}


@pytest.mark.parametrize("kind", GRIDS)
def test_a_damaged_grid_ends_in_one_line(kind, tmp_path, capsys):
    (tmp_path / "grid.json").write_text(json.dumps(GRIDS[kind]))
    code, error = code_and_error(report, [tmp_path, "-o", tmp_path / "report.html"], capsys)
    assert code == 2 and "grid.json" in error and error.count("\n") == 1, error


def test_undamaged_curves_and_grids_are_shown_also_with_a_loss_that_is_not_a_number(tmp_path, capsys):
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "grid.json").write_text(json.dumps(GRID))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "update", "update": 1, "loss": float("nan")}) + "\n")
    code, _ = code_and_error(report, [tmp_path, tmp_path / "grid", "-o", tmp_path / "report.html"], capsys)
    assert code == 0 and (tmp_path / "report.html").exists()


def test_control_characters_of_a_file_do_not_reach_the_terminal(run, tmp_path, capsys):
    config, results = run
    name = "\x1b]0;title\x07\u202egnp.exe"
    (tmp_path / "config.json").write_text(json.dumps({**config, "model": name}))
    (tmp_path / "results.jsonl").write_text(spoiled(results, task=name))
    with pytest.raises(SystemExit):
        replay([str(tmp_path)])
    with pytest.raises(SystemExit):
        compare([str(tmp_path), str(tmp_path)])
    output = capsys.readouterr()
    for text in (output.out, output.err):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b]0;title" in output.out + output.err


BOMB = """
import sys
from pathlib import Path
from harness import records
from envsuite.errors import DataError
for file in sys.argv[1:]:
    try:
        records.read_results(Path(file))
    except DataError as error:
        print(error)
# Not ru_maxrss, which a child inherits from the process that started it.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_archives_that_grow_without_end_are_refused_in_bounded_memory(tmp_path):
    for name, character in (("blank-lines", b"\n"), ("one-line", b"0")):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wb", compresslevel=1) as file:
            for _ in range(300):
                file.write(character * 2**20)
    files = [str(path) for path in sorted(tmp_path.glob("*.gz"))]
    done = subprocess.run(
        [sys.executable, "-c", BOMB, *files],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    blank, long, megabytes = done.stdout.splitlines()
    assert "holds more than" in blank and "is longer than 32 MB" in long
    assert int(megabytes) < 500


def test_a_pipe_is_not_read(tmp_path):
    import os

    os.mkfifo(tmp_path / "results.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        records.read_results(tmp_path / "results.jsonl")


@pytest.mark.parametrize("text", ["NaN", "[1e999]", "-Infinity", '{"a":1,"a":1}', str(2**63), "[" * 65 + "]" * 65])
def test_the_reader_of_json_refuses_what_others_accept(text):
    json.loads(text)
    with pytest.raises(ValueError, match=r"."):
        reading.parse_json(text)


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True, "x"]}, "[" * 500, '"' + "[\\" * 300, [[]] * 500, str([[["\\"]]]) * 99, -(2**63) + 1],
)
def test_the_reader_of_json_accepts_what_is_shallow_and_finite(value):
    assert reading.parse_json(json.dumps(value)) == value
    assert reading.parse_json(json.dumps([value, value]).encode()) == [value, value]
