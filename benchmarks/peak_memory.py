"""Measures the peak memory of tensors: torch's own count on a GPU, tracked allocations on a CPU."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors made inside the context, and their peak; `base` bytes existed before.

    On a GPU the count is that of the allocator and includes what existed before, so that `base` is ignored.
    """

    def __init__(self, device: torch.device, base: float = 0.0) -> None:
        super().__init__()
        self.device = device
        self.live = self.peak = base
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return self
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            self.peak = float(torch.cuda.max_memory_allocated())
        else:
            super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._track(leaf)
        return result

    def _track(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known or tensor.device.type != self.device.type:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, size)

    def _release(self, size: int) -> None:
        self.live -= size
