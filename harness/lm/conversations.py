"""Conversations as tokens: prompts that fit the context and contain earlier replies with their
sampled tokens.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Sequence

from harness.lm.template import PLAIN_STOP, Encoded, SampledReply, Template
from harness.prompting.messages import plain_text, shortened
from harness.reasoning import OPEN, end_of_reasoning
from harness.types import Prompt

CAPACITY = 4096
"""Number of conversations whose replies are remembered; the least recently used ones are dropped.
"""


class Conversations:
    """Encodes the prompts of many conversations so that prompt and `max_tokens` fit in `context`
    tokens.
    """

    def __init__(self, template: Template, max_tokens: int, context: int) -> None:
        self.template, self.max_tokens, self.context = template, max_tokens, context
        self._replies: OrderedDict[str, list[SampledReply]] = OrderedDict()

    def fit(self, prompt: Prompt) -> tuple[Encoded, int]:
        """Encodes a prompt and drops its oldest turns until a reply fits; returns the tokens and
        the number dropped.
        """
        replies = self._replies.get(prompt.key, []) if prompt.turn else []
        for messages, dropped in shortened(prompt.messages):
            fitted = self.template.encode(messages, replies, prompt.tools), dropped
            if len(fitted[0].ids) + self.max_tokens <= self.context:
                break
        return fitted

    def room(self, encoded: Encoded) -> int:
        """Returns the number of tokens that fit after a prompt; below 1 if the prompt is too long."""
        return min(self.max_tokens, self.context - len(encoded.ids))

    def text(self, ids: Sequence[int]) -> str:
        """Decodes tokens without special ones."""
        return str(self.template.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def reasoning_tokens(self, ids: Sequence[int], text: str) -> int:
        """Returns the number of sampled tokens up to the end of the reasoning in `text`; 0 if it has none."""
        if OPEN not in text:
            return 0
        end = end_of_reasoning(text)
        return bisect.bisect_left(range(len(ids)), end, key=lambda count: len(self.template.message_text(ids[:count])))

    def remember(self, prompt: Prompt, ids: Sequence[int]) -> str:
        """Stores a sampled reply, whose tokens later prompts of the conversation contain; returns
        its text.
        """
        roles = plain_text(prompt.messages) is None
        text = self.template.message_text(ids) if roles else self.text(ids)
        tokens = tuple(ids)
        if self.template.plain and text.endswith(PLAIN_STOP):
            # the stop string is the start of the next turn
            text = text.removesuffix(PLAIN_STOP)
            tokens = ()
        if prompt.key:
            if not prompt.turn:
                self._replies[prompt.key] = []
            self._replies.setdefault(prompt.key, []).append(SampledReply(text, tokens))
            self._replies.move_to_end(prompt.key)
            if len(self._replies) > CAPACITY:
                self._replies.popitem(last=False)
        return text

    def clear(self) -> None:
        """Forgets all replies."""
        self._replies.clear()
