"""A local model that chooses among the admissible commands by likelihood (TWOSOME) instead of
writing text.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from envsuite.errors import UsageError
from harness.lm.cache import Prefix, take_row
from harness.lm.likelihood import (
    NORMALISATIONS,
    Candidate,
    Choice,
    candidates,
    choice,
    token_logprobs,
    token_logprobs_apart,
    word_count,
)
from harness.lm.template import Template
from harness.lm.trie import Trie, prefix_free
from harness.policies.hf import HFPolicy
from harness.prompting.messages import shortened
from harness.types import Message, Prompt, Reply

MAX_NODES = 2048
"""Approximate limit on command tokens per forward pass."""
CAPACITY = 4096
"""Number of prompts whose scores are cached; the least recently used ones are dropped."""
SLICE = 0.05
"""Seconds for which `collect` continues to score pending prompts."""
TRIE = "trie"
"""Normalisation of each token over the continuations of admissible commands (`harness.lm.trie`)."""


class ScorePolicy(HFPolicy):
    """Chooses one of `Prompt.admissible`: the likeliest command (temperature 0), or a random one at
    `temperature`.

    `normalisation` divides a command's log-likelihood by its tokens ("token"), its words ("word")
    or nothing ("sum"). With "trie" the probability of a token, at `temperature`, is normalised over
    the tokens that continue an admissible command, and a command's probability is their product.
    `lead` is the text between the prompt and each command, and `close` follows the command in the
    conversation; neither is scored. HFPolicy describes the other options.

    A reply's `commands` has the choice, `prompt_ids` the tokens before it, and `ids` and `logprobs`
    its tokens and their log-probs, over the vocabulary at temperature 1 or as "trie" normalises them.
    `extra` has the "logprob" and "index" of the choice among the admissible commands, the "entropy"
    of that distribution, and "prompt" and "candidates", from which trainers compute the scores
    again; with "trie" also "allowed", for each token the tokens possible there.
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
        if normalisation not in (*NORMALISATIONS, TRIE):
            raise UsageError(f"Unknown normalisation {normalisation!r}: {', '.join((*NORMALISATIONS, TRIE))}.")
        super()._set_up(name, network, tokenizer, **options)
        self._scores: OrderedDict[tuple[tuple[int, ...], tuple[Candidate, ...]], list[torch.Tensor]] = OrderedDict()
        self.normalisation, self.close_tag = normalisation, close
        self.lead = lead or (" " if self.template.plain else "")  # words after 'Assistant:' begin with a space
        # The cached function knows the tokenizer only: a bound method would keep the weights after `close`.
        end = self.template.end_id if normalisation == TRIE else None
        self._encoded = lru_cache(maxsize=CAPACITY)(partial(_encode, self.template, tokenizer, self.lead, end))
        self._trie = lru_cache(maxsize=CAPACITY)(Trie)

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        replies: list[tuple[int, Reply]] = []
        until = time.monotonic() + SLICE
        try:
            while self._queue and (not replies or time.monotonic() < until):
                ticket, prompt = self._queue[0]
                replies.append((ticket, self._choose(prompt)))
                self._queue.popleft()
        except torch.OutOfMemoryError as error:
            self.forget()
            raise UsageError(
                f"The GPU's memory is too small for {self.name} with a prompt and its admissible commands: "
                "lower --history, use --dtype bfloat16, or a smaller model."
            ) from error
        self._announce()
        return replies

    @torch.inference_mode()
    def _choose(self, prompt: Prompt) -> Reply:
        if not prompt.admissible:
            task = prompt.episode.task.id if prompt.episode else "this task"
            raise UsageError(
                f"--action-mode score chooses among admissible commands, but {task} lists none: "
                "use --action-mode write (in a recipe: acting.choose = 'free')."
            )
        ids, commands, dropped = self._fit_commands(prompt)
        if _longest(commands) > self.context:
            return Reply("", ids, finish_reason="context", dropped_turns=dropped, input_tokens=len(ids))
        logprobs, reused = self._score(prompt.key, ids, commands)
        result = self._distribution(prompt.admissible, commands, logprobs)
        greedy = not self.settings.temperature
        index = int(result.logprobs.argmax()) if greedy else _draw(result.logprobs, prompt.seed)
        chosen, command = commands[index], prompt.admissible[index]
        allowed = {"allowed": self._trie(tuple(commands)).allowed(index)} if self.normalisation == TRIE else {}
        return Reply(
            f"{self.lead.strip()}{command}{self.close_tag}",
            prompt_ids=ids[: chosen.keeps],
            ids=list(chosen.ids),
            logprobs=logprobs[index].tolist(),
            commands=(command,),
            dropped_turns=dropped,
            input_tokens=len(ids),
            cached_tokens=reused,
            extra={
                "logprob": float(result.logprobs[index]),
                "entropy": float(result.entropy),
                "index": index,
                "prompt": ids,
                "candidates": commands,
                **allowed,
            },
        )

    def _distribution(
        self, texts: Sequence[str], commands: Sequence[Candidate], logprobs: Sequence[torch.Tensor]
    ) -> Choice:
        """Returns the distribution over commands from the result of `_score`."""
        if self.normalisation == TRIE:
            return self._trie(tuple(commands)).choice(logprobs)
        sums = torch.stack([tokens.double().sum() for tokens in logprobs])
        lengths = [len(candidate.ids) for candidate in commands]
        words = [word_count(text) for text in texts]
        return choice(sums, lengths, words, self.normalisation, self.settings.temperature or 1.0)

    def _fit_commands(self, prompt: Prompt) -> tuple[list[int], list[Candidate], int]:
        """Encodes prompt and commands, and drops the oldest turns until they fit the context;
        returns the number dropped.
        """
        for messages, dropped in shortened(prompt.messages):
            ids, commands = self.tokens(messages, prompt.admissible)
            fitted = ids, commands, dropped
            if _longest(commands) <= self.context:
                break
        return fitted

    def tokens(self, messages: Sequence[Message], commands: Sequence[str]) -> tuple[list[int], list[Candidate]]:
        """Returns the tokens of the prompt, including `lead`, and of each command after it; with
        "trie" no command begins another.
        """
        return self._encoded(tuple((message["role"], message["content"]) for message in messages), tuple(commands))

    def _score(self, key: str, ids: list[int], commands: Sequence[Candidate]) -> tuple[list[torch.Tensor], int]:
        """Returns the log-probs of each candidate's tokens, normalised in the trie if this is asked
        for, and the number of prompt tokens that were cached.
        """
        request = (tuple(ids), tuple(commands))
        if self.prefix_reuse and request in self._scores:  # small tasks repeat the same prompts in many episodes
            self._scores.move_to_end(request)
            return self._scores[request], len(ids)
        logprobs, reused = self._compute(key, ids, commands)
        if self.normalisation == TRIE:
            logprobs = self._trie(tuple(commands)).logprobs(logprobs, self.settings.temperature or 1.0)
        if self.prefix_reuse:
            self._scores[request] = logprobs
            if len(self._scores) > CAPACITY:
                self._scores.popitem(last=False)
        return logprobs, reused

    def forget(self) -> None:
        super().forget()
        self._scores.clear()

    def _compute(self, key: str, ids: list[int], commands: Sequence[Candidate]) -> tuple[list[torch.Tensor], int]:
        if not self.prefix_reuse:
            return token_logprobs_apart(self.network, ids, commands), 0
        prefix, covered = self._prefixes.longest(key, ids) if key else (None, 0)
        reused = min(covered, len(ids) - 1)
        logprobs: list[torch.Tensor] = []
        for batch in _batches(commands):
            some, cache = token_logprobs(self.network, ids, batch, prefix.layers if prefix else None, covered)
            logprobs += some
            if cache is not None and covered < len(ids):
                prefix, covered = Prefix(ids, take_row(cache, 0, 0, len(ids))), len(ids)
        if key and prefix is not None:
            self._prefixes.put(key, prefix)
        return logprobs, reused


def _encode(
    template: Template,
    tokenizer: Any,
    lead: str,
    end: int | None,
    messages: tuple[tuple[str, str], ...],
    commands: tuple[str, ...],
) -> tuple[list[int], list[Candidate]]:
    """Returns the tokens of the prompt with `lead`, and of each command after it; with `end` no
    command begins another.
    """
    ids, head, tail = template.open_end([{"role": role, "content": text} for role, text in messages])
    encoded = candidates(tokenizer, head, tail, commands, lead)
    if lead:
        ids = ids[:head] + tokenizer(tail + lead, add_special_tokens=False)["input_ids"]
    return ids, encoded if end is None else prefix_free(ids, encoded, end)


def _longest(commands: Sequence[Candidate]) -> int:
    """Returns the tokens of the longest prompt with its command."""
    return max(candidate.keeps + len(candidate.ids) for candidate in commands)


def _batches(commands: Sequence[Candidate]) -> list[list[Candidate]]:
    """Splits candidates into batches of at most about MAX_NODES tokens."""
    batches: list[list[Candidate]] = [[]]
    room = MAX_NODES
    for candidate in commands:
        if batches[-1] and len(candidate.ids) > room:
            batches.append([])
            room = MAX_NODES
        batches[-1].append(candidate)
        room -= len(candidate.ids)
    return batches


def _draw(logprobs: torch.Tensor, seed: int) -> int:
    """Draws an index from a distribution."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    target = torch.rand(1, generator=generator, dtype=torch.float64)
    cumulative = logprobs.double().cpu().exp().cumsum(-1)
    return min(int(torch.searchsorted(cumulative, target * cumulative[-1], right=True)), len(cumulative) - 1)
