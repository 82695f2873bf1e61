"""Damaged run folders, boards, curves and grids: a command ends with one line and exit code 2."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envsuite import reading, registry
from envsuite.errors import DataError, UsageError
from harness import records
from harness.cli.compare import main as compare
from harness.cli.replay import main as replay
from harness.cli.report import main as report
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from harness.stats.compare import read_run
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


def test_a_broken_line_in_results_is_cured_by_resume_if_the_journal_is_there(tmp_path):
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", episodes=2, max_turns=3)
    evaluate(config, tmp_path, lambda: make_policy("random"))
    file = config.folder(tmp_path) / "results.jsonl"
    text = file.read_text()
    file.write_text(text + "{}\n")
    with pytest.raises(DataError, match=r"results\.jsonl:3 is not a record .* --resume"):
        read_run(file.parent)
    evaluate(config, tmp_path, lambda: make_policy("random"), Execution(resume=True))
    assert file.read_text() == text and not read_run(file.parent).warning
    (file.parent / "journal.jsonl").unlink()
    file.write_text(text + "{}\n")
    with pytest.raises(DataError, match="the sample is smaller"):
        read_run(file.parent)


def test_a_failure_before_the_first_episode_leaves_no_folder(tmp_path):
    config = RunConfig(registry.TASKS["HiLo-v0"], "openai:m", episodes=2, max_turns=3)

    def refused():
        raise UsageError("the key was refused")

    with pytest.raises(UsageError, match="refused"):
        evaluate(config, tmp_path / "runs", refused)
    assert not list(tmp_path.iterdir())


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
        megabyte = gzip.compress(character * 2**20)
        (tmp_path / f"{name}.jsonl.gz").write_bytes(megabyte * 300)
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


@pytest.mark.parametrize("packed", [True, False])
def test_many_tiny_values_are_refused_in_bounded_memory(packed, tmp_path):
    """Every line is allowed by itself: 300,000 empty objects take 22 MB, and 100 such lines would take 2 GB."""
    line = b'{"a":[' + b"{}," * 299_999 + b"{}]}\n"
    path = tmp_path / ("results.jsonl.gz" if packed else "results.jsonl")
    content = line * (100 if packed else 30)
    path.write_bytes(gzip.compress(content, 6) if packed else content)
    done = subprocess.run(
        [sys.executable, "-c", TINY_VALUES, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    message, megabytes = done.stdout.splitlines()
    assert "the file holds more than" in message and "too many for its size" in message
    assert int(megabytes) < 600


TINY_VALUES = BOMB.replace(
    "records.read_results(Path(file))", "records.read_lines(Path(file), list, 'row', 'remove it')"
)


def test_values_are_counted_outside_strings_only():
    text = json.dumps(["," * reading.MOST_VALUES * 2, '"[{' * 10])
    assert reading.parse_json(text) == json.loads(text)
    with pytest.raises(ValueError, match="more than 1,000,000 values"):
        reading.parse_json("[" + "0," * reading.MOST_VALUES + "0]")


def test_records_with_many_commas_in_their_texts_are_read(tmp_path):
    """A line's exact number of values is counted if commas are dense."""
    line = json.dumps({"text": ",[" * 2_000_000})
    (tmp_path / "curve.jsonl").write_text(f"{line}\n{line}\n")
    assert len(list(reading.read_lines(tmp_path / "curve.jsonl"))) == 2


def tar_of(path: Path, members: list[tarfile.TarInfo], mode: str = "w:gz") -> Path:
    """An archive whose members hold as many zeros as their headers say, at most 4 MB each."""
    with tarfile.open(path, mode) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, size: int = 0, **fields) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_a_tar_archive_is_opened_only_if_its_members_fit_together(tmp_path):
    path = tar_of(tmp_path / "a.tar.gz", [member(f"a/{number}", 2**20) for number in range(4)])
    with reading.open_tar(path, 2**22) as tar:
        assert len(tar.getmembers()) == 4
        assert tar.extractfile("a/3").read() == bytes(2**20)
    with pytest.raises(DataError, match=r"a\.tar\.gz holds more than 4 MB or 200,000 files"):
        with reading.open_tar(path, 2**22 - 1):
            pass


def test_a_tar_archive_with_an_endless_name_is_refused(tmp_path):
    """tarfile reads the header of a long name whole, before anything could look at the member."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2 * reading.MOST_DOCUMENT
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(DataError, match="holds more than"), reading.open_tar(tmp_path / "a.tar.gz"):
        pass


@pytest.mark.parametrize("mode", ["w:xz", "w:bz2", "w"])
def test_a_tar_archive_in_another_compression_is_refused(mode, tmp_path):
    path = tar_of(tmp_path / "a.tar.gz", [member("a")], mode)
    with pytest.raises(DataError, match="cannot be read"), reading.open_tar(path):
        pass


def test_a_tar_archive_with_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_MEMBERS", 20)
    path = tar_of(tmp_path / "a.tar.gz", [member(str(number)) for number in range(21)])
    with pytest.raises(DataError, match="20 files"), reading.open_tar(path):
        pass


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


def test_a_partial_last_line_is_removed_once_all_others_are_read(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"first\nsecond\nhal")
    lines = reading.resume_lines(path)
    assert next(lines) == (1, b"first\n")
    lines.close()  # as after an error in a complete line
    assert path.read_bytes().endswith(b"hal")
    assert list(reading.resume_lines(path)) == [(1, b"first\n"), (2, b"second\n")]
    assert path.read_bytes() == b"first\nsecond\n"
