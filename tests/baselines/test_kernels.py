"""Attention kernels and compiled blocks: settings that change no number beyond rounding."""

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.utils import counters

from baselines import recipe as recipes
from baselines.networks.model import Model, ModelConfig
from envsuite.errors import DataError, UsageError
from tests.baselines.test_training import made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def results(folder, lengths=(40, 33, 27), **settings):
    """Log-probs, values and gradients of rows of these lengths, the first of which shares a prefix with
    the others."""
    model = Model.load(ModelConfig(str(folder), critic="own", **settings))
    with torch.no_grad():
        model.critic.head[-1].weight.fill_(0.1)
        for name, parameter in model.lm.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    dice = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 250, (3, 40), generator=dice)
    ids[:, :20] = ids[0, :20]
    valid = torch.arange(40)[None] < torch.tensor(lengths)[:, None]
    sampled = valid & (torch.arange(40) >= 22)[None]
    logprobs, entropy = model.logprobs(ids, valid, 1.0, sampled)
    values = model.values(ids, valid, sampled)
    (logprobs + 0.1 * entropy + values).sum().backward()
    parameters = [*model.actor_parameters(), *model.critic_parameters()]
    gradient = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])
    return model, logprobs.detach(), values.detach(), gradient


def check_equal(result, expected):
    for mine, plain in zip(result[1:], expected[1:], strict=True):
        torch.testing.assert_close(mine, plain, atol=2e-4, rtol=1e-3)
    assert expected[3].norm() > 0.1


def test_eager_attention_and_sdpa_compute_the_same(folder):
    eager, sdpa = results(folder, attention="eager"), results(folder, attention="sdpa")
    assert eager[0].lm.config._attn_implementation == "eager" and sdpa[0].lm.config._attn_implementation == "sdpa"
    check_equal(eager, sdpa)


def test_flash_attention_without_its_package_is_refused_in_one_line(folder):
    with pytest.raises((DataError, UsageError), match=r"(?i)flash") as refused:
        Model.load(ModelConfig(str(folder), critic="none", attention="flash_attention_2"))
    assert "\n" not in str(refused.value)


@pytest.mark.slow  # torch's compiler takes seconds for each block
@pytest.mark.parametrize("rank", [0, 4])
def test_compiled_blocks_compute_the_same_values_and_gradients(folder, rank):
    """aot_eager captures forward and backward pass, and computes with the ordinary kernels."""
    torch._dynamo.reset()
    graphs = counters["stats"]["unique_graphs"]
    compiled = results(folder, compile="aot_eager", lora_rank=rank)
    # However many layers there are: all share a graph, in actor and critic. With LoRA the critic's blocks are of
    # another kind, and the input of the actor's first block needs no gradient.
    assert counters["stats"]["unique_graphs"] - graphs == (3 if rank else 1)
    check_equal(compiled, results(folder, lora_rank=rank))
    blocks = compiled[0]._compiled._blocks
    assert len(blocks) == 2 and all(block._compiled_call_impl is None for block in blocks)  # generation is not


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_blocks_compiled_by_inductor_compute_the_same(folder):
    torch._dynamo.reset()
    check_equal(results(folder, compile="inductor"), results(folder))


@pytest.mark.parametrize("other", [{"model": {"gradient_checkpointing": True}}, {"fsdp": True}])
def test_compiled_blocks_do_not_go_with_what_recomputes_or_shards_them(other):
    table = {"algorithm": "grpo", "tasks": ["x"], "episodes": 8}
    model = {"name": "x", "compile": "inductor", **other.pop("model", {})}
    with pytest.raises(UsageError, match=r"model\.compile = 'inductor' cannot be combined with"):
        recipes.parse({**table, "model": model, **other})
