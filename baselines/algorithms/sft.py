"""Supervised fine-tuning on demonstrations: chat JSONL as `envsuite-data demos` writes it.

loss = sum over label tokens of -log p / number of label tokens; labels are the assistant's messages and the token that
ends each, nothing else. With a history window every line is one turn's data point, as in evaluation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from baselines.algorithms.policy_step import NonFiniteLoss, finite
from baselines.batch import Batch, collate
from baselines.configs import Tuning as Config
from baselines.distributed import collectives
from baselines.math.losses import aggregate
from baselines.model import Model
from envsuite.errors import DataError
from envsuite.types import StopReason, Task
from harness.lm.template import SampledReply, Template
from harness.types import Episode, Message, Reply, Trajectory, Turn


def read(path: Path) -> list[dict[str, Any]]:
    """The demonstrations of a chat JSONL file: `messages`, and where they come from. Raises DataError naming the line."""
    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            roles = [message["role"] for message in one["messages"] if isinstance(message["content"], str)]
            if len(roles) < len(one["messages"]) or roles[-1] != "assistant":
                raise ValueError("its messages are no texts, or the last is not the assistant's")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(
                f"{path}:{number} is no demonstration ({error}): a line is {{'messages': [...]}}."
            ) from error
        found.append(one)
    if not found:
        raise DataError(f"{path} holds no demonstrations.")
    return found


def spell(messages: Sequence[Message], template: Template, end: int, last_only: bool = False) -> Trajectory:
    """A conversation as if it had been sampled: each assistant message with the prompt it answers."""
    run = Trajectory(_NOWHERE, stop_reason=StopReason.SOLVED)
    said: list[SampledReply] = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        ids = [*template.tokenizer(message["content"], add_special_tokens=False)["input_ids"], end]
        if not last_only or place == len(messages) - 1:
            prompt = template.encode(messages[:place], said).ids
            reply = Reply(message["content"], prompt, ids, [0.0] * len(ids))
            run.turns.append(Turn("", reply, (message["content"],), 0.0, {}))
        said.append(SampledReply(message["content"], tuple(ids)))
    return run


_NOWHERE = Episode(Task(id="demonstration-v0", entry_point=""), "{}", 0)


def train(
    model: Model,
    conversations: Sequence[Sequence[Message]],
    template: Template,
    config: Config,
    generator: torch.Generator,
) -> Iterator[dict[str, float]]:
    """Fine-tunes the actor (and, where it has a trunk of its own, nothing else). Yields a log line per step.

    Raises NonFiniteLoss naming the step, before the weights take it.
    """
    end = min(template.end_ids)
    eos = template.tokenizer.eos_token_id
    if eos in template.end_ids:
        end = eos
    runs = [spell(messages, template, end, config.last_only) for messages in conversations]
    parameters = model.actor_parameters()
    optimiser = torch.optim.AdamW(
        parameters, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    steps = max(1, config.epochs * -(-len(runs) // config.rows))
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _cosine(step / steps, config.warmup))
    step = 0
    for epoch in range(config.epochs):
        order = torch.randperm(len(runs), generator=generator).split(config.rows)
        for chosen in order:
            step, began = step + 1, time.monotonic()
            batch = collate([runs[i] for i in chosen.tolist()])
            optimiser.zero_grad(set_to_none=True)
            loss = _backward(model, batch, config.micro_rows)
            collectives.add_gradients(parameters)
            norm = collectives.clip_gradients(parameters, config.max_grad_norm)
            try:
                finite(loss, "loss")
                finite(norm, "norm of the gradient")
            except NonFiniteLoss as error:
                raise NonFiniteLoss(
                    f"Step {step} of {steps} of fine-tuning: {error} Set sft.train; nothing was saved."
                ) from error
            optimiser.step()
            rate.step()
            tokens = float(batch.sampled.sum())
            yield {"epoch": epoch, "loss": loss, "tokens": tokens, "seconds": round(time.monotonic() - began, 3)}


def _backward(model: Model, batch: Batch, micro_rows: int) -> float:
    """Gradients of the mean over the batch's label tokens, a few rows at a time."""
    total, labels = 0.0, batch.sampled.sum()
    size = micro_rows or -(-len(batch.ids) // collectives.size())
    for part, real in collectives.rounds(torch.arange(len(batch.ids)).split(size), model.cut):
        width = int(batch.valid[part].sum(1).max())
        mask = batch.sampled[part, :width]
        logprobs, _ = model.logprobs(batch.ids[part, :width], batch.valid[part, :width], sampled=mask)
        loss = real * aggregate(-logprobs, mask) * mask.sum() / labels
        loss.backward()
        total += loss.item()
    return float(collectives.add(torch.tensor(total, dtype=torch.float64)))


def _cosine(done: float, warmup: float) -> float:
    if done < warmup:
        return (done + 1e-3) / warmup
    return 0.5 * (1 + torch.cos(torch.tensor((done - warmup) / max(1e-9, 1 - warmup) * torch.pi)).item())


def rows_of(found: Sequence[dict[str, Any]]) -> list[list[Message]]:
    """Conversations of demonstrations that are in memory already."""
    return [one["messages"] for one in found]
