"""SDAR and self-distillation: the teacher's prompts, its log-probs, the exact gradient, and the settings."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.algorithms import grpo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.turn_credit import sdar
from baselines.algorithms.update import UpdateInput
from baselines.batch import ADVISED
from baselines.collection.actor import Actor
from baselines.collection.advice import advised_demonstrations
from baselines.math.losses import distillation_loss
from baselines.networks.model import Model, ModelConfig
from baselines.studies import tiny_model
from baselines.train import TrainingRun
from envsuite import registry
from envsuite.errors import UsageError
from harness.policies import make_policy
from harness.prompting.demos import demonstrations
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys
from tests.baselines import hand_made as hand
from tests.baselines.test_exact_gradients import GROUP, GROUPS, OWNERS, per_token, whole_episodes
from tests.golden import formulas

PROMPTING = Prompting("bare", False, 1, admissible="none")


# ---- the loss


@pytest.mark.parametrize("steepness", [None, 0.0, 5.0])
def test_the_loss_and_its_gradient_are_those_of_the_formula(steepness):
    student, teacher = [-0.3, -2.0, -1.1, -4.0], [-0.1, -3.5, -1.1, -0.2]
    new = torch.tensor(student, dtype=torch.float64, requires_grad=True)
    kind = "kl" if steepness is None else "gated"
    loss = distillation_loss(new, torch.tensor(teacher, dtype=torch.float64), kind, steepness or 0.0)
    value, slope = formulas.distillation(student, teacher, steepness)
    np.testing.assert_allclose(loss.detach().numpy(), value, atol=1e-12)
    np.testing.assert_allclose(torch.autograd.grad(loss.sum(), new)[0].numpy(), slope, atol=1e-12)


def test_the_mean_gradient_of_kl_over_the_students_tokens_is_that_of_the_divergence():
    """Every token of a small vocabulary, weighted by the probability that the student samples it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(7, generator=generator, dtype=torch.float64).log_softmax(-1)
    new = logits.log_softmax(-1)
    estimate = (new.exp().detach() * distillation_loss(new, teacher, "kl")).sum()
    exact = (new.exp() * (new - teacher)).sum()
    assert estimate.item() == pytest.approx(exact.item())
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(estimate, logits)[0], expected)


# ---- one update

HINT = [6, 2, 11, 4]


def with_teacher(runs):
    """Gives each turn but the third a teacher's prompt: its own with four more tokens."""
    for number, turn in enumerate(hand.turns(runs)):
        turn.reply.extra[ADVISED] = [] if number == 2 else [*turn.reply.prompt_ids, *HINT]
    return runs


def expected_loss(model, runs, config, teacher_lm, behind):
    """GRPO's loss and the distillation's, one sampled token after the other."""
    scores = formulas.normalised([run.total_reward for run in runs], OWNERS, config.std)
    rewards = [[turn.reward for turn in run.turns] for run in runs]
    advantage = [config.policy_weight * a for a in per_token(whole_episodes(scores, rewards), runs)]
    loss = hand.policy_loss(model.lm, runs, advantage, config, behind)
    new = torch.cat([hand.sampled(model.lm, turn)[0] for turn in hand.turns(runs)])
    teacher, asked = [], []
    for turn in hand.turns(runs):
        prompt = turn.reply.extra[ADVISED]
        advised = replace(turn, reply=replace(turn.reply, prompt_ids=prompt or turn.reply.prompt_ids))
        with torch.no_grad():
            teacher += hand.sampled(teacher_lm, advised)[0].tolist()
        asked += [bool(prompt)] * len(turn.reply.ids)
    steepness = None if config.distillation == "kl" else config.gate
    _, slope = formulas.distillation(new.tolist(), teacher, steepness)
    weights = hand.weights(runs, config.whole, config.aggregation)
    return loss + config.distil_coef * (weights * torch.tensor(asked) * torch.tensor(slope).double() * new).sum()


@pytest.mark.parametrize("distillation", ["gated", "kl"])
@pytest.mark.parametrize("teacher", ["present", "first"])
@pytest.mark.parametrize(("whole", "micro_rows"), [(True, 0), (False, 2)])
@pytest.mark.parametrize("policy_weight", [0.0, 1.3])
def test_the_gradient_of_an_update(distillation, teacher, whole, micro_rows, policy_weight):
    config = sdar.SDAR(
        distillation=distillation, teacher=teacher, whole=whole, micro_rows=micro_rows, policy_weight=policy_weight,
        distil_coef=0.7, gate=1.9, **GROUP,
    )  # fmt: skip
    model = hand.tiny_model(reference=True)
    runs = with_teacher(hand.trajectories(model, GROUPS))
    behind = hand.frozen_copy(model.reference.frozen)
    loss = expected_loss(model, runs, config, behind if teacher == "first" else model.lm, behind)
    expected = hand.gradient(loss, model.actor_parameters())
    generator = torch.Generator().manual_seed(0)
    log = sdar.update(UpdateInput(model, Optimisers(model, config), runs, config, generator))
    hand.agree(hand.left_by(model.actor_parameters()), expected)
    tokens = [len(turn.reply.ids) for turn in hand.turns(runs)]
    assert log["advised"] == pytest.approx(1 - tokens[2] / sum(tokens))


def test_a_teacher_that_is_never_asked_leaves_grpo():
    left = []
    for algorithm, config in (
        (sdar, sdar.SDAR(distil_coef=0.7, **GROUP)),
        (grpo, grpo.GRPO(whole=False, **GROUP)),
    ):
        model = hand.tiny_model(reference=True)
        runs = hand.trajectories(model, GROUPS)
        for turn in hand.turns(runs):
            turn.reply.extra[ADVISED] = []
        config = replace(config, aggregation="token-mean")
        algorithm.update(UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator()))
        left.append(hand.left_by(model.actor_parameters()))
    hand.agree(*left)


# ---- the prompts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("model") / "tiny"
    corpus = [
        "Say the word. Objective: Say it. north east south west red blue green black Yes. The expert's next command: north"
    ] * 20
    tiny_model.make(path, corpus, "xxs", vocabulary=300, context=256)
    return path


def played(folder, prompting=PROMPTING, **acting):
    """Episodes of an actor beside an advisor, and the actor."""
    model = Model.load(ModelConfig(str(folder), critic="none"))
    settings = recipes.Acting(max_tokens=5, **acting)
    actor = Actor(model, settings, prompting, 1.0, advisor="expert")
    todo = [episode(registry.TASKS["Signpost-v0"], seed) for seed in range(4)]
    slots = LocalExecutor(4, advice_kind="expert")
    return actor, sorted(rollout(actor, todo, slots, prompting), key=lambda run: run.episode.key)


@pytest.mark.parametrize("choose", ["free", "trie"])
def test_the_teacher_reads_the_students_prompt_and_one_line_more(folder, choose):
    actor, runs = played(folder, choose=choose)
    assert any(len(run.turns) > 1 for run in runs)
    read = lambda ids: actor.model.tokenizer.decode(ids)
    for run in runs:
        word = toys.Signpost.words[run.episode.seed % 4]
        for turn, ids in zip(run.turns, actor.advised_prompts(run), strict=True):
            assert turn.advice == word
            student, teacher = read(turn.reply.prompt_ids), read(ids)
            assert "expert" not in student
            assert teacher.replace(f"\nThe expert's next command: {word}", "") == student


def test_a_teachers_prompt_fits_the_context_without_its_oldest_turns(folder):
    everything = Prompting("bare", False, -1, admissible="none")
    actor, runs = played(folder, everything)
    long = max(len(ids) for run in runs for ids in actor.advised_prompts(run))
    actor, runs = played(folder, everything, context=long + 4)  # the reply has 5 tokens
    prompts = [(turn, ids) for run in runs for turn, ids in zip(run.turns, actor.advised_prompts(run), strict=True)]
    assert all(ids and len(ids) + 5 <= long + 4 for _, ids in prompts)
    read = actor.model.tokenizer.decode
    unadvised = lambda turn, ids: read(ids).replace(f"\nThe expert's next command: {turn.advice}", "")
    assert any(len(unadvised(turn, ids)) < len(read(turn.reply.prompt_ids)) for turn, ids in prompts)
    short = min(len(ids) for _, ids in prompts)
    actor, runs = played(folder, everything, context=short)
    assert [ids for run in runs for ids in actor.advised_prompts(run) if ids] == []


def test_advised_demonstrations_are_the_demonstrations_with_a_line_more():
    todo = [episode(registry.TASKS["Signpost-v0"], seed) for seed in range(3)]
    runs = list(rollout(make_policy("expert"), todo, LocalExecutor(1, advice_kind="expert")))
    plain, advised = list(demonstrations(runs, PROMPTING)), list(advised_demonstrations(runs, PROMPTING))
    assert len(plain) == len(advised) == 3
    for one, other in zip(plain, advised, strict=True):
        answer = one["messages"][-1]["content"]
        line = f"\nThe expert's next command: {answer}"
        other["messages"][-2]["content"] = other["messages"][-2]["content"].removesuffix(line)
        assert one == other


# ---- a run


def recipe(folder, **changes):
    table = {
        "algorithm": "sdar", "model": {"name": str(folder)}, "tasks": ["Signpost-v0"], "updates": 2, "episodes": 8,
        "eval_every": 0, "eval_episodes": 8, "save_every": 10, "acting": {"max_tokens": 5},
        "prompting": {"grammar": "bare", "thinking": False, "history": 1, "admissible": "none"},
        "config": {"group_size": 2, "learning_rate": 1e-3}, **changes,
    }  # fmt: skip
    return recipes.parse(table)


def logged(run_folder, kind):
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_run_with_rewards_and_a_teacher_takes_its_steps(folder, tmp_path, lora_rank):
    pytest.importorskip("peft")
    model = {"name": str(folder), "lora_rank": lora_rank}
    TrainingRun(recipe(folder, model=model, config={"group_size": 2, "teacher": "first"}), tmp_path / "run").train()
    updates = logged(tmp_path / "run", "update")
    assert [line["update"] for line in updates] == [1, 2]
    assert all(0 < line["gate"] < 1 and line["grad_norm"] > 0 for line in updates)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"expert": "random"}}, "config.expert cannot be 'random'"),
        ({"turns": 4}, "compares whole episodes"),
        ({"sft": {"advised": True}}, "sft.episodes = 0 does not allow"),
        ({"sft": {"advised": True, "episodes": 4}, "prompting": {"history": -1}}, "prompting.history = -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(folder, changes, message):
    with pytest.raises(UsageError, match=message):
        recipe(folder, **changes)


def test_a_task_without_that_expert_is_refused_by_name(folder, tmp_path):
    run = TrainingRun(recipe(folder, config={"group_size": 2, "expert": "expert:wise"}), tmp_path / "run")
    with pytest.raises(UsageError, match="no expert 'expert:wise'"):
        run.train()
