"""The one loop: what is played depends on the episode and the policy alone."""

import numpy as np
import pytest

from envsuite import registry
from envsuite.types import StopReason
from harness import records
from harness.policies import make_policy
from harness.prompting.prompting import Prompting
from harness.rollout import workers
from harness.rollout.executors import LocalExecutor, ProcessExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, episode
from tests import toys  # noqa: F401  registers the toys


def episodes(name, count, attempts=1, **knobs):
    task = registry.TASKS[name]
    return [episode(task, seed, attempt, **knobs) for attempt in range(attempts) for seed in range(count)]


def play(policy, todo, slots, **kwargs):
    try:
        return sorted(
            (records.record(run, policy.name, "sparse") for run in rollout(policy, todo, slots, **kwargs)),
            key=records.key_of,
        )
    finally:
        slots.close()


def test_what_is_played_does_not_depend_on_slots_or_processes():
    random = make_policy("random")
    todo = episodes("HiLo-v0", 12, attempts=2)
    single = play(random, todo, LocalExecutor(1, advice_kind="random"))
    assert single == play(random, todo, LocalExecutor(7, advice_kind="random"))
    assert single == play(random, todo, ProcessExecutor(5, 2, advice_kind="random"))
    assert len({str(run["steps"]) for run in single}) > 12  # attempts differ


def test_the_random_player_draws_with_the_seed_of_the_turn():
    (game,) = episodes("HiLo-v0", 1)
    (run,) = play(make_policy("random"), [game], LocalExecutor(1, advice_kind="random"))
    env = registry.make("HiLo-v0")
    _, info = env.reset(seed=0)
    for turn, step in enumerate(run["steps"]):
        commands = info["admissible_commands"]
        draw = np.random.default_rng(game.turn_seed(turn)).integers(len(commands))
        assert step["commands"] == [commands[draw]]
        _, _, _, _, info = env.step(commands[draw])


def test_a_slot_that_is_free_starts_the_next_episode():
    sizes = []

    class Counting(type(make_policy("random"))):
        def act(self, prompts):
            sizes.append(len(prompts))
            return super().act(prompts)

    play(Counting("random"), episodes("HiLo-v0", 20), LocalExecutor(4, advice_kind="random"))
    assert all(size == 4 for size in sizes[: len(sizes) // 2])


@pytest.mark.parametrize("how", ["raise", "reset"])
def test_an_engine_that_breaks_spares_its_neighbours_and_scores_nothing(how):
    expert = make_policy("expert")
    runs = play(expert, episodes("Faulty-v0", 6, how=how), LocalExecutor(3, advice_kind="expert"))
    assert [run["stop_reason"] for run in runs] == ["broken", "solved", "solved"] * 2
    assert all("engine" in run["error"] for run in runs if run["stop_reason"] == "broken")


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_a_worker_that_dies_or_hangs_is_replaced(how):
    expert = make_policy("expert")
    slots = ProcessExecutor(2, 2, advice_kind="expert", timeout=2.0 if how == "hang" else 120.0)
    runs = play(expert, episodes("Faulty-v0", 4, how=how), slots)
    assert [run["stop_reason"] for run in runs] == ["broken", "solved", "solved", "broken"]


@pytest.mark.parametrize("delay", [0.0, 300.0])
def test_a_worker_gives_back_what_its_environment_holds_also_in_the_middle_of_a_turn(tmp_path, delay, monkeypatch):
    monkeypatch.setattr(workers, "GRACE", 0.3)
    held = tmp_path / "held"
    slots = ProcessExecutor(1, 1)
    (episode,) = episodes("Holding-v0", 1, held=str(held), delay=delay)
    slots.start(0, episode)
    assert not slots.poll()[0][1].error
    assert held.exists()
    slots.step(0, ("1",), 0)
    if not delay:
        slots.poll()
    slots.close()
    assert not held.exists()


class Says:
    """A policy that says the same thing every time."""

    name, advice_kind, deterministic = "says", "", True

    def __init__(self, *replies):
        self.replies, self.seen = replies, []

    def act(self, prompts):
        self.seen += [prompt.messages for prompt in prompts]
        return [self.replies[min(prompt.turn, len(self.replies) - 1)] for prompt in prompts]

    def close(self):
        pass


def test_a_reply_without_a_command_costs_a_turn_and_is_told_so():
    policy = Says(Reply("I do not know"), Reply("<action>3</action>"))
    (run,) = rollout(policy, episodes("HiLo-v0", 1), LocalExecutor(1), max_turns=3)
    assert [turn.fault for turn in run.turns] == ["format", "", ""]
    assert run.stop_reason is StopReason.MAX_TURNS and run.truncated and not run.terminated
    assert "no command" in policy.seen[1][-1]["content"]


def test_commands_of_one_reply_are_executed_in_order_until_the_episode_ends():
    def play_commands(*replies):
        policy = Says(*(Reply("", commands=commands) for commands in replies))
        (run,) = rollout(policy, episodes("HiLo-v0", 1, size=64), LocalExecutor(1), max_turns=len(replies))
        return run

    together = play_commands(("7", "8", "9"))
    single = play_commands(("7",), ("8",), ("9",))
    (turn,) = together.turns
    assert turn.commands == ("7", "8", "9")
    after = [*(turn.observation for turn in single.turns[1:]), single.final_observation]
    assert together.final_observation == "\n".join(after)
    assert turn.reward == single.total_reward


def test_a_policy_that_cannot_answer_breaks_its_episode_and_no_other():
    class Dying(Says):
        def act(self, prompts):
            return [
                Reply("", error="server gone") if prompt.episode.seed == 1 else Reply("x", commands=("1",))
                for prompt in prompts
            ]

    runs = {run.episode.seed: run for run in rollout(Dying(), episodes("HiLo-v0", 3), LocalExecutor(3))}
    assert runs[1].broken and runs[1].error == "server gone"
    assert not runs[0].broken and not runs[2].broken


def test_history_and_admissible_commands_are_shown_as_asked():
    policy = Says(Reply("<think>hm</think><action>1</action>"))
    list(
        rollout(
            policy, episodes("HiLo-v0", 6)[5:], LocalExecutor(1), Prompting(history=1, admissible="latest"), max_turns=4
        )
    )
    last = policy.seen[3]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert "Admissible" in last[-1]["content"] and "Admissible" not in last[1]["content"]
    assert last[2]["content"] == "<think>hm</think><action>1</action>"
    list(
        rollout(
            policy, episodes("HiLo-v0", 6)[5:], LocalExecutor(1), Prompting(history_reasoning=False, admissible="none")
        )
    )
    assert policy.seen[-1][2]["content"] == "<action>1</action>"
