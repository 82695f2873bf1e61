"""Model servers that generate training episodes with the weights of the latest update.

Before each rollout the trainer writes its weights where the servers can read them and has each of
them load them, so that episodes are always played by the present weights (a policy lag of zero).
There are three ways, `generation.sync`:

    lora     vLLM, `POST /v1/load_lora_adapter`: the adapter alone, under a new name each time, for
             which every request then asks. A server that has not loaded it can only refuse, and does
             not reuse prefixes cached for older adapters.
    disk     SGLang, `POST /update_weights_from_disk`: the whole model, with its cache flushed;
             answers name the version of their weights.
    reload   vLLM, `POST /collective_rpc` of `reload_weights` and `POST /reset_prefix_cache`: the
             whole model, on a server in its development mode. A head that shares the embedding's
             weights is sent too: vLLM 0.32 does not renew its packed copy of the head otherwise.

Whatever a server claims, the trainer's own log-probs of the sampled tokens must agree with the
server's (`server_gap`). A server that cannot be reached is left out until the next weights, as long
as another one can.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from baselines.distributed import collectives
from baselines.logging import checkpoints
from baselines.networks.model import Model
from baselines.recipe import Recipe
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.escaping import public_url


class _Unreachable(DataError):
    """No answer came from a server."""


TRIES = 4
"""Attempts to reach a server."""
PAUSE = 2.0
"""Seconds before the second attempt; the pause doubles with every further one."""


class Servers:
    """The servers of a run. They load weights from `folder`/served, or from the folder that the
    recipe names."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        try:
            from harness.policies.chat_completions import address
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"Generation on a server needs the package {error.name!r}: pip install 'envsuite[api]'"
            ) from error
        self.recipe, self.settings = recipe, recipe.generation
        self.addresses = [address(url) for url in self.settings.base_url.split(",") if url.strip()]
        self.folder = Path(self.settings.folder or folder / "served").resolve()
        if collectives.first() and not self.settings.folder:
            shutil.rmtree(self.folder, ignore_errors=True)  # left by a run that was killed
        self.name = ""
        """Name of the weights that the servers hold."""
        self.present = self.addresses
        """The servers that hold these weights."""
        self.stale = True
        """True if the weights changed since the servers loaded them."""
        (self._run,) = set(collectives.gather([secrets.token_hex(3)])[:1])  # the same in all processes, new in each run
        self._count = 0

    @property
    def options(self) -> dict[str, Any]:
        """The options with which a `TokensPolicy` asks for the present weights."""
        lora = self.settings.sync == "lora"
        return {
            "model": self.name if lora else self.recipe.model.name,
            "version": self.name if self.settings.sync == "disk" else "",
            "base_url": ",".join(self.present),
            "api_key_var": self.settings.api_key_var or None,
            "timeout": self.settings.timeout,
            "max_retries": self.settings.retries,
        }

    def load(self, model: Model) -> None:
        """Has every server load the model's present weights, if they changed. Returns when all have.

        Leaves out servers that cannot be reached, with a warning. Raises DataError if none can, or if
        one refuses.
        """
        if not self.stale:
            return
        previous, self._count = self.name, self._count + 1
        self.name = f"envsuite-{self._run}-{self._count}"
        lora, untied = self.settings.sync == "lora", self.settings.sync == "reload"
        weights = model.gathered_state(adapter=lora)
        if collectives.first():
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoints.export(self.folder / self.name, lambda path: model.save(path, weights, lora, untied))
            try:
                self.present = self._load_all()
            except DataError:
                shutil.rmtree(self.folder / self.name, ignore_errors=True)
                self.name = previous
                raise
            if previous:
                self._unload(previous)
                shutil.rmtree(self.folder / previous, ignore_errors=True)
        (self.present,) = collectives.gather([self.present])[:1]
        self.stale = False

    def answering(self) -> bool:
        """Returns True if any server answers at present."""
        return any(self._post(f"{address}/models", None, tries=1)[0] for address in self.addresses)

    def close(self) -> None:
        """Removes the written weights, and unloads vLLM's adapter."""
        if collectives.first() and self.name:
            self._unload(self.name)
            shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def _load_all(self) -> list[str]:
        """Returns the servers that loaded the weights."""
        loaded: list[str] = []
        unreachable: list[_Unreachable] = []
        for address in self.addresses:
            try:
                self._load(address, tries=TRIES if address in self.present else 1)
                loaded.append(address)
            except _Unreachable as error:
                unreachable.append(error)
        if not loaded:
            raise unreachable[0]
        for absent in unreachable:
            print(f"warning: {absent} It is left out until the next weights.", file=sys.stderr, flush=True)
        return loaded

    def _unload(self, name: str) -> None:
        """Unloads vLLM's adapter of that name where it was loaded."""
        for address in self.present if self.settings.sync == "lora" else ():
            self._post(f"{address}/unload_lora_adapter", {"lora_name": name}, tries=1)

    def _load(self, address: str, tries: int) -> None:
        path = str(self.folder / self.name)
        if self.settings.sync == "lora":
            body: dict[str, Any] = {"lora_name": self.name, "lora_path": path}
            status, message = self._post(f"{address}/load_lora_adapter", body, tries)
            if status == 400 and "already been loaded" in message:
                return  # by an earlier attempt whose answer was lost, or through another address: the name is unique
            cure = "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and --max-lora-rank."
        elif self.settings.sync == "reload":
            body = {"method": "reload_weights", "kwargs": {"weights_path": path}}
            status, message = self._post(f"{_root(address)}/collective_rpc", body, tries)
            if status == 200:
                status, message = self._post(f"{_root(address)}/reset_prefix_cache", {}, tries)
            cure = "start vLLM with VLLM_SERVER_DEV_MODE=1."
        else:
            body = {"model_path": path, "weight_version": self.name, "flush_cache": True}
            status, message = self._post(f"{_root(address)}/update_weights_from_disk", body, tries)
            cure = "this is SGLang's way; for vLLM set generation.sync = 'lora' (with model.lora_rank) or 'reload'."
        if status != 200:
            if status in (401, 403):
                cure = "name the variable that holds its key, generation.api_key_var."
            elif status == 0:
                cure = "is it running, and is that its address (generation.base_url)?"
            elif status not in (404, 405):
                cure = "servers must see that folder under the same name (generation.folder)."
            kind = DataError if status else _Unreachable
            raise kind(f"{public_url(address)} did not load the weights of {path} ({status}: {message}): {cure}")

    def _post(self, url: str, body: dict[str, Any] | None, tries: int) -> tuple[int, str]:
        """Returns the status and message of an answer; 0 if no server answered, 500 for a 200 that
        reports a failure. Without a body the request is a GET."""
        import httpx

        from harness.policies.chat_completions import hidden, refusal, secrets_of

        key = os.environ.get(self.settings.api_key_var, "") if self.settings.api_key_var else ""
        secrets = [*([key] if key else []), *secrets_of(url)]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = self.settings.timeout if tries > 1 else 10.0
        message = ""
        for attempt in range(tries):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                method = "GET" if body is None else "POST"
                answer = httpx.request(method, url, json=body, headers=headers, timeout=timeout)
            except httpx.HTTPError as error:
                message = f"{type(error).__name__} {error}".rstrip()
                continue
            except httpx.InvalidURL as error:
                message = hidden(str(error), secrets)
                raise UsageError(f"generation.base_url {public_url(url)} is no address: {message}") from None
            message = refusal(answer)
            try:
                failed = answer.json()["success"] is False
            except (ValueError, KeyError, TypeError):
                failed = False
            return (500 if failed else answer.status_code), hidden(message, secrets)[:400]
        return 0, hidden(message, secrets)


def _root(address: str) -> str:
    """Returns a server's address without /v1."""
    return urlunsplit((*urlsplit(address)[:2], urlsplit(address).path.removesuffix("/v1"), "", ""))
