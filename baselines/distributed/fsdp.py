"""Models cut over the processes: each holds a share of every weight, gradient and moment (torch's FSDP2, `fully_shard`).

Layers are gathered as a forward or backward pass comes to them, and let go again, so that every process must take the same
number of passes (`world.rounds`). To play, processes need passes of their own: then the whole actor is gathered once
(`gathered`), and the passes exchange nothing. What is written down is always whole, so that a checkpoint does not depend on
how many processes there were.
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


def cut(module: nn.Module, device: torch.device) -> None:
    """Leaves of `module` this process's share: layer by layer, and what lies between them together."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        sums = FSDPModule.set_force_sum_reduction_for_comms
    except (ImportError, AttributeError) as error:
        raise MissingExtra(f"fsdp = true needs torch 2.8 or later, and this is {torch.__version__}.") from error
    mesh = init_device_mesh(device.type, (collectives.size(),))
    for one in (*layers(module), module):
        fully_shard(one, mesh=mesh, reshard_after_forward=True)
    for part in _parts(module):
        # Losses are shares of the whole batch's: their gradients are added, not averaged.
        part.set_gradient_divide_factor(1.0)
        sums(part, True)


def layers(module: nn.Module) -> list[nn.Module]:
    """A network's blocks, the units in which it is gathered."""
    names = set(getattr(module, "_no_split_modules", None) or ())
    return [one for one in module.modules() if type(one).__name__ in names]


def is_cut(module: nn.Module) -> bool:
    return hasattr(module, "unshard")  # as FSDP2's modules have it


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Within, every process holds all of `module`, and forward passes without gradients exchange nothing."""
    parts = _parts(module)
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


@torch.no_grad()
def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, in the main memory of the first process; the others, which must ask too, get nothing of it."""
    if not isinstance(tensor, DTensor):
        return tensor.detach().clone()
    found = tensor.full_tensor()
    return found.cpu() if collectives.first() else found.new_empty(0)


@torch.no_grad()
def fill(tensor: Tensor, value: Tensor) -> None:
    """Writes the whole `value`, which every process has, into a tensor that may be cut."""
    tensor.copy_(_like(tensor, value))


def whole_moments(state: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's `state_dict` with all of its moments."""
    moments = {
        place: {name: whole(value) if isinstance(value, DTensor) else value for name, value in one.items()}
        for place, one in state["state"].items()
    }
    return {**state, "state": moments}


def cut_moments(state: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The inverse of `whole_moments`, for the parameters of `optimiser`."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]

    def cut_one(place: int, one: Mapping[str, Any]) -> dict[str, Any]:
        mine = parameters[place]
        return {
            name: _like(mine, value) if isinstance(value, Tensor) and value.shape == mine.shape else value
            for name, value in one.items()
        }

    return {**state, "state": {place: cut_one(place, one) for place, one in state["state"].items()}}


def _like(tensor: Tensor, value: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return value
    # Every process has the value and takes its share: nothing is sent.
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)


def _parts(module: nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [one for one in module.modules() if isinstance(one, FSDPModule)]
