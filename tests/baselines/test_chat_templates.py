"""Multi-turn training under the templates of known models: the trainer sees what was sampled."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import LlamaConfig, LlamaForCausalLM

from baselines import recipe as recipes
from baselines.batch import collate
from baselines.collection.actor import Actor
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from docs import _templates
from envsuite import registry
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys  # noqa: F401

WHOLE = Prompting("bare", False, -1, admissible="none")
TURNS = 3
KEEPS = {"deepseek-v3", "granite3", "mistral-v7", "phi4", "qwen2.5", "smollm2"}
"""templates that show every reply as it is, whatever the model samples"""


def model_with(name):
    """A small random model with a family's tokenizer."""
    torch.set_num_threads(1)
    tokenizer = _templates.tokenizer(name)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=1024, initializer_range=0.3, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return Model(LlamaForCausalLM(config).eval(), tokenizer, ModelConfig(name, critic="none"))


@pytest.mark.parametrize("name", _templates.FAMILIES)
def test_before_the_first_step_all_ratios_are_1_under_the_templates_of_known_models(name):
    model = model_with(name)
    actor = Actor(model, recipes.Acting(max_tokens=5), WHOLE, 1.0)
    todo = [episode(registry.TASKS["HiLo-v0"], seed) for seed in range(3)]
    runs = list(rollout(actor, todo, LocalExecutor(3), WHOLE, TURNS))
    batch = collate(runs)
    sampled = [
        (token, logprob)
        for run in runs
        for turn in run.turns
        for token, logprob in zip(turn.reply.ids, turn.reply.logprobs, strict=True)
    ]
    assert len(sampled) > 20 and sum(len(run.turns) for run in runs) > 2 * len(runs)
    assert batch.flat(batch.ids).tolist() == [token for token, _ in sampled]  # no sampled token is lost
    with torch.no_grad():
        again, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled)
    expected = torch.tensor([logprob for _, logprob in sampled])
    torch.testing.assert_close(batch.flat(again), expected, atol=1e-4, rtol=0)
    rewritten = any(turn.reply.extra.get("rewritten") for run in runs for turn in run.turns)
    if name in KEEPS:
        assert len(batch.ids) == len(runs) and not rewritten  # each conversation is one row
    text = model.tokenizer.decode(runs[0].turns[-1].reply.prompt_ids)
    assert runs[0].instructions.strip() in text  # the rules reach the model under every template
