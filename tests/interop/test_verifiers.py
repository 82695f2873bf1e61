"""Plays our games with verifiers' environment, agent and interception server, and a loopback model."""

import asyncio
import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import BadKnob, UnknownTask, UsageError
from harness.interop import other_runs
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys  # noqa: F401
from tests.api import server as loopback

# Imported in the tests alone: the import takes seconds, which every process that collects tests would spend.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed")


@pytest.fixture
def server(tmp_path, monkeypatch):
    from verifiers.v1.runtimes import subprocess

    monkeypatch.setattr(subprocess, "CACHE_DIR", tmp_path)  # not the user's
    with loopback.running() as loopback_server:
        yield loopback_server


def play(url, *, env=(), **taskset):
    """Plays every game of a taskset concurrently, as `vf-eval` does; returns the episodes."""
    import verifiers.v1 as vf

    config = vf.resolve_env_config({"taskset": {"id": "envsuite-verifiers", **taskset}, **dict(env)})
    model = vf.ModelContext(model="small-model", client=vf.EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY"))

    async def play_all():
        environment = vf.load_environment(config)
        async with environment.serving():
            slots = [slot for task in environment.taskset for slot in environment.slots(task)]
            return await asyncio.gather(*(environment.run_slot(slot, model) for slot in slots))

    return asyncio.run(play_all())


class Coach:
    """Scripted model that replays the conversation in its own game and answers with the expert's command."""

    def __init__(self, task, seeds):
        self.task, self.seeds = task, {}
        for seed in seeds:
            self.seeds[registry.build(task).reset(seed=seed)[0]] = seed
        assert len(self.seeds) == len(seeds)

    def __call__(self, body):
        _, first, *later = body["messages"]
        (seed,) = (seed for text, seed in self.seeds.items() if first["content"].startswith(text))
        env = registry.build(self.task)
        env.reset(seed=seed)
        for message in later:
            if message["role"] == "assistant":
                env.step(message["content"].removeprefix("<action>").removesuffix("</action>"))
        return f"<action>{env.expert()}</action>"


def conversations(server):
    """Returns the sorted conversations that the server received."""
    return sorted([(m["role"], m["content"]) for m in body["messages"]] for body, _, _ in server.requests)


@pytest.mark.parametrize("name", ["BabyAI-goto-v0", "Apart-v0"])
def test_conversations_and_results_equal_those_of_our_evaluation(server, name, tmp_path):
    from verifiers.v1.utils.trace_store import write_episode

    if name.startswith("BabyAI"):
        pytest.importorskip("minigrid", reason="minigrid is not installed")
    (task,) = registry.tasks(name)
    seeds = task.splits[registry.default_split(task)][4:6]
    server.says = Coach(name, seeds)
    episodes = play(server.url, game=name, episodes=2, first=4)
    theirs = conversations(server)
    assert all(episode.ok for episode in episodes), [episode.errors for episode in episodes]
    server.requests.clear()
    policy = OpenAIPolicy("small-model", base_url=server.url)
    games = [episode(task, seed) for seed in seeds]
    ours = list(rollout(policy, games, LocalExecutor(2), Prompting(admissible="all")))
    policy.close()
    assert theirs == conversations(server)
    played = {run.episode.seed: run for run in ours}
    for result in episodes:
        (trace,) = result.traces
        run = played[trace.info["envsuite"]["seed"]]
        assert trace.reward == run.total_reward == 1.0 and trace.metrics["success"] == 1.0
        assert trace.num_turns == len(run.turns) and trace.info["stop_reason"] == "solved"
        assert {name: trace.metrics[name] for name in run.metrics} == run.metrics
        write_episode(tmp_path, result)
    (read,) = other_runs.read(tmp_path)  # as envsuite compare does
    assert read.name == "small-model" and read.config["task"] == name
    assert {(record["seed"], record["success"], record["reward"]) for record in read.records} == {
        (seed, True, 1.0) for seed in seeds
    }


def test_the_example_plays_four_games_to_their_end(server, monkeypatch, capsys):
    pytest.importorskip("minigrid", reason="minigrid is not installed")
    (task,) = registry.tasks("BabyAI-goto-v0")
    seeds = task.splits[registry.default_split(task)][:4]
    server.says = Coach(task.id, seeds)
    example = Path(__file__).resolve().parents[2] / "examples" / "verifiers_eval.py"
    monkeypatch.setattr(sys, "argv", [str(example), server.url, "small-model", task.id])
    runpy.run_path(str(example), run_name="__main__")
    solved = [line for line in capsys.readouterr().out.splitlines() if " solved return 1 " in line]
    assert sorted(int(line.split()[0]) for line in solved) == list(seeds)


def test_invalid_and_unreadable_commands_cost_a_turn_and_get_an_answer(server):
    server.script = [loopback.answer("I think I shall look around."), loopback.answer("<action>up</action>")]
    (result,) = play(server.url, game="Signpost-v0", knobs={"max_steps": 3}, episodes=1, env={"admissible": False})
    (trace,) = result.traces
    prompts = [body["messages"][-1]["content"] for body, _, _ in server.requests]
    assert prompts == ["north", "Your reply held no command between <action> and </action>.\nnorth", "north"]
    assert result.ok and trace.reward == 0.0 and trace.metrics["invalid"] == 3.0  # the third: "look"
    assert trace.info["stop_reason"] == "max_steps"


def test_turn_limits_end_an_episode_and_keep_its_reward(server):
    server.says = "<action>1</action>"
    game = {"game": "HiLo-v0", "first": 3, "episodes": 1, "reward_mode": "dense"}
    (result,) = play(server.url, **game, env={"max_turns": 2})
    assert result.traces[0].reward == pytest.approx(0.1) and result.traces[0].info["stop_reason"] == "max_turns"
    (result,) = play(server.url, **game, env={"agent": {"max_turns": 3}})
    assert result.traces[0].num_turns == 3 and result.traces[0].reward == pytest.approx(0.1)


def test_a_broken_engine_is_an_error_without_a_reward(server):
    server.says = "<action>1</action>"
    broke, played = play(server.url, game="Faulty-v0", split="test", episodes=2, first=_first_bad())
    assert not broke.ok and "the engine broke" in str(broke.errors) and not broke.traces[0].rewards
    assert played.ok and "return" in played.traces[0].rewards


def _first_bad():
    (task,) = registry.tasks("Faulty-v0")
    return next(number for number, seed in enumerate(task.splits["test"]) if seed % 3 == 0)


def test_a_refusal_by_the_server_is_an_error_of_the_trace(server):
    server.script = [loopback.refuse(400, "no such model")]
    (result,) = play(server.url, game="Signpost-v0", episodes=1)
    assert not result.ok and "no such model" in str([*result.errors, *(trace.errors for trace in result.traces)])
    assert not result.traces[0].rewards


def test_invalid_settings_raise_before_any_episode():
    import verifiers.v1 as vf

    config = vf.resolve_env_config
    for error, taskset in (
        (UsageError, {}),
        (UnknownTask, {"game": "BabyAl"}),
        (BadKnob, {"game": "HiLo-v0", "knobs": {"size": 1}}),
    ):
        with pytest.raises(error):
            vf.load_environment(config({"taskset": {"id": "envsuite-verifiers", **taskset}}))
    with pytest.raises(UsageError, match="grammar"):
        vf.load_environment(config({"taskset": {"id": "envsuite-verifiers", "game": "HiLo-v0"}, "grammar": "latin"}))
