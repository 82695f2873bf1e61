"""Communication between the processes that train one model.

Under `accelerate launch` or `torchrun` each process plays its share of the episodes and computes
its share of every minibatch. Episodes are exchanged, so that all processes know the same batch, and
gradients are summed before each step, so that all take the same step as a single process with the
whole batch would. In a single process every function is a no-op.
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
    """Joins the process group, if a launcher started several processes (WORLD_SIZE).

    Raises UsageError for options of `accelerate launch` that this training loop would ignore.
    """
    _reject_unsupported(os.environ)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        # Tensors on a GPU are sent by nccl, episodes (plain objects) by gloo.
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")


def _reject_unsupported(environment: Mapping[str, str]) -> None:
    """Raises UsageError for what accelerate put into the environment and this loop does not do."""
    cpu = environment.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if cpu and "MASTER_PORT" in environment and "WORLD_SIZE" not in environment:
        raise UsageError(
            "accelerate launch --cpu starts one process, whatever number is asked for (it leaves the others to MPI): "
            "use --multi_gpu --num_processes N, which works for CPUs too, or torchrun --nproc-per-node N."
        )
    for name, option in (
        ("FSDP", "--use_fsdp"),
        ("DEEPSPEED", "--use_deepspeed"),
        ("MEGATRON_LM", "--use_megatron_lm"),
    ):
        if environment.get(f"ACCELERATE_USE_{name}", "").lower() == "true":
            raise UsageError(
                f"accelerate launch {option}: use --multi_gpu instead, and for a model too large for every process "
                "fsdp = true in the recipe, model.lora_rank and model.gradient_checkpointing (see --dry-run)."
            )
    precision = environment.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision != "no":
        raise UsageError(f"accelerate launch --mixed_precision {precision}: set model.dtype in the recipe instead.")


def leave() -> None:
    """Leaves the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def size() -> int:
    """Returns the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def first() -> bool:
    """Returns True in the process that writes files."""
    return not dist.is_initialized() or dist.get_rank() == 0


def share(items: Sequence[Item]) -> list[Item]:
    """Returns this process's share of a list that all processes have."""
    return list(items[dist.get_rank() :: size()]) if size() > 1 else list(items)


def rounds(items: Sequence[Item], even: bool) -> list[tuple[Item, float]]:
    """Returns this process's share with weights of 1.

    With `even`, shares are filled up with items of weight 0, so that all processes take the same
    number of passes.
    """
    mine = [(item, 1.0) for item in share(items)]
    count = -(-len(items) // size()) if even else len(mine)
    return mine + [(items[0], 0.0)] * (count - len(mine))


def gather(items: Sequence[Item]) -> list[Item]:
    """Returns the items of all processes, as the same list in each."""
    if size() == 1:
        return list(items)
    parts: list[Any] = [None] * size()
    dist.all_gather_object(parts, list(items))
    return [item for part in parts for item in part]


def wait() -> None:
    """Returns when every process has called it."""
    gather(())


def add(tensor: Tensor) -> Tensor:
    """Sums a tensor over the processes, in place."""
    if size() > 1:
        dist.all_reduce(tensor)
    return tensor


def add_number(number: float) -> float:
    """Returns the sum of a number over the processes."""
    return float(add(torch.tensor(number, dtype=torch.float64)))


def add_numbers(sums: dict[str, float], names: Iterable[str]) -> None:
    """Sums each of `names` over the processes, in place; a missing name counts as 0."""
    if size() > 1:
        names = list(names)
        total = add(torch.tensor([sums.get(name, 0.0) for name in names], dtype=torch.float64))
        sums.update(zip(names, total.tolist(), strict=True))


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sums gradients over the processes; a missing gradient counts as 0. FSDP itself sums gradients
    of sharded parameters."""
    if size() > 1:
        for parameter in parameters:
            if not isinstance(parameter, DTensor):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                add(parameter.grad)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """Scales summed gradients to a global norm of at most `max_norm`, and returns their norm
    before."""
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
