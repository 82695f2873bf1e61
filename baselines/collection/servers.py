"""Model servers that generate training episodes with the weights of the latest update.

Before each rollout the trainer writes its weights where the servers can read them and has each of
them load them, so that episodes are always played by the present weights (a policy lag of zero).
There are two ways, `generation.sync`:

    lora   vLLM, `POST /v1/load_lora_adapter`: the adapter alone, under a new name each time, for
           which every request then asks. A server that has not loaded it can only refuse, and does
           not reuse prefixes cached for older adapters.
    disk   SGLang, `POST /update_weights_from_disk`: the whole model, with its cache flushed;
           answers name the version of their weights.

Whatever a server claims, the trainer's own log-probs of the sampled tokens must agree with the
server's (`Servers.check`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from baselines.batch import collate
from baselines.distributed import collectives
from baselines.logging import checkpoints
from baselines.microbatch import evaluate
from baselines.networks.model import Model
from baselines.networks.snapshot import Snapshot
from baselines.recipe import Recipe
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.escaping import public_url
from harness.types import Trajectory

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
            "version": "" if lora else self.name,
            "base_url": self.settings.base_url,
            "api_key_var": self.settings.api_key_var or None,
            "timeout": self.settings.timeout,
        }

    def load(self, model: Model) -> None:
        """Has every server load the model's present weights, if they changed. Returns when all
        have."""
        if not self.stale:
            return
        previous, self._count = self.name, self._count + 1
        self.name = f"envsuite-{self._run}-{self._count}"
        lora = self.settings.sync == "lora"
        weights = model.gathered_state(adapter=lora)
        if collectives.first():
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoints.export(self.folder / self.name, lambda path: model.save(path, weights, adapter=lora))
            for address in self.addresses:
                self._load(address)
            if previous:
                for address in self.addresses if lora else ():
                    self._post(f"{address}/unload_lora_adapter", {"lora_name": previous})
                shutil.rmtree(self.folder / previous, ignore_errors=True)
        collectives.wait()
        self.stale = False

    def check(self, model: Model | Snapshot, runs: Sequence[Trajectory], temperature: float) -> float:
        """Returns the mean difference between the servers' and the trainer's log-probs, in nats per
        token.

        Raises DataError above `generation.tolerance`: the episodes were then not played by the
        weights that learn.
        """
        config = self.recipe.config
        batch = collate(runs, config.whole)
        own = evaluate(
            lambda rows: model.logprobs(rows.ids, rows.valid, temperature, rows.sampled)[0],
            batch,
            config.micro_rows,
            model.sharded,
        )
        gap = (own - batch.flat(batch.logprobs)).abs().mean().item()
        if not gap <= self.settings.tolerance:
            raise DataError(
                f"The servers' log-probs of what they sampled are {gap:.2g} nats from the trainer's on average, and "
                f"generation.tolerance is {self.settings.tolerance:g}: their weights are stale, or their "
                f"log-probs are not at temperature {temperature or 1:g} (vLLM: --logprobs-mode processed_logprobs)."
            )
        return gap

    def close(self) -> None:
        """Removes the written weights, and unloads vLLM's adapter."""
        if collectives.first() and self.name:
            for address in self.addresses if self.settings.sync == "lora" else ():
                self._post(f"{address}/unload_lora_adapter", {"lora_name": self.name}, tries=1)
            shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def _load(self, address: str) -> None:
        path = str(self.folder / self.name)
        if self.settings.sync == "lora":
            status, message = self._post(f"{address}/load_lora_adapter", {"lora_name": self.name, "lora_path": path})
            if status == 400 and "already been loaded" in message:
                return  # by an earlier attempt whose answer was lost, or through another address: the name is unique
            cure = "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and --max-lora-rank."
        else:
            root = urlunsplit((*urlsplit(address)[:2], urlsplit(address).path.removesuffix("/v1"), "", ""))
            body = {"model_path": path, "weight_version": self.name, "flush_cache": True}
            status, message = self._post(f"{root}/update_weights_from_disk", body)
            cure = "this is SGLang's way; for vLLM set model.lora_rank and generation.sync = 'lora'."
        if status != 200:
            if status in (401, 403):
                cure = "name the variable that holds its key, generation.api_key_var."
            elif status == 0:
                cure = "is it running, and is that its address (generation.base_url)?"
            elif status not in (404, 405):
                cure = "servers must see that folder under the same name (generation.folder)."
            raise DataError(f"{public_url(address)} did not load the weights of {path} ({status}: {message}): {cure}")

    def _post(self, url: str, body: dict[str, Any], tries: int = TRIES) -> tuple[int, str]:
        """Returns the status and message of an answer; 0 if no server answered, 500 for a 200 that
        reports a failure."""
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
                answer = httpx.post(url, json=body, headers=headers, timeout=timeout)
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
