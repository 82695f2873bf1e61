"""Settings of who generates training episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from baselines.ranges import Natural, Positive, PositiveShare
from envsuite.errors import UsageError
from envsuite.escaping import public_url


@dataclass(frozen=True)
class Generation:
    """Model servers or vLLM's engine, which generate in place of transformers, and how they receive new
    weights (see `baselines.collection`)."""

    base_url: str = ""
    """Addresses such as http://gpu1:8000/v1, separated by commas; '' generates in this process."""
    engine: Literal["", "vllm"] = ""
    """vllm: vLLM in this process, on the device of the model; it sleeps during updates."""
    gpu_share: PositiveShare = 0.5
    """Share of the GPU's memory that `engine` takes while it is awake."""
    sync: Literal["lora", "disk", "reload"] = "lora"
    """lora: vLLM loads the adapter | disk: SGLang loads the whole model | reload: vLLM loads it."""
    folder: str = ""
    """Folder for the weights, which servers must see under the same path; '': in the run's folder.
    """
    tolerance: Positive = 0.05
    """Largest mean difference between a server's and the trainer's log-probs in a batch, in nats per
    token."""
    checked: Natural = 16
    """Replies of each server whose log-probs are compared, in every batch; 0: all."""
    timeout: Positive = 300.0
    """Seconds to wait for an answer."""
    retries: Natural = 6
    """Further attempts at a request that failed, each at the next server after a longer pause."""
    api_key_var: str = ""
    """Environment variable that holds the servers' key."""

    @property
    def elsewhere(self) -> bool:
        """True if servers or an engine generate, and not the model that is trained."""
        return bool(self.base_url or self.engine)

    @property
    def public_url(self) -> str:
        """The servers' addresses without passwords."""
        return ",".join(public_url(url.strip()) for url in self.base_url.split(","))

    def validate(self, recipe: Any) -> None:
        """Rejects combinations of settings that cannot work. Raises UsageError."""
        if not self.elsewhere:
            return
        what = f"generation.base_url = {self.public_url!r}" if self.base_url else f"generation.engine = {self.engine!r}"
        if recipe.acting.scores_commands:
            raise UsageError(
                f"acting.choose = {recipe.acting.choose!r} needs the model in this process, and {what} generates "
                "elsewhere: leave one of them out."
            )
        if self.engine:
            self._validate_engine(recipe)
            return
        for word in self.base_url.split(","):
            if not word.strip().startswith(("http://", "https://")):
                raise UsageError(
                    f"generation.base_url cannot be {self.public_url!r}: it looks like http://localhost:8000/v1, "
                    "several separated by commas."
                )
        if self.sync == "lora" and not recipe.model.lora_rank:
            raise UsageError(
                "generation.sync = 'lora' sends an adapter, and model.lora_rank is 0: set it (8), or use "
                "generation.sync = 'disk'."
            )

    def _validate_engine(self, recipe: Any) -> None:
        """Rejects an engine beside what would use its memory or its weights at the same time."""
        others = {
            "generation.base_url": self.public_url if self.base_url else "",
            "async_level": recipe.async_level,
            "fsdp": recipe.fsdp,
        }
        for name, value in others.items():
            if value:
                raise UsageError(
                    f"generation.engine = {self.engine!r} generates between updates, with the whole model on one "
                    f"device, and {name} is {value!r}: leave one of them out."
                )
