"""The trainer computes what the policy computed: no dropout, no prompts beyond the context, no
positions beyond the sampled."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import GPT2Config, GPT2LMHeadModel

from baselines import recipe as recipes
from baselines.algorithms import actor_critic, gigpo, groups, grpo, ppo, rloo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.collection.actor import Actor
from baselines.collection.rewards import adjusted
from baselines.networks import prefix_sharing
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import StopReason
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys  # noqa: F401
from tests.baselines.test_training import made

WHOLE = Prompting("bare", False, -1, admissible="none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def gpt2(folder, checkpointing):
    """A GPT-2 with dropout, and the tokenizer of the tiny model."""
    tokenizer = Model.load(ModelConfig(str(folder), critic="none")).tokenizer
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=300, n_positions=256, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5,
        eos_token_id=1, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    settings = ModelConfig("gpt2", critic="own", gradient_checkpointing=checkpointing)
    return Model(GPT2LMHeadModel(config).eval(), tokenizer, settings)


def play(model, acting, task="HiLo-v0", count=4, prompting=WHOLE, max_turns=6):
    model.lm.train()
    actor = Actor(model, acting, prompting, 1.0)
    assert not model.lm.training  # dropout would change the log-probs that training compares with
    todo = [episode(registry.TASKS[task], seed) for seed in range(count)]
    runs = sorted(rollout(actor, todo, LocalExecutor(count), prompting, max_turns), key=lambda run: run.episode.key)
    return actor, runs


@pytest.mark.parametrize("checkpointing", [False, True])
def test_before_the_first_step_all_ratios_are_1_in_a_model_with_dropout(folder, checkpointing):
    model = gpt2(folder, checkpointing)
    _, runs = play(model, recipes.Acting(max_tokens=4))
    batch = collate(runs)
    logprobs, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled)
    assert logprobs.requires_grad
    torch.testing.assert_close(batch.flat(logprobs).detach(), batch.flat(batch.logprobs), atol=1e-4, rtol=0)
    assert model.lm.transformer.drop.p == 0.5  # the saved model keeps its settings
    first = model.values(batch.ids, batch.valid, batch.sampled)
    assert torch.equal(first, model.values(batch.ids, batch.valid, batch.sampled))


def test_checkpointing_recomputes_activations_in_actor_and_critic(folder):
    for checkpointing in (False, True):
        model = gpt2(folder, checkpointing)
        for network in (model.lm, model.critic.trunk):
            prefix_sharing.set_checkpointing(network, checkpointing)
            assert prefix_sharing.is_checkpointed(network) == checkpointing
            assert not network.training


def test_final_prompts_fit_the_context(folder):
    model = Model.load(ModelConfig(str(folder), critic="own"))
    _, free = play(model, recipes.Acting(max_tokens=4))
    longest = max(len(turn.reply.prompt_ids) for run in free for turn in run.turns)
    shortest = min(len(run.turns[0].reply.prompt_ids) for run in free)
    context = (longest + shortest) // 2 + 4
    actor, runs = play(model, recipes.Acting(max_tokens=4, context=context))
    truncated = [run for run in runs if run.truncated and not run.terminated]
    assert truncated
    prompts = [actor.next_prompt(run) for run in truncated]
    assert all(0 < len(prompt) <= context - 4 for prompt in prompts)
    assert any(turn.reply.dropped_turns for run in truncated for turn in run.turns)


def test_a_final_prompt_holds_the_sampled_tokens_and_is_the_prompt_that_would_follow(folder):
    """Cutting an episode one turn earlier, its final prompt is the prompt that the policy then saw."""
    model = Model.load(ModelConfig(str(folder), critic="own"))
    actor, runs = play(model, recipes.Acting(max_tokens=4), max_turns=5)
    _, shorter = play(model, recipes.Acting(max_tokens=4), max_turns=4)
    pairs = [(a, b) for a, b in zip(runs, shorter, strict=True) if len(a.turns) == 5]
    assert pairs
    for whole, cut in pairs:
        assert actor.next_prompt(cut) == list(whole.turns[4].reply.prompt_ids)


def test_final_observations_are_valued_in_micro_batches(folder):
    model = Model.load(ModelConfig(str(folder), critic="own"))
    torch.nn.init.normal_(model.critic.head[-1].weight)
    actor, runs = play(model, recipes.Acting(max_tokens=4))
    prompts = [actor.next_prompt(run) if run.truncated and not run.terminated else [] for run in runs]
    assert sum(map(bool, prompts)) > 1
    values, sizes = [], []

    def counted(ids, valid, sampled):
        sizes.append(len(ids))
        return model.values(ids, valid, sampled)

    for micro_rows in (0, 1):
        config = ppo.Config(micro_rows=micro_rows)
        inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator(), prompts)
        values.append(actor_critic.final_values(inputs, counted))
    assert sizes == [sum(map(bool, prompts))] + [1] * sum(map(bool, prompts))
    assert values[0] == pytest.approx(values[1], abs=1e-5) and any(values[0])


def distinct(model, batch):
    return prefix_sharing.distinct_rows(batch.ids, batch.valid, batch.sampled, model.device)


def test_only_sampled_positions_reach_the_head(folder):
    model = Model.load(ModelConfig(str(folder), critic="none"))
    _, runs = play(model, recipes.Acting(max_tokens=4))
    batch = collate(runs)
    rows = []
    handle = model.lm.get_output_embeddings().register_forward_hook(lambda m, i, o: rows.append(o.shape[-2]))
    model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled)
    handle.remove()
    parts = prefix_sharing.passes(model.lm, distinct(model, batch))
    prefixes = len(rows) - len(parts)  # the pass for a shared prefix keeps one position
    assert sum(rows) - prefixes == int(batch.sampled.sum()) and prefixes <= len(parts)


@pytest.mark.parametrize("algorithm", [grpo, rloo, gigpo])
def test_the_only_survivor_of_a_broken_group_teaches_nothing(folder, algorithm):
    model = Model.load(ModelConfig(str(folder), critic="none"))
    actor = Actor(model, recipes.Acting(max_tokens=4), WHOLE, 1.0)
    todo = [episode(registry.TASKS["HiLo-v0"], seed, attempt) for seed in range(2) for attempt in range(3)]
    runs = sorted(rollout(actor, todo, LocalExecutor(6), WHOLE, 3), key=lambda run: run.episode.key)
    survivors = [runs[0], *runs[3:]]  # two of the first group broke
    runs[0].turns[-1].reward = 10.0
    gradients = []
    for batch in (survivors, runs[3:]):
        config = algorithm.Config(group_size=3, kl_coef=0.0, max_grad_norm=1e9, entropy_coef=0.01)
        before = model.state()
        inputs = UpdateInput(model, Optimisers(model, config), batch, config, torch.Generator().manual_seed(0))
        algorithm.update(inputs)
        gradients.append(torch.cat([p.grad.flatten() for p in model.actor_parameters()]))
        model.load_state(before)
    assert torch.equal(*gradients) and gradients[0].norm() > 0
    with pytest.raises(UsageError, match="no group has two episodes"):
        groups.without_lone_survivors([runs[0]], 3)
    assert runs[0].stop_reason is not StopReason.BROKEN


def test_penalties_and_scale_change_what_is_learned_and_not_what_is_logged(folder):
    model = Model.load(ModelConfig(str(folder), critic="none"))
    _, runs = play(model, recipes.Acting(max_tokens=4))
    run = runs[0]
    faults = ["", "invalid", "format", "length"]
    for turn, fault in zip(run.turns, faults, strict=False):
        turn.reward, turn.fault = 0.5, fault
    before = [turn.reward for turn in run.turns]
    result = adjusted(run, recipes.RewardSettings(scale=10.0, invalid_penalty=0.1, format_penalty=0.2))
    assert [turn.reward for turn in result.turns][:4] == pytest.approx([5.0, 4.9, 4.8, 4.8][: len(run.turns)])
    assert [turn.reward for turn in run.turns] == before
    assert adjusted(run, recipes.RewardSettings()) is run
