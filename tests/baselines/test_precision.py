"""Training in bfloat16 follows training in float32, because what is trained has float32 masters."""

import math

import pytest

torch = pytest.importorskip("torch")

from baselines.algorithms import grpo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.policy_step import Targets, learn
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.networks.logprobs import token_logprobs
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from benchmarks.gpu_proof import episodes, qwen, with_logprobs

RATE, UPDATES = 1e-6, 50


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def actor(dtype):
    """A tiny Qwen whose weights can be written in bfloat16."""
    lm = qwen("tiny", torch.device("cpu"), torch.float32).to(torch.bfloat16).to(dtype)
    return Model(lm, None, ModelConfig("tiny", critic="none"))


def flat(parameters):
    return torch.cat([parameter.detach().float().flatten() for parameter in parameters])


def batch_of(model):
    runs = with_logprobs(model, episodes(4, 8, 6))
    return runs, collate(runs)


@pytest.fixture(scope="module")
def trained():
    """Change of the trained weights and of the model's own weights, and losses, by the type of the
    forward pass."""
    results = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = actor(dtype)
        before = flat(model.actor_parameters())
        runs, batch = batch_of(model)
        config = grpo.GRPO(
            learning_rate=RATE, kl_coef=0.0, max_grad_norm=1e9, clip_low=1.0, clip_high=1e3, adam_eps=1e-8
        )
        inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator().manual_seed(0))
        advantages = torch.linspace(-1, 1, len(batch.episode))
        losses = [learn(inputs, batch, Targets(advantages))["policy_loss"] for _ in range(UPDATES)]
        masters = flat(model.actor_masters.masters)
        results[dtype] = masters - before, flat(model.actor_parameters()) - before, losses
        # The model holds its masters, rounded.
        assert torch.equal(flat(model.actor_parameters()), masters.to(dtype).float())
    return results


def test_bfloat16_training_with_masters_follows_float32_training(trained):
    exact, _, losses = trained[torch.float32]
    change, _, rounded_losses = trained[torch.bfloat16]
    assert torch.nn.functional.cosine_similarity(exact, change, dim=0) > 0.98
    assert 0.7 < change.norm() / exact.norm() < 1.1
    assert (change != 0).float().mean() > 0.95
    assert losses[-1] < losses[0] and rounded_losses[-1] < rounded_losses[0]
    assert abs(losses[-1] - rounded_losses[-1]) < 5e-3


def test_weights_stepped_in_bfloat16_hardly_move(trained):
    """Without masters: the steps are smaller than the distance between two bfloat16 numbers."""
    exact, *_ = trained[torch.float32]
    model = actor(torch.bfloat16)
    before = flat(model.actor_parameters())
    _, batch = batch_of(model)
    weights = batch.spread(torch.linspace(-1, 1, len(batch.episode)))
    adam = torch.optim.AdamW(model.actor_parameters(), lr=RATE, weight_decay=0.0)
    for _ in range(UPDATES):
        adam.zero_grad()
        new, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled, False)
        (-(weights * (new - batch.logprobs).exp() * batch.sampled).sum()).backward()
        adam.step()
    change = flat(model.actor_parameters()) - before
    assert (change != 0).float().mean() < 0.1
    assert change.norm() < 0.3 * exact.norm()


def test_a_checkpoint_keeps_what_bfloat16_would_round_away():
    model = actor(torch.bfloat16)
    masters = model.actor_masters.masters
    with torch.no_grad():
        for master in masters:
            master.add_(1e-6)
    model.actor_masters.publish()
    restored = actor(torch.bfloat16)
    restored.load_state(model.state())
    assert all(torch.equal(a, b) for a, b in zip(masters, restored.actor_masters.masters, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.actor_parameters(), restored.actor_parameters(), strict=True))


def test_micro_batches_of_bfloat16_are_summed_in_float32():
    """A thousand equal gradients of 2**-9 beside one of 1: in bfloat16 the sum would stop at 1."""
    model = actor(torch.bfloat16)
    masters = model.actor_masters
    weight = model.actor_parameters()[0]
    weight.sum().backward()
    for _ in range(1000):
        (weight.sum() * 2**-9).backward()
    assert weight.grad is None
    assert masters.masters[0].grad.flatten()[0].item() == pytest.approx(1 + 1000 / 512)


@pytest.mark.parametrize("entropy_gradient", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies_in_chunks_have_the_plain_values_and_gradients(
    monkeypatch, temperature, entropy_gradient
):
    from baselines.networks import logprobs

    monkeypatch.setattr(logprobs, "CHUNK", 33)  # three rows of 11 at a time
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 11, generator=generator, dtype=torch.float64).requires_grad_()
    tokens = torch.randint(0, 11, (10,), generator=generator)
    weights = torch.randn(2, 10, generator=generator, dtype=torch.float64)
    plain = (logits / temperature).log_softmax(-1)
    expected = plain.gather(-1, tokens[:, None]).squeeze(-1), -(plain.exp() * plain).sum(-1)
    result = token_logprobs(logits, tokens, temperature, entropy_gradient)
    for mine, theirs in zip(result, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert result[1].requires_grad == entropy_gradient
    loss = (weights[0] * result[0]).sum() + ((weights[1] * result[1]).sum() if entropy_gradient else 0.0)
    expected_loss = (weights[0] * expected[0]).sum()
    expected_loss = expected_loss + ((weights[1] * expected[1]).sum() if entropy_gradient else 0.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    (expected_gradient,) = torch.autograd.grad(expected_loss, logits)
    torch.testing.assert_close(gradient, expected_gradient)
    assert math.isfinite(gradient.abs().sum().item())
