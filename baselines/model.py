"""The model that is trained: a causal language model, and where an algorithm needs one, a critic.

Batches lie in the main memory; what is computed on a GPU comes back. Values and log-probs are those of what is about to be said: column l of [B, L] belongs to token l given the tokens before
it, so V_{t,0} is read at the last token of the prompt, never at the token itself and never at a pad.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from baselines import prefix_sharing
from baselines.configs import ModelConfig
from baselines.distributed import fsdp
from envsuite.errors import MissingExtra, UsageError, did_you_mean
from harness.lm import model_files

CRITICS = ("none", "head", "own")


class Critic(nn.Module):
    """A value per position from a trunk's last hidden state."""

    def __init__(self, trunk: nn.Module, width: int, hidden: tuple[int, ...], frozen: bool) -> None:
        super().__init__()
        sizes = [width, *hidden]
        layers: list[nn.Module] = []
        for one, other in zip(sizes, sizes[1:]):
            layers += [nn.Linear(one, other, bias=False), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1, bias=False)
        nn.init.zeros_(last.weight)  # values start at 0: the first advantages are the returns themselves
        self.head = nn.Sequential(*layers, last)
        self.trunk, self.frozen = trunk, frozen

    def forward(self, ids: Tensor, valid: Tensor, columns: Tensor) -> Tensor:
        """[B, L], [B, L], [C] -> [B, C]: the value read at each of `columns`."""
        with torch.no_grad() if self.frozen else contextlib.nullcontext():
            output, first = prefix_sharing.forward(self.trunk, ids, valid, columns, logits=False)
        return self.head(output.last_hidden_state[:, columns - first].float()).squeeze(-1)


class Model:
    """Actor, critic and frozen reference. The actor's `lm` and `tokenizer` also answer prompts in the rollout."""

    def __init__(self, lm: Any, tokenizer: Any, config: ModelConfig) -> None:
        if config.critic not in CRITICS:
            raise UsageError(f"critic cannot be {config.critic!r}: it is one of {', '.join(CRITICS)}.")
        torch.manual_seed(config.seed)
        self.config, self.tokenizer = config, tokenizer
        self.device = next(lm.parameters()).device
        width = lm.config.get_text_config().hidden_size
        self.critic: Critic | None = None
        self.target: Critic | None = None
        self._reference: Any = None
        self._began: list[Tensor] = []
        """LoRA's adapter as training began with it; none: as it is made, when it changes nothing"""
        self.cut = False
        """over the processes; then all of them must take the same passes"""
        if config.critic == "own":
            self.critic = Critic(copy.deepcopy(lm.base_model), width, (), frozen=False).to(self.device)
        elif config.critic == "head":
            trunk = copy.deepcopy(lm.base_model).requires_grad_(False)
            self.critic = Critic(trunk, width, config.critic_hidden, frozen=True).to(self.device)
        if config.gradient_checkpointing:
            lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.lora_rank:
            lm = _with_lora(lm, config)
        self.lm = lm

    @classmethod
    def load(cls, config: ModelConfig) -> Model:
        """The model a name stands for, as `envsuite-eval` resolves it."""
        from harness.policies.hf import load

        lm, tokenizer = load(config.name, config.device, config.dtype)
        return cls(lm, tokenizer, config)

    def logprobs(
        self, ids: Tensor, valid: Tensor, temperature: float = 1.0, sampled: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log-prob of every token given those before it, and the entropy there. [B, L] -> [B, L], [B, L]; column 0 is 0.

        With `sampled` [B, L], only columns in which it has an entry are computed, and the others are 0: of a prompt and its
        reply, the prompt's logits (vocabulary x length) are most of the memory.
        """
        # Transformers checkpoints activations in training mode alone; there is no dropout that the mode would turn on.
        self.lm.train(self.config.gradient_checkpointing and torch.is_grad_enabled())
        return _logprobs(self.lm, ids, valid, temperature, sampled)

    def values(self, ids: Tensor, valid: Tensor, sampled: Tensor | None = None) -> Tensor:
        """[B, L] -> [B, L]; with `sampled`, 0 in columns in which it has no entry."""
        return self._values(self.critic, ids, valid, sampled)

    def target_values(self, ids: Tensor, valid: Tensor, sampled: Tensor | None = None) -> Tensor:
        """`values` of the target critic."""
        return self._values(self.target, ids, valid, sampled)

    def _values(self, critic: Critic | None, ids: Tensor, valid: Tensor, sampled: Tensor | None) -> Tensor:
        if critic is None:
            raise UsageError("This algorithm needs a critic: set model.critic to own or head.")
        columns = _before(ids, sampled).to(self.device)
        rows, valid, back = prefix_sharing.distinct(ids.to(self.device), valid.to(self.device))
        return _spaced(critic(rows, valid, columns), columns, ids.shape[1])[back].cpu()

    def shard(self, reference: bool, target: bool) -> None:
        """Keeps this process's share of everything, in this way for good. What will be kept to compare with (`reference`,
        `target`) must be told now: what is cut cannot be copied, only written over.
        """
        if reference and not self.config.lora_rank:
            self.keep_reference()
        if target:
            self.keep_target()
        critics = [one for one in (self.critic, self.target) if one is not None]
        trunks = {id(one.trunk): one.trunk for one in critics}.values()  # a frozen one serves both
        for module in (self.lm, self._reference, *trunks, *(one.head for one in critics)):
            if module is not None:
                fsdp.cut(module, self.device)
        self.cut = True

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Within, this process can answer prompts by itself: it holds the whole actor."""
        with fsdp.gathered(self.lm) if self.cut else contextlib.nullcontext():
            yield

    @torch.no_grad()
    def start_critic(self) -> None:
        """Has a critic with a trunk of its own start from what the actor is now, LoRA's adapter included."""
        if self.critic is None or self.critic.frozen:
            return
        trunk = dict(self.critic.trunk.named_parameters())
        with self.gathered():
            base = (self.lm.get_base_model() if self.config.lora_rank else self.lm).base_model
            for name, module in base.named_modules():
                if hasattr(module, "get_delta_weight"):
                    changed = module.base_layer.weight + module.get_delta_weight("default")
                    fsdp.fill(trunk[f"{name}.weight"], changed)
            for name, parameter in base.named_parameters():
                if name in trunk:
                    fsdp.fill(trunk[name], parameter)

    def keep_target(self) -> None:
        """Makes the target critic, a copy of the present one that learns nothing; a frozen trunk serves both."""
        if self.critic is not None and self.target is not None:
            self.follow(1.0)
        elif self.critic is not None:
            known = {id(self.critic.trunk): self.critic.trunk} if self.critic.frozen else {}
            self.target = copy.deepcopy(self.critic, known).requires_grad_(False)

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """Moves the target critic the share `tau` of the way to the critic."""
        if self.critic is not None and self.target is not None:
            named = dict(self.target.named_parameters())
            for name, parameter in self.critic.named_parameters():
                if parameter.requires_grad:
                    named[name].lerp_(parameter, tau)

    @torch.no_grad()
    def reference_logprobs(
        self, ids: Tensor, valid: Tensor, temperature: float = 1.0, sampled: Tensor | None = None
    ) -> Tensor:
        """Log-probs of the weights training began with. [B, L]"""
        with self._as_reference() as lm:
            return _logprobs(lm, ids, valid, temperature, sampled)[0]

    def keep_reference(self) -> None:
        """Freezes the present weights as the reference; of LoRA the adapter alone, for the base stays what it is."""
        if self.config.lora_rank:
            self._began = [parameter.detach().clone() for parameter in self.actor_parameters()]
        elif self._reference is not None:
            with torch.no_grad():
                for kept, present in zip(self._reference.parameters(), self.lm.parameters(), strict=True):
                    kept.copy_(present)
        else:
            self._reference = copy.deepcopy(self.lm).requires_grad_(False).eval()

    @contextlib.contextmanager
    def _as_reference(self) -> Iterator[Any]:
        if self._began:
            present = [parameter.detach().clone() for parameter in self.actor_parameters()]
            self._put(self._began)
            try:
                yield self.lm
            finally:
                self._put(present)
        elif self.config.lora_rank:
            with self.lm.disable_adapter():
                yield self.lm
        elif self._reference is None:
            raise UsageError("A KL penalty needs a reference model: call keep_reference() before training.")
        else:
            yield self._reference

    @torch.no_grad()
    def _put(self, adapter: list[Tensor]) -> None:
        for parameter, value in zip(self.actor_parameters(), adapter, strict=True):
            parameter.copy_(value)

    def actor_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.lm.parameters() if parameter.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        return [] if self.critic is None else [p for p in self.critic.parameters() if p.requires_grad]

    def weights(self, adapter: bool = False) -> dict[str, Tensor] | None:
        """What `save` needs of an actor that is cut: all of it, or LoRA's adapter. All processes must ask; the first gets it."""
        if not self.cut:
            return None
        learn = {name for name, p in self.lm.named_parameters() if p.requires_grad}
        found = self.lm.state_dict()
        return {name: fsdp.whole(value) for name, value in found.items() if not adapter or name in learn}

    def save(self, folder: Path, weights: dict[str, Tensor] | None = None, adapter: bool = False) -> None:
        """A plain Hugging Face folder (LoRA merged), which `envsuite-eval --model` takes; or LoRA's `adapter` alone.

        `weights` are those of `self.weights(adapter)`.
        """
        with model_files.quiet():
            if adapter:
                self.lm.save_pretrained(folder, state_dict=weights, save_embedding_layers=False)
                return
            lm = self.lm if weights is None else self._uncut(weights)
            if self.config.lora_rank:
                lm = (copy.deepcopy(lm) if weights is None else lm).merge_and_unload()
            lm.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def _uncut(self, weights: dict[str, Tensor]) -> Any:
        """An actor that is not cut, around `weights`."""
        from transformers import AutoModelForCausalLM

        base = self.lm.get_base_model() if self.config.lora_rank else self.lm
        with torch.device("meta"):
            lm = AutoModelForCausalLM.from_config(base.config, dtype=base.dtype)
            lm = _with_lora(lm, self.config) if self.config.lora_rank else lm
        lm.load_state_dict(weights, assign=True)
        (lm.get_base_model() if self.config.lora_rank else lm).generation_config = base.generation_config
        lm.tie_weights()
        return lm

    def state(self) -> dict[str, Any]:
        """Everything that learns, for a checkpoint. All processes must ask; of a model that is cut, the first gets it."""
        whole = lambda module: {name: fsdp.whole(p) for name, p in module.named_parameters() if p.requires_grad}
        found = {"lm": whole(self.lm)}
        if self.critic is not None:
            found["critic"] = whole(self.critic)
            if self.target is not None:
                named = dict(self.target.named_parameters())
                found["target"] = {name: fsdp.whole(named[name]) for name in found["critic"]}
        if self._reference is not None:
            found["reference"] = {name: fsdp.whole(one) for name, one in self._reference.state_dict().items()}
        if self._began:
            found["reference"] = {name: fsdp.whole(one) for name, one in zip(found["lm"], self._began, strict=True)}
        return found

    def load_state(self, state: dict[str, Any]) -> None:
        if "target" in state:
            self.keep_target()
        for module, key in ((self.lm, "lm"), (self.critic, "critic"), (self.target, "target")):
            if module is not None:
                named = dict(module.named_parameters())
                for name, value in state[key].items():
                    fsdp.fill(named[name], value)
        if "reference" in state:
            self.keep_reference()
            kept = self._reference.state_dict() if self._reference is not None else dict(zip(state["lm"], self._began))
            for name, tensor in kept.items():
                fsdp.fill(tensor, state["reference"][name])


def _logprobs(lm: Any, ids: Tensor, valid: Tensor, temperature: float, sampled: Tensor | None) -> tuple[Tensor, Tensor]:
    columns = _before(ids, sampled).to(lm.device)
    rows, valid, back = prefix_sharing.distinct(ids.to(lm.device), valid.to(lm.device))
    logits = prefix_sharing.forward(lm, rows, valid, columns, logits=True)[0].logits.float()
    if temperature != 1.0 and temperature > 0:
        logits = logits / temperature
    logp = logits.log_softmax(-1)
    found = logp.gather(-1, rows[:, columns + 1, None]).squeeze(-1)
    spread = -(logp.exp() * logp).sum(-1)
    width = ids.shape[1]
    return _spaced(found, columns, width)[back].cpu(), _spaced(spread, columns, width)[back].cpu()


def _before(ids: Tensor, sampled: Tensor | None) -> Tensor:
    """Columns whose next token is sampled in some row: where what is said of it is read."""
    wanted = torch.ones(ids.shape[1] - 1, dtype=torch.bool) if sampled is None else sampled[:, 1:].any(0)
    return wanted.nonzero().flatten()


def _spaced(x: Tensor, columns: Tensor, width: int) -> Tensor:
    """[U, C] read at `columns` to [U, width], each under the token that follows; 0 elsewhere."""
    return x.new_zeros(len(x), width).index_copy(1, columns + 1, x)


def _with_lora(lm: Any, config: ModelConfig) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise MissingExtra("LoRA needs the package 'peft': pip install 'envsuite[train]'") from error
    layers = [name for name, module in lm.named_modules() if isinstance(module, nn.Linear)]
    for target in config.lora_targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            names = sorted({name.rpartition(".")[2] for name in layers})
            raise UsageError(
                f"model.lora_targets: {config.name} has no linear layer {target!r}: it has {', '.join(names)}."
                f"{did_you_mean(target, names)}"
            )
    wanted = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=list(config.lora_targets),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(lm, wanted)
