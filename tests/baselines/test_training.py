"""The trainers' self-tests: the right tokens, the right gradients, and nothing lost on the way."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from baselines import cli
from baselines import recipe as recipes
from baselines.algorithms import actor_critic, grpo, module_of, poad, policy_step, ppo, rloo, twosome
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateConfig, UpdateInput
from baselines.batch import collate
from baselines.collection.actor import Actor
from baselines.collection.sampler import GameSampler
from baselines.episode_rows import token_rewards
from baselines.networks.model import Model, ModelConfig
from baselines.studies import tiny_model
from baselines.train import TrainingRun
from envsuite import registry
from envsuite.errors import MissingData, UsageError
from envsuite.types import Panel, StopReason
from harness.evaluate import RunConfig
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PROMPTING = Prompting("bare", False, -1, admissible="none")


def made(tmp_path_factory, size):
    """A model's folder: random weights, and words for what `Signpost-v0` says."""
    torch.set_num_threads(1)  # small matrices; and what is equal to the bit is so for a fixed number of threads
    path = tmp_path_factory.mktemp("model") / "tiny"
    corpus = ["Say the word. Objective: Say it. north east south west Yes."] * 20
    tiny_model.make(path, corpus, size=size, vocabulary=300, context=256)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xs")


@pytest.fixture
def model(folder):
    return Model.load(ModelConfig(str(folder), critic="own"))


def play(model, count=6, temperature=1.0, prompting=PROMPTING, attempts=1):
    actor = Actor(model, recipes.Acting(temperature=temperature, max_tokens=5), prompting, temperature)
    task = registry.TASKS["Signpost-v0"]
    todo = [episode(task, seed, attempt) for seed in range(count) for attempt in range(attempts)]
    runs = sorted(rollout(actor, todo, LocalExecutor(4), prompting), key=lambda run: run.episode.key)
    return actor, runs


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("whole", [True, False])
def test_the_trainer_finds_the_log_probs_the_sampler_kept(model, temperature, whole):
    _, runs = play(model, temperature=temperature)
    batch = collate(runs, whole)
    with torch.no_grad():
        again, _ = model.logprobs(batch.ids, batch.valid, temperature)
    torch.testing.assert_close(batch.flat(again), batch.flat(batch.logprobs), atol=1e-4, rtol=0)
    texts = [turn.reply for run in runs for turn in run.turns]
    assert int(batch.sampled.sum()) == sum(len(reply.ids) for reply in texts)
    tokens = batch.flat(batch.ids).tolist()
    assert tokens == [token for reply in texts for token in reply.ids]


def test_a_conversation_is_one_row_and_a_cut_history_is_several(model):
    _, runs = play(model)
    assert len(collate(runs).ids) == len(runs)
    _, runs = play(model, prompting=Prompting("bare", False, 0, admissible="none"))
    assert len(collate(runs).ids) == sum(len(run.turns) for run in runs)


def gradients(model, batch, config, scale=1.0):
    """The actor's gradient of one minibatch, the optimiser's step undone."""
    before = model.state()
    inputs = UpdateInput(model, Optimisers(model, config), (), config, torch.Generator().manual_seed(0))
    advantages = torch.linspace(-1, 1, len(batch.episode)) * scale
    log = policy_step.learn(inputs, batch, policy_step.Targets(advantages))
    flat = torch.cat([p.grad.flatten() for p in model.actor_parameters() if p.grad is not None])
    model.load_state(before)
    return flat, log


def test_accumulated_gradients_equal_those_of_the_large_batch(model):
    _, runs = play(model)
    batch = collate(runs, whole=False)
    for aggregation in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        config = UpdateConfig(normalise="none", aggregation=aggregation, max_grad_norm=1e9, entropy_coef=0.01)
        large, _ = gradients(model, batch, config)
        small, _ = gradients(model, batch, dataclasses.replace(config, micro_rows=2))
        torch.testing.assert_close(small, large, atol=1e-6, rtol=1e-4)


def test_padding_and_the_environments_text_carry_no_gradient(model):
    _, runs = play(model)
    batch = collate(runs)
    config = UpdateConfig(normalise="none", max_grad_norm=1e9)
    clean, _ = gradients(model, batch, config)
    batch.logprobs[~batch.sampled] = 7.0  # whatever stands there
    batch.ids[~batch.valid] = 5
    soiled, _ = gradients(model, batch, config)
    torch.testing.assert_close(soiled, clean, atol=1e-7, rtol=1e-5)
    single = batch.rows(torch.tensor([0]))
    with torch.no_grad():
        alone, _ = model.logprobs(single.ids, single.valid)
        beside, _ = model.logprobs(batch.ids, batch.valid)
    torch.testing.assert_close(single.flat(alone), single.flat(beside[:1, : single.ids.shape[1]]), atol=1e-5, rtol=0)


def test_a_broken_episode_is_refused(model):
    _, runs = play(model, count=2)
    runs[0].stop_reason = StopReason.BROKEN
    with pytest.raises(ValueError, match="broken"):
        collate(runs)


def test_a_time_limit_bootstraps_from_the_final_observation_and_an_end_does_not(model):
    actor, runs = play(model, count=4)
    with torch.no_grad():
        model.critic.head[-1].weight.fill_(0.1)
    prompts = [actor.next_prompt(run) for run in runs]
    config = ppo.Config(micro_rows=2)
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator(), prompts)
    boots = actor_critic.final_values(inputs, model.values)
    for run, boot, prompt in zip(runs, boots, prompts, strict=False):
        if run.terminated:
            assert boot == 0.0
        else:
            ids = torch.tensor([[*prompt, 0]])
            with torch.no_grad():
                expected = model.values(ids, torch.ones_like(ids, dtype=torch.bool))[0, -1].item()
            assert boot == pytest.approx(expected, abs=1e-5)
            assert boot != 0.0


def test_rewards_of_turns_without_tokens_are_not_lost(model):
    _, runs = play(model, count=1)
    batch = collate(runs)
    paid = [[1.0, 0.5, 0.25][: len(runs[0].turns)] + [2.0]]  # one turn more than was sampled
    assert token_rewards(batch, paid).sum().item() == pytest.approx(sum(paid[0]))


def test_poad_ntpo_and_turn_level_ppo_are_settings_of_one_kernel():
    assert poad.Config(gamma=0.9, lam=0.8).rates() == (1.0, 0.8, 0.9, 0.8)
    assert poad.Config(gamma=0.9, lam=0.8, lambda_token=1.0).rates() == (1.0, 1.0, 0.9, 0.8)
    assert ppo.Config(gamma=0.9, lam=0.8).rates() == (0.9, 0.8, 0.9, 0.8)
    assert ppo.Config(gamma=0.9, lam=0.8, level="turn").rates() == (1.0, 1.0, 0.9, 0.8)


def test_groups_paid_alike_give_no_gradient_and_say_so(model):
    _, runs = play(model, count=2, attempts=4)
    for run in runs:
        for turn in run.turns:
            turn.reward = 0.0
    config = grpo.Config(kl_coef=0, group_size=4)
    log = grpo.update(UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator()))
    assert log["flat_groups"] == 1.0
    assert log["grad_norm"] == 0.0


@pytest.mark.parametrize("normalisation", ["sum", "token", "word"])
def test_the_trainer_finds_the_distribution_over_commands_that_was_drawn_from(model, normalisation):
    acting = recipes.Acting(choose="admissible", normalisation=normalisation)
    actor = Actor(model, acting, PROMPTING, 1.0)
    task = registry.TASKS["Signpost-v0"]
    runs = list(rollout(actor, [episode(task, seed) for seed in range(4)], LocalExecutor(4), PROMPTING))
    for turn in (turn for run in runs for turn in run.turns):
        assert turn.commands[0] in turn.admissible
        new, spread = twosome.scores(model, [turn], normalisation, 1.0)
        assert new.item() == pytest.approx(turn.reply.extra["logprob"], abs=1e-5)
        assert spread.item() == pytest.approx(turn.reply.extra["entropy"], abs=1e-5)
        new.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.actor_parameters())


def test_rloo_refuses_groups_of_one():
    with pytest.raises(UsageError, match="at least 2"):
        rloo.Config(group_size=1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"algorithm": "poda"}, "Did you mean 'poad'"),
        ({"algorithm": "poad", "taks": ["x"]}, "Did you mean 'tasks'"),
        ({"algorithm": "poad", "config": {"gama": 0.9}}, "Did you mean 'gamma'"),
        ({"algorithm": "poad", "updates": "many"}, "updates cannot be 'many'"),
        ({"algorithm": "rloo", "episodes": 9}, "whole number of groups"),
        ({"algorithm": "ppo", "config": {"kl_in": "rewards"}}, "kl_in cannot be 'rewards'.* Did you mean 'reward'"),
        ({"algorithm": "twosome", "config": {"normalisation": "sum"}}, "set both alike"),
    ],
)
def test_a_recipe_with_a_fault_is_refused_by_name(table, message):
    base = {"model": {"name": "x"}, "tasks": ["Signpost-v0"]}
    with pytest.raises(UsageError, match=message):
        recipes.parse({**base, **table})


def recipe(folder, algorithm, **changes):
    table = {
        "algorithm": algorithm,
        "model": {"name": str(folder), "critic": "own" if module_of(algorithm).Config.needs_critic else "none"},
        "tasks": ["Signpost-v0"],
        "updates": 3,
        "episodes": 16,
        "eval_every": 0,
        "eval_episodes": 8,
        "save_every": 1,
        "acting": {"max_tokens": 5},
        "prompting": {"grammar": "bare", "thinking": False, "history": 0, "admissible": "none"},
        "sft": {"episodes": 32, "train": {"learning_rate": 3e-3, "epochs": 3, "rows": 8}},
        "config": {"learning_rate": 1e-3},
        **changes,
    }
    return recipes.parse(table)


@pytest.mark.parametrize(
    "algorithm",
    ["ppo", "ntpo", "poad", "twosome", "dual_gae", "grpo", "rloo", "gigpo", "hgpo", "graphgpo", "gagpo", "spa", "sdar"],
)
def test_every_algorithm_takes_its_steps_and_leaves_a_model_that_loads(folder, tmp_path, algorithm):
    config = {"learning_rate": 1e-3, **({"critic_warmup": 1} if algorithm == "dual_gae" else {})}
    acting = {"max_tokens": 5, "choose": "admissible" if algorithm == "twosome" else "free"}
    few = {"updates": 2, "episodes": 8, "eval_episodes": 2}
    sft = {"episodes": 8, "train": {"learning_rate": 3e-3, "epochs": 1, "rows": 8}}
    TrainingRun(recipe(folder, algorithm, sft=sft, config=config, acting=acting, **few), tmp_path / "run").train()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "update"]
    assert [line["episodes"] for line in updates] == [8, 16]
    assert ["grad_norm" in line for line in updates] == [algorithm != "dual_gae", True]  # the critic alone at first
    Model.load(ModelConfig(str(tmp_path / "run" / "model"), critic="none"))


def test_a_run_resumed_goes_on_to_the_very_same_weights(folder, tmp_path):
    few = {
        "episodes": 8,
        "eval_episodes": 4,
        "sft": {"episodes": 8, "train": {"learning_rate": 3e-3, "epochs": 1, "rows": 8}},
        "config": {"learning_rate": 1e-3, "kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 100},
    }
    whole = TrainingRun(recipe(folder, "poad", updates=4, **few), tmp_path / "whole")
    whole.train()
    TrainingRun(recipe(folder, "poad", updates=2, **few), tmp_path / "cut").train()
    resumed = TrainingRun(recipe(folder, "poad", updates=4, **few), tmp_path / "cut", resume=True)
    resumed.train()
    assert resumed.optimisers.kl_coef == whole.optimisers.kl_coef != 0.1  # moved, and not forgotten
    for name, value in whole.model.state()["lm"].items():
        assert torch.equal(value, resumed.model.state()["lm"][name]), name


def test_the_command_refuses_an_unknown_key_in_one_line(folder, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(f'algorithm = "grpo"\ntasks = ["Signpost-v0"]\n[model]\nname = "{folder}"\n')
    look = (
        "import atexit, sys; from baselines import cli\n"
        "atexit.register(lambda: print('transformers' in sys.modules))\n"
        "cli.main(sys.argv[1:])"
    )
    words = [str(path), "--module", "tests.toys"]
    command = [sys.executable, "-c", look, *words, "--set", "config.grup_size=4"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "Did you mean 'group_size'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == "False\n", "refused before transformers is imported"
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--dry-run"])
    assert end.value.code == 0


def test_a_panel_is_measured_on_the_last_split_that_is_on_this_machine(monkeypatch):
    here = {name: Panel(name, ("one", "two"), "0") for name in ("ALFWorld-train-v0", "ALFWorld-valid_seen-v0")}

    def panel(task, **knobs):
        if task.id not in here:
            raise MissingData(f"{task.id} is not here")
        return here[task.id]

    monkeypatch.setattr(registry, "panel", panel)
    configure = lambda task: RunConfig(task, "m")
    run = SimpleNamespace(recipe=SimpleNamespace(train_seeds=0), _config=configure)
    games = GameSampler._evaluation_games(run, configure(registry.TASKS["ALFWorld-train-v0"]))
    assert (games.config.task.id, list(games.seeds), games.held_out) == ("ALFWorld-valid_seen-v0", [0, 1], True)
