"""Trajectories of SWE-agent, mini-swe-agent and OpenHands: read, imported as records, and replayed."""

import json

import pytest

from envsuite import registry
from envsuite.envs.swegym import edits, instances
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from harness import records
from harness.agents.importing import import_trajectories
from harness.agents.trajectories import SUBMIT, read_trajectories
from harness.evaluate import RunConfig, evaluate
from harness.interop.predictions import Prediction, read_predictions
from harness.policies import make_policy
from tests.harness import agent_files

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
TASK = registry.tasks("SWEGym-medium-v0")[0]


def one_line_tasks(count):
    """Returns tasks whose bug is in one line that occurs once in its file."""
    chosen = []
    for task in instances.planted_in("").values():
        if len(task.bugs) == 1 and task.package.name == "inflection":
            try:
                path, old, _ = agent_files.edits(task)
            except ValueError:
                continue
            if task.files[path].count(old) == 1:
                chosen.append(task)
        if len(chosen) == count:
            return chosen
    raise AssertionError("too few tasks")


def actions(trajectory):
    return [edits.parse(command) for step in trajectory.steps for command in step.commands]


def test_commands_of_mini_swe_agent_run_in_new_shells_and_its_last_one_submits(tmp_path):
    (task,) = one_line_tasks(1)
    (trajectory,) = read_trajectories(agent_files.mini_swe_agent(tmp_path, task))
    look, apply, submit = actions(trajectory)
    assert (look.kind, look.text) == ("shell", "bash -c ls")
    assert apply.kind == "shell" and task.patch.splitlines()[0] in apply.text
    assert submit.kind == "submit"
    assert (trajectory.instance_id, trajectory.model, trajectory.patch) == (task.instance_id, "m", task.patch)
    assert trajectory.steps[0].observation == "<returncode>0</returncode>"


def test_a_reply_of_mini_swe_agent_1_is_read_from_its_code_block(tmp_path):
    messages = [{"role": "assistant", "content": "THOUGHT: x\n```bash\ncat <<'EOF' > a\n```\nEOF\n```"}]
    messages.append({"role": "assistant", "content": "THOUGHT: x\n```bash\nls -a\n```"})
    path = tmp_path / "a__b-1.traj.json"
    path.write_text(json.dumps({"info": {}, "messages": messages}))
    (trajectory,) = read_trajectories(path)
    assert [action.text for action in actions(trajectory)] == [
        "bash -c 'cat <<'\"'\"'EOF'\"'\"' > a'",
        "bash -c 'ls -a'",
    ]
    assert (trajectory.instance_id, trajectory.model, trajectory.patch) == ("a__b-1", "mini-swe-agent", "")


def test_tools_of_swe_agent_become_edits(tmp_path):
    (task,) = one_line_tasks(1)
    (trajectory,) = read_trajectories(agent_files.swe_agent(tmp_path, task))
    view, shell, replace, submit = actions(trajectory)
    path, old, new = agent_files.edits(task)
    assert (view.kind, view.path, view.first, view.last) == ("view", f"/testbed/{path}", 1, 5)
    assert (shell.kind, shell.text) == ("shell", "cd /testbed && ls")
    assert (replace.kind, replace.old, replace.text) == ("str_replace", old, new)
    assert submit.kind == "submit" and trajectory.skipped == 0


def test_events_of_open_hands_become_commands_and_the_others_are_counted(tmp_path):
    (task,) = one_line_tasks(1)
    (trajectory,) = read_trajectories(agent_files.open_hands(tmp_path, [task]))
    shell, view, replace, submit = actions(trajectory)
    path, old, new = agent_files.edits(task)
    assert (shell.kind, shell.text) == ("shell", "cd /testbed && ls")
    assert (view.kind, view.path) == ("view", f"/testbed/{path}")
    assert (replace.kind, replace.old, replace.text) == ("str_replace", old, new)
    assert submit.kind == "submit"
    assert trajectory.skipped == 1  # input to a running program
    assert trajectory.patch == task.patch


def test_a_folder_is_read_whole(tmp_path):
    first, second, third = one_line_tasks(3)
    agent_files.mini_swe_agent(tmp_path / "a", first)
    agent_files.swe_agent(tmp_path / "b", second)
    agent_files.open_hands(tmp_path / "c", [third])
    names = {trajectory.instance_id for trajectory in read_trajectories(tmp_path)}
    assert names == {task.instance_id for task in (first, second, third)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.traj", "{", r"a\.traj is not a trajectory that can be read"),
        ("a.traj", '{"trajectory": [{"action": 3}], "info": {}}', "action is 3"),
        ("a.traj.json", '{"messages": []}', "KeyError: 'info'"),
        ("output.jsonl", '{"instance_id": 3, "history": []}', "instance_id is 3"),
        ("a.txt", "", r"its name must end in \.traj\.json, \.traj, output\.jsonl"),
    ],
)
def test_a_damaged_trajectory_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_trajectories(tmp_path / name)


def test_imported_records_are_replayed_and_graded(tmp_path):
    first, second = one_line_tasks(2)
    agent_files.swe_agent(tmp_path / "in", first)
    agent_files.open_hands(tmp_path / "in", [second])
    result = import_trajectories(read_trajectories(tmp_path / "in"), TASK, {"sandbox": DRIVER}, tmp_path / "out")
    assert (result.episodes, result.patches, result.skipped) == (2, 2, 1)
    file = tmp_path / "out" / "results.jsonl"
    imported = records.read_results(file)
    assert all(records.is_broken(record) for record in imported)  # nobody has graded them yet
    assert read_predictions(tmp_path / "out" / "preds.jsonl") == [
        Prediction(record["labels"]["instance"], "m", record["artifacts"]["patch"]) for record in imported
    ]
    config = RunConfig(TASK, f"replay:{file}", result.knobs)
    played, summary = evaluate(config, tmp_path / "runs", lambda: make_policy(config.model))
    assert summary["success"]["value"] == 1.0
    assert {record["labels"]["instance"] for record in played} == {first.instance_id, second.instance_id}


def test_trajectories_that_cannot_be_imported_are_refused(tmp_path):
    (task,) = one_line_tasks(1)
    agent_files.swe_agent(tmp_path / "a", task)
    agent_files.mini_swe_agent(tmp_path / "b", task)
    with pytest.raises(UsageError, match=f"two trajectories of {task.instance_id}"):
        import_trajectories(read_trajectories(tmp_path), TASK, {}, tmp_path / "out")
    (trajectory,) = read_trajectories(tmp_path / "a")
    with pytest.raises(UsageError, match=r"has no instance .* name its records with --set records=FILE"):
        import_trajectories([trajectory], TASK, {"package": "xmltodict"}, tmp_path / "out")
    agent_files.swe_agent(tmp_path / "c", one_line_tasks(2)[1], model="n")
    with pytest.raises(UsageError, match="are of 2 models, m and n"):
        import_trajectories([trajectory, *read_trajectories(tmp_path / "c")], TASK, {}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_trajectory_without_a_submission_ends_with_one(tmp_path):
    (task,) = one_line_tasks(1)
    (trajectory,) = read_trajectories(agent_files.swe_agent(tmp_path, task))
    unfinished = trajectory.__class__(task.instance_id, "m", trajectory.steps[:2], "")
    import_trajectories([unfinished], TASK, {}, tmp_path / "out")
    (record,) = records.read_results(tmp_path / "out" / "results.jsonl")
    assert [step["commands"] for step in record["steps"]][-1] == [SUBMIT]
    assert record["num_turns"] == 3 and not (tmp_path / "out" / "preds.jsonl").read_text()
