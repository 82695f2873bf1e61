"""Packed sequences: rows that share a row of the forward pass, with equal results."""

import itertools

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from baselines.networks import packing, prefix_sharing
from baselines.networks.model import Model, ModelConfig
from envsuite.errors import UsageError

SIZES = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}
LENGTHS = (40, 37, 12, 25, 20, 18, 39)


def network(kind, kernel="sdpa", **settings):
    """A random model of an architecture in double precision."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **(GPT2 if kind == "gpt2" else {**SIZES, **HEADS}), **settings)
    lm = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=kernel).double().eval()
    for parameter in lm.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return lm


def batch(common=0):
    """Rows of different lengths, of which the first `common` tokens are equal, and the tokens to score."""
    ids = torch.randint(1, 60, (len(LENGTHS), 40), generator=torch.Generator().manual_seed(1))
    ids[:, :common] = ids[0, :common]
    valid = torch.arange(40) < torch.tensor(LENGTHS)[:, None]
    sampled = valid & (torch.arange(40) >= torch.tensor(LENGTHS)[:, None] - 7)
    return ids * valid, valid, sampled


def results(lm, rows, **settings):
    """Log-probs, entropies, values and all gradients, and the numbers of computed tokens of each pass."""
    model = Model(lm, None, ModelConfig("tiny", critic="own", **settings))
    model.critic.head.double()
    torch.nn.init.ones_(model.critic.head[-1].weight)
    lm.zero_grad()
    shapes = []
    handle = lm.get_input_embeddings().register_forward_pre_hook(lambda module, ids: shapes.append(ids[0].numel()))
    ids, valid, sampled = rows
    logprobs, entropy = model.logprobs(ids, valid, 0.7, sampled)
    values = model.values(ids, valid, sampled)
    (logprobs * torch.arange(40) + entropy + values**2).sum().backward()
    handle.remove()
    parameters = [*model.actor_parameters(), *model.critic_parameters()]
    gradients = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    return [logprobs.detach(), entropy.detach(), values.detach(), gradients], shapes


def check_equal(mine, expected):
    for one, other in zip(mine, expected, strict=True):
        size = max(10.0, float(other.abs().max()))  # transformers rounds in float32, each processor in its own way
        torch.testing.assert_close(one, other, atol=1e-7 * size, rtol=1e-9)
    assert expected[-1].norm() > 1


@pytest.mark.parametrize("common", [0, 4])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2", "qwen3"])
def test_packed_rows_have_the_log_probs_values_and_gradients_of_separate_ones(kind, common, monkeypatch):
    monkeypatch.setattr(prefix_sharing, "MIN_PREFIX", 3)
    monkeypatch.setattr(prefix_sharing, "PASS_TOKENS", 10**9)  # the padded rows in one pass
    lm, rows = network(kind), batch(common)
    plain, padded = results(lm, rows)
    packed, shapes = results(lm, rows, packing=True)
    check_equal(packed, plain)
    assert shapes[-1] < 0.8 * padded[-1]


@pytest.mark.parametrize("settings", [{"kernel": "eager"}, {"gradient_checkpointing": True}])
def test_packing_goes_with_other_kernels_and_with_recomputed_activations(settings, monkeypatch):
    monkeypatch.setattr(prefix_sharing, "PASS_TOKENS", 10**9)  # transformers rounds in float32, by the order of rows
    kernel = settings.pop("kernel", "sdpa")
    rows = batch(20)
    packed, plain = network("qwen2", kernel), network("qwen2", kernel)
    check_equal(results(packed, rows, packing=True, **settings)[0], results(plain, rows)[0])


def test_a_single_row_without_mask_is_read_by_its_positions():
    """FlashAttention's kernels get this layout; transformers finds its sequences for every kernel."""
    ids, valid, _ = batch()
    lm = network("qwen2")
    row, column = valid.nonzero(as_tuple=True)
    layout = packing.lay_out(ids, list(LENGTHS), row, column, 0, "flash_attention_2", torch.float64)
    assert layout.mask is None and layout.ids.shape == (1, sum(LENGTHS))
    with torch.no_grad():
        single = lm(**layout.options(), use_cache=False).logits[layout.row, layout.column]
        plain = lm(input_ids=ids, attention_mask=valid.long()).logits[row, column]
    torch.testing.assert_close(single, plain, atol=1e-9, rtol=1e-9)


def test_no_row_holds_more_than_the_longest_sequence_and_none_overlap():
    lengths = [7, 40, 11, 3, 20, 20, 33, 1, 39]
    places, starts, count = packing.fill_bins(lengths, 40)
    used = sorted((place, start, start + n) for place, start, n in zip(places, starts, lengths, strict=True))
    assert count == 5  # 174 tokens need at least five rows of 40
    for (place, _, end), (next_place, start, _) in itertools.pairwise(used):
        assert next_place > place or start == end
    assert max(end for _, _, end in used) == 40


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("mistral", {"sliding_window": 8, **HEADS}, "full attention in every layer"),
        ("mamba", {"state_size": 4}, "full attention in every layer"),
        ("bloom", {"n_head": 4}, "does not work with 'bloom'"),
    ],
)
def test_models_that_cannot_keep_sequences_apart_are_refused(kind, settings, reason):
    sizes = {name: value for name, value in SIZES.items() if kind != "bloom" or name != "intermediate_size"}
    config = transformers.AutoConfig.for_model(kind, **sizes, **settings)
    lm = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(UsageError, match=rf"model\.packing .*{reason}.*: set model\.packing = false"):
        Model(lm, None, ModelConfig("tiny", critic="none", packing=True))
    Model(lm, None, ModelConfig("tiny", critic="none"))


def test_a_model_that_ignores_positions_is_refused():
    lm = network("gpt2")
    forward = lm.base_model.forward
    lm.base_model.forward = lambda position_ids=None, **options: forward(**options)
    with pytest.raises(UsageError, match="hidden states of packed sequences differ"):
        Model(lm, None, ModelConfig("tiny", critic="none", packing=True))
