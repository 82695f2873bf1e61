"""Supervised fine-tuning on demonstrations: chat JSONL as `envsuite-data demos` writes it.

loss = sum over label tokens of -log p / number of label tokens. Labels are the assistant's messages
and the token that ends each. With a history window every line is the data point of one turn, as in
evaluation.

`read` loads demonstrations, `as_trajectory` tokenises one, `train` fine-tunes the actor.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from baselines.algorithms.optimisers import NonFiniteLoss, Optimiser, check_finite
from baselines.batch import Batch, collate
from baselines.configs import SFTConfig as Config
from baselines.distributed import collectives
from baselines.math.losses import aggregate
from baselines.microbatch import crop, split
from baselines.networks.model import Model
from envsuite.errors import DataError
from envsuite.types import StopReason, Task
from harness.lm.template import SampledReply, Template
from harness.types import Episode, Message, Reply, ToolSchema, Trajectory, Turn


def read(path: Path) -> list[dict[str, Any]]:
    """Reads the demonstrations of a chat JSONL file. Raises DataError naming the line that is not
    one."""
    demonstrations = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            demonstration = json.loads(line)
            messages = demonstration["messages"]
            roles = [message["role"] for message in messages if isinstance(message["content"], str)]
            if len(roles) < len(messages) or roles[-1] != "assistant":
                raise ValueError("a message has no text, or the last message is not the assistant's")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(
                f"{path}:{number} is no demonstration ({error}): a line is {{'messages': [...]}}."
            ) from error
        demonstrations.append(demonstration)
    if not demonstrations:
        raise DataError(f"{path} holds no demonstrations.")
    return demonstrations


def tools_of(demonstrations: Sequence[dict[str, Any]]) -> list[list[ToolSchema]]:
    """Returns the tools that each demonstration declares."""
    return [demonstration.get("tools", []) for demonstration in demonstrations]


def conversations_of(demonstrations: Sequence[dict[str, Any]]) -> list[list[Message]]:
    """Returns the messages of demonstrations."""
    return [demonstration["messages"] for demonstration in demonstrations]


_NO_EPISODE = Episode(Task(id="demonstration-v0", entry_point=""), "{}", 0)


def as_trajectory(
    messages: Sequence[Message],
    template: Template,
    end: int,
    last_only: bool = False,
    tools: Sequence[ToolSchema] = (),
) -> Trajectory:
    """Tokenises a conversation as if its assistant had sampled it, each message followed by the
    token `end`. Tool calls are spelled as the template spells them."""
    run = Trajectory(_NO_EPISODE, stop_reason=StopReason.SOLVED)
    replies: list[SampledReply] = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        text = template.completion(messages[: place + 1], tools)
        ids = [*template.tokenizer(text, add_special_tokens=False)["input_ids"], end]
        if not last_only or place == len(messages) - 1:
            prompt = template.encode(messages[:place], replies, tools).ids
            run.turns.append(Turn("", Reply(text, prompt, ids, [0.0] * len(ids)), (text,), 0.0, {}))
        replies.append(SampledReply(text, tuple(ids)))
    return run


def train(
    model: Model,
    conversations: Sequence[Sequence[Message]],
    template: Template,
    config: Config,
    generator: torch.Generator,
    tools: Sequence[Sequence[ToolSchema]] | None = None,
) -> Iterator[dict[str, float]]:
    """Fine-tunes the actor and yields numbers to log per step. `tools` are those of each conversation.

    Raises NonFiniteLoss naming the step, before the weights take it.
    """
    eos = template.tokenizer.eos_token_id
    end = eos if eos in template.end_ids else min(template.end_ids)
    runs = [
        as_trajectory(messages, template, end, config.last_only, schemas)
        for messages, schemas in zip(conversations, tools or [()] * len(conversations), strict=True)
    ]
    weights = model.actor_masters
    adamw = torch.optim.AdamW(
        weights.masters, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    optimiser = Optimiser(weights, adamw, config.max_grad_norm, "model")
    steps = max(1, config.epochs * -(-len(runs) // config.rows))
    step = 0
    for epoch in range(config.epochs):
        for rows in torch.randperm(len(runs), generator=generator).split(config.rows):
            began = time.monotonic()
            optimiser.rate = config.learning_rate * _schedule(step / steps, config.warmup)
            batch = collate([runs[i] for i in rows.tolist()])
            try:
                optimiser.zero_grad()
                loss = _backward(model, batch, config.micro_rows)
                check_finite(loss, "loss")
                optimiser.step()
            except NonFiniteLoss as error:
                raise NonFiniteLoss(
                    f"Step {step + 1} of {steps} of fine-tuning: {error} Set sft.train; nothing was saved."
                ) from error
            step += 1
            tokens = float(batch.sampled.sum())
            yield {"epoch": epoch, "loss": loss, "tokens": tokens, "seconds": round(time.monotonic() - began, 3)}


def _backward(model: Model, batch: Batch, micro_rows: int) -> float:
    """Accumulates the gradient of the mean over the batch's label tokens, and returns the loss."""
    total, labels = 0.0, batch.sampled.sum()
    parts = split(batch, torch.arange(len(batch.ids)), micro_rows)
    for part, weight in collectives.rounds(parts, model.sharded):
        ids, valid, sampled = crop(batch, part)
        logprobs, _ = model.logprobs(ids, valid, sampled=sampled, entropy_gradient=False)
        loss = weight * aggregate(-logprobs, sampled) * sampled.sum() / labels
        loss.backward()
        total += loss.item()
    return collectives.add_number(total)


def _schedule(done: float, warmup: float) -> float:
    """Returns the share of the learning rate after the share `done` of the steps: a linear rise,
    then a half cosine."""
    if done < warmup:
        return (done + 1e-3) / warmup
    return 0.5 * (1 + math.cos((done - warmup) / max(1e-9, 1 - warmup) * math.pi))
