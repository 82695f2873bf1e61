"""Plays our games with inspect and its scripted model."""

import tomllib
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness.prompting.prompting import Prompting
from harness.types import Reply, Turn
from tests import toys  # noqa: F401

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect is not installed")
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402

from harness.interop import inspect_task  # noqa: E402

TASK = "BabyAI-goto-v0"


def expert_turns(seed):
    """Returns the turns of the expert's episode, with replies in the default format, and the last observation."""
    env = registry.build(registry.TASKS[TASK])
    text, info = env.reset(seed=seed)
    turns, over = [], False
    while not over:
        command = env.expert()
        turn = Turn(text, Reply(f"<action>{command}</action>"), (command,), 0.0, {})
        turn.admissible = info["admissible_commands"]
        turns.append(turn)
        text, _, over, *_, info = env.step(command)
    return env, turns


def evaluate(folder, replies, stop_reason="stop", limits=None, **settings):
    outputs = [ModelOutput.from_content("mockllm/model", reply, stop_reason) for reply in replies]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # otherwise inspect needs a download
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = inspect_task.play(env=TASK, **settings)
    (log,) = inspect_ai.eval(task, model, log_dir=str(folder), max_samples=1, display="none", **(limits or {}))
    return log


def test_the_experts_commands_win_and_every_prompt_is_ours(tmp_path):
    env, turns = expert_turns(1_000_000)
    _, more = expert_turns(1_000_001)
    log = evaluate(tmp_path, [turn.reply.text for turn in (*turns, *more)], episodes=2)
    assert log.status == "success", log.error
    metrics = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert metrics == {"success": 1.0, "reward": 1.0, "progression": 1.0}
    sample = log.samples[0]
    assert sample.id == 1_000_000 and sample.metadata["envsuite"]["num_turns"] == len(turns)
    last = turns[-1]
    ours = Prompting().messages(env.instructions, env.objective, turns[:-1], last.observation, last.admissible)
    expected = [*((message["role"], message["content"]) for message in ours), ("assistant", last.reply.text)]
    assert [(message.role, message.content) for message in sample.messages] == expected


def test_a_published_prompt_fixes_settings_and_its_default_is_played(tmp_path):
    log = evaluate(tmp_path, ["I wonder"] * 100, episodes=1, protocol="balrog", max_turns=3)
    summary = log.samples[0].metadata["envsuite"]
    assert summary["commands"] == [["go forward"]] * 3 and summary["faults"] == ["format"] * 3
    assert summary["success"] is False and summary["stop_reason"] == "max_turns"
    assert log.eval.model_generate_config.max_tokens == 1024 or log.plan.config.max_tokens == 1024


@pytest.mark.parametrize(
    ("stop_reason", "limits", "expected"),
    [("model_length", {}, ("context", 0)), ("stop", {"token_limit": 5}, ("max_tokens", 2))],
)
def test_an_episode_that_inspect_cuts_has_a_reason_and_a_score(tmp_path, stop_reason, limits, expected):
    log = evaluate(tmp_path, ["<action>turn left</action>"] * 9, stop_reason, limits, episodes=1)
    summary = log.samples[0].metadata["envsuite"]
    assert log.samples[0].error is None and log.samples[0].scores["outcome"].value["success"] == 0.0
    assert (summary["stop_reason"], summary["num_turns"]) == expected


def test_bad_settings_end_in_one_line():
    with pytest.raises(UsageError, match="name exactly one"):
        inspect_task.play(env="BabyAI-*")
    with pytest.raises(UsageError, match="plain text without roles"):
        inspect_task.play(env="ALFWorld-generated-v0", protocol="react")


def test_the_package_announces_its_tasks_to_inspect():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert project["entry-points"]["inspect_ai"] == {"envsuite": "harness.interop.inspect_task"}
    assert inspect_ai.util.registry_info(inspect_task.play).name == "envsuite/play"
