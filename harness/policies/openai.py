"""A model on an OpenAI-compatible server: vLLM, SGLang, transformers serve, or a hosted one.

Requests that fail for a temporary reason (busy, down, invalid answer, too slow) are retried with
growing pauses, at the next server if there are several. Permanent errors (no such model, key
refused) end the run with one line. The key is read from the environment, sent in the request's
header, and removed from all messages.
"""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from envsuite.errors import DataError, UsageError, did_you_mean
from envsuite.escaping import one_line, public_url
from harness import waiting
from harness.policies.affinity import ServerAffinity
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
from harness.policies.failures import TEMPORARY, FailureStreak, Refused, TemporaryError, TooLong, api_key
from harness.policies.health import Health
from harness.policies.http_answers import BoundedClient, body_of, encode, text_of
from harness.policies.identities import Fingerprint
from harness.policies.pacing import Pace, Retries, pause_before
from harness.policies.server_weights import Weights
from harness.prompting.messages import without_oldest_turn
from harness.types import Message, Prompt, Reply
from harness.waiting import Outbox

OPTIONAL = ("seed", "chat_template_kwargs", "stop")
"""Request fields that a server may refuse, because results do not depend on them."""
FLAGS = {"top_p": "--top-p", "reasoning_effort": "--reasoning-effort"}
"""Request fields that a server may refuse, and the flag that the user then leaves out."""


class OpenAIPolicy:
    """Asks `model` at `base_url`, which may list several servers separated by commas.

    A new conversation goes to the server with the fewest requests and stays there, where its prefix
    is cached, until that server fails. `api_key_var` names the environment variable with the key
    (default: OPENAI_API_KEY for OpenAI's own address, none for others). `served_model_name` is the
    model's name on the server, if it differs. A request takes at most `timeout` seconds and is
    repeated up to `max_retries` times; `requests_per_minute` limits all requests together.
    `temperature` None leaves it to the server, `reasoning_effort` and the JSON object `extra_body` are
    added to each request, and `headers` ("NAME:VALUE") are sent and never stored.
    `thinking` False is sent to chat templates that support it (vLLM, SGLang). `watch` ends the run
    if a server's weights change (`harness.policies.server_weights`).

    All requests run in the event loop of one thread. A prompt that is too long loses its oldest
    turns. A reply that no server gave has an `error`; if servers only return errors, the run ends
    with DataError.
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
        if timeout <= 0 or max_retries < 0 or (requests_per_minute is not None and requests_per_minute <= 0):
            raise UsageError(
                f"timeout {timeout} and requests per minute {requests_per_minute} must be positive, "
                f"retries {max_retries} >= 0."
            )
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
        self._headers = _parsed_headers(headers)
        self._secrets += [value for value in self._headers.values() if len(value) >= 4]
        self._fields: dict[str, Any] = {"max_tokens": max_tokens, **(json.loads(extra_body) if extra_body else {})}
        if temperature is not None:
            self._fields["temperature"] = temperature
        if reasoning_effort:
            self._fields["reasoning_effort"] = reasoning_effort
        if top_p < 1:
            self._fields["top_p"] = top_p
        if stop:
            self._fields["stop"] = list(stop)[:4]  # the protocol's limit
        if not thinking and base_url is not None:
            self._fields["chat_template_kwargs"] = {"enable_thinking": False}
        self._dropped: set[str] = set()
        self._weights = Weights(self.served_name, self._hidden) if watch else None
        self._affinity, self._health = ServerAffinity(), Health(len(self.servers))
        self._in_flight: Counter[int] = Counter()
        self._streak, self._retries = FailureStreak(), Retries()
        self._outbox = Outbox()
        self._inbox: deque[tuple[int, int, Prompt]] = deque()
        self._scheduled = False
        self._tasks: dict[asyncio.Task[None], int] = {}  # with their generation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = None
        self._checking = asyncio.Lock()

    # The rollout's thread calls the following methods.

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return waiting.act(self, prompts)

    def submit(self, ticket: int, prompt: Prompt) -> None:
        self._inbox.append((self._outbox.expect(), ticket, prompt))
        self._streak.submitted(ticket)
        if not self._scheduled:
            self._scheduled = True
            self._event_loop().call_soon_threadsafe(self._start)

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        replies = self._outbox.take(timeout)
        for ticket, reply in replies:
            if self._streak.replied(ticket, reply):
                times = f" ({self._streak.length} failures in a row)" if self._streak.length > 1 else ""
                raise DataError(
                    f"{reply.error}{times}. Finished episodes are kept: continue with --resume when the server answers."
                )
        return replies

    def cancel(self) -> None:
        self._outbox.cancel()
        self._streak.cancel()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_tasks)

    def sources(self) -> Sequence[Any]:
        return (self._outbox.wakeup,)

    def retrying(self) -> list[tuple[str, float]]:
        return self._retries.waiting()

    def keep_weights(self, path: Path) -> None:
        """Compares the servers' weights with the fingerprint in `path`, if they are watched."""
        if self._weights is not None:
            self._weights.keep(path)

    def weights_hash(self) -> str:
        """Returns the hash of the servers' answer to the fixed question; '' if weights are not watched."""
        return "" if self._weights is None else self._weights.hash()

    def served_weights(self) -> Fingerprint | None:
        """Returns the fingerprint of the weights that are served now; None if they are not watched."""
        if self._weights is None:
            return None
        asking = self._weights.ask(self._http, self.servers, self.timeout)
        return asyncio.run_coroutine_threadsafe(asking, self._event_loop()).result()

    def close(self) -> None:
        self.cancel()
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._loop = self._thread = self._client = None

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="envsuite-requests", daemon=True)
            self._thread.start()
        return self._loop

    # The following methods run in the event loop.

    def _start(self) -> None:
        """Starts a task for each submitted prompt."""
        self._scheduled = False
        requests = [self._inbox.popleft() for _ in range(len(self._inbox))]
        submitted = [request for request in requests if request[0] == self._outbox.generation]  # the others: cancelled
        if self._health.due():
            self._spawn(self._outbox.generation, self._start_after_check(submitted))
        else:
            self._start_tasks(submitted)

    async def _start_after_check(self, submitted: list[tuple[int, int, Prompt]]) -> None:
        async with self._checking:
            await self._health.check(self._http(), self.servers)
        # Prompts that were cancelled during the check are not sent.
        self._start_tasks([request for request in submitted if request[0] == self._outbox.generation])

    def _start_tasks(self, submitted: list[tuple[int, int, Prompt]]) -> None:
        keys = [prompt.key or str(prompt.seed) for _, _, prompt in submitted]
        servers = self._affinity.share(keys, self._health.available(), self._in_flight)
        for (generation, ticket, prompt), server in zip(submitted, servers, strict=True):
            self._spawn(generation, self._finish(generation, ticket, prompt, server))

    def _spawn(self, generation: int, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = generation
        task.add_done_callback(self._tasks.pop)

    async def _finish(self, generation: int, ticket: int, prompt: Prompt, server: int) -> None:
        self._in_flight[server] += 1
        try:
            outcome: Reply | BaseException = await self._answer(prompt, server)
        except Exception as error:
            outcome = error
        finally:
            self._in_flight[server] -= 1
        self._outbox.put(generation, ticket, outcome)

    def _cancel_tasks(self) -> None:
        for task, generation in self._tasks.items():
            if generation != self._outbox.generation:
                task.cancel()

    async def _shut_down(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            headers = {**({"Authorization": f"Bearer {self._key}"} if self._key else {}), **self._headers}
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            self._client = BoundedClient(headers=headers, timeout=self.timeout, limits=limits)
        return self._client

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        """Returns the reply to a prompt; shortens the prompt until it fits the context."""
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
            except (TemporaryError, Refused) as error:
                return self._failed(error, dropped)
            reply.dropped_turns = dropped
            return reply

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
        body: dict[str, Any] = {"model": self.served_name, "messages": list(content), **self._fields}
        body["seed"] = prompt.seed % 2**31
        if prompt.tools:
            body["tools"] = list(prompt.tools)
        return body

    def _read(self, server: str, answer: httpx.Response, content: Any) -> Reply | None:
        """Parses an answer; returns None if it is invalid."""
        return read(answer, self._fields.get("stop", ()), self.price, content)

    async def _ask(self, server: str, prompt: Prompt, content: Any) -> Reply:
        """Sends one request. Raises TemporaryError, Refused, TooLong, UsageError or DataError."""
        await self._pace.wait()
        body = self._body(prompt, content)
        for name in self._dropped:
            body.pop(name, None)
        client = self._http()
        try:
            # httpx limits the time between bytes, but not the time of a server that sends slowly.
            async with asyncio.timeout(self.timeout):
                if self._weights is not None:
                    await self._weights.check(client, server)
                answer = await client.post(f"{server}/{self.path}", **encode(body))
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
            reply = self._read(server, answer, content)
            if reply is None:
                self._health.failed(self.servers.index(server))
                start = self._hidden(" ".join(text_of(answer)[:2000].split()))[:120]
                expected = self.path.replace("/", " ").removesuffix("s")
                raise TemporaryError(f"{public_url(server)} returned an invalid {expected}: {start!r}")
            reply.text = self._hidden(reply.text)
            return reply
        await self._refuse(server, answer, body)
        return await self._ask(server, prompt, content)  # without the refused field

    async def _refuse(self, server: str, answer: httpx.Response, body: dict[str, Any]) -> None:
        """Raises the error of an answer other than 200; returns if a request with fewer fields may succeed."""
        status, message = answer.status_code, self._hidden(refusal(answer))[:400]
        description = f"{public_url(server)} answered {status}: {message}"
        if status in TEMPORARY:
            if status >= 500:
                self._doubt(server)
            raise TemporaryError(description, retry_after(answer))
        if status in (401, 403):
            key = "the key in that variable was refused" if self._key else "name the key's variable with --api-key-var"
            raise UsageError(f"{description}; {key}.")
        if status == 404:
            raise UsageError(self._hidden(f"{description}; {await self._served_models(server)}"))
        if status in (400, 413, 422) and self._adapt(server, status, message.lower(), body, description):
            return
        raise Refused(description)

    def _adapt(self, server: str, status: int, message: str, body: dict[str, Any], description: str) -> bool:
        """Removes or renames the field that the server refused. Raises TooLong for a prompt that is too long."""
        too_long = ("context length", "context_length", "too long", "too many tokens")
        if status == 413 or any(words in message for words in too_long):
            raise TooLong(description)
        if "max_completion_tokens" in message and "max_tokens" in self._fields:
            self._fields["max_completion_tokens"] = self._fields.pop("max_tokens")
            return True
        if "max_completion_tokens" in self._fields and "max_tokens" in body:
            return True  # another request has already renamed the field
        if "temperature" in message and "temperature" in body:
            raise UsageError(
                f"{description}. This model does not accept temperature {body['temperature']:g}: "
                "use --temperature default."
            )
        for name, flag in FLAGS.items():
            if name in body and name in message:
                raise UsageError(f"{description}. This model does not accept {name}: leave out {flag}.")
        for name in OPTIONAL:
            if name in body and name in message:
                if name not in self._dropped:
                    self._dropped.add(name)
                    warnings.warn(f"{public_url(server)} does not accept {name!r}: requests omit it.", stacklevel=2)
                return True
        return False

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


def _parsed_headers(words: Sequence[str]) -> dict[str, str]:
    """Parses NAME:VALUE words. Raises UsageError."""
    headers = {}
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or not name.strip() or not word.isascii() or not word.isprintable():
            raise UsageError(
                "--header takes NAME:VALUE in printable ASCII (the word is not repeated here: it may be secret)."
            )
        headers[name.strip()] = value.strip()
    return headers
