"""Shapes and memory of Qwen2.5-3B-Instruct with RANDOM weights; needs no hub and no GPU.

python -m benchmarks.qwen_shapes [--layers N]

Uses the published configuration, and a GPU if there is one. Checks that the policy batches, reuses
prefixes, stores the expected number of bytes per token, and returns the log-probs of a plain forward.
The weights are random, so the script says nothing about ability.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from harness.policies.hf import HFPolicy, pick_device, use_available_cores
from harness.types import Prompt


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Returns a tokenizer with one token per byte; shapes do not need the real vocabulary."""
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()), start=1)}
    inner = Tokenizer(BPE(vocab={"<|im_end|>": 0, **alphabet}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")


def network(layers: int, device: torch.device) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=2048,
        intermediate_size=11_008,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        eos_token_id=0,
        dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        empty: Any = Qwen2ForCausalLM(config)
    built = empty.to(torch.bfloat16).to_empty(device=device)
    built.tie_weights()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in built.named_parameters():
            if name.endswith("norm.weight"):
                weights.fill_(1)
            else:
                weights.uniform_(-0.03, 0.03)
    built.model.rotary_emb = type(built.model.rotary_emb)(config).to(device)  # computed, not loaded
    return built.eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=36, help="36 is the full model")
    layers = parser.parse_args().layers
    device = pick_device("auto")
    use_available_cores()
    began = time.perf_counter()
    model = network(layers, device)
    parameters = sum(weights.numel() for weights in model.parameters())
    print(f"Qwen2.5-3B configuration, {layers} of 36 layers, RANDOM weights, bfloat16, on {device.type}")
    print(f"{parameters / 1e9:.3f} billion parameters, built in {time.perf_counter() - began:.0f} s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the missing chat template
        who = HFPolicy.of(model, bytes_tokenizer(), name="qwen2.5-3b-random", max_tokens=4)
    messages = [[{"role": "user", "content": "You see a fridge. " * size}] for size in (3, 6)]
    for turn in range(2):
        began = time.perf_counter()
        replies = who.act([Prompt(conversation, key=str(i), turn=turn) for i, conversation in enumerate(messages)])
        read = sum(reply.input_tokens - reply.cached_tokens for reply in replies)
        print(
            f"turn {turn + 1}: {read} tokens read, {sum(reply.cached_tokens for reply in replies)} reused, "
            f"{sum(reply.output_tokens for reply in replies)} sampled in {time.perf_counter() - began:.1f} s"
        )
        for conversation, reply in zip(messages, replies, strict=True):
            conversation += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "Go on."}]
    held = sum(reply.input_tokens + reply.output_tokens - 1 for reply in replies)
    expected = layers * 2 * 2 * 128 * 2  # keys and values, 2 heads of 128, 2 bytes
    print(f"prefix store: {who._prefixes.nbytes / held:,.0f} bytes a token, {expected:,} expected")
    last = replies[0]
    with torch.inference_mode():
        ids = torch.tensor([[*last.prompt_ids, *last.ids]], device=device)
        logits = model(ids, logits_to_keep=len(last.ids) + 1).logits[0, :-1].float()
    plain = logits.log_softmax(-1).gather(-1, ids[0, -len(last.ids) :, None])[:, 0].cpu()
    print(
        "largest difference of a log-prob from a plain forward, bfloat16: "
        f"{(plain - torch.tensor(last.logprobs)).abs().max():.3f}"
    )
    if device.type == "cuda":
        print(f"peak GPU memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    else:
        print(f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
