"""GEM's own registry, wrappers and vector environments, on the games of the adapter."""

from importlib.metadata import version

import gem
import pytest
from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper

from harness.interop.gem import register
from tests import toys  # noqa: F401
from tests.interop.reference import GAMES, Reference
from tests.lm.tiny import tiny_tokenizer

FLAGS = {"reward": "dense", "max_turns": 12}


def messages_of(prompt, said):
    """Returns the scripted player's prompt for GEM's first observation and what followed it."""
    chat = [{"content": part} for part in prompt]
    return chat + [{"content": text} for text in said]


@pytest.mark.parametrize("task", GAMES)
def test_games_from_the_registry_equal_our_rollout(task):
    (name,) = register(task, **FLAGS)
    assert register(task, **FLAGS) == [name]
    reference = Reference(tiny_tokenizer(), task, 5, **FLAGS)
    env = EpisodeTrackingWrapper(gem.make(name))
    assert isinstance(env.unwrapped, gem.Env)
    for number, run in enumerate(sorted(reference.runs.values(), key=lambda run: run.episode.seed)):
        text, _ = env.reset(seed=number)
        system = next(prompt[0] for prompt in reference.prompts() if text.startswith(prompt[0]))
        prompt = [system, text.removeprefix(f"{system}\n\n")]
        said, rewards, over = [], [], False
        while not over:
            reply = reference.text(messages_of(prompt, said))
            text, reward, terminated, truncated, info = env.step(reply)
            said += [reply, text]
            rewards.append(reward)
            over = terminated or truncated
        assert rewards == [turn.reward for turn in run.turns] and text == run.final_observation
        assert info["step_counter"] == len(run.turns) and info["success"] == run.success
        assert info["cumulative_rewards"] == pytest.approx(run.total_reward)
    reference.count("gem-llm", version("gem-llm"), masks=False)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vector_environments_equal_single_ones(asynchronous):
    (name,) = register(GAMES[1], **FLAGS)
    envs = gem.make_vec([name] * 3, wrappers=[EpisodeTrackingWrapper], async_mode=asynchronous, seed=7)
    single = gem.make(name)
    texts, _ = envs.reset(seed=7)
    assert texts == [single.reset(seed=7 + index)[0] for index in range(3)]
    random_action = envs.envs[0].unwrapped.sample_random_action()
    single.reset(seed=7)
    expected = single.step(random_action)
    texts, rewards, terminations, truncations, infos = envs.step([random_action] * 3)
    assert (texts[0], rewards[0], terminations[0], truncations[0]) == expected[:4] and infos[0]["step_counter"] == 1


def test_gems_chat_template_wrapper_renders_the_conversation():
    (name,) = register("HiLo-v0")
    tokenizer = tiny_tokenizer()
    env = ObservationWrapper(gem.make(name), tokenizer=tokenizer)
    first, _ = env.reset(seed=1)
    text, *_ = env.step("<action>1</action>")
    assert text.startswith(first.removesuffix("<|im_start|>assistant\n")) and "<action>1</action>" in text
