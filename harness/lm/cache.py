"""Key-value caches: one that has room to grow in a batch, and a store of conversations' prefixes between batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers.cache_utils import Cache, DynamicLayer

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""keys and values of each layer, each [heads, tokens, head size]"""


class RoomyLayer(DynamicLayer):
    """A layer that writes into room it has already: appending a token does not copy the whole past."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room  # tokens to allocate for
        self._store: tuple[torch.Tensor, torch.Tensor] | None = None

    def fill(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Takes [batch, heads, room, head size] as its store."""
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._store = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        used, new = self.get_seq_length(), key_states.shape[-2]
        if self._store is None or used + new > self._store[0].shape[-2]:
            self._grow(key_states, value_states, used, used + new)
        assert self._store is not None
        for store, states in zip(self._store, (key_states, value_states)):
            store[:, :, used : used + new] = states
        self.show(used + new)
        return self.keys, self.values

    def show(self, used: int) -> None:
        """Declares the first `used` columns of the store to be there."""
        assert self._store is not None
        self.keys, self.values = (store[:, :, :used] for store in self._store)

    def _grow(self, key_states: torch.Tensor, value_states: torch.Tensor, used: int, needed: int) -> None:
        size = max(self.room, needed)
        bigger = []
        for states, old in zip((key_states, value_states), (self.keys, self.values)):
            batch, heads, _, width = states.shape
            # Zeros, as padding is never written: what is masked must still be finite.
            store = states.new_zeros(batch, heads, size, width)
            if used:
                store[:, :, :used] = old
            bigger.append(store)
        self.fill(bigger[0], bigger[1])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self._store is not None:
            used = self.get_seq_length()
            self.fill(self._store[0][indices], self._store[1][indices])
            self.show(used)


def roomy_cache(layers: int, room: int) -> Cache:
    """An empty cache for `room` tokens."""
    return Cache(layers=[RoomyLayer(room) for _ in range(layers)])


def take_row(cache: Cache, row: int, first: int, last: int) -> Layers:
    """A copy of columns first..last-1 of one row."""
    layers = cast("list[RoomyLayer]", cache.layers)
    return [(layer.keys[row, :, first:last].clone(), layer.values[row, :, first:last].clone()) for layer in layers]


def put_rows(rows: Sequence[tuple[Layers | None, int]], width: int, room: int) -> Cache:
    """A cache of `width` columns from each row's first `length` tokens, right-aligned; at least one row has some."""
    model = next(layers for layers, length in rows if layers is not None and length)
    cache = roomy_cache(len(model), room)
    for index, layer in enumerate(cache.layers):
        assert isinstance(layer, RoomyLayer)
        stores = []
        for which in (0, 1):
            heads, _, size = model[index][which].shape
            store = model[index][which].new_zeros(len(rows), heads, room, size)
            for row, (layers, length) in enumerate(rows):
                if layers is not None and length:
                    store[row, :, width - length : width] = layers[index][which][:, :length]
            stores.append(store)
        layer.fill(stores[0], stores[1])
        layer.show(width)
    return cache


@dataclass
class Prefix:
    """What a conversation's tokens left behind: their keys and values."""

    ids: list[int]
    layers: Layers

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for pair in self.layers for part in pair)


class PrefixStore:
    """The latest prefix of each conversation, within a budget of bytes; the one longest unused goes first."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._held: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def longest(self, key: str, ids: Sequence[int]) -> tuple[Prefix | None, int]:
        """The prefix kept under `key` and how many of `ids` it covers."""
        prefix = self._held.get(key)
        if prefix is None:
            return None, 0
        self._held.move_to_end(key)
        return prefix, common(prefix.ids, ids)

    def put(self, key: str, prefix: Prefix) -> None:
        self.drop(key)
        self._held[key] = prefix
        self.nbytes += prefix.nbytes
        while self.nbytes > self.budget and self._held:
            self.drop(next(iter(self._held)))

    def drop(self, key: str) -> None:
        prefix = self._held.pop(key, None)
        if prefix is not None:
            self.nbytes -= prefix.nbytes

    def clear(self) -> None:
        self._held.clear()
        self.nbytes = 0


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


def can_reuse(config: Any) -> bool:
    """Whether every layer of the model attends to all that came before: what a cut-off prefix can be taken from."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return all(kind == "full_attention" for kind in kinds)
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return False
    return hasattr(config, "num_attention_heads") and not hasattr(config, "state_size")
