"""Models on a server that this process starts and stops: `vllm:MODEL` and `llamacpp:FILE.gguf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envsuite.errors import DataError, UsageError
from harness.lm import model_files
from harness.policies import SERVER_OPTIONS
from harness.policies.connections.failures import TemporaryError
from harness.policies.openai import OpenAIPolicy
from harness.servers import programs
from harness.servers.pool import SERVERS
from harness.servers.process import ServerCommand
from harness.types import Prompt, Reply

PREFIX = "server_"
"""Prefix of a server's settings among the options of a policy."""


class ManagedPolicy(OpenAIPolicy):
    """Asks a model on a managed server, which all policies with the same command share.

    `name` is `vllm:MODEL` or `llamacpp:MODEL`; `gguf_file` is the file of a model that is named without it. Takes the
    options of `OpenAIPolicy` and of the server (`SERVER_OPTIONS`). `thinking_budget` is the most tokens of reasoning in
    a reply, 0 the server's own. `say` receives a line now and then while the server starts.
    """

    uses_proxies = False

    def __init__(
        self,
        name: str,
        say: Callable[[str], None] = lambda line: None,
        thinking_budget: int = 0,
        gguf_file: str = "",
        **options: Any,
    ) -> None:
        kind, _, model = name.partition(":")
        model = gguf_file or model
        if not model:
            raise UsageError(f"{kind}: needs a model, as in {EXAMPLES[kind]}.")
        settings = server_settings(options)
        options = {name: value for name, value in options.items() if name not in SERVER_OPTIONS}
        self.command: ServerCommand = programs.command(kind, model, settings, say)
        self.server = SERVERS.acquire(self.command, say)
        try:
            super().__init__(model, base_url=self.server.url, served_model_name=self.command.model, **options)
            if thinking_budget:
                self.fields.values[THINKING_BUDGET[kind]] = thinking_budget
        except BaseException:
            SERVERS.release(self.command)
            raise
        self._released = False

    def connection(self) -> dict[str, Any]:
        words = [*self.command.words, "--port", str(self.server.port)]
        return {**super().connection(), "server": {"program": self.command.name, "command": words}}

    def close(self) -> None:
        super().close()
        if not self._released:
            self._released = True
            SERVERS.release(self.command)

    async def _ask(self, server: str, prompt: Prompt, content: Any) -> Reply:
        try:
            return await super()._ask(server, prompt, content)
        except TemporaryError as error:
            if self.server.ended:  # nothing restarts it, so retries are useless
                failure = self.server.failure("ended during the run")
                raise DataError(f"{failure}. Finished episodes are kept: continue with --resume.") from error
            raise


THINKING_BUDGET = {"vllm": "thinking_token_budget", "llamacpp": "thinking_budget_tokens"}
"""Field of a request that limits the tokens of reasoning, by kind of server."""
EXAMPLES = {"vllm": "vllm:Qwen/Qwen2.5-3B-Instruct", "llamacpp": "llamacpp:model.gguf"}


def server_settings(options: Mapping[str, Any]) -> programs.ServerSettings:
    """Returns the settings of a server from the options of its policy. Raises UsageError."""
    values = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX) and value}
    values |= {"dtype": options.get("dtype", "auto"), "concurrent": options.get("max_concurrent", 16)}
    return programs.ServerSettings(**values)


def identity_of(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Identifies a model on a managed server; see `harness.policies.identity`."""
    kind, _, served = name.partition(":")
    model = options.get("gguf_file") or served
    settings = server_settings(options)
    return {
        "served": served,
        "program": programs.find(kind, settings.python).version,
        "weights": model_files.fingerprint(str(programs.gguf(model)) if kind == "llamacpp" else model),
        "context": settings.context,
        "dtype": settings.dtype,
        "args": settings.args,
    }
