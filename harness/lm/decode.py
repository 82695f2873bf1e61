"""Sampling of replies: settings, jobs, the choice of a token, and lock-step decoding of a batch.

A reply depends on its prompt and its seed only, not on other rows of the batch (up to rounding).
`LockStep` works for every causal model, with the model's own cache; `harness.lm.resident` is faster
for models with full attention.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch

from harness.lm.cache import Prefix

TextOf = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Settings:
    """Sampling settings. Temperature 0 is greedy, with log-probs at temperature 1."""

    temperature: float = 0.0
    top_p: float = 1.0
    end_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    """a reply ends when it contains one of these strings, which stays in the reply"""


@dataclass(eq=False)
class Job:
    """A reply to sample, and its result."""

    prompt: list[int]
    room: int
    """maximum number of sampled tokens, at least 1"""
    seed: int
    prefix: Prefix | None = None
    """cached prefix of an earlier prompt"""
    reusable: int = 0
    """number of prompt tokens that `prefix` covers"""
    reused: int = 0
    """number of prompt tokens that were not computed again"""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""
    """stop | length, when the job is finished"""
    result_prefix: Prefix | None = None
    """prefix for the next prompt of this conversation"""

    @cached_property
    def uniforms(self) -> list[float]:
        """A uniform random number for each token of the reply."""
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        numbers: list[float] = torch.rand(self.room, generator=generator, dtype=torch.float64).tolist()
        return numbers

    def uniform(self, settings: Settings) -> float:
        """Returns the random number of the next token; 0 for greedy decoding."""
        return self.uniforms[len(self.ids)] if settings.temperature else 0.0

    def append(self, token: int, logprob: float, settings: Settings, text_of: TextOf) -> bool:
        """Adds a sampled token; returns True if it finishes the reply."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in settings.end_ids or _contains_stop(self.ids, settings.stop, text_of):
            self.finish_reason = "stop"
        elif len(self.ids) >= self.room:
            self.finish_reason = "length"
        return bool(self.finish_reason)

    def restart(self) -> None:
        """Discards all results and cached prefixes."""
        self.prefix, self.reusable, self.reused, self.result_prefix = None, 0, 0, None
        self.ids, self.logprobs, self.finish_reason = [], [], ""


class Decoder(Protocol):
    """Decodes jobs that are added one by one."""

    max_rows: int
    """largest number of jobs to decode at the same time"""

    @property
    def busy(self) -> bool:
        """True while jobs are unfinished."""
        ...

    def add(self, job: Job) -> None:
        """Queues a job; `step` decodes it."""
        ...

    def step(self) -> list[Job]:
        """Computes for a short time; returns the jobs that have finished."""
        ...

    def reset(self) -> None:
        """Removes all unfinished jobs."""
        ...

    def forget(self) -> None:
        """Drops everything computed with the present weights, except jobs."""
        ...


class LockStep:
    """Decodes one batch after another with the model's own cache; a step decodes a complete batch."""

    def __init__(self, model: Any, settings: Settings, text_of: TextOf) -> None:
        self._model, self._settings, self._text_of = model, settings, text_of
        self._jobs: deque[Job] = deque()
        self.max_rows = 1 << 30

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def step(self) -> list[Job]:
        batch = list(self._jobs)[: self.max_rows]
        decode(self._model, batch, self._settings, self._text_of)
        for _ in batch:
            self._jobs.popleft()
        return batch

    def reset(self) -> None:
        self._jobs.clear()

    def forget(self) -> None:
        pass


@torch.inference_mode()
def decode(model: Any, jobs: Sequence[Job], settings: Settings, text_of: TextOf) -> None:
    """Decodes a batch in lock-step; fills every job's ids, logprobs and finish_reason."""
    if not jobs:
        return
    device = next(model.parameters()).device
    width = max(len(job.prompt) for job in jobs)
    ids = torch.zeros(len(jobs), width, dtype=torch.long, device=device)
    mask = torch.zeros(len(jobs), width + max(job.room for job in jobs), dtype=torch.long, device=device)
    mask[:, width:] = 1
    for row, job in enumerate(jobs):
        ids[row, width - len(job.prompt) :] = torch.tensor(job.prompt, device=device)
        mask[row, width - len(job.prompt) : width] = 1
    positions = (mask[:, :width].cumsum(-1) - 1).clamp(min=0)
    cache, columns = None, width
    while True:
        output = model(
            input_ids=ids,
            attention_mask=mask[:, :columns],
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache, columns = output.past_key_values, columns + 1
        uniforms = [0.0 if job.finish_reason else job.uniform(settings) for job in jobs]
        tokens, logprobs = choose(output.logits[:, -1], settings, torch.tensor(uniforms, dtype=torch.float64))
        for job, token, logprob in zip(jobs, tokens.tolist(), logprobs.tolist(), strict=True):
            if not job.finish_reason:
                job.append(token, logprob, settings, text_of)
        if all(job.finish_reason for job in jobs):
            return
        ids, positions = tokens[:, None].to(device), positions[:, -1:] + 1


def choose(logits: torch.Tensor, settings: Settings, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples next tokens [batch] with their log-probs [batch] from logits [batch, vocabulary] and
    uniforms [batch].

    Log-probs are over the full vocabulary at the sampling temperature, without the effect of `top_p`.
    """
    logits = (logits.cpu() if logits.device.type == "mps" else logits).float()  # Metal has no double precision
    if settings.temperature <= 0:
        logprobs = logits.log_softmax(-1)
        tokens = logits.argmax(-1)
    else:
        logprobs = (logits / settings.temperature).log_softmax(-1)
        weights, order = logprobs.double().exp(), None
        if settings.top_p < 1:
            weights, order = weights.sort(dim=-1, descending=True, stable=True)
            # The smallest set of likeliest tokens that has top_p: the sum before a token decides.
            weights = weights.masked_fill(weights.cumsum(-1) - weights >= settings.top_p, 0)
        cumulative = weights.cumsum(-1)
        target = uniforms.to(cumulative.device)[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True).clamp(max=cumulative.shape[-1] - 1)
        tokens = (tokens if order is None else order.gather(-1, tokens)).squeeze(-1)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)


def _contains_stop(ids: Sequence[int], stop: Sequence[str], text_of: TextOf) -> bool:
    """Returns True if the latest token completes a stop string, which has at most one token per
    character.
    """
    if not stop:
        return False
    tail = text_of(ids[-max(map(len, stop)) - 1 :])
    return any(word in tail for word in stop)
