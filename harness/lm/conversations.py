"""Conversations in tokens: prompts that fit the context, in which what was sampled stands as it was sampled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from harness.lm.template import PLAIN_STOP, Encoded, Said, Template
from harness.prompting.messages import without_oldest_turn
from harness.types import Message, Prompt

CONVERSATIONS = 4096
"""so many conversations' replies are remembered, the latest used"""


class Conversations:
    """Replies have room for `max_tokens` within `context`."""

    def __init__(self, template: Template, max_tokens: int, context: int) -> None:
        self.template, self.max_tokens, self.context = template, max_tokens, context
        self._said: OrderedDict[str, list[Said]] = OrderedDict()

    def fit(self, prompt: Prompt) -> tuple[Encoded, int]:
        """The prompt in tokens, without as many of its oldest turns as it takes to leave room for a reply; how many those are."""
        said = self._said.get(prompt.key, []) if prompt.turn else []
        messages: Sequence[Message] = prompt.messages
        dropped = 0
        while True:
            encoded = self.template.encode(messages, said, prompt.tools)
            if len(encoded.ids) + self.max_tokens <= self.context:
                return encoded, dropped
            shorter = without_oldest_turn(messages)
            if shorter is None:
                return encoded, dropped
            messages = shorter
            dropped += 1

    def room(self, encoded: Encoded) -> int:
        """Tokens that a reply may have; below 1 where the prompt is too long."""
        return min(self.max_tokens, self.context - len(encoded.ids))

    def text(self, ids: Sequence[int]) -> str:
        return str(self.template.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def remember(self, prompt: Prompt, ids: Sequence[int]) -> str:
        """The text of a reply that was sampled as `ids`; later prompts of its conversation show these very tokens."""
        text, said = self.text(ids), tuple(ids)
        if self.template.plain and text.endswith(PLAIN_STOP):
            # the words that open the next turn are no part of this one
            text, said = text.removesuffix(PLAIN_STOP), ()
        if prompt.key:
            if not prompt.turn:
                self._said[prompt.key] = []
            self._said.setdefault(prompt.key, []).append(Said(text, said))
            self._said.move_to_end(prompt.key)
            if len(self._said) > CONVERSATIONS:
                self._said.popitem(last=False)
        return text

    def clear(self) -> None:
        self._said.clear()
