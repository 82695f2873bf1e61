"""A local model that chooses among the admissible commands by their likelihood (TWOSOME); it writes nothing itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from envsuite.errors import UsageError
from harness.lm.cache import Prefix, take_row
from harness.lm.likelihood import (
    NORMALISATIONS,
    Candidate,
    candidates,
    choice,
    token_logprobs,
    token_logprobs_apart,
    word_count,
)
from harness.policies.hf import HFPolicy
from harness.prompting.messages import without_oldest_turn
from harness.types import Message, Prompt, Reply

NODES = 2048
"""at most about so many command tokens go through the model at once"""
KNOWN = 4096
"""the scores of so many prompts with their commands are remembered, the latest used"""


class ScorePolicy(HFPolicy):
    """Chooses one of `Prompt.admissible`: the likeliest (temperature 0), or by the dice at `temperature`.

    `normalisation` is what a command's log-likelihood is divided by: "sum" nothing, "token" its tokens, "word" its words.
    `lead` stands between the prompt and every command and `close` after it in the conversation; neither is scored.

    A reply's `commands` hold the choice, `prompt_ids` are the tokens it follows, `ids` and `logprobs` its own tokens and
    the model's log-probs of them. `extra` has "logprob" of the choice among the admissible commands, the "entropy" of
    that distribution, the "index" of the choice, and "prompt" and "candidates" to score again. Other options: those of HFPolicy.
    """

    def _set_up(
        self,
        name: str,
        network: Any,
        tokenizer: Any,
        *,
        normalisation: str = "word",
        lead: str = "",
        close: str = "",
        **options: Any,
    ) -> None:
        if normalisation not in NORMALISATIONS:
            raise UsageError(f"Unknown normalisation {normalisation!r}: {', '.join(NORMALISATIONS)}.")
        super()._set_up(name, network, tokenizer, **options)
        self._known: OrderedDict[tuple[tuple[int, ...], tuple[Candidate, ...]], list[torch.Tensor]] = OrderedDict()
        self._spelled = lru_cache(maxsize=KNOWN)(self._spell)
        self.normalisation, self.close_tag = normalisation, close
        self.lead = lead or (" " if self.template.plain else "")  # after 'Assistant:' words begin with a blank

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        try:
            return [self._choose(prompt) for prompt in prompts]
        except torch.OutOfMemoryError as error:
            self.forget()
            raise UsageError(
                f"The GPU's memory does not hold {self.name} with a prompt and its admissible commands: "
                "lower --history, take --dtype bfloat16, or a smaller model."
            ) from error

    @torch.inference_mode()
    def _choose(self, prompt: Prompt) -> Reply:
        if not prompt.admissible:
            task = prompt.episode.task.id if prompt.episode else "this task"
            raise UsageError(
                f"--action-mode score chooses among admissible commands, and {task} lists none: let the model write instead."
            )
        ids, found, dropped = self._fit_commands(prompt)
        longest = max(one.keeps + len(one.ids) for one in found)
        if longest > self.context:
            return Reply("", ids, finish_reason="context", dropped_turns=dropped, input_tokens=len(ids))
        each, reused = self._score(prompt.key, ids, found)
        sums = torch.stack([one.double().sum() for one in each])
        lengths = [len(one.ids) for one in found]
        words = [word_count(command) for command in prompt.admissible]
        temperature = self.settings.temperature
        result = choice(sums, lengths, words, self.normalisation, temperature or 1.0)
        index = int(result.logprobs.argmax()) if not temperature else _draw(result.logprobs, prompt.seed)
        chosen, command = found[index], prompt.admissible[index]
        return Reply(
            f"{self.lead.strip()}{command}{self.close_tag}",
            prompt_ids=ids[: chosen.keeps],
            ids=list(chosen.ids),
            logprobs=each[index].tolist(),
            commands=(command,),
            dropped_turns=dropped,
            input_tokens=len(ids),
            cached_tokens=reused,
            extra={
                "logprob": float(result.logprobs[index]),
                "entropy": float(result.entropy),
                "index": index,
                "prompt": ids,  # with `candidates`, what a trainer scores again
                "candidates": found,
            },
        )

    def _fit_commands(self, prompt: Prompt) -> tuple[list[int], list[Candidate], int]:
        """Prompt and commands in tokens, without as many of the oldest turns as it takes to fit the context."""
        messages: Sequence[Message] = prompt.messages
        dropped = 0
        while True:
            ids, found = self.tokens(messages, prompt.admissible)
            if max(one.keeps + len(one.ids) for one in found) <= self.context:
                return ids, found, dropped
            shorter = without_oldest_turn(messages)
            if shorter is None:
                return ids, found, dropped
            messages = shorter
            dropped += 1

    def tokens(self, messages: Sequence[Message], commands: Sequence[str]) -> tuple[list[int], list[Candidate]]:
        """The prompt, `lead` included, and each command after it: what trainers score again."""
        return self._spelled(tuple((one["role"], one["content"]) for one in messages), tuple(commands))

    def _spell(
        self, messages: tuple[tuple[str, str], ...], commands: tuple[str, ...]
    ) -> tuple[list[int], list[Candidate]]:
        ids, head, tail = self.template.open_end([{"role": role, "content": text} for role, text in messages])
        found = candidates(self.tokenizer, head, tail, commands, self.lead)
        if self.lead:
            ids = ids[:head] + self.tokenizer(tail + self.lead, add_special_tokens=False)["input_ids"]
        return ids, found

    def _score(self, key: str, ids: list[int], found: Sequence[Candidate]) -> tuple[list[torch.Tensor], int]:
        """Log-probs of each candidate's tokens, and how many tokens of the prompt were not computed again."""
        asked = (tuple(ids), tuple(found))
        if self.prefix_reuse and asked in self._known:  # small worlds are seen again and again, in many episodes
            self._known.move_to_end(asked)
            return self._known[asked], len(ids)
        each, reused = self._compute(key, ids, found)
        if self.prefix_reuse:
            self._known[asked] = each
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return each, reused

    def forget(self) -> None:
        super().forget()
        self._known.clear()

    def _compute(self, key: str, ids: list[int], found: Sequence[Candidate]) -> tuple[list[torch.Tensor], int]:
        if not self.prefix_reuse:
            return token_logprobs_apart(self.network, ids, found), 0
        prefix, covered = self._prefixes.longest(key, ids) if key else (None, 0)
        reused = min(covered, len(ids) - 1)
        each: list[torch.Tensor] = []
        for part in _parts(found):
            some, cache = token_logprobs(self.network, ids, part, prefix.layers if prefix else None, covered)
            each += some
            if cache is not None and covered < len(ids):
                prefix, covered = Prefix(ids, take_row(cache, 0, 0, len(ids))), len(ids)
        if key and prefix is not None:
            self._prefixes.put(key, prefix)
        return each, reused


def _parts(found: Sequence[Candidate]) -> list[list[Candidate]]:
    parts: list[list[Candidate]] = [[]]
    room = NODES
    for one in found:
        if parts[-1] and len(one.ids) > room:
            parts.append([])
            room = NODES
        parts[-1].append(one)
        room -= len(one.ids)
    return parts


def _draw(logprobs: torch.Tensor, seed: int) -> int:
    generator = torch.Generator().manual_seed(seed % 2**63)
    target = torch.rand(1, generator=generator, dtype=torch.float64)
    heap = logprobs.double().cpu().exp().cumsum(-1)
    return min(int(torch.searchsorted(heap, target * heap[-1], right=True)), len(heap) - 1)
