"""A person's game is a record like any other, and undo leaves no trace in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import UsageError
from examples import hilo
from harness import records
from harness.play import HELP, play
from harness.provenance import replay
from harness.types import episode
from tests import toys  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


def test_undo_goes_back_and_the_record_replays(tmp_path):
    env = registry.build("HiLo-v0")
    script = iter(["x", "3", ":undo", ":actions", "16", ":undo", ":undo", ":undo", "7", "2", "9", ":help", "15"])
    lines = []
    (run,) = play(
        env, [episode(registry.TASKS["HiLo-v0"], 5)], lambda admissible: next(script), lines.append, max_turns=4
    )
    assert [turn.commands for turn in run.turns] == [("7",), ("2",), ("9",), ("15",)]
    assert "There is nothing to take back." in lines
    (tmp_path / "results.jsonl").write_bytes(records.dump(records.record(run, "human", "sparse")))
    (verdict,) = replay.check(tmp_path / "results.jsonl")
    assert not verdict.difference


def test_undo_works_in_an_engine_without_snapshots(tmp_path):
    class Forgetful(hilo.HiLo):
        get_state, set_state = TextEnv.get_state, TextEnv.set_state

    env = registry.build("HiLo-v0")
    env.__class__ = Forgetful
    start = registry.TASKS["HiLo-v0"].splits["test"].start
    env.reset(seed=start)
    with pytest.raises(UsageError, match="cannot save its state"):
        env.snapshot()
    plan = []
    while not env.success:
        plan.append(env.expert())
        env.step(plan[-1])
    script = iter(["1", "2", ":undo", ":undo", *plan])
    (run,) = play(env, [episode(registry.TASKS["HiLo-v0"], start)], lambda _: next(script), lambda _: None)
    assert [turn.commands[0] for turn in run.turns] == plan and run.success
    (tmp_path / "results.jsonl").write_bytes(records.dump(records.record(run, "human", "sparse")))
    (verdict,) = replay.check(tmp_path / "results.jsonl")
    assert not verdict.difference


def test_an_unknown_word_with_a_colon_is_refused_and_costs_no_turn():
    env = registry.build("HiLo-v0")
    script = iter([":foo", ":q", "7", ":quit"])
    lines = []
    assert not list(play(env, [episode(registry.TASKS["HiLo-v0"], 5)], lambda _: next(script), lines.append))
    assert [line for line in lines if "There is no" in line] == [f"There is no {w}. {HELP}." for w in (":foo", ":q")]
    assert env.turn == 1


def test_a_command_of_several_lines_is_typed_between_fences_or_written_in_an_editor(tmp_path, monkeypatch):
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nwith open(sys.argv[1], 'a') as file: file.write('7\\n8')\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    env = registry.build("HiLo-v0")
    script = iter(["```python", "if x:", "    y", "```", ":edit", ":edit", ":quit"])
    lines = []
    (run,) = play(
        env, [episode(registry.TASKS["HiLo-v0"], 5)], lambda admissible: next(script), lines.append, max_turns=3
    )
    commands = [turn.commands for turn in run.turns]
    assert commands == [("```python\nif x:\n    y\n```",), ("7\n8",), ("7\n87\n8",)]


@pytest.mark.parametrize(
    ("editor", "message"),
    [("", "No editor is set"), ("false", "ended with 1"), ("/no/editor", "cannot be started")],
)
def test_a_missing_or_failing_editor_costs_no_turn(editor, message, monkeypatch):
    env = registry.build("HiLo-v0")
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", editor)
    script = iter([":edit", ":quit"])
    lines = []
    assert not list(play(env, [episode(registry.TASKS["HiLo-v0"], 5)], lambda _: next(script), lines.append))
    assert message in lines[-1]


def test_the_command_plays_from_a_pipe_and_keeps_the_record(tmp_path):
    command = [
        sys.executable,
        "-m",
        "harness",
        "play",
        "hilo",
        "--module",
        "examples.hilo",
        "-o",
        str(tmp_path),
        "-n",
        "2",
    ]
    # Seed 1,000,000 of 16 numbers: the expert's answer, as the environment itself gives it.
    env = registry.build("HiLo-v0")
    env.reset(seed=1_000_000)
    done = subprocess.run(command, input=f":actions\n{env.expert()}\n", capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (record,) = records.read_results(next(tmp_path.glob("**/results.jsonl")))
    assert record["success"]
    assert record["model"] == "human"
    words = " ".join(done.stdout.split())
    assert f"records: {tmp_path}" in words
    assert "1 of 2 games are recorded; --resume plays the others" in words
