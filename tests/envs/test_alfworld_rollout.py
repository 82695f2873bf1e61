"""Rollouts play native ALFWorld through one vector environment with unchanged results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.envs.alfworld.engine import NativeEngine
from envsuite.errors import UsageError
from envsuite.types import knobs_json
from harness import evaluate, records
from harness.evaluate import Execution, RunConfig
from harness.policies import make_policy
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.rollout.vector import VectorExecutor, has_vector_env
from harness.types import Reply, episode

if importlib.util.find_spec("alfworld") is None:
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

TASK = registry.TASKS["ALFWorld-generated-v0"]
KNOBS = {"receptacles": 8, "objects": 8, "max_steps": 15}


def config(model: str, **more: object) -> RunConfig:
    return RunConfig(task=TASK, model=model, knobs=registry.overrides(TASK, KNOBS), **{"episodes": 7, **more})


def results(cfg: RunConfig, out: Path, **execution: object) -> bytes:
    evaluate.evaluate(cfg, out, lambda: make_policy(cfg.model), Execution(**execution))
    return (cfg.folder(out) / "results.jsonl").read_bytes()


class Chatty:
    """A policy that replies with several commands, or none."""

    name, advice_kind = "chatty", ""

    def act(self, prompts):
        replies = [tuple(prompt.admissible[:: 1 + prompt.seed % 9][: prompt.seed % 4]) for prompt in prompts]
        return [Reply(" ".join(commands), commands=commands) for commands in replies]


@pytest.mark.parametrize("model", ["random", "expert:partial"])
@pytest.mark.parametrize("reward_mode", ["dense", "shaped"])
def test_vector_rollouts_equal_single_environment_rollouts_byte_for_byte(tmp_path, monkeypatch, model, reward_mode):
    cfg = config(model, reward_mode=reward_mode, attempts=2)
    expected = results(cfg, tmp_path / "apart")
    for count in (1, 3, 7):
        slots = VectorExecutor(count, TASK, knobs_json(cfg.knobs), reward_mode, model)
        monkeypatch.setattr(evaluate, "open_slots", lambda *args, slots=slots: slots)
        assert results(cfg, tmp_path / str(count)) == expected


def test_policies_without_advice_use_the_vector_executor_and_experts_do_not():
    results_by_kind = {
        advice_kind: evaluate.open_slots(config("idle"), Execution(), 7, advice_kind)
        for advice_kind in ("", "random", "expert")
    }
    assert {advice_kind: (type(slots), slots.count) for advice_kind, slots in results_by_kind.items()} == {
        "": (VectorExecutor, 7),
        "random": (LocalExecutor, 1),
        "expert": (LocalExecutor, 1),
    }


def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path):
    cfg, ended, cuts = config("random"), [], 0
    evaluate.evaluate(cfg, tmp_path / "whole", Chatty, Execution(max_concurrent=3))
    expected = (cfg.folder(tmp_path / "whole") / "results.jsonl").read_bytes()

    class Cut(Exception):
        pass

    def cut(record, run):
        ended.append(run.episode.seed)
        if len(ended) % 2 == 0:
            raise Cut

    while True:
        try:
            how = Execution(max_concurrent=3, resume=True)
            evaluate.evaluate(cfg, tmp_path / "cut", Chatty, how, on_episode=cut)
            break
        except Cut:
            cuts += 1
    assert cuts == 3 and sorted(ended) == list(cfg.seeds)
    assert (cfg.folder(tmp_path / "cut") / "results.jsonl").read_bytes() == expected


def play(policy, slots, seeds, knobs=KNOBS):
    todo = [episode(TASK, seed, **registry.overrides(TASK, knobs)) for seed in seeds]
    try:
        runs = sorted(rollout(policy, todo, slots), key=lambda run: run.episode.key)
    finally:
        slots.close()
    return [records.record(run, policy.name, "sparse") for run in runs]


def test_several_commands_in_one_reply_are_executed_in_order():
    knobs = json.dumps(registry.overrides(TASK, KNOBS), sort_keys=True)
    unpaired = play(Chatty(), LocalExecutor(3), range(6))
    assert play(Chatty(), VectorExecutor(4, TASK, knobs), range(6)) == unpaired
    assert len({len(step["commands"]) for run in unpaired for step in run["steps"]}) >= 3


@pytest.mark.parametrize("how", ["reset", "step"])
def test_a_failing_game_does_not_affect_the_others(monkeypatch, how):
    knobs = json.dumps(registry.overrides(TASK, KNOBS), sort_keys=True)
    policy = make_policy("random")
    sound = play(policy, VectorExecutor(3, TASK, knobs, advice_kind="random"), range(6))
    bad = sound[1]["labels"]["instance"]

    def faulty(method):
        def run(self, *args):
            if self.game.name == bad:
                raise RuntimeError("the engine broke")
            return method(self, *args)

        return run

    name = {"reset": "set_state", "step": "act"}[how]
    monkeypatch.setattr(NativeEngine, name, faulty(getattr(NativeEngine, name)))
    runs = play(policy, VectorExecutor(3, TASK, knobs, advice_kind="random"), range(6))
    assert [run["stop_reason"] == "broken" for run in runs] == [seed == 1 for seed in range(6)]
    assert "the engine broke" in runs[1]["error"]
    assert [*runs[:1], *runs[2:]] == [*sound[:1], *sound[2:]]


def test_an_error_that_affects_every_episode_stops_the_run():
    wish = registry.overrides(TASK, {"receptacles": 1, "task_types": "pick_heat_then_place_in_recep"})
    with pytest.raises(UsageError, match="Loosen the knobs"):
        play(make_policy("random"), VectorExecutor(2, TASK, json.dumps(wish), advice_kind="random"), [0], wish)


def test_the_slow_engine_keeps_its_processes():
    full = registry.knob_names(TASK)
    assert has_vector_env(TASK, full) and not has_vector_env(TASK, {**full, "engine": "textworld"})
    assert not has_vector_env(registry.TASKS["ALFWorld-valid_seen-v0"], {**full, "engine": "textworld"})
