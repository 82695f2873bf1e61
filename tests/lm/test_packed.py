"""Packed linear layers compute what torch's own do, and only where they may."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

from harness.lm.packed import PackedLinear, available, pack_linears
from tests.lm.tiny import tiny_model

pytestmark = pytest.mark.skipif(not available(), reason="this torch has no oneDNN, for which weights are packed")


def logits(network, rows=3):
    ids = torch.arange(rows * 7).reshape(rows, 7) % 50
    return network(input_ids=ids).logits


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_packed_model_computes_the_same_logits(rows):
    model = tiny_model(64, seed=3)
    with torch.inference_mode():
        before = logits(model, rows)
        count = pack_linears(model)
        torch.testing.assert_close(logits(model, rows), before, rtol=1e-5, atol=1e-5)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert count == len(layers) > 0
    assert all(type(layer) is PackedLinear for layer in layers)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_that_needs_a_gradient_uses_its_present_weight(bias):
    network = nn.Sequential(nn.Linear(8, 5, bias=bias))
    assert pack_linears(network) == 1
    with torch.no_grad():
        network[0].weight.zero_()
    rows = torch.ones(2, 3, 8)
    shift = network[0].bias if bias else torch.zeros(5)
    result = network(rows)
    result.sum().backward()
    assert torch.equal(result, shift.expand(2, 3, 5))
    assert torch.equal(network[0].weight.grad, torch.full((5, 8), 6.0))


def test_large_models_and_other_data_types_keep_their_layers():
    network = nn.Linear(8, 8)
    assert pack_linears(network, most=8 * 8 * 4 - 1) == 0
    assert pack_linears(nn.Linear(8, 8, dtype=torch.bfloat16)) == 0
    assert type(network) is nn.Linear
    assert pack_linears(network, most=8 * 8 * 4) == 1


def test_copies_and_other_data_types_of_a_packed_model_compute_as_torch_does():
    layer = nn.Linear(8, 8)
    pack_linears(layer)
    rows = torch.ones(3, 8)
    with torch.no_grad():
        expected = nn.functional.linear(rows, layer.weight, layer.bias)
        assert torch.equal(copy.deepcopy(layer)(rows), expected)
        torch.testing.assert_close(layer(rows), expected)
        assert layer.double()(rows.double()).dtype == torch.float64


def test_a_packed_layer_is_freed_without_the_garbage_collector():
    network = nn.Sequential(nn.Linear(4, 4))
    pack_linears(network)
    gc.disable()
    try:
        gone = weakref.ref(network[0])
        del network
        assert gone() is None
    finally:
        gc.enable()
