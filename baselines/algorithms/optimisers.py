"""Optimisers of actor and critic, which step float32 master weights.

`Optimiser.step` sums gradients over processes, clips them, and refuses a gradient that is not
finite. `Optimisers` holds all optimisers of a run, their learning-rate schedule, and the adapted KL
coefficient.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from baselines.distributed import collectives, fsdp
from baselines.math.losses import check_finite
from baselines.networks.masters import MasterWeights
from baselines.networks.model import Model
from baselines.networks.tinker import TinkerModel


class Optimiser:
    """A torch optimiser over master weights."""

    def __init__(
        self, weights: MasterWeights, optimiser: torch.optim.Optimizer, max_grad_norm: float, name: str
    ) -> None:
        """`name` is for error messages: "policy" or "critic"."""
        self.weights, self.optimiser, self.max_grad_norm, self.name = weights, optimiser, max_grad_norm, name

    def zero_grad(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)

    def step(self) -> float:
        """Takes one step with the accumulated gradient and returns the gradient's norm before
        clipping."""
        collectives.add_gradients(self.weights.masters)
        norm = collectives.clip_gradients(self.weights.masters, self.max_grad_norm)
        check_finite(norm, f"norm of the {self.name}'s gradient")
        self.optimiser.step()
        self.weights.publish()
        return norm

    @property
    def rate(self) -> float:
        """The learning rate."""
        return float(self.optimiser.param_groups[0]["lr"])

    @rate.setter
    def rate(self, value: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = value

    def state(self) -> dict[str, Any]:
        """Returns plain data for a checkpoint. All processes must call it; the first receives full
        moments."""
        return fsdp.unsharded_moments(self.optimiser.state_dict())

    def load_state(self, state: dict[str, Any]) -> None:
        self.optimiser.load_state_dict(fsdp.sharded_moments(state, self.optimiser))


class TinkerOptimiser(Optimiser):
    """AdamW on Tinker's service; the torch optimiser holds its settings and steps nothing."""

    def __init__(self, model: TinkerModel, optimiser: torch.optim.Optimizer, max_grad_norm: float, name: str) -> None:
        super().__init__(model.actor_masters, optimiser, max_grad_norm, name)
        self.model = model

    def step(self) -> float:
        """Takes one step with what was sent; returns the gradient's norm, NaN if the service does not
        report it.

        The service names its metrics, and the package `tinker` none of them: public programs read this
        name.
        """
        settings = self.optimiser.param_groups[0]
        first, second = settings["betas"]
        metrics = self.model.step(
            learning_rate=self.rate,
            beta1=first,
            beta2=second,
            eps=settings["eps"],
            weight_decay=settings["weight_decay"],
            grad_clip_norm=self.max_grad_norm,
        )
        return metrics.get("unclipped_grad_l2:mean", math.nan)


class Optimisers:
    """AdamW for the actor, Adam for the critic, and the KL coefficient."""

    def __init__(self, model: Model, config: Any) -> None:
        """`config` is the algorithm's `UpdateConfig`."""
        self.config, self.kl_coef = config, config.kl_coef
        self.next_kl_coef = config.kl_coef
        """The coefficient of the next batch, if `kl_target` adapts it."""
        first, second = config.adam_betas
        # On a GPU the other implementations need temporary memory of the size of all weights.
        adam: dict[str, Any] = {"eps": config.adam_eps, "betas": (first, second), "fused": model.device.type == "cuda"}
        actor = torch.optim.AdamW(
            model.actor_masters.masters, lr=config.learning_rate, weight_decay=config.weight_decay, **adam
        )
        self.actor = (
            TinkerOptimiser(model, actor, config.max_grad_norm, "policy")
            if isinstance(model, TinkerModel)
            else Optimiser(model.actor_masters, actor, config.max_grad_norm, "policy")
        )
        self.critic: Optimiser | None = None
        if model.critic is not None:
            weights = model.critic.masters
            critic = torch.optim.Adam(weights.masters, lr=config.critic_learning_rate, **adam)
            self.critic = Optimiser(weights, critic, config.max_grad_norm, "critic")

    def set_rates(self, done: float, updates: int) -> None:
        """Sets the learning rates after the share `done` of the run and that many updates; they are
        never negative."""
        config = self.config
        left = max(0.0, 1.0 - done)
        factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[config.schedule]
        if updates < config.warmup_updates:
            factor *= (updates + 1) / config.warmup_updates
        self.actor.rate = config.learning_rate * factor
        if self.critic is not None:
            self.critic.rate = config.critic_learning_rate * factor

    def state(self) -> dict[str, Any]:
        """Returns plain data for a checkpoint. All processes must call it; the first receives full
        moments."""
        critic = self.critic.state() if self.critic is not None else None
        return {"actor": self.actor.state(), "critic": critic, "kl_coef": self.kl_coef}

    def load_state(self, state: dict[str, Any]) -> None:
        self.actor.load_state(state["actor"])
        if self.critic is not None:
            self.critic.load_state(state["critic"])
        self.kl_coef = self.next_kl_coef = state["kl_coef"]
