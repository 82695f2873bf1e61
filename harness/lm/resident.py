"""Continuous batching: rows join the batch when their prompt is ready and leave it when their reply
ends.

The batch is a cache whose rows all end at the same column. A step of `ResidentBatch` computes a
chunk of the waiting prompts and one token of every row, so that neither a long prompt nor a long
reply delays the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from harness.lm.cache import Layers, Prefix, put_rows, roomy_cache, roomy_layers, take_row
from harness.lm.decode import Job, Settings, TextOf, choose
from harness.prompting.messages import shared_prefix

MAX_PREFILL = 16_384
"""Largest number of prompt tokens in a forward pass, including padding."""
CHUNK = {"cpu": 256}
"""Largest number of prompt tokens in a forward pass while other rows are waiting for their next
token, by device.
"""
GPU_CHUNK = 2048
"""Largest number for devices that `CHUNK` does not list."""
MIN_SHARED = 16
"""Smallest number of common tokens for which new conversations share a prefix."""
SPARE_COLUMNS = 128
"""Columns that a full batch adds when it moves to a larger store."""


class Prefill:
    """Prompts of similar length that are computed together, chunk by chunk."""

    def __init__(self, model: Any, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self.width = max(len(job.prompt) for job in jobs)
        self._model = model
        fresh = max(map(unread, jobs))
        device = next(model.parameters()).device
        self._column = self.width - fresh
        self._ids = torch.zeros(len(jobs), fresh, dtype=torch.long, device=device)
        self._mask = torch.zeros(len(jobs), self.width, dtype=torch.long, device=device)
        rows: list[tuple[Layers | None, int]] = []
        for row, job in enumerate(jobs):
            self._mask[row, self.width - len(job.prompt) :] = 1
            tokens = job.prompt[-fresh:]
            self._ids[row, fresh - len(tokens) :] = torch.tensor(tokens, device=device)
            # A job with fewer unread tokens computes part of its prefix again, at the cost of
            # padding.
            job.reused = max(0, len(job.prompt) - fresh)
            rows.append((job.prefix.layers if job.prefix else None, job.reused))
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        if any(length for _, length in rows):
            self.cache = put_rows(rows, self._column, self.width)
        else:
            self.cache = roomy_cache(model.config.get_text_config().num_hidden_layers, self.width)

    def step(self, tokens: int) -> torch.Tensor | None:
        """Computes at most `tokens` prompt tokens; returns logits [rows, vocabulary] after the last
        chunk, else None.
        """
        first = self._column
        last = min(self.width, first + max(1, tokens // len(self.jobs)))
        offset = self.width - self._ids.shape[1]
        output = self._model(
            input_ids=self._ids[:, first - offset : last - offset],
            attention_mask=self._mask[:, :last],
            position_ids=self._positions[:, first:last],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._column = last
        logits: torch.Tensor = output.logits[:, -1]
        return logits if last == self.width else None


class ResidentBatch:
    """Decodes jobs of a model with full attention; see `harness.lm.decode.Decoder` for the methods.

    `keep_prefixes` sets `Job.result_prefix`, and lets new conversations share the beginning of
    their prompts.
    """

    def __init__(self, model: Any, settings: Settings, text_of: TextOf, keep_prefixes: bool = True) -> None:
        self._model, self._settings, self._text_of = model, settings, text_of
        self._keep_prefixes = keep_prefixes
        self.max_rows = 1 << 30
        self._waiting: deque[Job] = deque()
        self._prefills: deque[Prefill] = deque()
        self._shared: Prefix | None = None
        self._jobs: list[Job] = []  # by row
        self._cache: Cache | None = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)
        self._first = self._last = 0  # columns in use

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._prefills or self._jobs)

    def add(self, job: Job) -> None:
        self._waiting.append(job)

    def reset(self) -> None:
        self._waiting.clear()
        self._prefills.clear()
        self._jobs = []
        self._cache = None

    def forget(self) -> None:
        self._shared = None

    @torch.inference_mode()
    def step(self) -> list[Job]:
        """Computes a chunk of prompts and one token of every row; returns the jobs that have
        finished.
        """
        finished = []
        if not self._prefills:
            self._begin_prefills()
        if self._prefills:
            finished += self._prefill()
        if self._jobs:
            finished += self._decode()
        return finished

    # ---- prompts
    # ---------------------------------------------------------------------------------------------------------

    def _begin_prefills(self) -> None:
        room = self.max_rows - len(self._jobs)
        jobs = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if not jobs:
            return
        if self._keep_prefixes:
            self._share_beginning([job for job in jobs if job.reusable < MIN_SHARED])
        for group in _groups(jobs):
            self._prefills.append(Prefill(self._model, group))

    def _share_beginning(self, jobs: Sequence[Job]) -> None:
        """Gives new conversations the common beginning of their prompts, such as the rules, as a
        prefix.
        """
        new = [job for job in jobs if not self._use_shared(job)]
        if len(new) < 2:
            return
        ids = new[0].prompt
        shared = min(min(shared_prefix(ids, job.prompt), len(job.prompt) - 1) for job in new)
        if shared < MIN_SHARED:
            return
        leader = Job(ids[:shared], 1, 0)
        prefill = Prefill(self._model, [leader])
        prefill.step(shared)
        self._shared = Prefix(leader.prompt, take_row(prefill.cache, 0, 0, shared))
        for job in new:
            self._use_shared(job)

    def _use_shared(self, job: Job) -> bool:
        if self._shared is None:
            return False
        covered = shared_prefix(self._shared.ids, job.prompt)
        if covered < MIN_SHARED:
            return False
        if covered > job.reusable:
            job.prefix, job.reusable = self._shared, covered
        return True

    def _prefill(self) -> list[Job]:
        """Computes a chunk of the first group; its rows join the batch after the last chunk."""
        prefill = self._prefills[0]
        kind = next(self._model.parameters()).device.type
        logits = prefill.step(CHUNK.get(kind, GPU_CHUNK) if self._jobs else MAX_PREFILL)
        if logits is None:
            return []
        self._prefills.popleft()
        finished = []
        for row, job in enumerate(self._sample(prefill.jobs, logits)):
            width = len(job.prompt)
            layers = take_row(prefill.cache, row, prefill.width - width, prefill.width)
            if self._keep_prefixes and not job.reused and (self._shared is None or not self._use_shared(job)):
                self._shared = Prefix(job.prompt, layers)
            if job.finish_reason:
                if self._keep_prefixes:
                    job.result_prefix = Prefix(job.prompt, layers)
                finished.append(job)
            else:
                self._join(job, layers)
        return finished

    # ---- rows
    # ------------------------------------------------------------------------------------------------------------

    def _join(self, job: Job, layers: Layers) -> None:
        """Appends a row to the batch, so that it ends at the batch's last column."""
        width, row = len(job.prompt), len(self._jobs)
        if self._cache is None:
            room = width + max(SPARE_COLUMNS, job.room)
            self._cache = put_rows([(layers, width)], width, room)
            self._mask = torch.zeros(1, room, dtype=torch.long, device=layers[0][0].device)
            self._first, self._last = 0, width
        else:
            if row == self._mask.shape[0] or width > self._last:
                self._repack(max(row + 1, 2 * row), max(width, self._last - self._first))
            self._first = min(self._first, self._last - width)
            for layer, states in zip(roomy_layers(self._cache), layers, strict=True):
                assert layer.store is not None
                for store, new in zip(layer.store, states, strict=True):
                    store[row, :, self._last - width : self._last] = new
        self._mask[row] = 0
        self._mask[row, self._last - width : self._last] = 1
        self._jobs.append(job)
        self._show()

    def _leave(self, row: int) -> None:
        """Removes a row; the last row takes its place."""
        assert self._cache is not None
        job = self._jobs[row]
        seen = job.prompt + job.ids[:-1]  # the last token was sampled but never computed
        if self._keep_prefixes:
            columns = self._last - self._first
            job.result_prefix = Prefix(seen, take_row(self._cache, row, columns - len(seen), columns))
        last = len(self._jobs) - 1
        if row != last:
            for layer in roomy_layers(self._cache):
                assert layer.store is not None
                for store in layer.store:
                    store[row, :, self._first : self._last] = store[last, :, self._first : self._last]
            self._mask[row] = self._mask[last]
            self._jobs[row] = self._jobs[last]
        self._jobs.pop()

    def _show(self) -> None:
        """Shrinks the columns in use to the longest row."""
        assert self._cache is not None
        longest = max(self._length(job) for job in self._jobs)
        self._first = self._last - longest
        for layer in roomy_layers(self._cache):
            layer.show(len(self._jobs), self._first, self._last)

    @staticmethod
    def _length(job: Job) -> int:
        """Number of a row's columns: all tokens except the latest one."""
        return len(job.prompt) + len(job.ids) - 1

    def _repack(self, rows: int, width: int) -> None:
        """Moves the batch to a store for `rows` rows, with spare columns after the first `width`."""
        assert self._cache is not None
        rows = max(rows, self._mask.shape[0])
        room = width + max(SPARE_COLUMNS, width // 4)
        used = self._last - self._first
        mask = self._mask.new_zeros(rows, room)
        mask[: self._mask.shape[0], width - used : width] = self._mask[:, self._first : self._last]
        for layer in roomy_layers(self._cache):
            layer.repack(rows, room, width)
        self._mask, self._first, self._last = mask, width - used, width

    def _decode(self) -> list[Job]:
        """Computes the latest token of every row and samples the next one."""
        if self._last == self._mask.shape[1]:
            self._repack(len(self._jobs), self._last - self._first)
        device, rows = self._mask.device, len(self._jobs)
        self._mask[:rows, self._last] = 1
        tokens = torch.tensor([[job.ids[-1]] for job in self._jobs], device=device)
        positions = torch.tensor([[self._length(job)] for job in self._jobs], device=device)
        output = self._model(
            input_ids=tokens,
            attention_mask=self._mask[:rows, self._first : self._last + 1],
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._last += 1
        jobs = self._sample(self._jobs, output.logits[:, -1])
        finished = [job for job in jobs if job.finish_reason]
        for row in reversed(range(rows)):
            if self._jobs[row].finish_reason:
                self._leave(row)
        if self._jobs:
            self._show()
        else:
            self._cache = None
        return finished

    def _sample(self, jobs: Sequence[Job], logits: torch.Tensor) -> list[Job]:
        """Appends a sampled token to each job."""
        uniforms = torch.tensor([job.uniform(self._settings) for job in jobs], dtype=torch.float64)
        tokens, logprobs = choose(logits, self._settings, uniforms)
        for job, token, logprob in zip(jobs, tokens.tolist(), logprobs.tolist(), strict=True):
            job.append(token, logprob, self._settings, self._text_of)
        return list(jobs)


def unread(job: Job) -> int:
    """Returns the number of prompt tokens to compute: at least the last one, whose logits are
    needed.
    """
    return len(job.prompt) - min(job.reusable, len(job.prompt) - 1)


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Groups jobs whose unread parts differ by less than half and fit MAX_PREFILL tokens; the
    shortest come first.
    """
    groups: list[list[Job]] = []
    for job in sorted(jobs, key=lambda job: -unread(job)):
        longest = unread(groups[-1][0]) if groups else 0
        if not groups or 2 * unread(job) < longest or longest * (len(groups[-1]) + 1) > MAX_PREFILL:
            groups.append([])
        groups[-1].append(job)
    return groups[::-1]
