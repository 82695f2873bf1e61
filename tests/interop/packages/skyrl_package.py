"""SkyRL's own generator, on the games of the adapter."""

import asyncio
import json
import sys
import typing
from importlib.metadata import version

import pytest
import typing_extensions

if sys.version_info < (3, 12):  # pydantic refuses the standard library's, which SkyRL uses
    typing.TypedDict = typing_extensions.TypedDict
from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from harness.interop import skyrl
from harness.interop.chat_game import rows
from tests.interop.reference import GAMES, Reference
from tests.lm.tiny import tiny_tokenizer

FLAGS = {"reward": "dense"}
TURNS = 12


class Server(InferenceEngineInterface):
    """Inference engine that asks the scripted player."""

    def __init__(self, reference, tokenizer):
        self.reference, self.tokenizer = reference, tokenizer

    model_name = "scripted"

    async def generate(self, input_batch, model=None):
        replies = [self.reference.reply(ids) for ids in input_batch["prompt_token_ids"]]
        return {
            "responses": [reply.text for reply in replies],
            "response_ids": [list(reply.ids) for reply in replies],
            "stop_reasons": ["stop"] * len(replies),
            "response_logprobs": [list(reply.logprobs) for reply in replies],
        }

    async def finish_session(self, session_id):
        pass


Server.__abstractmethods__ = frozenset()  # the others belong to weights and processes of servers


@pytest.mark.parametrize("task", GAMES)
def test_the_generator_has_the_tokens_masks_and_rewards_of_our_rollout(task):
    skyrl.register()
    skyrl.register()
    tokenizer = tiny_tokenizer()
    reference = Reference(tokenizer, task, 5, max_turns=TURNS, **FLAGS)
    config = GeneratorConfig(max_turns=TURNS, batched=False, use_conversation_multi_turn=True, max_input_length=1 << 20)
    config.sampling_params.logprobs = 1
    generator = SkyRLGymGenerator(config, SkyRLGymConfig(), Server(reference, tokenizer), tokenizer)
    dataset = rows(task, count=5, **FLAGS)
    batch = {
        "prompts": [row["prompt"] for row in dataset],
        "env_classes": [row["env_class"] for row in dataset],
        "env_extras": [dict(row) for row in dataset],
        "sampling_params": None,
        "trajectory_ids": None,
    }
    output = asyncio.run(generator.generate(batch))
    for number, row in enumerate(dataset):
        seed = json.loads(row["game"])["seed"]
        run = reference.runs[seed]
        ids, sampled, logprobs = reference.tokens(seed)
        prompt = sampled.index(True)
        assert output["prompt_token_ids"][number] == ids[:prompt]
        assert output["response_ids"][number] == ids[prompt:]
        assert output["loss_masks"][number] == [int(flag) for flag in sampled[prompt:]]
        assert output["rollout_logprobs"][number] == pytest.approx(logprobs[prompt:], abs=1e-6)
        paid = [reward for reward in output["rewards"][number] if reward]
        assert paid == pytest.approx([turn.reward for turn in run.turns if turn.reward])
    wins = sum(run.success for run in reference.runs.values())
    assert output["rollout_metrics"]["environment/success"] == pytest.approx(wins / 5)
    reference.count("skyrl", f"{version('skyrl')} (skyrl-gym {version('skyrl-gym')})")
