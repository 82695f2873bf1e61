"""The model that is trained: a causal language model, and for some algorithms a critic and a frozen
reference.

Batches stay in main memory; results computed on a GPU return there. Log-probs and values at column
l of [B, L] belong to token l given the tokens before it: the value of a state is read at the last
token of the prompt, never at padding.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from baselines.batch import AllowedTokens
from baselines.distributed import collectives, fsdp
from baselines.networks.compiled import CompiledBlocks
from baselines.networks.critic import Critic
from baselines.networks.logprobs import allowed_logprobs, token_logprobs
from baselines.networks.lora import ADAPTER, add_adapter, continued, fill_adapter, merged_state, merged_weight
from baselines.networks.masters import MasterWeights
from baselines.networks.packing import check_packing
from baselines.networks.prefix_sharing import (
    DistinctRows,
    distinct_rows,
    enable_checkpointing,
    joined,
    passes,
    read_head,
    set_checkpointing,
)
from baselines.networks.reference import Reference
from baselines.networks.settings import ModelConfig
from envsuite.errors import UsageError
from harness.lm import model_files

CRITICS = ("none", "head", "own")


class Model:
    """Actor, critic and reference. The actor's `lm` and `tokenizer` also generate the rollout."""

    processes = collectives
    """Communication with the other processes that train this model."""

    def __init__(self, lm: Any, tokenizer: Any, config: ModelConfig) -> None:
        if config.critic not in CRITICS:
            raise UsageError(f"critic cannot be {config.critic!r}: it is one of {', '.join(CRITICS)}.")
        if config.packing:
            check_packing(lm)
        torch.manual_seed(config.seed)
        self.config, self.tokenizer = config, tokenizer
        self.device = next(lm.parameters()).device
        self.sharded = False
        """True if processes hold a share of the weights each, and must take the same forward passes."""
        self.adapter_base = ""
        """Base model of the adapter that training continues; "" if the adapter is new."""
        width = lm.config.get_text_config().hidden_size
        self.critic: Critic | None = None
        self.target: Critic | None = None
        if config.critic == "own":
            self.critic = Critic(width, (), copy.deepcopy(lm.base_model)).to(self.device)
        elif config.critic == "head":
            self.critic = Critic(width, config.critic_hidden).to(self.device)
        networks = [lm] if self.critic is None or self.critic.trunk is None else [lm, self.critic.trunk]
        for network in networks:
            set_checkpointing(network, False)
            if config.gradient_checkpointing:
                enable_checkpointing(network)
        self.lm = add_adapter(lm, config) if config.lora_rank else lm
        self.reference = Reference(self.lm, bool(config.lora_rank))
        self._compiled = CompiledBlocks(lm, config.compile)
        trunk = self.critic.trunk if self.critic is not None else None
        self._compiled_trunk = CompiledBlocks(trunk if trunk is not None else nn.Module(), config.compile)

    @classmethod
    def load(cls, config: ModelConfig) -> Model:
        """Loads the model of a name, as `envsuite-eval` resolves it. LoRA training of an adapter's folder continues
        the adapter. Raises UsageError for float16."""
        from harness.policies.hf import load, pick_device, pick_dtype

        dtype = config.dtype
        if pick_dtype(dtype, pick_device(config.device)) is torch.float16:
            if dtype != "auto":
                raise UsageError(
                    f"model.dtype = {dtype!r} needs loss scaling, which is not done: set bfloat16 or float32."
                )
            dtype = "float32"
        adapter = continued(config)
        lm, tokenizer = load(config.name, config.device, dtype, config.attention, merged=adapter is None)
        model = cls(lm, tokenizer, config)
        if adapter is not None:
            fill_adapter(model.lm, adapter)
            model.adapter_base = adapter.base
            model.start_critic()
        return model

    # ---- Forward passes ----

    def logprobs(
        self,
        ids: Tensor,
        valid: Tensor,
        temperature: float = 1.0,
        sampled: Tensor | None = None,
        entropy_gradient: bool = True,
        allowed: AllowedTokens | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the log-prob of each token given those before it, and the entropy there. [B, L]
        -> [B, L], [B, L]

        With `sampled` [B, L] only these tokens are computed; the others, and the first column, are
        0. `allowed` restricts both to the distribution over the allowed tokens; where only one
        token is allowed, they are 0 and have no gradient.
        """
        set_checkpointing(self.lm, self.config.gradient_checkpointing and torch.is_grad_enabled())
        if allowed is not None:
            sampled = allowed.index > 0
        rows = self._rows(ids, valid, sampled, allowed)
        with self._compiled.active():
            return actor_logprobs(self.lm, rows, temperature, entropy_gradient)

    def values(self, ids: Tensor, valid: Tensor, sampled: Tensor | None = None) -> Tensor:
        """Returns the critic's value before each token, 0 where `sampled` is False. [B, L] -> [B, L]"""
        return self._values(self.critic, ids, valid, sampled)

    def target_values(self, ids: Tensor, valid: Tensor, sampled: Tensor | None = None) -> Tensor:
        """Returns the target critic's values, like `values`."""
        return self._values(self.target, ids, valid, sampled)

    def _values(self, critic: Critic | None, ids: Tensor, valid: Tensor, sampled: Tensor | None) -> Tensor:
        if critic is None:
            raise UsageError("This algorithm needs a critic: set model.critic to own or head.")
        rows = self._rows(ids, valid, sampled)
        if critic.trunk is None:
            return rows.spread(critic.of_features(self._reference_pass(rows, None)[0])).cpu()
        set_checkpointing(critic.trunk, self.config.gradient_checkpointing and torch.is_grad_enabled())
        with self._compiled_trunk.active() if critic is self.critic else contextlib.nullcontext():
            return rows.spread(critic(rows)).cpu()

    def _rows(
        self, ids: Tensor, valid: Tensor, sampled: Tensor | None, allowed: AllowedTokens | None = None
    ) -> DistinctRows:
        return distinct_rows(ids, valid, sampled, self.device, allowed, self.config.packing)

    @torch.no_grad()
    def reference_logprobs(
        self,
        ids: Tensor,
        valid: Tensor,
        temperature: float = 1.0,
        sampled: Tensor | None = None,
        allowed: AllowedTokens | None = None,
    ) -> Tensor:
        """Returns the log-probs of the reference, like `logprobs`. [B, L]"""
        rows = self._rows(ids, valid, sampled if allowed is None else allowed.index > 0, allowed)
        _, logprobs = self._reference_pass(rows, temperature)
        assert logprobs is not None
        return rows.spread(logprobs).cpu()

    @torch.no_grad()
    def _reference_pass(self, rows: DistinctRows, temperature: float | None) -> tuple[Tensor, Tensor | None]:
        """Returns hidden states [P, H] and log-probs [P] at the positions of `rows`; None: no log-probs."""
        hidden, scores = [], []
        with self.reference.active() as lm:
            set_checkpointing(lm, False)
            for part in passes(lm, rows):
                states, logits = read_head(lm, part, temperature is not None)
                hidden.append(states)
                if logits is not None and temperature is not None:
                    scores.append(_normalised(logits, part, temperature)[0])
        return joined(hidden), joined(scores) if scores else None

    # ---- Weights ----

    def actor_parameters(self) -> list[nn.Parameter]:
        """Returns the trained weights of the actor, in the type of the forward pass."""
        return [parameter for parameter in self.lm.parameters() if parameter.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Returns the trained weights of the critic; [] without a critic."""
        return [] if self.critic is None else [p for p in self.critic.parameters() if p.requires_grad]

    @cached_property
    def actor_masters(self) -> MasterWeights:
        """The actor's trained weights with their float32 masters."""
        return MasterWeights(self.actor_parameters())

    def keep_reference(self) -> None:
        """Makes the actor's present weights the reference."""
        self.reference.keep()

    def keep_target(self) -> None:
        """Makes the target critic, an untrained copy of the critic's present weights."""
        if self.critic is None:
            return
        if self.target is None:
            self.target = self.critic.target()
        else:
            self.target.move_towards(self.critic, 1.0)

    def follow(self, share: float) -> None:
        """Moves the target critic the `share` of the way to the critic."""
        if self.critic is not None and self.target is not None:
            self.target.move_towards(self.critic, share)

    @torch.no_grad()
    def start_critic(self) -> None:
        """Copies the actor's present weights, LoRA's adapter included, into a critic with its own
        trunk."""
        if self.critic is None or self.critic.trunk is None:
            return
        trunk = dict(self.critic.trunk.named_parameters())
        with self.gathered():
            base = (self.lm.get_base_model() if self.config.lora_rank else self.lm).base_model
            for name, module in base.named_modules():
                if hasattr(module, "get_delta_weight"):
                    fsdp.fill(trunk[f"{name}.weight"], merged_weight(module))
            for name, parameter in base.named_parameters():
                if name in trunk:
                    fsdp.fill(trunk[name], parameter)
        self.critic.masters.refresh()

    def shard(self, reference: bool, target: bool) -> None:
        """Shards all weights over the processes, for good.

        `reference` and `target` state whether these will be kept: a sharded model can be written
        over, but not copied.
        """
        if reference:
            self.keep_reference()
        if target:
            self.keep_target()
        critics = [critic for critic in (self.critic, self.target) if critic is not None]
        parts = [self.lm, self.reference.frozen, *(critic.trunk for critic in critics), *(c.head for c in critics)]
        for module in parts:
            if module is not None:
                fsdp.shard(module, self.device)
        self.sharded = True

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Gathers the full actor on every process, so that each can generate by itself."""
        with fsdp.gathered(self.lm) if self.sharded else contextlib.nullcontext():
            yield

    # ---- Files ----

    def gathered_state(self, adapter: bool = False) -> dict[str, Tensor] | None:
        """Returns the weights that `save` needs of a sharded actor (only the `adapter` if asked),
        and None otherwise.

        All processes must call it; only the first receives the weights.
        """
        if not self.sharded:
            return None
        trained = {name for name, parameter in self.lm.named_parameters() if parameter.requires_grad}
        tensors = self.lm.state_dict().items()
        return {name: fsdp.unsharded(tensor) for name, tensor in tensors if not adapter or name in trained}

    def all_weights(self, lm: Any = None) -> dict[str, Tensor]:
        """Returns the actor's weights by their names in a checkpoint, with LoRA merged; a head that
        shares the embedding's weights is included as a copy. The others are the actor's own."""
        lm = self.lm if lm is None else lm
        base = lm.get_base_model() if self.config.lora_rank else lm
        state = merged_state(lm) if self.config.lora_rank else base.state_dict()
        return {**state, **_tied_head(base, state)}

    def save(
        self, folder: Path, weights: dict[str, Tensor] | None = None, adapter: bool = False, untied: bool = False
    ) -> None:
        """Writes a plain Hugging Face folder with LoRA merged, or with `adapter` only LoRA's
        adapter for peft.

        `weights` is the result of `gathered_state(adapter)`. With `untied` an output head that shares
        the embedding's weights is written too, as a copy.
        """
        with model_files.quiet():
            if adapter:
                self.lm.peft_config[ADAPTER].base_model_name_or_path = self.adapter_base or self.config.name
                self.lm.save_pretrained(folder, state_dict=weights, save_embedding_layers=False)
                return
            lm = self.lm if weights is None else self._unsharded(weights)
            base = lm.get_base_model() if self.config.lora_rank else lm
            state = merged_state(lm) if self.config.lora_rank else None
            base.save_pretrained(folder, state_dict=self.all_weights(lm) if untied else state)
        self.tokenizer.save_pretrained(folder)

    def _unsharded(self, weights: dict[str, Tensor]) -> Any:
        """Returns an actor of this architecture that holds `weights` and is not sharded."""
        from transformers import AutoModelForCausalLM

        base = self.lm.get_base_model() if self.config.lora_rank else self.lm
        with torch.device("meta"):
            lm = AutoModelForCausalLM.from_config(base.config, dtype=base.dtype)
            lm = add_adapter(lm, self.config) if self.config.lora_rank else lm
        lm.load_state_dict(weights, assign=True)
        (lm.get_base_model() if self.config.lora_rank else lm).generation_config = base.generation_config
        lm.tie_weights()
        return lm

    def state(self) -> dict[str, Any]:
        """Returns all trained weights for a checkpoint, in float32 where they have masters.

        All processes must call it; of a sharded model the first receives the weights.
        """
        names = self._trained_names(self.lm)
        state = {"lm": _named(names, self.actor_masters)}
        if self.critic is not None:
            state["critic"] = _named(self._trained_names(self.critic), self.critic.masters)
        if self.target is not None:
            state["target"] = {name: fsdp.unsharded(p) for name, p in self.target.named_parameters()}
        reference = self.reference.state(names)
        return {**state, "reference": reference} if reference else state

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        if "target" in state:
            self.keep_target()
        for index, name in enumerate(self._trained_names(self.lm)):
            self.actor_masters.fill(index, state["lm"][name])
        if self.critic is not None:
            for index, name in enumerate(self._trained_names(self.critic)):
                self.critic.masters.fill(index, state["critic"][name])
        if self.target is not None:
            parameters = dict(self.target.named_parameters())
            for name, value in state["target"].items():
                fsdp.fill(parameters[name], value)
        if "reference" in state:
            self.reference.load_state(state["reference"], self._trained_names(self.lm))

    @staticmethod
    def _trained_names(module: nn.Module) -> list[str]:
        return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def _tied_head(lm: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns a copy of the output head's weights by name, if they are the embedding's; else {}."""
    head, embedding = lm.get_output_embeddings().weight, lm.get_input_embeddings().weight
    names = {name for name, parameter in lm.named_parameters(remove_duplicate=False) if parameter is head}
    own = {name for name, parameter in lm.base_model.named_parameters(lm.base_model_prefix) if parameter is head}
    return {name: state[name].clone() for name in names - own} if head is embedding else {}


def _named(names: list[str], weights: MasterWeights) -> dict[str, Tensor]:
    return {name: fsdp.unsharded(master) for name, master in zip(names, weights.masters, strict=True)}


def actor_logprobs(lm: Any, rows: DistinctRows, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    """Returns log-probs and entropies at the positions of `rows`, in main memory. [B, L], [B, L]"""
    numbers = [_read_numbers(lm, part, temperature, entropy_gradient) for part in passes(lm, rows)]
    logprobs, entropy = (joined(list(parts)) for parts in zip(*numbers, strict=True))
    return rows.spread(logprobs).cpu(), rows.spread(entropy).cpu()


def _read_numbers(lm: Any, rows: DistinctRows, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    """Returns log-probs and entropies [P] from one forward pass."""
    _, logits = read_head(lm, rows)
    assert logits is not None
    return _normalised(logits, rows, temperature, entropy_gradient)


def _normalised(
    logits: Tensor, rows: DistinctRows, temperature: float, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [P] over the vocabulary, or over the tokens allowed at each position."""
    if rows.sets is None:
        return token_logprobs(logits, rows.tokens, temperature, entropy_gradient)
    return allowed_logprobs(logits, rows.tokens, rows.sets, temperature, entropy_gradient)
