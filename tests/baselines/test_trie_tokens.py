"""Training on trie-normalised tokens (`acting.choose = "trie"`): the ratio policy is the one that
played.

The expected gradients are computed as in test_exact_gradients.py, from formulas that are apart from
the trainers.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

torch = pytest.importorskip("torch")

from baselines import cli
from baselines import recipe as recipes
from baselines.algorithms import dual_gae, module_of, ntpo, poad, policy_step, ppo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateConfig, UpdateInput, reference_pass
from baselines.batch import AllowedTokens, collate
from baselines.collection.actor import Actor
from baselines.networks.logprobs import allowed_logprobs, token_logprobs
from baselines.networks.model import Model, ModelConfig
from baselines.studies import tiny_model
from baselines.train import TrainingRun
from envsuite import registry
from envsuite.errors import UsageError
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys  # noqa: F401
from tests.baselines import hand_made as hand
from tests.baselines.hand_made import Play
from tests.baselines.test_exact_gradients import OPEN, check_critic_method

FEW = ((4, 6, 12), (4, 6, 7, 3), (5, 1, 8), (9,))
"""(4, 6) begins (4, 6, 7, 3) and therefore ends with a token of its own, 12"""
MANY = (*FEW, (5, 1, 2), (11, 3), (4, 2, 2))
PLAYS = [
    Play([[4, 6, 12], [5, 1, 8]], [0.3, 1.0], commands=FEW),
    Play([[9], [4, 6, 7, 3], [11, 3]], [-0.2, 0.5, 0.4], truncated=True, seed=1, commands=MANY),
    Play([[4, 6, 12], [5, 1, 8]], [0.0, -0.7], commands=MANY),  # the tokens of the first episode, other commands
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


# ---- gradients


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("micro_rows", [0, 2])
def test_ppo(whole, micro_rows):
    config = ppo.PPO(gamma=0.9, lam=0.7, whole=whole, micro_rows=micro_rows, **OPEN)
    check_critic_method(ppo, config, (0.9, 0.7, 0.9, 0.7), plays=PLAYS)


def test_ntpo_keeps_the_values_of_tokens_without_an_alternative():
    config = ntpo.NTPO(gamma=0.9, lam=0.7, gamma_token=0.8, normalise="none", **OPEN)
    check_critic_method(ntpo, config, (0.8, 0.7, 0.9, 0.7), plays=PLAYS)


@pytest.mark.parametrize("lambda_token", [1.0, 0.4])
def test_poad(lambda_token):
    config = poad.POAD(gamma=0.9, lam=0.7, lambda_token=lambda_token, normalise="none", micro_rows=1, **OPEN)
    check_critic_method(poad, config, (1.0, lambda_token, 0.9, 0.7), plays=PLAYS)


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_the_reference_is_normalised_alike(kl_in):
    config = dual_gae.DualGAE(gamma=0.9, lam=0.7, kl_coef=0.2, kl_in=kl_in, normalise="none", **OPEN)
    check_critic_method(dual_gae, config, (1.0, 1.0, 0.9, 0.7), reference=True, plays=PLAYS)


def test_log_probs_among_all_tokens_are_those_of_the_vocabulary():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 6, 2, 2, 4])
    sets = torch.cat([torch.arange(7), torch.tensor([-1, -1])]).repeat(5, 1)
    weights = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    among, whole = (
        torch.stack(pair)
        for pair in (allowed_logprobs(logits, tokens, sets, 0.7, True), token_logprobs(logits, tokens, 0.7, True))
    )
    torch.testing.assert_close(among, whole)
    gradients = [torch.autograd.grad((weights * x).sum(), logits)[0] for x in (among, whole)]
    torch.testing.assert_close(*gradients)


def test_a_token_without_an_alternative_has_log_prob_0_and_no_gradient():
    logits = torch.randn(2, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    sets = torch.tensor([[-1, -1], [1, 4]])
    logprobs, entropy = allowed_logprobs(logits, torch.tensor([3, 4]), sets, 1.0, True)
    assert (logprobs[0].item(), entropy[0].item()) == (0.0, 0.0) and logprobs[1] < 0 < entropy[1]
    (gradient,) = torch.autograd.grad((logprobs + entropy).sum(), logits)
    assert not gradient[0].any() and set(gradient[1].nonzero().flatten().tolist()) == {1, 4}


def test_a_batch_stores_every_set_once_and_rows_keep_theirs():
    model = hand.tiny_model()
    batch = collate(hand.trajectories(model, PLAYS), whole=False)
    sets = [tuple(row[row >= 0].tolist()) for row in batch.allowed.sets]
    assert sets[0] == () and len(set(sets)) == len(sets)
    assert [sets[k] for k in batch.flat(batch.allowed.index).tolist()][:6] == [
        (4, 5, 9),
        (),
        (7, 12),
        (4, 5, 9),
        (),
        (),
    ]
    few = batch.rows(torch.tensor([3, 1]))
    assert torch.equal(few.allowed.index[0], batch.allowed.index[3, : few.ids.shape[1]])
    with torch.no_grad():
        each, _ = model.logprobs(batch.ids, batch.valid, 1.0, batch.sampled, False, batch.allowed)
    expected = torch.cat([hand.sampled(model.lm, turn)[0] for turn in hand.turns(hand.trajectories(model, PLAYS))])
    torch.testing.assert_close(batch.flat(each), expected.detach(), atol=1e-6, rtol=0)


def test_a_batch_of_two_ways_of_acting_is_refused():
    model = hand.tiny_model()
    with pytest.raises(ValueError, match="not all"):
        collate(hand.trajectories(model, [PLAYS[0], dataclasses.replace(PLAYS[0], commands=())]))


# ---- the policy that plays


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny"
    corpus = ["Say the word. Objective: Say it. go north east open the gate Yes."] * 20
    tiny_model.make(path, corpus, size="xs", vocabulary=300, context=256)
    return path


def talk(history):
    return Prompting("bare", False, history, admissible="none")


def play(model, history=-1, temperature=1.0, count=6):
    acting = recipes.Acting(choose="trie", temperature=temperature)
    actor = Actor(model, acting, talk(history), temperature)
    task = registry.TASKS["Paths-v0"]
    todo = [episode(task, seed) for seed in range(count)]
    return sorted(rollout(actor, todo, LocalExecutor(4), talk(history)), key=lambda run: run.episode.key)


@pytest.mark.parametrize(
    ("settings", "temperature", "whole"),
    [({}, 1.0, True), ({}, 0.7, False), ({"lora_rank": 4, "critic": "head"}, 1.0, False)],
)
def test_the_ratio_is_one_before_the_first_step(folder, settings, temperature, whole):
    model = Model.load(ModelConfig(str(folder), **settings))
    model.keep_reference()
    runs = play(model, -1 if whole else 0, temperature)
    assert len({tuple(turn.reply.ids) for run in runs for turn in run.turns}) > 2
    config = ppo.Config(whole=whole, kl_coef=0.1, micro_rows=3, entropy_coef=0.01)
    generator = torch.Generator().manual_seed(0)
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, generator, temperature=temperature)
    batch = collate(runs, whole)
    assert len(batch.ids) == (len(runs) if whole else sum(len(run.turns) for run in runs))
    torch.testing.assert_close(reference_pass(inputs, batch), batch.flat(batch.logprobs), atol=1e-5, rtol=0)
    with torch.no_grad():
        new, entropy = model.logprobs(batch.ids, batch.valid, temperature, batch.sampled, False, batch.allowed)
    torch.testing.assert_close(new, batch.logprobs, atol=1e-5, rtol=0)
    is_decided = batch.allowed.index > 0
    assert 0 < is_decided.sum() < batch.sampled.sum() and torch.equal(entropy > 0, is_decided)
    log = policy_step.learn(
        inputs, batch, policy_step.Targets(torch.linspace(-1, 1, len(batch.episode)), new[batch.sampled])
    )
    assert log["kl"] == pytest.approx(0.0, abs=1e-6) and log["clip_share"] == 0.0 and log["grad_norm"] > 0


def test_a_batch_in_which_nothing_was_to_decide_leaves_the_actor_alone(folder):
    model = Model.load(ModelConfig(str(folder), critic="none"))
    runs = play(model, count=2)
    for run in runs:
        for turn in run.turns:
            turn.reply.extra["allowed"] = [()] * len(turn.reply.ids)
            turn.reply.logprobs = [0.0] * len(turn.reply.ids)
    batch, config = collate(runs), UpdateConfig()
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator().manual_seed(0))
    log = policy_step.learn(inputs, batch, policy_step.Targets(torch.linspace(-1, 1, len(batch.episode))))
    assert (log["grad_norm"], log["entropy"], log["kl"]) == (0.0, 0.0, 0.0)


# ---- runs


def recipe(folder, algorithm="poad", **changes):
    table = {
        "algorithm": algorithm,
        "model": {"name": str(folder), "critic": "own" if module_of(algorithm).Config.needs_critic else "none"},
        "tasks": ["Paths-v0"],
        "updates": 1,
        "episodes": 8,
        "eval_every": 0,
        "eval_episodes": 2,
        "acting": {"choose": "trie"},
        "prompting": {"grammar": "bare", "thinking": False, "history": 0, "admissible": "none"},
        "config": {"learning_rate": 1e-3, **({"critic_warmup": 0} if algorithm == "dual_gae" else {})},
        **changes,
    }
    return recipes.parse(table)


def lines(folder, kind):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.parametrize(
    "algorithm",
    ["ppo", "ntpo", "poad", "dual_gae", "grpo", "rloo", "gigpo", "hgpo", "graphgpo", "gagpo", "spa", "sdar"],
)
def test_every_algorithm_with_a_ratio_per_token_begins_at_ratio_one(folder, tmp_path, algorithm):
    TrainingRun(recipe(folder, algorithm), tmp_path / "run").train()
    (update,) = lines(tmp_path / "run", "update")
    assert update["kl"] == pytest.approx(0.0, abs=1e-6) and update["clip_share"] == 0.0
    assert update["invalid"] == 0.0 and 0 < update["entropy"] < 1.4  # at most log 4 at each token


def test_a_run_resumed_goes_on_to_the_very_same_weights(folder, tmp_path):
    turns = {"turns": 3, "save_every": 1}  # episodes of two turns are cut by the batch and continued
    whole = TrainingRun(recipe(folder, updates=3, **turns), tmp_path / "whole")
    whole.train()
    TrainingRun(recipe(folder, updates=1, **turns), tmp_path / "cut").train()
    resumed = TrainingRun(recipe(folder, updates=3, **turns), tmp_path / "cut", resume=True)
    resumed.train()
    for name, value in whole.model.state()["lm"].items():
        assert torch.equal(value, resumed.model.state()["lm"][name]), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "twosome"}, "acting.choose cannot be 'trie': twosome"),
        ({"acting": {"choose": "trie", "top_p": 0.9}}, "top_p cannot be 0.9"),
        ({"acting": {"choose": "trie", "normalisation": "sum"}}, "normalisation cannot be 'sum'"),
        ({"generation": {"base_url": "http://localhost:1/v1"}}, "'trie' needs the model in this process"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder, changes, message):
    with pytest.raises(UsageError, match=message) as error:
        recipe(folder, **changes)
    assert "\n" not in str(error.value)


def test_a_task_without_admissible_commands_is_refused_in_one_line(folder, tmp_path):
    with pytest.raises(UsageError, match=r"lists none: .*acting\.choose = 'free'") as error:
        TrainingRun(recipe(folder, tasks=["Instances-v0"]), tmp_path / "run").train()
    assert "\n" not in str(error.value)


def test_a_dry_run_names_the_way_of_acting(folder, tmp_path, capsys):
    path = tmp_path / "recipe.toml"
    text = f'algorithm = "poad"\ntasks = ["Paths-v0"]\n[model]\nname = "{folder}"\n'
    path.write_text(text + '[prompting]\ngrammar = "bare"\n')
    with pytest.raises(SystemExit) as end:
        cli.main([str(path), "--module", "tests.toys", "--set", "acting.choose=trie", "--dry-run"])
    assert end.value.code == 0
    assert "acting.choose = trie: commands, each token normalised" in capsys.readouterr().out


def test_sets_are_cropped_with_their_rows():
    allowed = AllowedTokens(torch.arange(6).reshape(2, 3), torch.tensor([[-1]]))
    assert torch.equal(allowed.rows(torch.tensor([1]), 2).index, torch.tensor([[3, 4]]))
