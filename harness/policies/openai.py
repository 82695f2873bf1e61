"""A model behind an OpenAI-compatible server: vLLM, SGLang, transformers serve, or a hosted one.

What can pass (busy, down, garbage, cut off, too slow) is tried again with growing pauses, at the next server where there
are several. What cannot (no such model, key refused) ends the run in one line. The key is read from the environment, goes
into the request's header, and is cut out of whatever a server says.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import tenacity

from envsuite.errors import DataError, UsageError, did_you_mean
from harness.policies.affinity import ServerAffinity
from harness.policies.chat_completions import Price, address, read, refusal, retry_after, shown
from harness.policies.health import Health
from harness.policies.server_weights import Weights
from harness.prompting.messages import without_oldest_turn
from harness.types import Message, Prompt, Reply

OPENAI = "https://api.openai.com/v1"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""answers after which the same request may succeed"""
LONGEST_PAUSE = 60.0
SILENT_BATCHES = 3
"""so many batches in a row without one answer, and the run stops instead of breaking every episode that is left"""
OPTIONAL = ("seed", "chat_template_kwargs", "stop")
"""fields that a server may refuse; what is played does not depend on its understanding them"""


class Passing(Exception):
    """Worth another try. `after`: seconds the server asks to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Refused(Exception):
    """The server will not answer this very prompt."""


class TooLong(Exception):
    """The prompt does not fit the model's context."""


class OpenAIPolicy:
    """Asks `model` at `base_url` (several, separated by commas: a new conversation goes to the one with the least to do,
    and stays there, where its prefix is cached, until that one fails).

    `api_key_var` names the environment variable that holds the key (default: OPENAI_API_KEY at OpenAI's own address, none
    elsewhere). `served_model_name` is what the server calls the model, where that differs. A request takes at most
    `timeout` seconds and is tried `max_retries` times again; `requests_per_minute` limits all of them together.
    `thinking` False is passed to chat templates that have the switch (vLLM, SGLang). `watch` ends the run where a server's
    weights are not those it began with (`harness.policies.server_weights`).

    A prompt that a server finds too long loses its oldest turns. A reply that no server gave has `error`.
    """

    advice_kind = ""
    deterministic = False
    path = "chat/completions"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_var: str | None = None,
        served_model_name: str | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        thinking: bool = True,
        stop: Sequence[str] = (),
        timeout: float = 300.0,
        max_retries: int = 6,
        requests_per_minute: float | None = None,
        price: Price | None = None,
        first_pause: float = 0.5,
        watch: bool = False,
    ) -> None:
        if not model:
            raise UsageError("openai: needs a model's name, as in openai:gpt-4o-mini.")
        if timeout <= 0 or max_retries < 0 or (requests_per_minute is not None and requests_per_minute <= 0):
            raise UsageError(
                f"timeout {timeout} and requests per minute {requests_per_minute} must be positive, retries {max_retries} >= 0."
            )
        self.name = model
        self.servers = [address(one) for one in (base_url or OPENAI).split(",") if one.strip()]
        self.served_name = served_model_name or model
        self.timeout, self.max_retries, self.first_pause = timeout, max_retries, first_pause
        self.price = price or Price()
        self._key = _key(api_key_var or ("OPENAI_API_KEY" if base_url is None else None))
        self._pace = _Pace(requests_per_minute)
        self._fields: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if top_p < 1:
            self._fields["top_p"] = top_p
        if stop:
            self._fields["stop"] = list(stop)[:4]  # the protocol's limit
        if not thinking and base_url is not None:
            self._fields["chat_template_kwargs"] = {"enable_thinking": False}
        self._dropped: set[str] = set()
        self._weights = Weights(self.served_name) if watch else None
        self._homes, self._health = ServerAffinity(), Health(len(self.servers))
        self._answered, self._silent = False, 0
        self._runner: asyncio.Runner | None = None
        self._client: httpx.AsyncClient | None = None

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        if self._runner is None:
            self._runner = asyncio.Runner()
        replies = self._runner.run(self._all(prompts))
        if replies and all(reply.error for reply in replies):
            self._silent += 1
            if not self._answered or self._silent >= SILENT_BATCHES:
                raise DataError(f"{replies[0].error}. What has ended is kept: go on with --resume once it answers.")
        else:
            self._answered, self._silent = self._answered or bool(replies), 0
        return replies

    def keep_weights(self, path: Path) -> None:
        """As `Weights.keep`, where they are watched."""
        if self._weights is not None:
            self._weights.keep(path)

    def close(self) -> None:
        if self._runner is not None:
            if self._client is not None:
                self._runner.run(self._client.aclose())
            self._runner.close()
        self._runner = self._client = None

    async def _all(self, prompts: Sequence[Prompt]) -> list[Reply]:
        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._client = httpx.AsyncClient(headers=headers, timeout=self.timeout, limits=limits)
        await self._health.look(self._client, self.servers)
        homes = self._homes.share([prompt.key or str(prompt.seed) for prompt in prompts], self._health.well())
        tasks = [asyncio.create_task(self._answer(prompt, home)) for prompt, home in zip(prompts, homes, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # where one of them ends the run
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        messages: Sequence[Message] = prompt.messages
        dropped = 0
        while True:
            try:
                reply = await self._persist(prompt, home, messages)
            except TooLong:
                shorter = without_oldest_turn(messages)
                if shorter is None:
                    return Reply("", finish_reason="context", dropped_turns=dropped)
                messages = shorter
                dropped += 1
                continue
            except (Passing, Refused) as error:
                return Reply("", error=self._hidden(str(error)), dropped_turns=dropped)
            reply.dropped_turns = dropped
            return reply

    async def _persist(self, prompt: Prompt, home: int, asked: Any) -> Reply:
        """One reply, asked for until it comes or the tries are used up: first of `home`, then of the others that are well."""
        place, tries = home, 0

        def pause(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.after if isinstance(error, Passing) else None
            growing = tenacity.wait_random_exponential(multiplier=self.first_pause, max=LONGEST_PAUSE)(state)
            return growing if asked is None else min(max(asked, 0.0) + 0.1 * growing, LONGEST_PAUSE)

        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(self.max_retries + 1),
                wait=pause,
                retry=tenacity.retry_if_exception_type(Passing),
                reraise=True,
            ):
                with attempt:
                    if tries:
                        place = self._health.after(place)
                    tries += 1
                    reply = await self._ask(self.servers[place], prompt, asked)
                    self._health.answered(place)
                    if place != home:
                        self._homes.move(prompt.key or str(prompt.seed), place)
                    return reply
        except Passing as error:
            count = f" (tried {tries} times)" if tries > 1 else ""
            raise Passing(f"{error}{count}") from None
        raise AssertionError("tenacity neither returned nor raised")

    def _body(self, prompt: Prompt, asked: Any) -> dict[str, Any]:
        """What is sent; `asked` are the messages (or in what other form the prompt goes)."""
        body: dict[str, Any] = {"model": self.served_name, "messages": list(asked), **self._fields}
        body["seed"] = prompt.seed % 2**31
        if prompt.tools:
            body["tools"] = list(prompt.tools)
        return body

    def _read(self, server: str, answer: httpx.Response, asked: Any) -> Reply | None:
        """The reply in an answer; None where it holds none."""
        return read(answer, self._fields.get("stop", ()), self.price)

    async def _ask(self, server: str, prompt: Prompt, asked: Any) -> Reply:
        await self._pace.wait()
        body = self._body(prompt, asked)
        for name in self._dropped:
            body.pop(name, None)
        assert self._client is not None
        try:
            # httpx counts the time between bytes: a server that drips them would never be too slow.
            async with asyncio.timeout(self.timeout):
                if self._weights is not None:
                    await self._weights.check(self._client, server)
                answer = await self._client.post(f"{server}/{self.path}", json=body)
        except TimeoutError:
            self._doubt(server)
            raise Passing(f"{shown(server)} did not answer within {self.timeout:g} s") from None
        except httpx.HTTPError as error:
            self._doubt(server)
            raise Passing(f"{shown(server)}: {type(error).__name__} {error}".rstrip()) from None
        except httpx.InvalidURL as error:
            raise UsageError(f"{shown(server)} is no address: {error}") from None
        if answer.status_code == 200:
            reply = self._read(server, answer, asked)
            if reply is None:
                self._health.failed(self.servers.index(server))
                start = self._hidden(" ".join(answer.text.split()))[:120]
                wanted = self.path.replace("/", " ").removesuffix("s")
                raise Passing(f"{shown(server)} answered what is no {wanted}: {start!r}")
            return reply
        await self._refuse(server, answer, body)
        return await self._ask(server, prompt, asked)  # without the field it refused

    async def _refuse(self, server: str, answer: httpx.Response, body: dict[str, Any]) -> None:
        """Raises what an answer other than 200 means; returns where the request is to be sent again with less in it."""
        status, said = answer.status_code, self._hidden(refusal(answer))[:400]
        where = f"{shown(server)} answered {status}: {said}"
        if status in PASSING:
            if status >= 500:
                self._doubt(server)
            raise Passing(where, retry_after(answer))
        if status in (401, 403):
            key = "the key in that variable was refused" if self._key else "name the key's variable with --api-key-var"
            raise UsageError(f"{where}; {key}.")
        if status == 404:
            raise UsageError(f"{where}; {await self._what_is_served(server)}")
        lower = said.lower()
        if status in (400, 413, 422):
            if status == 413 or any(
                word in lower for word in ("context length", "context_length", "too long", "too many tokens")
            ):
                raise TooLong(where)
            if "max_completion_tokens" in lower and "max_tokens" in self._fields:
                self._fields["max_completion_tokens"] = self._fields.pop("max_tokens")
                return
            if "max_completion_tokens" in self._fields and "max_tokens" in body:
                return  # another request found out meanwhile
            for name in OPTIONAL:
                if name in body and name in lower:
                    if name not in self._dropped:
                        self._dropped.add(name)
                        warnings.warn(f"{shown(server)} does not take {name!r}: it is left out.", stacklevel=2)
                    return
        raise Refused(where)

    def _doubt(self, server: str) -> None:
        self._health.failed(self.servers.index(server))
        if self._weights is not None:
            self._weights.doubt(server)

    async def _what_is_served(self, server: str) -> str:
        assert self._client is not None
        try:
            listed = (await self._client.get(f"{server}/models", timeout=10)).json()["data"]
            names = [str(one["id"]) for one in listed]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return "is the address right? It usually ends in /v1."
        hint = did_you_mean(self.served_name, names)
        return f"it serves {', '.join(names[:8]) or 'nothing'}: choose one with --served-model-name.{hint}"

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def __repr__(self) -> str:
        return f"OpenAIPolicy({self.name!r}, base_url={','.join(map(shown, self.servers))!r})"


class _Pace:
    """Lets requests go no faster than `per_minute`, evenly."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if self._gap:
            now = time.monotonic()
            turn = max(self._next, now)
            self._next = turn + self._gap
            await asyncio.sleep(turn - now)


def _key(variable: str | None) -> str:
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"The environment variable {variable} holds no key: export {variable}=..., or name another with --api-key-var."
        )
    if not key.isascii() or not key.isprintable() or " " in key:  # an HTTP library would quote it in its complaint
        raise UsageError(
            f"The environment variable {variable} holds more than a key: one word of plain characters is one."
        )
    return key
