"""A language model of a few thousand random weights with a true tokenizer and chat template: exact, and quick."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CORPUS = [
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a fridge 1 and a sink basin 1.",
    "Each turn, answer with exactly one command between <action> and </action>. go to fridge 1, open fridge 1, look",
    "take apple 1 from fridge 1. You pick up the apple 1. Nothing happens. Your task is to: put a clean apple in sink.",
    "system user assistant observation north south east west 0 1 2 3 4 5 6 7 8 9",
]


def tiny_tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    inner = Tokenizer(BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(vocabulary: int, seed: int = 0, context: int = 2048) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        initializer_range=0.6,  # so that random logits differ enough to have an opinion
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()
