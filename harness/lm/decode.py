"""Sampling replies for a batch of prompts: left padding, prefixes reused, one row of dice per reply.

What a row says depends on its prompt and its dice alone, not on what is decoded beside it (up to rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.lm.cache import Layers, Prefix, common, put_rows, roomy_cache, take_row

PREFILL_TOKENS = 16_384
"""at most so many tokens, padding included, go through the model at once"""
WORTH = 16
"""fewer shared tokens than this are not worth a pass of their own"""


@dataclass(frozen=True)
class Settings:
    """How tokens are chosen. Temperature 0 is greedy; log-probs are then those at temperature 1."""

    temperature: float = 0.0
    top_p: float = 1.0
    end_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    """a reply ends once it holds one of these; they stay part of it"""


@dataclass
class Job:
    """One reply to be sampled, and what became of it."""

    prompt: list[int]
    room: int  # tokens it may sample, at least 1
    seed: int
    prefix: Prefix | None = None  # of an earlier prompt
    reusable: int = 0  # tokens of `prompt` that `prefix` covers
    reused: int = 0  # of those, the ones that were not computed again
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""  # "stop" | "length"
    kept: Prefix | None = None  # for the next prompt of this conversation

    def dice(self, temperature: float) -> torch.Tensor:
        """A uniform number per token."""
        if not temperature:
            return torch.zeros(self.room, dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        return torch.rand(self.room, generator=generator, dtype=torch.float64)


@torch.inference_mode()
def decode(
    model: Any, jobs: Sequence[Job], settings: Settings, text_of: Callable[[Sequence[int]], str], reuse: bool = True
) -> None:
    """Fills every job's ids, logprobs, finish_reason, and with `reuse` its `kept` prefix."""
    if not jobs:
        return
    cache, logits = _prefill(model, jobs, reuse)
    device = logits.device
    width = max(len(job.prompt) for job in jobs)
    dice = torch.stack([_padded(job.dice(settings.temperature), max(job.room for job in jobs)) for job in jobs])
    mask = torch.ones(len(jobs), width + dice.shape[1], dtype=torch.long, device=device)
    for row, job in enumerate(jobs):
        mask[row, : width - len(job.prompt)] = 0
    live = list(range(len(jobs)))  # the job of each row of the batch

    def keep(rows: Sequence[int]) -> None:
        """Takes what the rows' conversations may reuse out of the batch."""
        for row in rows if reuse else ():
            job = jobs[live[row]]
            # The last token was sampled but never read.
            seen = job.prompt + job.ids[:-1]
            first = width - len(job.prompt)
            job.kept = Prefix(seen, take_row(cache, row, first, first + len(seen)))

    for step in range(dice.shape[1]):
        tokens, logprobs = choose(logits, settings, dice[live, step])
        for row, (token, logprob) in enumerate(zip(tokens.tolist(), logprobs.tolist())):
            job = jobs[live[row]]
            if not job.finish_reason:
                job.ids.append(token)
                job.logprobs.append(logprob)
                job.finish_reason = _ending(job, settings, text_of)
        going = [row for row, place in enumerate(live) if not jobs[place].finish_reason]
        if not going:
            break
        if len(going) <= len(live) // 2:  # enough have ended for a smaller batch to pay
            keep([row for row in range(len(live)) if row not in going])
            chosen = torch.tensor(going, device=device)
            cache.batch_select_indices(chosen)
            mask, tokens = mask[chosen], tokens[chosen]
            live = [live[row] for row in going]
        columns = width + step + 1
        positions = torch.tensor([[len(jobs[place].prompt) + step] for place in live], device=device)
        logits = _forward(model, tokens[:, None], mask[:, :columns], positions, cache)
    keep(range(len(live)))


def choose(logits: torch.Tensor, settings: Settings, dice: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens [batch] and their log-probs [batch] from logits [batch, vocabulary] and uniform numbers [batch].

    Log-probs are those of the full vocabulary at the sampling temperature, whatever `top_p` leaves out.
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
            # The smallest set of likeliest tokens that holds top_p: what lies before a token decides whether it is in.
            weights = weights.masked_fill(weights.cumsum(-1) - weights >= settings.top_p, 0)
        heap = weights.cumsum(-1)
        target = dice.to(heap.device)[:, None] * heap[:, -1:]
        tokens = torch.searchsorted(heap, target, right=True).clamp(max=heap.shape[-1] - 1)
        tokens = (tokens if order is None else order.gather(-1, tokens)).squeeze(-1)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)


def _ending(job: Job, settings: Settings, text_of: Callable[[Sequence[int]], str]) -> str:
    if job.ids[-1] in settings.end_ids:
        return "stop"
    if settings.stop:
        # A stop string of n characters ends within the latest token and reaches over at most n tokens before it.
        tail = text_of(job.ids[-max(map(len, settings.stop)) - 1 :])
        if any(word in tail for word in settings.stop):
            return "stop"
    return "length" if len(job.ids) >= job.room else ""


def _prefill(model: Any, jobs: Sequence[Job], reuse: bool) -> tuple[Any, torch.Tensor]:
    """The batch's cache, and logits [batch, vocabulary] after each prompt."""
    width = max(len(job.prompt) for job in jobs)
    room = width + max(job.room for job in jobs)
    if not reuse:
        return _read(model, jobs, width, None)
    _begin(model, [job for job in jobs if not job.reusable])
    groups = list(_groups(jobs))
    if len(groups) == 1:
        return _read(model, jobs, max(_unread(job) for job in jobs), room)
    logits: list[torch.Tensor] = [torch.empty(0)] * len(jobs)
    rows: list[tuple[Layers | None, int]] = [(None, 0)] * len(jobs)
    for places in groups:
        group = [jobs[place] for place in places]
        cache, found = _read(model, group, max(_unread(job) for job in group), max(len(job.prompt) for job in group))
        columns = max(len(job.prompt) for job in group)
        for row, place in enumerate(places):
            length = len(jobs[place].prompt)
            rows[place] = (take_row(cache, row, columns - length, columns), length)
            logits[place] = found[row]
    return put_rows(rows, width, room), torch.stack(logits)


def _begin(model: Any, jobs: Sequence[Job]) -> None:
    """Reads what several new conversations all begin with, such as the rules, once for all of them."""
    if len(jobs) < 2:
        return
    ids = jobs[0].prompt
    shared = min(min(common(ids, job.prompt), len(job.prompt) - 1) for job in jobs)
    if shared < WORTH:
        return
    cache = roomy_cache(model.config.get_text_config().num_hidden_layers, shared)
    device = next(model.parameters()).device
    model(
        input_ids=torch.tensor([ids[:shared]], device=device), past_key_values=cache, use_cache=True, logits_to_keep=1
    )
    prefix = Prefix(ids[:shared], take_row(cache, 0, 0, shared))
    for job in jobs:
        job.prefix, job.reusable = prefix, shared


def _unread(job: Job) -> int:
    """Tokens of the prompt to be computed: at least the last, whose logits are wanted."""
    return len(job.prompt) - min(job.reusable, len(job.prompt) - 1)


def _groups(jobs: Sequence[Job]) -> Iterator[list[int]]:
    """Jobs that are worth reading together: their unread parts differ by less than half, and fit PREFILL_TOKENS."""
    group: list[int] = []
    longest = 0
    for place in sorted(range(len(jobs)), key=lambda place: -_unread(jobs[place])):
        unread = _unread(jobs[place])
        if group and (2 * unread < longest or longest * (len(group) + 1) > PREFILL_TOKENS):
            yield group
            group = []
        if not group:
            longest = unread
        group.append(place)
    if group:
        yield group


def _read(model: Any, jobs: Sequence[Job], fresh: int, room: int | None) -> tuple[Any, torch.Tensor]:
    """Computes the last `fresh` columns of the left-padded prompts; what lies before comes from the jobs' prefixes.

    A job whose unread part is shorter computes some of its prefix again: that costs what padding would, and leaves
    no holes. `room` None: the model brings its own cache.
    """
    width = max(len(job.prompt) for job in jobs)
    before = width - fresh
    device = next(model.parameters()).device
    ids = torch.zeros(len(jobs), fresh, dtype=torch.long, device=device)
    mask = torch.zeros(len(jobs), width, dtype=torch.long, device=device)
    rows: list[tuple[Layers | None, int]] = []
    for row, job in enumerate(jobs):
        mask[row, width - len(job.prompt) :] = 1
        part = job.prompt[-fresh:]
        ids[row, fresh - len(part) :] = torch.tensor(part, device=device)
        job.reused = max(0, len(job.prompt) - fresh)
        rows.append((job.prefix.layers if job.prefix else None, job.reused))
    cache: Any = None
    if room is not None:
        layers = model.config.get_text_config().num_hidden_layers
        cache = put_rows(rows, before, room) if any(length for _, length in rows) else roomy_cache(layers, room)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, before:]
    found = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return found.past_key_values, found.logits[:, -1]


def _forward(model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
    found = model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
    return found.logits[:, -1]


def _padded(dice: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(dice, (0, length - len(dice)))
