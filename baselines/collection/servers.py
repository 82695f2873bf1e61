"""Model servers that play in place of this process, with the weights of the latest update.

Before each rollout the trainer writes its weights where the servers can read them, and has each of them load them: what is
played is played by the present weights, never by earlier ones (a policy lag of zero). Two ways, `generation.sync`:

    lora   vLLM, `POST /v1/load_lora_adapter`: the adapter alone, under a name that is new each time, which every request
           then asks for. A server that has not loaded it can only refuse; prefixes cached for older adapters are not used.
    disk   SGLang, `POST /update_weights_from_disk`: the whole model, its cache flushed; answers name their weights' version.

And whatever a server claims: the trainer's own log-probs of what was sampled must be those that came with it (`check`).
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

import torch

from baselines.algorithms.ppo import in_parts
from baselines.batch import collate
from baselines.distributed import collectives
from baselines.logging import checkpoints
from baselines.model import Model
from baselines.recipe import Recipe
from envsuite.errors import DataError, MissingExtra, UsageError
from harness.types import Trajectory

TRIES, PAUSE = 4, 2.0
"""a server that cannot be reached is tried so often, with a pause of so many seconds that doubles"""


class Servers:
    """Those of a run. What they load lies in `folder`/served, or where the recipe says."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        try:
            from harness.policies.chat_completions import address
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"Generation on a server needs the package {error.name!r}: pip install 'envsuite[api]'"
            ) from error
        self.recipe, self.asked = recipe, recipe.generation
        self.addresses = [address(one) for one in self.asked.base_url.split(",") if one.strip()]
        self.folder = Path(self.asked.folder or folder / "served").resolve()
        if collectives.first() and not self.asked.folder:
            shutil.rmtree(self.folder, ignore_errors=True)  # what a run that was killed left
        self.name = ""  # of the weights they hold
        self.stale = True
        (self._run,) = set(collectives.gather([secrets.token_hex(3)])[:1])  # one for all processes, new for every start
        self._count = 0

    @property
    def options(self) -> dict[str, Any]:
        """What a `TokensPolicy` needs to ask them for the present weights."""
        lora = self.asked.sync == "lora"
        return {
            "model": self.name if lora else self.recipe.model.name,
            "version": "" if lora else self.name,
            "base_url": self.asked.base_url,
            "api_key_var": self.asked.api_key_var or None,
            "timeout": self.asked.timeout,
        }

    def follow(self, model: Model) -> None:
        """Has every server hold the model's present weights. Returns when all of them do."""
        if not self.stale:
            return
        before, self._count = self.name, self._count + 1
        self.name = f"envsuite-{self._run}-{self._count}"
        lora = self.asked.sync == "lora"
        weights = model.weights(adapter=lora)
        if collectives.first():
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoints.export(self.folder / self.name, lambda path: model.save(path, weights, adapter=lora))
            for address in self.addresses:
                self._load(address)
            if before:
                for address in self.addresses if lora else ():
                    self._post(f"{address}/unload_lora_adapter", {"lora_name": before})
                shutil.rmtree(self.folder / before, ignore_errors=True)
        collectives.wait()
        self.stale = False

    def check(self, model: Model, runs: Sequence[Trajectory], temperature: float) -> float:
        """By how much the servers' log-probs differ from the trainer's own, in nats per token on average.

        Raises DataError beyond `generation.tolerance`: the weights that played are not those that learn.
        """
        config = self.recipe.config
        batch = collate(runs, getattr(config, "whole", True))
        with torch.no_grad():
            own = in_parts(
                lambda ids, valid, mask: model.logprobs(ids, valid, temperature, mask)[0],
                batch,
                config.micro_rows,
                model.cut,
            )
        gap = (batch.flat(own) - batch.flat(batch.logprobs)).abs().mean().item()
        if not gap <= self.asked.tolerance:
            raise DataError(
                f"The servers' log-probs of what they sampled are {gap:.2g} nats from the trainer's on average, and "
                f"generation.tolerance is {self.asked.tolerance:g}: their weights are stale, or their log-probs are those of "
                f"another temperature than {temperature or 1:g} (vLLM takes --logprobs-mode processed_logprobs)."
            )
        return gap

    def close(self) -> None:
        """Takes back what was lent: the files, and vLLM's adapter."""
        if collectives.first() and self.name:
            for address in self.addresses if self.asked.sync == "lora" else ():
                self._post(f"{address}/unload_lora_adapter", {"lora_name": self.name}, tries=1)
            shutil.rmtree(self.folder / self.name, ignore_errors=True)

    def _load(self, address: str) -> None:
        path = str(self.folder / self.name)
        if self.asked.sync == "lora":
            status, said = self._post(f"{address}/load_lora_adapter", {"lora_name": self.name, "lora_path": path})
            if status == 400 and "already been loaded" in said:
                return  # by an earlier try whose answer did not come, or through another address: no other run has the name
            cure = "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and --max-lora-rank."
        else:
            root = urlunsplit((*urlsplit(address)[:2], urlsplit(address).path.removesuffix("/v1"), "", ""))
            body = {"model_path": path, "weight_version": self.name, "flush_cache": True}
            status, said = self._post(f"{root}/update_weights_from_disk", body)
            cure = "this is SGLang's way; for vLLM set model.lora_rank and generation.sync = 'lora'."
        if status != 200:
            if status in (401, 403):
                cure = "name the variable that holds its key, generation.api_key_var."
            elif status == 0:
                cure = "is it running, and is that its address (generation.base_url)?"
            elif status not in (404, 405):
                cure = "servers must see that folder under the same name (generation.folder)."
            raise DataError(f"{_shown(address)} did not load the weights of {path} ({status}: {said}): {cure}")

    def _post(self, url: str, body: dict[str, Any], tries: int = TRIES) -> tuple[int, str]:
        """Status and what was said; 0 where nobody answered. An answer 200 that says it failed counts as 500."""
        import httpx

        from harness.policies.chat_completions import refusal

        key = os.environ.get(self.asked.api_key_var, "") if self.asked.api_key_var else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        said = ""
        for attempt in range(tries):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                answer = httpx.post(url, json=body, headers=headers, timeout=self.asked.timeout if tries > 1 else 10.0)
            except httpx.HTTPError as error:
                said = f"{type(error).__name__} {error}".rstrip()
                continue
            except httpx.InvalidURL as error:
                raise UsageError(f"generation.base_url {_shown(url)} is no address: {error}") from None
            said = refusal(answer)[:400]
            try:
                failed = answer.json()["success"] is False
            except (ValueError, KeyError, TypeError):
                failed = False
            return (500 if failed else answer.status_code), said.replace(key, "***") if key else said
        return 0, said


def _shown(url: str) -> str:
    from harness.policies.chat_completions import shown

    return shown(url)
