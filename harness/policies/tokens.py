"""A model behind a server, in tokens: prompts go as token ids, and the sampled ids come back with their log-probs.

For trainers, which must learn from the very tokens that were sampled. Speaks `/v1/completions` with `return_token_ids`, as
vLLM (0.10.2 or later) and SGLang have it; a server that does not return them is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import httpx

from envsuite.errors import DataError, UsageError
from harness.lm.conversations import Conversations
from harness.lm.template import PLAIN_STOP, Template
from harness.policies.chat_completions import counts, shown
from harness.policies.openai import OpenAIPolicy, Passing, Refused, TooLong
from harness.types import Prompt, Reply

PLAINLY = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""sent with every request: a server takes what is not said from the model's generation config (Qwen2.5's has a penalty)"""


class TokensPolicy(OpenAIPolicy):
    """Asks `model` at `base_url` in the tokens of `tokenizer`, whose replies end with one of `end_ids`.

    `version` is what SGLang is told that its weights are called: an answer from others ends the run. Other options are those
    of `OpenAIPolicy` and, for `thinking`, `stop` and `context`, of `HFPolicy`.
    """

    path = "completions"

    def __init__(
        self,
        model: str,
        tokenizer: Any,
        end_ids: Collection[int],
        *,
        max_tokens: int = 512,
        context: int | None = None,
        thinking: bool = True,
        stop: Sequence[str] = (),
        version: str = "",
        **options: Any,
    ) -> None:
        super().__init__(model, max_tokens=max_tokens, **options)
        self.template = Template(tokenizer, end_ids, thinking)
        self.stop = (*stop, PLAIN_STOP) if self.template.plain else tuple(stop)
        self.version = version
        self._talks = Conversations(self.template, max_tokens, context or 2**31)
        # One alternative beside the sampled token: some versions take 0 for none at all.
        self._fields = {**PLAINLY, **self._fields}
        self._fields |= {"logprobs": 1, "return_token_ids": True, "stop_token_ids": sorted(self.template.end_ids)}
        if self.stop:
            self._fields["stop"] = list(self.stop)

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        encoded, dropped = self._talks.fit(prompt)
        size = len(encoded.ids)
        if self._talks.room(encoded) < 1:
            return Reply("", encoded.ids, finish_reason="context", dropped_turns=dropped, input_tokens=size)
        try:
            reply = await self._persist(prompt, home, encoded.ids)
        except TooLong as error:
            raise UsageError(f"{error}; set acting.context to what the server takes.") from None
        except (Passing, Refused) as error:
            return Reply("", error=self._hidden(str(error)), dropped_turns=dropped)
        reply.text = self._talks.remember(prompt, reply.ids)
        reply.dropped_turns = dropped
        if encoded.rewritten:
            reply.extra["rewritten"] = encoded.rewritten
        return reply

    def _body(self, prompt: Prompt, asked: Any) -> dict[str, Any]:
        room = min(self._talks.max_tokens, self._talks.context - len(asked))
        own = {"prompt": list(asked), "max_tokens": room, "seed": prompt.seed % 2**63}
        return {"model": self.served_name, **self._fields, **own}

    def _read(self, server: str, answer: httpx.Response, asked: Any) -> Reply | None:
        try:
            found = answer.json()
            first = found["choices"][0]
            # SGLang is about to call them response_token_ids, as in its chat completions.
            finish, ids = first["finish_reason"], first.get("token_ids") or first.get("response_token_ids")
            sent = first.get("prompt_token_ids")
            logprobs: Any = (first.get("logprobs") or {}).get("token_logprobs")
            version = (found.get("metadata") or {}).get("weight_version")
            read, cached, written = counts(found.get("usage") or {})
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None
        if finish not in ("stop", "length"):  # aborted
            return None
        if why := self._fault(asked, ids, logprobs, sent, finish):
            raise UsageError(f"{shown(server)} {why}: training needs vLLM 0.10.2 or later, or an SGLang that knows it.")
        if self.version and version is not None and version != self.version:
            raise DataError(
                f"{shown(server)} answers with weights {version!r}, not with {self.version!r}: they are stale."
            )
        return Reply(
            "",
            prompt_ids=list(asked),
            ids=list(ids),
            logprobs=[float(one) for one in logprobs],
            finish_reason=finish,
            input_tokens=read or len(asked),
            cached_tokens=cached,
            output_tokens=written or len(ids),
        )

    async def _what_is_served(self, server: str) -> str:
        return (
            "does the address end in /v1? Or it was started again and has lost the weights: --resume has it load them."
        )

    def _fault(self, asked: Any, ids: Any, logprobs: Any, sent: Any, finish: str) -> str:
        """What an answer lacks for its tokens to be learnt from; '' where it lacks nothing."""
        if not ids:
            return "returns no token ids (return_token_ids)"
        if not logprobs or len(logprobs) != len(ids) or any(one is None for one in logprobs):
            return "returns no log-prob for each token (logprobs)"
        if sent is not None and list(sent) != list(asked):
            return "does not read a prompt of token ids as it was sent"
        ended = ids[-1] in self.template.end_ids or any(word in self._talks.text(ids) for word in self.stop)
        if finish == "stop" and not ended:
            return "leaves out the token that ended a reply"
        return ""
