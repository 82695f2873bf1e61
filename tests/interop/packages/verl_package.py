"""verl's own agent-loop worker, from a batch of the dataset to padded tensors, on the games of the adapter."""

import asyncio
import json
from importlib.metadata import version
from importlib.resources import files

import numpy as np
import pytest
from omegaconf import OmegaConf
from transformers import Qwen2Config
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.utils.tokenizer import hf_tokenizer
from verl.workers.rollout.replica import TokenOutput

from harness.interop.chat_game import rows
from tests.interop.reference import GAMES, Reference
from tests.lm.tiny import tiny_tokenizer

FLAGS = {"reward": "dense", "max_turns": 12}
LENGTHS = {"prompt_length": 4096, "response_length": 8192}


class Server:
    """Client of an inference server that asks the scripted player."""

    def __init__(self, reference):
        self.reference = reference

    async def generate(self, request_id, *, prompt_ids, sampling_params, **rest):
        reply = self.reference.reply(prompt_ids)
        return TokenOutput(token_ids=list(reply.ids), log_probs=list(reply.logprobs), stop_reason="completed")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    # verl's tokenisation of ChatML belongs to Qwen; its default for other models leaves out a line break.
    shape = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_attention_heads": 4}
    Qwen2Config(architectures=["Qwen2ForCausalLM"], **shape).save_pretrained(folder)
    loops = folder / "agent_loops.yaml"
    loops.write_text("- name: envsuite\n  _target_: harness.interop.verl.agent_loop\n")
    config = OmegaConf.load(str(files("verl.trainer.config").joinpath("_generated_ppo_trainer.yaml")))
    config.actor_rollout_ref.model.path = str(folder)
    config.actor_rollout_ref.model.override_config = {"attn_implementation": "eager"}
    rollout = config.actor_rollout_ref.rollout
    rollout.update(name="vllm", calculate_log_probs=True, **LENGTHS)
    rollout.agent.agent_loop_config_path = str(loops)
    return config


@pytest.mark.parametrize("task", GAMES)
def test_the_worker_has_the_tokens_masks_and_rewards_of_our_rollout(config, task):
    tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)  # which splits words as Qwen's does
    reference = Reference(tokenizer, task, 5, **FLAGS)
    dataset = rows(task, count=5, **FLAGS)
    columns = {name: np.array([row[name] for row in dataset], dtype=object) for name in ("agent_name", "game")}
    columns["raw_prompt"] = np.empty(5, dtype=object)
    columns["raw_prompt"][:] = [row["prompt"] for row in dataset]

    async def generate():
        worker = AgentLoopWorker(config, Server(reference))
        return await worker.generate_sequences(DataProto(non_tensor_batch=columns, meta_info={"validate": False}))

    output = asyncio.run(generate())
    batch = output.batch
    for number, row in enumerate(dataset):
        seed = json.loads(row["game"])["seed"]
        run = reference.runs[seed]
        ids, sampled, logprobs = reference.tokens(seed)
        prompt, width = sampled.index(True), LENGTHS["prompt_length"]
        valid = batch["attention_mask"][number].bool()
        assert batch["input_ids"][number][valid].tolist() == ids
        length = len(ids) - prompt
        assert batch["response_mask"][number][:length].tolist() == [int(flag) for flag in sampled[prompt:]]
        assert batch["response_mask"][number].sum() == sum(sampled) and valid[:width].sum() == prompt
        assert batch["rollout_log_probs"][number][:length].tolist() == pytest.approx(logprobs[prompt:], abs=1e-6)
        assert batch["rm_scores"][number].sum().item() == pytest.approx(run.total_reward)
        assert output.non_tensor_batch["turn_scores"][number] == [turn.reward for turn in run.turns]
        assert output.non_tensor_batch["success"][number] == float(run.success)
    reference.count("verl", version("verl"))
