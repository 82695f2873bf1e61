"""A model on an OpenAI-compatible server: vLLM, SGLang, transformers serve, or a hosted one.

Requests that fail for a temporary reason (busy, down, invalid answer, too slow) are retried with
growing pauses, at the next server if there are several. Permanent errors (no such model, key
refused) end the run with one line. The key is read from the environment, sent in the request's
header, and removed from all messages.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from envsuite.errors import UsageError, did_you_mean
from envsuite.escaping import one_line, public_url
from harness.policies.chat_completions import (
    OPENAI,
    Price,
    address,
    hidden,
    read,
    refusal,
    retry_after,
    secrets_of,
)
from harness.policies.connections.affinity import ServerAffinity
from harness.policies.connections.event_loop import Request, RequestingPolicy
from harness.policies.connections.failures import TEMPORARY, Refused, TemporaryError, TooLong, api_key
from harness.policies.connections.health import Health
from harness.policies.connections.http_answers import ClientPool, body_of, encode, text_of
from harness.policies.connections.pacing import Pace, pause_before
from harness.policies.connections.server_weights import Weights
from harness.policies.identities import Fingerprint
from harness.policies.request_fields import RequestFields, parsed_headers, refuses_tools
from harness.prompting.messages import plain_text, shortened
from harness.types import Prompt, Reply, ToolCall


class OpenAIPolicy(RequestingPolicy):
    """Asks `model` at `base_url`, which may list several servers separated by commas.

    A new conversation goes to the server with the fewest requests and stays there, where its prefix
    is cached, until that server fails. `api_key_var` names the environment variable with the key
    (default: OPENAI_API_KEY for OpenAI's own address, none for others). `served_model_name` is the
    model's name on the server, if it differs. A request takes at most `timeout` seconds and is
    repeated up to `max_retries` times; `requests_per_minute` limits all requests together.
    `temperature` None leaves it to the server, `reasoning_effort` and the JSON object `extra_body` are
    added to each request, and `headers` ("NAME:VALUE") are sent and never stored.
    `thinking` False is sent to chat templates that support it (vLLM, SGLang). `watch` ends the run
    if a server's weights change (`harness.policies.connections.server_weights`).

    All requests run in the event loop of one thread. A prompt that is too long loses its oldest
    turns. A reply that no server gave has an `error`; if servers only return errors, the run ends
    with DataError.
    """

    uses_proxies = True
    """lets requests go through the proxies that the environment names"""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_var: str | None = None,
        served_model_name: str | None = None,
        temperature: float | None = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        thinking: bool = True,
        stop: Sequence[str] = (),
        timeout: float = 300.0,
        max_retries: int = 6,
        requests_per_minute: float | None = None,
        price: Price | str | None = None,
        first_pause: float = 0.5,
        watch: bool = False,
        reasoning_effort: str = "",
        extra_body: str = "",
        headers: Sequence[str] = (),
    ) -> None:
        if not model:
            raise UsageError("openai: needs a model's name, as in openai:gpt-4o-mini.")
        if timeout <= 0:
            raise UsageError(f"--timeout must be above 0 seconds, not {timeout:g}.")
        if max_retries < 0:
            raise UsageError(f"--max-retries must be at least 0, not {max_retries}.")
        if requests_per_minute is not None and requests_per_minute <= 0:
            raise UsageError(f"--requests-per-minute must be above 0, not {requests_per_minute:g}.")
        super().__init__()
        self.name = model
        self.servers = [address(url) for url in (base_url or OPENAI).split(",") if url.strip()]
        self.served_name = served_model_name or model
        self.timeout, self.max_retries, self.first_pause = timeout, max_retries, first_pause
        self.price = (Price.parse(price) if isinstance(price, str) else price) or Price()
        self._key = api_key(api_key_var or ("OPENAI_API_KEY" if base_url is None else None))
        self._secrets = [
            *([self._key] if self._key else []),
            *(word for url in self.servers for word in secrets_of(url)),
        ]
        self._pace = Pace(requests_per_minute)
        self._headers = parsed_headers(headers)
        self._secrets += [value for value in self._headers.values() if len(value) >= 4]
        self.fields = RequestFields(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
            thinking=thinking,
            switches_thinking=base_url is not None,
            reasoning_effort=reasoning_effort,
            extra_body=extra_body,
        )
        self._weights = Weights(self.served_name, self._hidden) if watch else None
        self._affinity, self._health = ServerAffinity(), Health(len(self.servers))
        self._in_flight: Counter[int] = Counter()
        self._takes_tools = False  # a server has answered a request with tools
        self._client: ClientPool | None = None
        self._checking = asyncio.Lock()

    def keep_weights(self, path: Path) -> None:
        """Compares the servers' weights with the fingerprint in `path`, if they are watched."""
        if self._weights is not None:
            self._weights.keep(path)

    def connection(self) -> dict[str, Any]:
        changes = self.fields.changes()
        return {"request_fields": changes} if changes else {}

    def weights_hash(self) -> str:
        """Returns the hash of the servers' answer to the fixed question; '' if weights are not watched."""
        return "" if self._weights is None else self._weights.hash()

    def served_weights(self) -> Fingerprint | None:
        """Returns the fingerprint of the weights that are served now; None if they are not watched."""
        if self._weights is None:
            return None
        asking = self._weights.ask(self._http, self.servers, self.timeout)
        return asyncio.run_coroutine_threadsafe(asking, self._event_loop()).result()

    # The following methods run in the event loop.

    def _dispatch(self, requests: Sequence[Request]) -> None:
        """Chooses a server for each request and starts it; asks servers that rested first whether they are back."""
        if self._health.due():
            self._spawn(self._outbox.generation, self._dispatch_after_check(requests))
        else:
            self._start_tasks(requests)

    async def _dispatch_after_check(self, requests: Sequence[Request]) -> None:
        async with self._checking:
            await self._health.check(self._http(), self.servers)
        self._start_tasks(self._uncancelled(requests))

    def _start_tasks(self, requests: Sequence[Request]) -> None:
        available = self._health.available()
        for request in requests:
            key = request.prompt.key or str(request.prompt.seed)
            server = self._affinity.choose(key, available, self._in_flight)
            self._in_flight[server] += 1
            task = self._spawn(request.generation, self._finish(request, server))
            task.add_done_callback(functools.partial(self._ended, server))

    def _ended(self, server: int, task: asyncio.Task[None]) -> None:
        self._in_flight[server] -= 1

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        self._client = None

    def _http(self) -> ClientPool:
        """Returns the open clients, or new ones."""
        if self._client is None:
            headers = {**({"Authorization": f"Bearer {self._key}"} if self._key else {}), **self._headers}
            self._client = ClientPool(headers=headers, timeout=self.timeout, trust_env=self.uses_proxies)
        return self._client

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        """Returns the reply to a prompt; shortens the prompt until it fits the context."""
        for messages, dropped in shortened(prompt.messages):
            try:
                reply = await self._persist(prompt, home, messages)
            except TooLong:
                continue
            except (TemporaryError, Refused) as error:
                return self._failed(error, dropped)
            reply.dropped_turns = dropped
            return reply
        return Reply("", finish_reason="context", dropped_turns=dropped)

    def _failed(self, error: TemporaryError | Refused, dropped: int) -> Reply:
        kind = "refused" if isinstance(error, Refused) else "silent"
        return Reply("", finish_reason=kind, error=self._hidden(str(error)), dropped_turns=dropped)

    async def _persist(self, prompt: Prompt, home: int, content: Any) -> Reply:
        """Repeats a request until it succeeds or no retry is left: at `home`, then at other servers."""
        server, attempt = home, 0
        while True:
            try:
                reply = await self._ask(self.servers[server], prompt, content)
            except TemporaryError as error:
                attempt += 1
                if attempt > self.max_retries:
                    count = f" (tried {attempt} times)" if attempt > 1 else ""
                    raise TemporaryError(f"{error}{count}") from None
                pause = pause_before(attempt, self.first_pause, error.after)
                await self._retries.wait(self._hidden(str(error)), pause)
                server = self._health.after(server)
                continue
            self._health.answered(server)
            if server != home:
                self._affinity.move(prompt.key or str(prompt.seed), server)
            return reply

    def _body(self, prompt: Prompt, content: Any) -> dict[str, Any]:
        """Returns the request's body; `content` is the prompt's messages, in a subclass its tokens."""
        text = plain_text(content)
        body: dict[str, Any] = {"model": self.served_name, **self.fields.values}
        if text is None:
            body["messages"] = list(content)
        else:
            body["prompt"] = text
            body.pop("chat_template_kwargs", None)
        body["seed"] = prompt.seed % 2**31
        if prompt.tools:
            body |= {"tools": list(prompt.tools), "parallel_tool_calls": False}
        return body

    def _read(self, server: str, answer: httpx.Response, prompt: Prompt, content: Any) -> Reply | None:
        """Parses an answer; returns None if it is invalid."""
        return read(answer, self.fields.values.get("stop", ()), self.price, content, prompt.tools)

    async def _ask(self, server: str, prompt: Prompt, content: Any) -> Reply:
        """Sends one request. Raises TemporaryError, Refused, TooLong, UsageError or DataError."""
        body = self.fields.without_dropped(self._body(prompt, content))
        await self._pace.wait()
        client = self._http()
        path = "completions" if "prompt" in body else "chat/completions"
        try:
            # httpx limits the time between bytes, but not the time of a server that sends slowly.
            async with asyncio.timeout(self.timeout):
                if self._weights is not None:
                    await self._weights.check(client, server)
                answer = await client.post(f"{server}/{path}", **encode(body))
        except TimeoutError:
            self._doubt(server)
            raise TemporaryError(f"{public_url(server)} did not answer within {self.timeout:g} s") from None
        except httpx.HTTPStatusError as error:  # from the check of the weights
            self._doubt(server)
            raise TemporaryError(
                f"{public_url(server)} answered {error.response.status_code}", retry_after(error.response)
            ) from None
        except (httpx.HTTPError, UnicodeError) as error:  # UnicodeError: headers that are not text
            self._doubt(server)
            raise TemporaryError(
                self._hidden(f"{public_url(server)}: {type(error).__name__} {error}".rstrip())
            ) from None
        except httpx.InvalidURL as error:
            raise UsageError(self._hidden(f"{public_url(server)} is not a valid address: {error}")) from None
        if answer.status_code == 200:
            reply = self._read(server, answer, prompt, content)
            if reply is None:
                self._health.failed(self.servers.index(server))
                start = self._hidden(" ".join(text_of(answer)[:2000].split()))[:120]
                expected = path.replace("/", " ").removesuffix("s")
                raise TemporaryError(f"{public_url(server)} returned an invalid {expected}: {start!r}")
            self._takes_tools = self._takes_tools or "tools" in body
            reply.text = self._hidden(reply.text)
            reply.calls = tuple(ToolCall(*map(self._hidden, call)) for call in reply.calls)
            return reply
        await self._refuse(server, answer, body)
        return await self._ask(server, prompt, content)  # without the refused field

    async def _refuse(self, server: str, answer: httpx.Response, body: dict[str, Any]) -> None:
        """Raises the error of an answer other than 200; returns if a request with fewer fields may succeed."""
        status, message = answer.status_code, self._hidden(refusal(answer))[:400]
        description = f"{public_url(server)} answered {status}: {message}"
        # The status may also be 404 or 500, and a later message may be about a call that the model wrote.
        if "tools" in body and not self._takes_tools and refuses_tools(message):
            raise UsageError(
                f"{description}. This server does not take declared tools: start it with its options for tool calls, "
                "or use --action-grammar tool, whose calls are text."
            )
        if status in TEMPORARY:
            if status >= 500:
                self._doubt(server)
            raise TemporaryError(description, retry_after(answer))
        if status in (401, 403):
            key = "the key in that variable was refused" if self._key else "name the key's variable with --api-key-var"
            raise UsageError(f"{description}; {key}.")
        if status == 404:
            hint = "prompts without roles need its /v1/completions; " if isinstance(body.get("prompt"), str) else ""
            raise UsageError(self._hidden(f"{description}; {hint}{await self._served_models(server)}"))
        if status in (400, 413, 422) and self.fields.adapt(public_url(server), message, status, body):
            return
        raise Refused(description)

    def _doubt(self, server: str) -> None:
        self._health.failed(self.servers.index(server))
        if self._weights is not None:
            self._weights.doubt(server)

    async def _served_models(self, server: str) -> str:
        """Returns advice for a model name that the server does not know."""
        try:
            models = body_of(await self._http().get(f"{server}/models", timeout=10))["data"]
            names = [one_line(str(model["id"])[:80]) for model in models]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return "is the address right? It usually ends in /v1."
        hint = did_you_mean(self.served_name, names)
        return f"it serves {', '.join(names[:8]) or 'nothing'}: choose one with --served-model-name.{hint}"

    def _hidden(self, text: str) -> str:
        """Replaces the key and the passwords of addresses in text that is printed or stored."""
        return hidden(text, self._secrets)

    def __repr__(self) -> str:
        return f"OpenAIPolicy({self.name!r}, base_url={','.join(map(public_url, self.servers))!r})"
