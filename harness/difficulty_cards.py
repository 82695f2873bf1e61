"""Difficulty cards: statistics of a task, measured with its random player and its expert."""

from __future__ import annotations

from statistics import mean
from typing import Any

from envsuite import registry
from envsuite.checks.gold import play
from envsuite.core import TextEnv
from envsuite.types import Task
from harness.evaluate import Execution, RunConfig, open_slots
from harness.policies import make_policy
from harness.rollout.loop import rollout
from harness.types import Trajectory

IDLE_GAMES = 10
"""most games of the idle player"""


def measure(task: Task, episodes: int = 100, seed: int = 0) -> dict[str, Any]:
    """Measures the card of a task with `episodes` games each of the random player, the blind one and the experts.

    A small panel limits the number of games. `seed` is the offset of the first game, as in envsuite-eval.
    """
    panel = registry.panel(task)
    count = min(episodes, len(panel) - seed) if panel is not None else episodes
    random = _play(task, "random", count, seed)
    commands = [len(turn.admissible) for run in random for turn in run.turns]
    observation_lengths = [len(turn.observation) for run in random for turn in run.turns]
    card: dict[str, Any] = {
        "episodes": len(random),
        "random_success": _success(random),
        "idle_success": round(mean(_idle(task, min(count, IDLE_GAMES), seed)), 4),
        "admissible_commands": {"mean": round(mean(commands), 1), "max": max(commands)},
        "observation_chars": {"mean": round(mean(observation_lengths)), "max": max(observation_lengths)},
        "max_steps": registry.knob_names(task)["max_steps"],
        **registry.env_class(task).facts(registry.knob_names(task)),
    }
    env_class = registry.env_class(task)
    if env_class.blind_script is not TextEnv.blind_script:
        card["blind_success"] = _success(_play(task, "blind", count, seed))
    if env_class.experts:
        expert = _play(task, "expert", count, seed)
        lengths = [len(run.turns) for run in expert if run.success] or [0]
        chars = [
            sum(len(turn.observation) + len(turn.commands[-1] if turn.commands else "") for turn in run.turns)
            for run in expert
        ]
        card["expert_success"] = _success(expert)
        card["solution_length"] = {"mean": round(mean(lengths), 2), "min": min(lengths), "max": max(lengths)}
        # Four characters per token is the usual estimate for English; no tokenizer is needed here.
        card["expert_tokens_per_episode"] = round(mean(chars) / 4)
        for kind in filter(None, env_class.experts):
            card[f"expert:{kind}_success"] = _success(_play(task, f"expert:{kind}", count, seed))
    return card


def _success(runs: list[Trajectory]) -> float:
    return round(mean(float(run.success) for run in runs), 4)


def _idle(task: Task, episodes: int, seed: int) -> list[float]:
    """Returns the success of each episode of an idle player."""
    config = RunConfig(task, "random", episodes=episodes, seed=seed)
    env = registry.build(task.id)
    try:
        return [float(play(env, episode.seed, expert=False)[0]) for episode in config.all_episodes()]
    finally:
        env.close()


def _play(task: Task, model: str, episodes: int, seed: int) -> list[Trajectory]:
    config = RunConfig(task, model, episodes=episodes, seed=seed)
    policy = make_policy(model)
    todo = config.all_episodes()
    executor = open_slots(config, Execution(), len(todo), policy.advice_kind)
    try:
        runs = [run for run in rollout(policy, todo, executor) if not run.broken]
    finally:
        executor.close()
    if not runs:
        raise RuntimeError(f"{task.id}: every episode of {model} broke")
    return runs
