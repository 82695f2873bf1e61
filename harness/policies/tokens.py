"""A model on a server, in tokens: sends prompts as token ids and receives the sampled ids with
their log-probs.

Trainers need the exact sampled tokens. Uses `/v1/completions` with `return_token_ids`, which vLLM
(0.10.2 or later) and SGLang support, and refuses servers that do not return token ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import httpx

from envsuite.errors import DataError, UsageError
from envsuite.escaping import public_url
from harness.lm.conversations import Conversations
from harness.lm.template import PLAIN_STOP, Template
from harness.policies.chat_completions import counts
from harness.policies.connections.failures import Refused, TemporaryError, TooLong
from harness.policies.connections.http_answers import body_of
from harness.policies.openai import OpenAIPolicy
from harness.types import Prompt, Reply

DEFAULTS = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent with every request, because servers take missing values from the model's generation config.
"""


class TokensPolicy(OpenAIPolicy):
    """Asks `model` at `base_url` in tokens of `tokenizer`; replies end with one of `end_ids`.

    `version` is SGLang's name for the present weights: an answer from other weights ends the run.
    Accepts the options of `OpenAIPolicy`, and `thinking`, `stop` and `context` of `HFPolicy`.
    """

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
        self._conversations = Conversations(self.template, max_tokens, context or 2**31)
        # One alternative beside the sampled token: some versions treat 0 as no log-probs at all.
        self.fields.values = {**DEFAULTS, **self.fields.values}
        self.fields.values |= {"logprobs": 1, "return_token_ids": True, "stop_token_ids": sorted(self.template.end_ids)}
        if self.stop:
            self.fields.values["stop"] = list(self.stop)

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        encoded, dropped = self._conversations.fit(prompt)
        size = len(encoded.ids)
        if self._conversations.room(encoded) < 1:
            return Reply("", encoded.ids, finish_reason="context", dropped_turns=dropped, input_tokens=size)
        try:
            reply = await self._persist(prompt, home, encoded.ids)
        except TooLong as error:
            raise UsageError(f"{error}; set acting.context to the server's context length.") from None
        except (TemporaryError, Refused) as error:
            return self._failed(error, dropped)
        reply.text = self._conversations.remember(prompt, reply.ids)
        reply.reasoning_tokens = self._conversations.reasoning_tokens(reply.ids, reply.text)
        reply.dropped_turns = dropped
        if encoded.rewritten:
            reply.extra["rewritten"] = encoded.rewritten
        return reply

    def _body(self, prompt: Prompt, content: Any) -> dict[str, Any]:
        room = min(self._conversations.max_tokens, self._conversations.context - len(content))
        fields = {"prompt": list(content), "max_tokens": room, "seed": prompt.seed % 2**63}
        return {"model": self.served_name, **self.fields.values, **fields}

    def _read(self, server: str, answer: httpx.Response, prompt: Prompt, content: Any) -> Reply | None:
        try:
            body = body_of(answer)
            first = body["choices"][0]
            finish = first["finish_reason"]
            # SGLang plans to rename the field to response_token_ids, as in its chat completions.
            ids = first.get("token_ids") or first.get("response_token_ids")
            echoed = first.get("prompt_token_ids")
            logprobs: Any = (first.get("logprobs") or {}).get("token_logprobs")
            version = (body.get("metadata") or {}).get("weight_version")
            sent, cached, written = counts(body.get("usage") or {})
            logprobs = logprobs and [float(logprob) for logprob in logprobs if logprob is not None]
            ids = ids and [int(token) for token in ids]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None
        if finish not in ("stop", "length"):  # aborted
            return None
        if fault := self._fault(content, ids, logprobs, echoed, finish):
            raise UsageError(f"{public_url(server)} {fault}: training needs vLLM 0.10.2 or later, or a recent SGLang.")
        if self.version and version is not None and version != self.version:
            raise DataError(
                f"{public_url(server)} answers with weights {version!r}, not with {self.version!r}: they are stale."
            )
        return Reply(
            "",
            prompt_ids=list(content),
            ids=list(ids),
            logprobs=[float(logprob) for logprob in logprobs],
            finish_reason=finish,
            input_tokens=sent or len(content),
            cached_tokens=cached,
            output_tokens=written or len(ids),
            extra={"server": public_url(server)},
        )

    async def _refuse(self, server: str, answer: httpx.Response, body: dict[str, Any]) -> None:
        if answer.status_code == 404 and len(self.servers) > 1:  # restarted without the adapter
            self._doubt(server)
            raise TemporaryError(f"{public_url(server)} does not know {self.served_name}")
        await super()._refuse(server, answer, body)

    async def _served_models(self, server: str) -> str:
        return "does the address end in /v1? Or the server restarted without the weights: --resume loads them again."

    def _fault(self, prompt: Any, ids: Any, logprobs: Any, echoed: Any, finish: str) -> str:
        """Describes why an answer's tokens cannot be used for training; '' if they can."""
        if not ids:
            return "returns no token ids (return_token_ids)"
        if not logprobs or len(logprobs) != len(ids) or any(logprob is None for logprob in logprobs):
            return "returns no log-prob for each token (logprobs)"
        if echoed is not None and list(echoed) != list(prompt):
            return "changes the prompt's token ids"
        text = self._conversations.text(ids)
        if finish == "stop" and ids[-1] not in self.template.end_ids and not any(word in text for word in self.stop):
            return "omits the token that ended a reply"
        return ""
