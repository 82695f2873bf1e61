"""Several processes that train one model: each plays its share of the games and carries its share of every minibatch.

Under `accelerate launch` or `torchrun` every process holds the whole model, or its share (`sharding`). What was played is exchanged, so that all know
the same batch; gradients are summed before each step, so that all take the same one: that of a single process with the
whole batch. With one process all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from envsuite.errors import UsageError

Item = TypeVar("Item")


def join() -> None:
    """Meets the other processes that the launcher started (WORLD_SIZE of them), if it started any.

    Raises UsageError for what `accelerate launch` was asked and this loop would not do.
    """
    _refuse(os.environ)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        # Tensors on a GPU go by nccl, what was played (plain objects) by gloo.
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")


def _refuse(asked: Mapping[str, str]) -> None:
    """accelerate says in the environment what it was asked for; nothing of it is passed over in silence."""
    if asked.get("ACCELERATE_USE_CPU", "").lower() == "true" and "MASTER_PORT" in asked and "WORLD_SIZE" not in asked:
        raise UsageError(
            "accelerate launch --cpu starts one process, however many it is asked for (it leaves the others to MPI): "
            "say --multi_gpu --num_processes N, which does for processors too, or torchrun --nproc-per-node N."
        )
    for name, word in (("FSDP", "--use_fsdp"), ("DEEPSPEED", "--use_deepspeed"), ("MEGATRON_LM", "--use_megatron_lm")):
        if asked.get(f"ACCELERATE_USE_{name}", "").lower() == "true":
            raise UsageError(
                f"accelerate launch {word}: say --multi_gpu instead, and where the model is too large for every process to hold, "
                "fsdp = true in the recipe, model.lora_rank and model.gradient_checkpointing (see --dry-run)."
            )
    if asked.get("ACCELERATE_MIXED_PRECISION", "no") != "no":
        raise UsageError(
            f"accelerate launch --mixed_precision {asked['ACCELERATE_MIXED_PRECISION']}: the recipe says it, as model.dtype."
        )


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def first() -> bool:
    """Whether this process is the one that writes."""
    return not dist.is_initialized() or dist.get_rank() == 0


def share(items: Sequence[Item]) -> list[Item]:
    """This process's part of what all have."""
    return list(items[dist.get_rank() :: size()]) if size() > 1 else list(items)


def rounds(items: Sequence[Item], even: bool) -> list[tuple[Item, float]]:
    """`share`, each with the weight 1. `even`: filled up with a weight of 0, so that all processes take equally many."""
    mine = [(item, 1.0) for item in share(items)]
    most = -(-len(items) // size()) if even else len(mine)
    return mine + [(items[0], 0.0)] * (most - len(mine))


def gather(items: Sequence[Item]) -> list[Item]:
    """Everyone's items, the same list everywhere."""
    if size() == 1:
        return list(items)
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, list(items))
    return [item for part in found for item in part]


def wait() -> None:
    """Until every process has come here."""
    gather(())


def add(tensor: Tensor) -> Tensor:
    """The sum over processes, in place."""
    if size() > 1:
        dist.all_reduce(tensor)
    return tensor


def add_numbers(sums: dict[str, float], names: Iterable[str]) -> None:
    """Sums each of `names` over the processes, in place; a name that is missing somewhere counts 0 there."""
    if size() > 1:
        names = list(names)
        total = add(torch.tensor([sums.get(name, 0.0) for name in names], dtype=torch.float64))
        sums.update(zip(names, total.tolist(), strict=True))


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sums gradients over the processes; a parameter without one has 0. Those of cut parameters are summed already."""
    if size() > 1:
        for parameter in parameters:
            if not isinstance(parameter, DTensor):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                add(parameter.grad)


def clip_gradients(parameters: Sequence[nn.Parameter], most: float) -> float:
    """Scales gradients, summed before, to a norm of at most `most`; returns the norm they had, of the whole model."""
    norm = nn.utils.clip_grad_norm_(parameters, most)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
