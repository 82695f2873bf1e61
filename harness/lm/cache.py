"""Key-value caches: layers with spare room for a batch, and a store of conversations' prefixes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers.cache_utils import Cache, DynamicLayer

from harness.prompting.messages import shared_prefix

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, each [heads, tokens, head size]."""


class RoomyLayer(DynamicLayer):
    """A cache layer with spare rows and columns, so that appending a token or a row does not copy
    the cache.

    The store is [row capacity, heads, column capacity, head size]; `keys` and `values` are views of
    the rows and columns in use.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room  # columns to allocate at first
        self.store: tuple[torch.Tensor, torch.Tensor] | None = None
        self._rows = 0
        self._first = 0

    def fill(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Uses two tensors [rows, heads, columns, head size] as the store."""
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.store = keys, values

    def show(self, rows: int, first: int, last: int) -> None:
        """Selects the rows and columns in use: rows 0 to rows - 1, columns first to last - 1."""
        assert self.store is not None
        self._rows, self._first = rows, first
        self.keys, self.values = (store[:rows, :, first:last] for store in self.store)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends columns; the model calls this in every forward pass."""
        used, new = self.get_seq_length(), key_states.shape[-2]
        last = self._first + used
        if self.store is None or last + new > self.store[0].shape[-2]:
            self._grow(key_states, value_states, used, used + new)
            last = used
        assert self.store is not None
        rows = key_states.shape[0]
        for store, states in zip(self.store, (key_states, value_states), strict=True):
            store[:rows, :, last : last + new] = states
        self.show(rows, self._first, last + new)
        return self.keys, self.values

    def _grow(self, key_states: torch.Tensor, value_states: torch.Tensor, used: int, needed: int) -> None:
        size = max(self.room, needed)
        stores = []
        for states, old in zip((key_states, value_states), (self.keys, self.values), strict=True):
            batch, heads, _, width = states.shape
            # Zeros, because masked columns must be finite.
            store = states.new_zeros(batch, heads, size, width)
            if used:
                store[:, :, :used] = old
            stores.append(store)
        self.fill(stores[0], stores[1])
        self._first = 0

    def repack(self, rows: int, room: int, last: int) -> None:
        """Moves the view to a new store with capacity for `rows` and `room` columns, so that it
        ends at column `last`.
        """
        count, width = self.keys.shape[0], self.keys.shape[2]
        stores = []
        for view in (self.keys, self.values):
            store = view.new_zeros(rows, view.shape[1], room, view.shape[3])
            store[:count, :, last - width : last] = view
            stores.append(store)
        self.fill(stores[0], stores[1])
        self.show(count, last - width, last)


def roomy_layers(cache: Cache) -> list[RoomyLayer]:
    """Returns the layers of a cache that `roomy_cache` or `put_rows` created."""
    return cast("list[RoomyLayer]", cache.layers)


def roomy_cache(layers: int, room: int) -> Cache:
    """Creates an empty cache for `room` tokens."""
    return Cache(layers=[RoomyLayer(room) for _ in range(layers)])


def take_row(cache: Cache, row: int, first: int, last: int) -> Layers:
    """Copies columns first to last - 1 of a row, counted from the first column in use."""
    return [
        (layer.keys[row, :, first:last].clone(), layer.values[row, :, first:last].clone())
        for layer in roomy_layers(cache)
    ]


def put_rows(rows: Sequence[tuple[Layers | None, int]], width: int, room: int) -> Cache:
    """Creates a cache of `width` columns from each row's first `length` tokens, aligned right.

    At least one row must have tokens.
    """
    model = next(layers for layers, length in rows if layers is not None and length)
    cache = roomy_cache(len(model), room)
    for index, layer in enumerate(roomy_layers(cache)):
        stores = []
        for kind in (0, 1):  # keys, values
            heads, _, size = model[index][kind].shape
            store = model[index][kind].new_zeros(len(rows), heads, room, size)
            for row, (layers, length) in enumerate(rows):
                if layers is not None and length:
                    store[row, :, width - length : width] = layers[index][kind][:, :length]
            stores.append(store)
        layer.fill(stores[0], stores[1])
        layer.show(len(rows), 0, width)
    return cache


@dataclass
class Prefix:
    """Tokens of a conversation with their keys and values."""

    ids: list[int]
    layers: Layers

    @property
    def nbytes(self) -> int:
        """Size of keys and values in bytes."""
        return sum(tensor.nbytes for pair in self.layers for tensor in pair)


class PrefixStore:
    """The latest prefix of each conversation, limited to `budget` bytes; the least recently used
    one is dropped first.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._prefixes)

    def longest(self, key: str, ids: Sequence[int]) -> tuple[Prefix | None, int]:
        """Returns the prefix stored under `key` and the number of tokens in `ids` that it covers."""
        prefix = self._prefixes.get(key)
        if prefix is None:
            return None, 0
        self._prefixes.move_to_end(key)
        return prefix, shared_prefix(prefix.ids, ids)

    def put(self, key: str, prefix: Prefix) -> None:
        """Stores a prefix and drops old ones beyond the budget."""
        self.drop(key)
        self._prefixes[key] = prefix
        self.nbytes += prefix.nbytes
        while self.nbytes > self.budget and self._prefixes:
            self.drop(next(iter(self._prefixes)))

    def drop(self, key: str) -> None:
        """Removes a conversation's prefix."""
        prefix = self._prefixes.pop(key, None)
        if prefix is not None:
            self.nbytes -= prefix.nbytes

    def clear(self) -> None:
        """Removes all prefixes."""
        self._prefixes.clear()
        self.nbytes = 0


def can_reuse(config: Any) -> bool:
    """Returns True if every layer of the model has full attention, so that a prefix of its cache is
    valid.
    """
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return all(kind == "full_attention" for kind in kinds)
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return False
    return hasattr(config, "num_attention_heads") and not hasattr(config, "state_size")
