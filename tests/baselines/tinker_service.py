"""A small Tinker: the interface of the package `tinker`, with a true model and adapter behind it.

`Package` stands in for the module; everything is computed in this process, in order, in a thread.
"""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

PROJECTIONS = {
    "attn": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "mlp": ["gate_proj", "up_proj", "down_proj"],
    "unembed": ["lm_head"],
}
ALPHA = 16


class TinkerError(Exception):
    """Anything that the service refuses."""


class RetryableException(Exception):
    """A result that the service lost (HTTP 410): `tinker.lib.retryable_exception`."""


@dataclass
class ModelInput:
    tokens: list[int]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> ModelInput:
        assert all(type(token) is int for token in tokens)
        return cls(tokens)

    def to_ints(self) -> list[int]:
        return self.tokens


@dataclass
class TensorData:
    tensor: torch.Tensor

    @classmethod
    def from_torch(cls, tensor: torch.Tensor) -> TensorData:
        assert not tensor.requires_grad and tensor.ndim == 1
        return cls(tensor.clone())

    def to_torch(self) -> torch.Tensor:
        return self.tensor


@dataclass
class Datum:
    model_input: ModelInput
    loss_fn_inputs: dict[str, TensorData]


@dataclass
class AdamParams:
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass
class SamplingParams:
    max_tokens: int | None = None
    seed: int | None = None
    stop: Any = None
    temperature: float = 1
    top_k: int = -1
    top_p: float = 1


class APIFuture:
    """A future as the package has it."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> Any:
        return self._future.result(timeout)

    def future(self) -> Future[Any]:
        return self._future


def token_logprobs(lm: Any, tokens: list[int], targets: torch.Tensor) -> torch.Tensor:
    logits = lm(torch.tensor([tokens])).logits[0]
    return logits.log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


class SamplingClient:
    def __init__(self, service: ServiceClient, lm: Any) -> None:
        self._service, self.lm = service, lm

    def get_tokenizer(self) -> Any:
        return self._service.package.tokenizer

    def compute_logprobs(self, prompt: ModelInput) -> APIFuture:
        return self._service.later(self._logprobs, prompt)

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> APIFuture:
        assert num_samples == 1
        return self._service.later(self._sample, prompt, sampling_params)

    @torch.no_grad()
    def _logprobs(self, prompt: ModelInput) -> list[float | None]:
        tokens = prompt.to_ints()
        return [None, *token_logprobs(self.lm, tokens[:-1], torch.tensor(tokens[1:])).tolist()]

    @torch.no_grad()
    def _sample(self, prompt: ModelInput, params: SamplingParams) -> Any:
        dice, tokenizer = torch.Generator().manual_seed(params.seed), self.get_tokenizer()
        tokens, logprobs, reason = [], [], "length"
        while len(tokens) < params.max_tokens and reason == "length":
            logits = self.lm(torch.tensor([prompt.to_ints() + tokens])).logits[0, -1]
            scores = (logits / (params.temperature or 1.0)).log_softmax(-1)
            token = torch.multinomial(scores.exp(), 1, generator=dice) if params.temperature else scores.argmax()
            tokens.append(int(token))
            logprobs.append(scores[tokens[-1]].item())
            text = tokenizer.decode(tokens, skip_special_tokens=False)
            if any(tokens[-1] == stop if isinstance(stop, int) else stop in text for stop in params.stop):
                reason = "stop"
        reply = SimpleNamespace(tokens=tokens, logprobs=logprobs, stop_reason=reason)
        return SimpleNamespace(sequences=[reply])


class TrainingClient:
    def __init__(self, service: ServiceClient, base_model: str, rank: int, seed: int | None, groups: list[str]) -> None:
        self._service = service
        torch.manual_seed(seed)
        targets = [name for group in groups for name in PROJECTIONS[group]]
        lora = LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=targets, task_type="CAUSAL_LM")
        self.lm = get_peft_model(service.lm(base_model), lora)
        self.settings = (base_model, rank, seed, groups)
        self.adapter = {name: p for name, p in self.lm.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(self.adapter.values(), lr=0.0)

    def forward(self, data: list[Datum], loss_fn: str) -> APIFuture:
        return self._service.later(self._passes, data, loss_fn, False)

    def forward_backward(self, data: list[Datum], loss_fn: str) -> APIFuture:
        return self._service.later(self._passes, data, loss_fn, True)

    def optim_step(self, optim_params: AdamParams) -> APIFuture:
        return self._service.later(self._step, optim_params)

    def save_state(self, name: str) -> APIFuture:
        saved = copy.deepcopy((self.settings, dict(self.adapter), self.optimiser.state_dict()))
        return self._service.later(self._service.package.save, f"tinker://run/weights/{name}", saved)

    def save_weights_for_sampler(self, name: str) -> APIFuture:
        return self._service.later(self._service.package.save, f"tinker://run/sampler_weights/{name}", None)

    def save_weights_and_get_sampling_client(self) -> APIFuture:
        return self._service.later(lambda: SamplingClient(self._service, self._service.package.handed_over(self.lm)))

    def _passes(self, data: list[Datum], loss_fn: str, backward: bool) -> Any:
        assert loss_fn == "cross_entropy"
        outputs = []
        with torch.set_grad_enabled(backward):
            for datum in data:
                targets, weights = (datum.loss_fn_inputs[key].to_torch() for key in ("target_tokens", "weights"))
                logprobs = token_logprobs(self.lm, datum.model_input.to_ints(), targets)
                if backward:
                    (-logprobs * weights).sum().backward()
                outputs.append({"logprobs": TensorData.from_torch(logprobs.detach())})
        return SimpleNamespace(loss_fn_outputs=outputs, metrics={})

    def _step(self, params: AdamParams) -> Any:
        for group in self.optimiser.param_groups:
            group.update(lr=params.learning_rate, betas=(params.beta1, params.beta2), eps=params.eps)
            group.update(weight_decay=params.weight_decay)
        norm = torch.nn.utils.clip_grad_norm_(self.adapter.values(), params.grad_clip_norm or torch.inf)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return SimpleNamespace(metrics={"unclipped_grad_l2:mean": norm.item()})


class ServiceClient:
    package: Package

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def later(self, function: Any, *arguments: Any) -> APIFuture:
        return APIFuture(self._thread.submit(function, *arguments))

    def lm(self, base_model: str) -> Any:
        if base_model != self.package.folder:
            raise TinkerError(f"no model {base_model}")
        return AutoModelForCausalLM.from_pretrained(base_model)

    def create_sampling_client(self, base_model: str) -> APIFuture:
        return self.later(lambda: SamplingClient(self, self.lm(base_model).eval()))

    def create_lora_training_client(
        self, base_model: str, rank: int, seed: int, train_mlp: bool, train_attn: bool, train_unembed: bool
    ) -> APIFuture:
        chosen = {"attn": train_attn, "mlp": train_mlp, "unembed": train_unembed}
        return self.later(self._make, base_model, rank, seed, [name for name, wanted in chosen.items() if wanted])

    def create_training_client_from_state_with_optimizer(self, path: str) -> APIFuture:
        return self.later(self._restore, path)

    def _make(self, *settings: Any) -> TrainingClient:
        self.package.training = TrainingClient(self, *settings)
        return self.package.training

    def _restore(self, path: str) -> TrainingClient:
        settings, adapter, optimiser = self.package.saved[path]
        client = self._make(*settings)
        with torch.no_grad():
            for name, parameter in client.adapter.items():
                parameter.copy_(adapter[name])
        client.optimiser.load_state_dict(copy.deepcopy(optimiser))
        return client


class Package:
    """Stands in for the module `tinker`; `training` is the latest training client."""

    __spec__ = ModuleSpec("tinker", None)
    TinkerError = TinkerError
    ModelInput, TensorData, Datum = ModelInput, TensorData, Datum
    AdamParams, SamplingParams = AdamParams, SamplingParams

    def __init__(self, folder: str) -> None:
        self.folder, self.tokenizer = folder, AutoTokenizer.from_pretrained(folder)
        self.saved: dict[str, Any] = {}
        self.training: Any = None
        self.stale = False
        """True hands over the first weights for ever."""
        self._first: Any = None
        self.ServiceClient = type("ServiceClient", (ServiceClient,), {"package": self})

    def save(self, path: str, state: Any) -> Any:
        self.saved[path] = state
        return SimpleNamespace(path=path)

    def handed_over(self, lm: Any) -> Any:
        self._first = self._first or copy.deepcopy(lm).eval()
        return self._first if self.stale else copy.deepcopy(lm).eval()
