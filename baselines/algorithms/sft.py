"""Supervised fine-tuning on demonstrations: chat JSONL as `envsuite data demos` writes it.

loss = sum over label tokens of -log p / number of label tokens. Labels are the assistant's messages
and the token that ends each. With a history window every line is the data point of one turn, as in
evaluation.

`read` loads demonstrations, `as_trajectory` tokenises one, `FineTuning` fine-tunes the actor.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from baselines.algorithms.update import UpdateConfig
from baselines.batch import Batch, collate, crop, split
from baselines.math.losses import NonFiniteLoss, aggregate, check_finite
from baselines.ranges import Count, Natural, NonNegative, Positive, Share
from envsuite.errors import DataError, UsageError
from envsuite.types import StopReason, Task
from harness.lm.completions import completion, completion_ids
from harness.lm.template import SampledReply, Template
from harness.types import Episode, Message, Reply, ToolSchema, Trajectory, Turn

if TYPE_CHECKING:
    from baselines.networks.model import Model


@dataclass(frozen=True)
class SFTConfig:
    """Supervised fine-tuning on demonstrations."""

    learning_rate: NonNegative = 1e-5
    epochs: Count = 1
    rows: Count = 16
    """Demonstrations per optimiser step."""
    micro_rows: Natural = 0
    """Rows per forward pass; 0: all rows of a step."""
    warmup: Share = 0.1
    """Share of the steps in which the learning rate rises to its full value; it then falls as a
    cosine."""
    weight_decay: NonNegative = 0.01
    max_grad_norm: Positive = 1.0
    last_only: bool = False
    """Train only the last assistant message of each line. Use it with a history window, where each
    turn has its own line."""
    max_length: Natural = 0
    """Longest demonstration in tokens; longer ones are left out. 0: no limit."""
    save_every: Natural = 0
    """Steps between checkpoints, from which --resume continues; 0: only at the end."""


@dataclass(frozen=True)
class SFT(UpdateConfig):
    """Settings of a run of fine-tuning alone, whose numbers are in the table `sft.train`."""

    def validate(self, recipe: Any) -> None:
        if not recipe.sft.any:
            raise UsageError(
                "algorithm = 'sft' learns from demonstrations, and the recipe has none: set sft.episodes "
                "(100) or sft.file."
            )


Config = SFT


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
            messages = demonstration["messages"] = list(map(_with_text, demonstration["messages"]))
            roles = [message["role"] for message in messages if isinstance(message["content"], str)]
            if len(roles) < len(messages) or roles[-1] != "assistant":
                raise ValueError("a message has no text, or the last message is not the assistant's")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(
                f"{path}:{number} is no demonstration ({error}): a line is {{'messages': [...]}}."
            ) from error
        demonstrations.append(demonstration)
    if not demonstrations:
        raise DataError(f"{path} holds no demonstrations.")
    return demonstrations


def _with_text(message: Message) -> Message:
    """Returns a message whose calls have their arguments as text, and which has a text itself if it has calls.

    Other tools write null as the text, and arguments as objects. Raises ValueError, KeyError or TypeError.
    """
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        if not isinstance(json.loads(text), dict):
            raise ValueError("the arguments of a tool call are not a JSON object")
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    content = "" if message.get("content") is None else message["content"]
    return {**message, "content": content, "tool_calls": calls}


def tools_of(demonstrations: Sequence[dict[str, Any]]) -> list[list[ToolSchema]]:
    """Returns the tools that each demonstration declares."""
    return [demonstration.get("tools") or [] for demonstration in demonstrations]


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
    """Tokenises a conversation as if its assistant had sampled it: each message as the template writes it after its
    prompt (`completion`), followed by the token `end`."""
    run = Trajectory(_NO_EPISODE, stop_reason=StopReason.SOLVED)
    replies: list[SampledReply] = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        text = completion(template, messages[: index + 1], tools)
        ids = [*completion_ids(template, messages[:index], text, tools), end]
        if not last_only or index == len(messages) - 1:
            prompt = template.encode(messages[:index], replies, tools).ids
            run.turns.append(Turn("", Reply(text, prompt, ids, [0.0] * len(ids)), (text,), 0.0, {}))
        replies.append(SampledReply(text if message.get("tool_calls") else message["content"], tuple(ids)))
    return run


class FineTuning:
    """Fine-tunes the actor in steps, between any two of which it can be saved and resumed."""

    def __init__(
        self,
        model: Model,
        conversations: Sequence[Sequence[Message]],
        template: Template,
        config: SFTConfig,
        generator: torch.Generator,
        tools: Sequence[Sequence[ToolSchema]] | None = None,
    ) -> None:
        """Tokenises the conversations; `tools` lists the tools of each. Raises DataError if all are
        longer than `max_length`."""
        runs = [
            as_trajectory(messages, template, template.end_id, config.last_only, schemas)
            for messages, schemas in zip(conversations, tools or [()] * len(conversations), strict=True)
        ]
        self.runs = [run for run in runs if not config.max_length or _length(run) <= config.max_length]
        if not self.runs:
            raise DataError(
                f"All {len(runs)} demonstrations have more than sft.train.max_length = {config.max_length} tokens."
            )
        self.model, self.config, self.generator = model, config, generator
        from baselines.algorithms.optimisers import Optimiser

        weights = model.actor_masters
        adamw = torch.optim.AdamW(
            weights.masters, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        self.optimiser = Optimiser(weights, adamw, config.max_grad_norm, "model")
        self.per_epoch = -(-len(self.runs) // config.rows)
        self.steps = max(1, config.epochs * self.per_epoch)
        self.step = 0
        self.shuffle = generator.get_state()
        """State of the generator before it drew the order of the present pass."""

    def run(self) -> Iterator[dict[str, float]]:
        """Takes the remaining steps and yields numbers to log after each.

        Raises NonFiniteLoss naming the step, before the weights take it.
        """
        while self.step < self.steps:
            epoch, first = divmod(self.step, self.per_epoch)
            if first:
                self.generator.set_state(self.shuffle)
            else:
                self.shuffle = self.generator.get_state()
            order = torch.randperm(len(self.runs), generator=self.generator)
            for rows in order.split(self.config.rows)[first:]:
                yield {"epoch": epoch, **self._take_step([self.runs[i] for i in rows.tolist()])}

    def _take_step(self, runs: Sequence[Trajectory]) -> dict[str, float]:
        began, cpu = time.monotonic(), time.process_time()
        config = self.config
        self.optimiser.rate = config.learning_rate * _schedule(self.step / self.steps, config.warmup)
        batch = collate(runs)
        try:
            self.optimiser.zero_grad()
            loss = _backward(self.model, batch, config.micro_rows)
            check_finite(loss, "loss")
            self.optimiser.step()
        except NonFiniteLoss as error:
            raise NonFiniteLoss(
                f"Step {self.step + 1} of {self.steps} of fine-tuning: {error} Set sft.train."
            ) from error
        self.step += 1
        return {
            "step": self.step,
            "steps": self.steps,
            "loss": loss,
            "tokens": float(batch.sampled.sum()),
            "read": float(batch.valid.sum()),
            "seconds": round(time.monotonic() - began, 3),
            "cpu_seconds": round(time.process_time() - cpu, 3),
        }

    def state(self) -> dict[str, Any]:
        """Returns plain data for a checkpoint; the weights are in `Model.state`."""
        return {"step": self.step, "shuffle": self.shuffle, "optimiser": self.optimiser.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self.step, self.shuffle = state["step"], state["shuffle"]
        self.optimiser.load_state(state["optimiser"])


def _length(run: Trajectory) -> int:
    """Returns the tokens of a demonstration, its last prompt and reply."""
    last = run.turns[-1].reply
    return len(last.prompt_ids) + len(last.ids)


def _backward(model: Model, batch: Batch, micro_rows: int) -> float:
    """Accumulates the gradient of the mean over the batch's label tokens, and returns the loss."""
    total, labels = 0.0, batch.sampled.sum()
    parts = split(model, batch, torch.arange(len(batch.ids)), micro_rows)
    for part, weight in model.processes.rounds(parts, model.sharded):
        ids, valid, sampled, _ = crop(batch, part)
        logprobs, _ = model.logprobs(ids, valid, sampled=sampled, entropy_gradient=False)
        loss = weight * aggregate(-logprobs, sampled) * sampled.sum() / labels
        loss.backward()
        total += loss.item()
    return model.processes.add_number(total)


def _schedule(done: float, warmup: float) -> float:
    """Returns the share of the learning rate after the share `done` of the steps: a linear rise,
    then a half cosine."""
    if done < warmup:
        return (done + 1e-3) / warmup
    return 0.5 * (1 + math.cos((done - warmup) / max(1e-9, 1 - warmup) * math.pi))
