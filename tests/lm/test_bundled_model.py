"""The bundled model: it loads from its folder and answers a simple question correctly."""

import json

import pytest
import torch

from harness.policies.hf import HFPolicy
from harness.types import Prompt


@pytest.fixture(scope="module")
def policy(smollm):
    return HFPolicy(str(smollm), max_tokens=16)


def test_weights_are_float32_safetensors_with_a_chat_template(smollm):
    config = json.loads((smollm / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (smollm / "chat_template.jinja").is_file()


def test_the_model_answers_a_question_correctly(policy):
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    reply = policy.act([Prompt(question)])[0]
    assert "Paris" in reply.text
    assert reply.prompt_ids[0] == 1
    text = policy.tokenizer.decode(reply.prompt_ids)
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_the_model_stops_at_its_end_token(policy):
    policy.max_tokens = 64
    reply = policy.act([Prompt([{"role": "user", "content": "What is the capital of France?"}])])[0]
    assert reply.finish_reason == "stop"
    assert policy.tokenizer.decode([reply.ids[-1]]) == "<|im_end|>"
    assert "<|im_end|>" not in reply.text


def test_log_probs_after_reused_turns_equal_those_of_a_plain_forward(policy):
    messages = [{"role": "user", "content": "Count from one to ten."}]
    for turn in range(2):
        reply = policy.act([Prompt(messages, key="count", turn=turn)])[0]
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "Go on."}]
    assert reply.cached_tokens > 0
    ids = torch.tensor([[*reply.prompt_ids, *reply.ids]])
    with torch.no_grad():
        logits = policy.network(ids).logits[0, len(reply.prompt_ids) - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
    assert torch.tensor(reply.logprobs) == pytest.approx(expected, abs=1e-4)
