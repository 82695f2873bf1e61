"""Models sharded over processes with torch's FSDP2: each holds a share of every weight, gradient
and moment.

Layers are gathered when a forward or backward pass reaches them, and released again, so that every
process must take the same number of passes (`collectives.rounds`). Generation takes different
numbers of passes in each process: for it the full actor is gathered once (`gathered`). Checkpoints
hold unsharded tensors, and do not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from baselines.distributed import collectives
from envsuite.errors import MissingExtra


def shard(module: nn.Module, device: torch.device) -> None:
    """Shards `module` in place: each of its blocks as a unit, and everything between them as
    another."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        sum_gradients = FSDPModule.set_force_sum_reduction_for_comms
    except (ImportError, AttributeError) as error:
        raise MissingExtra(f"fsdp = true needs torch 2.8 or later, and this is {torch.__version__}.") from error
    mesh = init_device_mesh(device.type, (collectives.size(),))
    for unit in (*blocks(module), module):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    for unit in _units(module):
        # Each process computes a part of the batch's loss, so that gradients are summed, not
        # averaged.
        unit.set_gradient_divide_factor(1.0)
        sum_gradients(unit, True)


def blocks(module: nn.Module) -> list[nn.Module]:
    """Returns a network's transformer blocks, the units in which it is gathered."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    return [block for block in module.modules() if type(block).__name__ in names]


def is_sharded(module: nn.Module) -> bool:
    """Returns True for a module to which `shard` was applied."""
    return hasattr(module, "unshard")  # a method of FSDP2's modules


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Gathers all of `module` on every process; forward passes without gradients then communicate
    nothing."""
    units = _units(module)
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(True, recurse=False)
            unit.reshard()


@torch.no_grad()
def unsharded(tensor: Tensor) -> Tensor:
    """Returns a copy of the full tensor in main memory. All processes must call it; the others than
    the first get an empty tensor for a sharded one."""
    if not isinstance(tensor, DTensor):
        return tensor.detach().to("cpu", copy=True)
    full = tensor.full_tensor()
    return full.cpu() if collectives.first() else full.new_empty(0)


@torch.no_grad()
def fill(tensor: Tensor, value: Tensor) -> None:
    """Writes a full `value`, which every process has, into a tensor that may be sharded."""
    tensor.copy_(_like(tensor, value))


def unsharded_moments(state: dict[str, Any]) -> dict[str, Any]:
    """Returns an optimiser's `state_dict` with full moments."""
    moments = {
        index: {name: unsharded(value) if isinstance(value, DTensor) else value for name, value in entries.items()}
        for index, entries in state["state"].items()
    }
    return {**state, "state": moments}


def sharded_moments(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Inverts `unsharded_moments` for the parameters of `optimiser`."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]

    def shard_entries(parameter: Tensor, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _like(parameter, value) if isinstance(value, Tensor) and value.shape == parameter.shape else value
            for name, value in entries.items()
        }

    moments = {index: shard_entries(parameters[index], entries) for index, entries in state["state"].items()}
    return {**state, "state": moments}


def _like(tensor: Tensor, value: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return value
    # Every process has the full value and keeps its share: nothing is sent.
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)


def _units(module: nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [unit for unit in module.modules() if isinstance(unit, FSDPModule)]
