"""A model whose weights are on Tinker's service (`backend = "tinker"`), which computes all passes.

The service returns the log-probs of tokens, and adds to its gradient that of `sum(-weights * logprobs)`,
its loss "cross_entropy". A loss L that is a function of log-probs is computed here; with the weights
-dL/dlogprobs the service's gradient is that of L. Losses therefore need no counterpart on the service,
and the weights move as in a local model with the same adapter, within 0.1 % (a test measures it).

Source: the documentation of the package `tinker`, whose `forward_backward_custom` does the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from baselines.batch import AllowedTokens
from baselines.distributed import collectives
from baselines.math.losses import check_finite
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from baselines.networks.tinker_settings import LAYERS, NO_KEY, check_access
from envsuite.errors import DataError, EnvsuiteError, UsageError
from harness.lm import model_files

FILE = "tinker.json"
"""In an exported folder: the base model, and the paths of the weights on the service, to download and to sample."""


class TinkerModel(Model):
    """An actor on Tinker's service, without critic. The reference is its base model.

    `lm` has the architecture and no weights. The service counts log-probs at temperature 1 only, and no
    entropies: in their place `logprobs` returns -log p of each token, whose mean over sampled tokens is
    an estimate of the entropy.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Connects to the service. Raises MissingExtra without the package, UsageError without a key."""
        if collectives.size() > 1:
            raise UsageError(f"backend = 'tinker' works in a single process, not in {collectives.size()}.")
        check_access()
        import tinker

        self.api: Any = tinker
        self.lora = config
        self.base = model_files.resolve(config.name).where
        with self.errors("did not open the model"):
            self.service = tinker.ServiceClient()
            self.base_sampler: Any = self.service.create_sampling_client(base_model=self.base).result()
            tokenizer = self.base_sampler.get_tokenizer()
        super().__init__(_architecture(self.base), tokenizer, dataclasses.replace(config, lora_rank=0, critic="none"))
        self._training: Any = None
        self._sampler: Any = None
        self._sent: list[Any] = []
        """Backward passes since the last step that were not waited for."""
        self._saved_weights: str = ""
        self._saved_sampler: str = ""
        """Paths on the service where the present weights are saved; "" if they are not."""

    @property
    def training(self) -> Any:
        """The service's training client; a new adapter is made at the first call."""
        if self._training is None:
            layers = {f"train_{name}": name in self.lora.lora_targets for name in LAYERS}
            with self.errors("made no adapter"):
                self._training = self.service.create_lora_training_client(
                    base_model=self.base, rank=self.lora.lora_rank, seed=self.lora.seed, **layers
                ).result()
        return self._training

    @property
    def sampler(self) -> Any:
        """The service's sampling client with the present weights."""
        if self._sampler is None:
            with self.errors("handed over no weights"):
                self._sampler = self.training.save_weights_and_get_sampling_client().result()
        return self._sampler

    # ---- Passes ----

    def logprobs(
        self,
        ids: Tensor,
        valid: Tensor,
        temperature: float = 1.0,
        sampled: Tensor | None = None,
        entropy_gradient: bool = True,
        allowed: AllowedTokens | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns log-probs like `Model.logprobs`, and their negatives. [B, L] -> [B, L], [B, L]

        Backward passes of the result are computed by the service and not waited for until `step`.
        """
        rows = _rows(ids, valid)
        data = self._data(rows)
        with self.errors("computed no forward pass"):
            outputs = self.training.forward(data, "cross_entropy").result().loss_fn_outputs
        logprobs = torch.zeros(ids.shape)
        for line, output in zip(logprobs, outputs, strict=True):
            values = output["logprobs"].to_torch()
            line[1 : len(values) + 1] = values
        if sampled is not None:
            logprobs = logprobs.where(sampled, 0.0)
        if torch.is_grad_enabled():
            logprobs.requires_grad_().register_hook(lambda gradient: self._backward(rows, gradient))
        return logprobs, -logprobs.detach()

    def _backward(self, rows: list[list[int]], gradient: Tensor) -> None:
        """Sends the gradient of a loss with respect to log-probs. [B, L] Raises NonFiniteLoss before sending it."""
        check_finite(gradient.norm().item(), "gradient of the policy's loss by log-probs")
        data = self._data(rows, -gradient)
        with self.errors("computed no backward pass"):
            self._sent.append(self.training.forward_backward(data, "cross_entropy"))

    def _data(self, rows: list[list[int]], weights: Tensor | None = None) -> list[Any]:
        """Returns the service's form of rows, with the weights [B, L] of their tokens (0 by default)."""
        data = []
        for number, row in enumerate(rows):
            of_row = torch.zeros(len(row) - 1) if weights is None else weights[number, 1 : len(row)].contiguous()
            inputs = {"target_tokens": torch.tensor(row[1:]), "weights": of_row}
            data.append(
                self.api.Datum(
                    model_input=self.api.ModelInput.from_ints(row[:-1]),
                    loss_fn_inputs={name: self.api.TensorData.from_torch(value) for name, value in inputs.items()},
                )
            )
        return data

    def step(self, **adam: float) -> dict[str, float]:
        """Takes a step of Adam with what was sent, and returns the service's numbers about it."""
        with self.errors("took no step"):
            step = self.training.optim_step(self.api.AdamParams(**adam))
            for future in (*self._sent, step):
                future.result()
            metrics = step.result().metrics
        self._sent.clear()
        self._sampler, self._saved_weights, self._saved_sampler = None, "", ""
        return dict(metrics or {})

    @torch.no_grad()
    def reference_logprobs(
        self,
        ids: Tensor,
        valid: Tensor,
        temperature: float = 1.0,
        sampled: Tensor | None = None,
        allowed: AllowedTokens | None = None,
    ) -> Tensor:
        """Returns the log-probs of the base model, like `logprobs`. [B, L]"""
        out = torch.zeros(ids.shape)
        inputs = [self.api.ModelInput.from_ints(row) for row in _rows(ids, valid)]
        with self.errors("computed no log-probs of the base model"):
            futures = [self.base_sampler.compute_logprobs(tokens) for tokens in inputs]
            results = [future.result() for future in futures]
        for line, result in zip(out, results, strict=True):
            values = torch.tensor(result[1:])
            line[1 : len(values) + 1] = values
        return out if sampled is None else out.where(sampled, 0.0)

    def keep_reference(self) -> None:
        """Does nothing: the base model stays on the service."""

    # ---- Files ----

    def state(self) -> dict[str, Any]:
        """Saves weights and optimiser on the service, once between two steps, and returns their path there."""
        if not self._saved_weights:
            with self.errors("saved nothing"):
                self._saved_weights = self.training.save_state(_unique_name()).result().path
        return {"tinker": self._saved_weights}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues with the weights and the optimiser that `state` saved."""
        with self.errors("does not load the checkpoint"):
            restore = self.service.create_training_client_from_state_with_optimizer
            self._training = restore(state["tinker"]).result()
        self._sampler, self._saved_weights, self._saved_sampler = None, state["tinker"], ""

    def save(
        self, folder: Path, weights: dict[str, Tensor] | None = None, adapter: bool = False, untied: bool = False
    ) -> None:
        """Saves the adapter on the service; writes the tokenizer, and where the adapter is."""
        if not self._saved_sampler:
            with self.errors("saved nothing"):
                self._saved_sampler = self.training.save_weights_for_sampler(_unique_name()).result().path
        paths = {"weights": self.state()["tinker"], "sampler_weights": self._saved_sampler}
        self.tokenizer.save_pretrained(folder)
        (folder / FILE).write_text(json.dumps({"base_model": self.base, **paths}, indent=2) + "\n")

    @contextlib.contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Raises DataError, in one line, for whatever the service refuses; UsageError without a key.

        The package also raises ValueError, RuntimeError, TimeoutError and its own exceptions, without a common base.
        """
        try:
            yield
        except EnvsuiteError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            if type(error) is self.api.TinkerError and "api_key" in reason:  # raised before any request
                raise UsageError(f"{NO_KEY} ({reason}).") from error
            raise DataError(f"Tinker {what} ({type(error).__name__}: {reason}).") from error


def _architecture(base: str) -> Any:
    """Returns a language model without weights. Raises DataError if its configuration cannot be read."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    name = base.partition(":")[0]  # Tinker appends variants: org/name:peft:262144
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        with torch.device("meta"):
            lm = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"backend = 'tinker' reads the configuration of {name!r}, and cannot ({reason}): is that its name on the "
            "Hugging Face hub, and can the hub be reached?"
        ) from error
    with contextlib.suppress(OSError):  # a model may have no generation config
        lm.generation_config = GenerationConfig.from_pretrained(name)
    return lm


def _rows(ids: Tensor, valid: Tensor) -> list[list[int]]:
    """Returns the tokens of each row without padding. [B, L], [B, L] -> [B][l]"""
    return [row[:length].tolist() for row, length in zip(ids, valid.sum(1).tolist(), strict=True)]


def _unique_name() -> str:
    return f"envsuite-{secrets.token_hex(4)}"
