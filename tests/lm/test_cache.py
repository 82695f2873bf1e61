"""Key-value caches: growing layers, and the store of conversations' prefixes."""

import threading

import torch

from harness.lm.cache import Prefix, PrefixStore, RoomyLayer
from harness.lm.time_limit import time_limit


def prefix(tokens):
    """A prefix of one layer that takes 8 bytes per token."""
    part = torch.zeros(1, tokens, 1)
    return Prefix(list(range(tokens)), [(part, part)])


def test_a_layer_without_room_grows_and_keeps_its_columns():
    layer = RoomyLayer(room=2)
    states = torch.arange(24.0).view(1, 2, 6, 2)
    for first, last in ((0, 1), (1, 2), (2, 3), (3, 6)):
        keys, values = layer.update(states[:, :, first:last], -states[:, :, first:last])
        assert torch.equal(keys, states[:, :, :last]) and torch.equal(values, -states[:, :, :last])


def test_a_store_keeps_what_its_budget_holds_exactly_and_drops_the_least_recently_used():
    store = PrefixStore(budget=8 * 10)
    store.put("a", prefix(6))
    store.put("b", prefix(4))
    assert (len(store), store.nbytes) == (2, 80)
    assert store.longest("a", [0, 1, 2, 9])[1] == 3
    store.put("c", prefix(1))
    assert store.longest("b", [0]) == (None, 0) and store.longest("a", [0])[1] == 1
    store.clear()
    assert (len(store), store.nbytes) == (0, 0)


def test_a_time_limit_leaves_no_thread_behind():
    with time_limit(60, "test"):
        (timer,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    timer.join(5)
    assert not timer.is_alive()
