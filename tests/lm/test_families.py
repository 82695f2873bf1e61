"""The policy is right for the architectures people use, with prefix reuse or, where layers forget, without."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.lm.cache import can_reuse
from harness.policies.hf import HFPolicy
from harness.policies.score import ScorePolicy
from harness.types import Prompt
from tests.lm.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.6,
    "pad_token_id": 0,
    "eos_token_id": 2,
}
FAMILIES = {
    "llama": ({}, True),
    "qwen2": ({"tie_word_embeddings": True}, True),
    "qwen3": ({}, True),
    "olmo2": ({}, True),
    "phi3": ({"sliding_window": None}, True),
    "mistral": ({"sliding_window": 16}, False),
    "gemma2": ({"sliding_window": 16, "query_pre_attn_scalar": 8}, False),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    changes, reuse = FAMILIES[request.param]
    torch.manual_seed(1)
    attention = "eager" if request.param == "gemma2" else "sdpa"  # for its soft cap
    config = AutoConfig.for_model(request.param, **{**SIZES, **changes})
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval(), reuse


def turns():
    """Two conversations of unequal length, over three turns."""
    for turn in range(3):
        prompts = []
        for number, seen in enumerate(("You see a fridge 1 and a sink basin 1. " * 3, "look")):
            messages = [{"role": "user", "content": seen}]
            for past in range(turn):
                messages.append({"role": "assistant", "content": f"go to fridge {past}"})
                messages.append({"role": "user", "content": f"Nothing happens. {past}"})
            prompts.append(Prompt(messages, admissible=["look", "go to fridge 1", "go"], key=str(number), turn=turn))
        yield prompts


def test_prefixes_are_reused_where_every_layer_sees_everything(family):
    network, reuse = family
    assert can_reuse(network.config) == reuse


def test_batches_say_what_each_row_alone_says_and_log_probs_are_those_of_a_plain_forward(family):
    network, reuse = family
    together, alone = (HFPolicy.of(network, TOKENIZER, max_tokens=8) for _ in range(2))
    for prompts in turns():
        replies = together.act(prompts)
        assert [reply.ids for reply in replies] == [alone.act([prompt])[0].ids for prompt in prompts]
        for reply in replies:
            with torch.no_grad():
                logits = network(torch.tensor([[*reply.prompt_ids, *reply.ids]])).logits[
                    0, len(reply.prompt_ids) - 1 : -1
                ]
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
            assert reply.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    assert (replies[0].cached_tokens > 0) == reuse


def test_choices_are_scored_as_by_a_plain_forward(family):
    network, _ = family
    who = ScorePolicy.of(network, TOKENIZER)
    for prompts in turns():
        for reply in who.act(prompts):
            with torch.no_grad():
                logits = network(torch.tensor([[*reply.prompt_ids, *reply.ids]])).logits[
                    0, len(reply.prompt_ids) - 1 : -1
                ]
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
            assert reply.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
