"""Adapters to trainers, driven as each framework drives them; `make adapters-proof` uses the real packages.

All play the games of a scripted player and must see the prompts, tokens, masks and rewards of this project's rollout.
"""

import asyncio
import json
import pickle
from types import SimpleNamespace

import gymnasium as gym
import pytest

from envsuite import registry
from envsuite.errors import BadKnob, EngineFailure, UsageError
from harness.interop import chat_game
from harness.interop.chat_game import ChatGame, chat_config, open_row, rows
from harness.interop.skyrl import SkyRLGame
from harness.interop.tinker import TinkerDataset
from harness.interop.verl import VerlGame
from tests import toys  # noqa: F401
from tests.interop.reference import Reference
from tests.lm.tiny import tiny_tokenizer

TASK = "ALFWorld-generated-easy-v0"
FLAGS = {"reward": "dense", "max_turns": 5}
COUNT = 6


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def reference(tokenizer):
    played = Reference(tokenizer, TASK, COUNT, **FLAGS)
    reasons = {str(run.stop_reason) for run in played.runs.values()}
    faults = {turn.fault for run in played.runs.values() for turn in run.turns}
    assert reasons == {"solved", "max_turns"} and faults == {"", "format", "invalid"}
    return played


@pytest.fixture
def dataset():
    return rows(TASK, count=COUNT, **FLAGS)


def seed_of(row):
    return json.loads(row["game"])["seed"]


def test_a_conversation_equals_the_rollouts_prompts_rewards_and_end(reference):
    game = ChatGame(reference.config)
    for seed, run in reference.runs.items():
        game.begin(seed)
        rewards = []
        while not game.done:
            rewards.append(game.reply(reference.text(game.messages)))
        assert rewards == [turn.reward for turn in run.turns]
        assert (game.run.stop_reason, game.run.truncated) == (run.stop_reason, run.truncated)
        assert game.metrics()["success"] == float(run.success)
        assert game.metrics()["invalid"] == sum(bool(turn.fault) for turn in run.turns)
        assert game.messages[-1]["role"] == "assistant"
    game.close()


def test_skyrls_loop_plays_the_same_episodes(reference, dataset):
    """Appends replies and observations to one history, as SkyRL's generator does."""
    for row in dataset:
        run = reference.runs[seed_of(row)]
        env = SkyRLGame(env_config={}, extras={**row, "max_turns": 30})
        history, _ = env.init(row["prompt"])
        rewards, done = [], False
        while not done:
            reply = reference.text(history)
            step = env.step(reply)
            rewards.append(step["reward"])
            done = step["done"]
            history += [{"role": "assistant", "content": reply}, *step["observations"]]
        assert rewards == [turn.reward for turn in run.turns]
        assert env.get_metrics()["success"] == float(run.success) and env.turns == len(run.turns)
        env.close()


def test_skyrls_limit_on_turns_ends_a_game_and_metrics_are_averaged(dataset):
    env = SkyRLGame(extras={**dataset[0], "max_turns": 2})
    env.init([])
    assert [env.step("look")["done"] for _ in range(2)] == [False, True]
    assert SkyRLGame.aggregate_metrics([{"success": 1.0, "score": 3.0}, {"success": 0.0}]) == {
        "success": 0.5,
        "score": 3.0,
    }
    env.close()
    with pytest.raises(UsageError, match="no column 'game'"):
        SkyRLGame(extras={"max_turns": 2})


class Tokens:
    """Tokenisation of a ChatML conversation in which replies keep their tokens, as verl does it."""

    def __init__(self, tokenizer, reference, response_length=4096):
        self.tokenizer = tokenizer
        self.rollout_config = SimpleNamespace(
            response_length=response_length, multi_turn=SimpleNamespace(max_assistant_turns=None)
        )
        self.server_manager = self
        self.reference = reference

    async def generate(self, request_id, prompt_ids, sampling_params):
        reply = self.reference.reply(prompt_ids)
        return SimpleNamespace(token_ids=list(reply.ids), log_probs=list(reply.logprobs))

    async def ct_build_initial_tokens(self, messages):
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    async def ct_merge_assistant_token(self, ids, reply, mask, logprobs=None, more=None):
        return SimpleNamespace(token_ids=ids + reply), mask + [1] * len(reply), [*(logprobs or []), *(more or [])]

    async def ct_merge_context_msg(self, before, after, ids, mask, logprobs=None):
        text = "\n" + self.tokenizer.apply_chat_template(
            after[len(before) :], add_generation_prompt=True, tokenize=False
        )
        added = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return SimpleNamespace(token_ids=ids + added), mask + [0] * len(added), logprobs + [0.0] * len(added)


class VerlTokens(Tokens, VerlGame):
    pass


def test_verls_loop_yields_the_same_tokens_masks_and_rewards(reference, tokenizer, dataset):
    for row in dataset:
        run = reference.runs[seed_of(row)]
        output = asyncio.run(VerlTokens(tokenizer, reference).play({}, row))
        ids, sampled, logprobs = reference.tokens(seed_of(row))
        prompt = len(output["prompt_ids"])
        assert output["prompt_ids"] + output["response_ids"] == ids
        assert output["response_mask"] == [int(flag) for flag in sampled[prompt:]] and not any(sampled[:prompt])
        assert output["response_logprobs"] == pytest.approx(logprobs[prompt:], abs=1e-6)
        assert output["extra_fields"]["turn_scores"] == [turn.reward for turn in run.turns]
        assert output["reward_score"] == pytest.approx(run.total_reward)
        assert output["extra_fields"]["reward_extra_info"]["success"] == float(run.success)


def test_verls_limit_on_tokens_cuts_an_episode(reference, tokenizer, dataset):
    row = max(dataset, key=lambda row: len(reference.runs[seed_of(row)].turns))
    ids, sampled, _ = reference.tokens(seed_of(row))
    prompt = sampled.index(True)
    length = len(ids) - prompt - 1
    output = asyncio.run(VerlTokens(tokenizer, reference, length).play({}, row))
    assert len(output["response_ids"]) == len(output["response_mask"]) == len(output["response_logprobs"]) <= length
    assert output["prompt_ids"] + output["response_ids"] == ids[: prompt + len(output["response_ids"])]
    with pytest.raises(UsageError, match="no column 'game'"):
        asyncio.run(VerlTokens(tokenizer, reference).play({}, {}))


class Renderer:
    """Renderer in tinker-cookbook's interface; prompts are lists of tokens."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def build_generation_prompt(self, messages):
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def get_stop_sequences(self):
        return [self.tokenizer.eos_token_id]

    def parse_response(self, ids):
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return {"role": "assistant", "content": text}, None


def test_tinkers_loop_yields_the_same_tokens_and_rewards(reference, tokenizer, dataset):
    batches = TinkerDataset(dataset, batch_size=2, group_size=2, renderer=Renderer(tokenizer))
    assert len(batches) == 3

    async def play(env):
        prompt, stop = await env.initial_observation()
        rewards, done = [], False
        while not done:
            reply = reference.reply(prompt)
            assert reply.ids[-1] in stop
            step = await env.play(list(reply.ids), {"stop_reason": "stop"})
            rewards.append(step["reward"])
            done, prompt = step["episode_done"], step["next_observation"]
        return rewards, step["metrics"]

    async def play_group(group):
        group = pickle.loads(pickle.dumps(group))
        envs = await group.make_envs()
        played = [await play(env) for env in envs]
        await group.cleanup()
        return played

    for number in range(3):
        for row, group in zip(dataset[2 * number :], batches.get_batch(number), strict=False):
            run = reference.runs[seed_of(row)]
            for rewards, metrics in asyncio.run(play_group(group)):
                assert rewards == [turn.reward for turn in run.turns]
                assert metrics["success"] == float(run.success) and metrics[f"stop/{run.stop_reason}"] == 1.0


def test_a_broken_engine_raises_instead_of_scoring():
    (bad,) = (row for row in rows("Faulty-v0", count=3) if seed_of(row) % 3 == 0)
    game, seed = open_row("test", bad["game"])
    game.begin(seed)
    with pytest.raises(EngineFailure, match="the engine broke"):
        game.reply("<action>1</action>")
    game.close()


def test_bad_settings_are_refused_before_any_game():
    for error, match, settings in (
        (UsageError, "Unknown setting 'rewards'.*reward", {"rewards": "dense"}),
        (UsageError, "in all messages or in none", {"admissible": "latest"}),
        (BadKnob, "", {"set": "size=1"}),
    ):
        with pytest.raises(error, match=match):
            rows("HiLo-v0", **settings)
    with pytest.raises(UsageError, match="name exactly one"):
        chat_config("test", "BabyAI-*")
    assert set(chat_game.FLAGS) >= set(FLAGS)


def test_gymnasiums_own_wrappers_and_vector_environments_work():
    """Plays with TimeLimit, RecordEpisodeStatistics and both vector environments, as users of Gymnasium do."""
    name = "envsuite/ALFWorld-generated-easy-v0"
    plain = gym.make(name)
    env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(gym.make(name), 3))
    assert env.reset(seed=3)[0] == plain.reset(seed=3)[0]
    for turn in range(3):
        expected = plain.step("look")
        text, reward, terminated, truncated, info = env.step("look")
        assert (text, reward, terminated) == expected[:3] and truncated == (turn == 2)
    assert info["episode"]["l"] == 3 and info["episode"]["r"] == pytest.approx(0.0)
    transformed = gym.wrappers.TransformReward(gym.wrappers.TransformObservation(gym.make(name), str.upper, None), abs)
    assert transformed.reset(seed=3)[0] == plain.reset(seed=3)[0].upper()
    for mode in ("sync", "async"):
        vector_kwargs = {"shared_memory": False} if mode == "async" else {}
        envs = gym.make_vec(name, 2, vectorization_mode=mode, vector_kwargs=vector_kwargs)
        envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
        texts, _ = envs.reset(seed=[3, 4])
        assert texts[0] == plain.reset(seed=3)[0] and texts[1] == plain.reset(seed=4)[0]
        assert envs.step(["look", "look"])[0][1] == plain.step("look")[0]
        envs.close()
    assert registry.make_vec("HiLo-v0", 2).reset(seed=[1, 2])[0][0] == registry.build("HiLo-v0").reset(seed=1)[0]
