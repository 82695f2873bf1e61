"""Files from strangers are data: replays and reports run, install and unprotect nothing that a file names."""

import json
import tempfile
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.core import declared_knobs
from envsuite.errors import UntrustedKnob, UsageError
from envsuite.types import Knob
from harness import records, report
from harness.cli.replay import main as envsuite_replay
from harness.cli.report import main as envsuite_report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.provenance.replay import check
from tests import toys  # noqa: F401
from tests.envs import little

SETUP = "import pathlib, setuptools\npathlib.Path({marker!r}).touch()\nsetuptools.setup(name='evil', version='1')\n"
PROGRAM = "import pathlib\npathlib.Path({marker!r}).touch()\ndef build_model(x_train, y_train):\n    raise ValueError\n"


def run_folder(folder: Path, task: str, knobs: dict, commands: list[str], **fields: str) -> Path:
    """Writes a finished run of one episode, as anybody could by hand."""
    evaluate(RunConfig(registry.TASKS["HiLo-v0"], "idle", episodes=1), folder, lambda: make_policy("idle"))
    (config,) = folder.rglob("config.json")
    (row,) = records.read_results(config.parent / "results.jsonl")
    step = {**row["steps"][0], "fault": ""}
    row.update(task=task, knobs=knobs, model="gpt-x", seed=0, num_turns=len(commands), stop_reason="max_steps")
    row.update(fields)
    row["steps"] = [{**step, "commands": [command], "reply": command} for command in commands]
    (config.parent / "results.jsonl").write_bytes(records.dump(row))
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "task": task, "knobs": knobs, "model": "gpt-x"}))
    return config.parent


def exit_code(command, *words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        command(list(words))
    return stop.value.code


@pytest.fixture
def malicious(tmp_path, monkeypatch):
    """A run folder whose records name a recipe that installs a local package, and the file that its setup.py makes."""
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    marker = tmp_path / "ran"
    package = tmp_path / "shared" / "evil"
    package.mkdir(parents=True)
    (package / "setup.py").write_text(SETUP.format(marker=str(marker)))
    instance = tmp_path / "shared" / "records" / "a__b-1"
    instance.mkdir(parents=True)
    (instance / "instance.json").write_text(json.dumps(little.record("a__b-1")))
    recipe = {"source": {"kind": "sdist", "req": "calc==1"}, "pins": [str(package)]}
    (instance / "replay.json").write_text(json.dumps(recipe))
    knobs = {"records": str(instance.parent), "sandbox": "process"}
    return run_folder(tmp_path / "shared" / "runs", "SWEGym-records-v0", knobs, ["pwd"]), marker


def test_a_replay_installs_nothing_that_a_run_folder_names(malicious, tmp_path, capsys):
    folder, marker = malicious
    assert exit_code(envsuite_replay, str(folder)) == 2
    assert "which replays do not take from a file" in capsys.readouterr().err
    assert not marker.exists() and not (tmp_path / "cache" / "swegym").exists()


def test_a_report_installs_nothing_that_a_run_folder_names(malicious, tmp_path):
    folder, marker = malicious
    page = tmp_path / "report.html"
    assert exit_code(envsuite_report, str(folder), "-o", str(page)) == 0
    assert "which replays do not take from a file" in page.read_text()
    assert not marker.exists() and not (tmp_path / "cache" / "swegym").exists()


@pytest.fixture
def world_writable():
    """A folder that also the user of an unprotected sandbox, who is not this one, can write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("command", [envsuite_replay, envsuite_report])
def test_a_recorded_program_never_runs_outside_the_sandbox(command, tmp_path, world_writable):
    pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
    marker = world_writable / "ran"
    program = PROGRAM.format(marker=str(marker))
    env = registry.build("DataSciCoding-iris-v0")
    first = env.reset(seed=0)[0]  # a report replays nothing if the first observation differs
    env.close()
    knobs = {"sandbox": "process"}
    folder = run_folder(tmp_path / "runs", "DataSciCoding-iris-v0", knobs, [program], first_observation=first)
    output = ["-o", str(tmp_path / "report.html")] if command is envsuite_report else []
    exit_code(command, str(folder), *output)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("task", "knobs"),
    [
        ("SWEGym-records-v0", {"records": "x"}),
        ("SWEGym-records-v0", {"tasks": "x"}),
        ("SWEGym-records-v0", {"deny": ["x"]}),
        ("SWEGym-records-v0", {"data_split": "x"}),
        ("TextWorld-custom-v0", {"game": "x.z8"}),
    ],
)
def test_knobs_that_name_files_are_taken_from_the_user_alone(task, knobs):
    (name,) = knobs
    task = next(known for known in registry.tasks("*") if known.id.split("-")[0] == task.split("-")[0])
    with pytest.raises(UntrustedKnob, match=f"pass --set {name}=VALUE yourself"):
        registry.replay_knobs(task, knobs)
    trusted = "mine" if name != "deny" else ("mine",)
    assert registry.replay_knobs(task, knobs, {name: "mine"}) == {name: trusted}


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("DataSciCoding", {"seconds", "explore_seconds", "memory_mb", "sandbox"}),
        ("SWEGym", {"command_seconds", "grade_seconds", "memory_mb", "disk_mb", "sandbox"}),
    ],
)
def test_the_sandbox_and_its_limits_are_the_users_own_choice(family, names):
    task = next(task for task in registry.tasks("*") if task.id.startswith(family))
    knobs = declared_knobs(registry.env_class(task)).values()
    assert {knob.name for knob in knobs if knob.needs_trust and not knob.free_text} == names


@pytest.mark.parametrize("family", ["DataSciCoding", "SWEGym"])
def test_a_recorded_sandbox_falls_back_to_the_safe_one(family):
    task = next(task for task in registry.tasks("*") if task.id.startswith(family))
    assert registry.replay_knobs(task, {"sandbox": "process"}) == {}
    assert registry.replay_knobs(task, {"sandbox": "process"}, {"sandbox": "docker"}) == {"sandbox": "docker"}
    assert registry.replay_knobs(task, {}, {"sandbox": "process"}) == {"sandbox": "process"}


def test_free_text_of_an_unknown_environment_needs_trust_and_closed_values_do_not():
    assert Knob("path", "", "").needs_trust and Knob("names", (), "").needs_trust
    closed = [Knob("size", 3, ""), Knob("on", True, ""), Knob("kind", "a", "", choices=("a", "b")), Knob("p", 0.5, "")]
    assert not any(knob.needs_trust for knob in closed)


def test_a_file_that_the_user_trusts_is_replayed_with_the_users_value(tmp_path):
    config = RunConfig(registry.TASKS["Instances-v0"], "expert", {"deny": ("broken", "flaky", "unreadable")})
    evaluate(config, tmp_path, lambda: make_policy("expert"))
    file = config.folder(tmp_path) / "results.jsonl"
    with pytest.raises(UntrustedKnob, match="deny"):
        list(check(file))
    verdicts = list(check(file, trusted={"deny": "broken,flaky,unreadable"}))
    assert [verdict.difference for verdict in verdicts] == ["", ""]


def test_a_setting_that_would_change_the_replayed_game_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--set max_steps cannot change a replay"):
        list(check(tmp_path / "results.jsonl", trusted={"max_steps": "3"}))


def test_a_report_of_trusted_runs_takes_the_users_value(tmp_path):
    config = RunConfig(registry.TASKS["Instances-v0"], "expert", {"deny": ("broken", "flaky", "unreadable")})
    evaluate(config, tmp_path, lambda: make_policy("expert"))
    data = report.gather([tmp_path])
    assert "pass --set deny=VALUE yourself" in report.render(data)
    assert "pass --set deny" not in report.render(data, trusted={"deny": "broken,flaky,unreadable"})
