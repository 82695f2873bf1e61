"""Training runs survive stops, kills, full disks and bad gradients, and report what happened."""

import copy
import dataclasses
import io
import json
import math
import resource

import pytest

torch = pytest.importorskip("torch")

from rich.console import Console

from baselines import recipe as recipes
from baselines.algorithms import actor_critic, gigpo, groups, grpo, poad, sft
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateConfig, UpdateInput
from baselines.batch import collate, evaluate, turn_rewards
from baselines.episode_rows import token_rewards
from baselines.logging import checkpoints, progress
from baselines.math.losses import NonFiniteLoss
from baselines.networks.model import Model, ModelConfig
from baselines.train import TrainingRun
from envsuite.errors import DataError, UsageError
from harness.cli import data
from tests.baselines.test_training import made, play
from tests.baselines.test_training_scale import recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


@pytest.fixture
def model(folder):
    return Model.load(ModelConfig(str(folder), critic="own"))


def lines_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", [grpo, gigpo])
def test_a_kl_penalty_in_the_reward_of_groups_moves_the_weights(model, algorithm):
    _, runs = play(model, count=2, attempts=2)
    model.keep_reference()
    with torch.no_grad():
        for parameter in model.actor_parameters():
            parameter.mul_(1.5)
    before, norms = model.state(), []
    for coef in (0.0, 0.5):
        config = algorithm.Config(kl_coef=coef, kl_in="reward", group_size=2)
        for run in runs:
            for turn in run.turns:
                turn.reward = 0.0  # paid alike, but for the penalty
        model.load_state(before)
        log = algorithm.update(UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator()))
        norms.append(log["grad_norm"])
    assert norms[0] == 0.0 < norms[1]


def test_a_game_drawn_twice_for_one_update_is_two_groups(model):
    _, runs = play(model, count=1, attempts=4)
    assert len({groups.group_of(run, 2) for run in runs}) == 2
    assert len({groups.group_of(run, 4) for run in runs}) == 1


def test_a_learning_rate_never_turns_negative(model):
    optimisers = Optimisers(model, UpdateConfig(schedule="linear", learning_rate=1.0))
    rates = []
    for done in (0.0, 0.5, 1.0, 3.0):
        optimisers.set_rates(done, 0)
        rates.append(optimisers.actor.rate)
    assert rates == [1.0, 0.5, 0.0, 0.0]


def test_a_critics_gradient_that_is_not_finite_changes_no_weight(model):
    _, runs = play(model, count=2)
    config = poad.Config(learning_rate=1e-3)
    before = model.state()["critic"]
    last = model.critic.head[-1].weight
    last.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteLoss, match="critic's gradient"):
        poad.update(UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator()))
    for name, value in model.state()["critic"].items():
        assert torch.equal(value, before[name]), name


def test_fine_tuning_stops_at_a_gradient_that_is_not_finite_and_names_the_step(model):
    template = play(model, count=1)[0].template
    chats = [[{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "north"}]] * 4
    steps = sft.FineTuning(model, chats, template, sft.SFTConfig(rows=2), torch.Generator()).run()
    next(steps)
    before = model.state()["lm"]
    model.actor_parameters()[0].register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteLoss, match=r"Step 2 of 2 of fine-tuning: The norm of the model's gradient"):
        next(steps)
    assert all(torch.equal(value, before[name]) for name, value in model.state()["lm"].items())


def test_a_run_that_stopped_at_its_mark_stays_stopped_and_measures_once(folder, tmp_path):
    table = recipe(folder, stop_at=1e-9, eval_every=1)
    first = TrainingRun(recipes.parse(table), tmp_path / "run")
    measure = first.evaluate

    def won():  # what a measurement leaves, with the success of a better model
        measure()
        first.success = 0.5
        return 0.5

    first.evaluate = won
    assert first.train() == 0.5
    assert [line["kind"] for line in lines_of(tmp_path / "run")] == ["eval"]
    again = TrainingRun(recipes.parse(table), tmp_path / "run", resume=True)
    assert again.train() == 0.5
    assert again.update == 0
    assert [line["kind"] for line in lines_of(tmp_path / "run")] == ["eval"]


def test_what_a_kill_before_the_first_checkpoint_left_is_not_counted_twice(folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"kind": "eval", "update": 0}\n')
    (tmp_path / "run" / ".checkpoint.pt.x1").write_text("half")
    TrainingRun(recipes.parse(recipe(folder)), tmp_path / "run").close()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert not list((tmp_path / "run").glob(".checkpoint*"))


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so_in_one_line(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoints.save(path, {"update": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # as much as fits
    try:
        with pytest.raises(DataError, match=r"Cannot write .*checkpoint\.pt: File too large"):
            checkpoints.save(path, {"update": 2, "weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.load(path) == {"update": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_folder_is_replaced_whole_and_what_a_kill_set_aside_comes_back(tmp_path):
    def write(word):
        def inner(path):
            path.mkdir()
            (path / "weights").touch(0o600)  # as safetensors makes its files
            (path / "weights").write_text(word)
            (path / "templates").mkdir()  # as transformers makes for the further ones of a tokenizer
            (path / "templates" / "tools.jinja").touch(0o600)

        return inner

    def fails(path):
        path.mkdir()
        raise RuntimeError("no space left")

    checkpoints.export(tmp_path / "model", write("one"))
    checkpoints.export(tmp_path / "model", write("two"))
    with pytest.raises(DataError, match="no space left"):
        checkpoints.export(tmp_path / "model", fails)
    assert (tmp_path / "model" / "weights").read_text() == "two"
    assert (tmp_path / "model" / "weights").stat().st_mode & 0o777 == 0o644  # so that servers can read it
    assert (tmp_path / "model" / "templates").stat().st_mode & 0o100
    assert (tmp_path / "model" / "templates" / "tools.jinja").stat().st_mode & 0o777 == 0o644
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    (tmp_path / "model").rename(tmp_path / ".model.old")  # killed between the two renames
    checkpoints.tidy(tmp_path)
    assert (tmp_path / "model" / "weights").read_text() == "two"


def test_demonstrations_of_a_file_are_learnt_as_those_that_are_played(folder, tmp_path):
    path = tmp_path / "demos.jsonl"
    words = ["demos", "-e", "Signpost-v0", "-n", "4", "--module", "tests.toys", "-o", str(path)]
    with pytest.raises(SystemExit) as left:
        data.main([*words, "--action-grammar", "bare", "--history", "0"])
    assert left.value.code == 0
    tuned = []
    for name, source in (("file", {"file": str(path)}), ("played", {"episodes": 4})):
        table = recipe(folder, algorithm="sft", config={}, sft={**source, "train": {"learning_rate": 1e-3, "rows": 4}})
        run = TrainingRun(recipes.parse(table), tmp_path / name)
        run.train()
        assert run.spent == 40
        tuned.append(
            ([item["loss"] for item in lines_of(tmp_path / name) if item["kind"] == "sft"], run.model.state()["lm"])
        )
    assert tuned[0][0] == tuned[1][0] != []
    assert all(torch.equal(value, tuned[1][1][name]) for name, value in tuned[0][1].items())
    path.write_text('{"messages": [{"role": "user", "content": "Where?"}]}\n')
    with pytest.raises(DataError, match=r"demos\.jsonl:1 is no demonstration"):
        sft.read(path)


def test_layers_that_lora_cannot_find_are_named(folder):
    with pytest.raises(UsageError, match=r"no linear layer 'q_porj'.*Did you mean 'q_proj'"):
        Model.load(ModelConfig(str(folder), lora_rank=2, lora_targets=("v_proj", "q_porj")))


@pytest.mark.parametrize("rank", [0, 4])
def test_the_reference_is_what_the_actor_was_when_it_was_kept_and_comes_back(folder, rank):
    """After fine-tuning: with LoRA too it is the tuned weights, not the base."""
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=rank))
    ids = torch.arange(5, 25)[None]
    valid = torch.ones_like(ids, dtype=torch.bool)

    def moved(by):
        with torch.no_grad():
            for parameter in model.actor_parameters():
                parameter.add_(by)
            return model.logprobs(ids, valid)[0]

    first, tuned = moved(0.0), moved(0.1)
    model.keep_reference()
    later = moved(-0.2)
    again = Model.load(ModelConfig(str(folder), critic="none", lora_rank=rank))
    again.load_state(model.state())
    for item in (model, again):
        torch.testing.assert_close(item.reference_logprobs(ids, valid), tuned)
        with torch.no_grad():
            torch.testing.assert_close(item.logprobs(ids, valid)[0], later)
    assert (first - tuned).abs().max() > 1e-3 and (later - tuned).abs().max() > 1e-3


@pytest.mark.parametrize("rank", [0, 4])
def test_a_critic_starts_from_what_the_actor_has_become(folder, rank):
    model = Model.load(ModelConfig(str(folder), critic="own", lora_rank=rank))
    with torch.no_grad():
        for parameter in model.actor_parameters():
            parameter.add_(0.1)
    ids = torch.arange(5, 25)[None]
    trunk = lambda: model.critic.trunk(input_ids=ids).last_hidden_state
    before, base = trunk(), copy.deepcopy(model.lm)
    expected_states = (base.merge_and_unload() if rank else base).base_model(input_ids=ids).last_hidden_state
    assert (before - expected_states).abs().max() > 0.01
    model.start_critic()
    torch.testing.assert_close(trunk(), expected_states, atol=1e-5, rtol=1e-5)


def test_float16_needs_loss_scaling_and_is_refused_and_bfloat16_is_not(folder):
    with pytest.raises(UsageError, match="loss scaling"):
        Model.load(ModelConfig(str(folder), critic="none", dtype="float16"))
    assert Model.load(ModelConfig(str(folder), critic="none", dtype="bfloat16")).lm.dtype is torch.bfloat16


def test_a_target_critic_gives_one_step_targets_and_follows(model):
    _, runs = play(model, count=2)
    config = poad.Config(target_tau=0.25, critic_learning_rate=1e-2, learning_rate=0.0, gamma=0.9)
    with torch.no_grad():
        model.critic.head[-1].weight.fill_(0.1)
    model.keep_target()
    batch = collate(runs)
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator())
    values = evaluate(model, lambda rows: model.target_values(*rows[:3]), batch, 0)
    paid = token_rewards(batch, turn_rewards(runs))
    after = torch.cat([values[1:], values[:1]])
    last = torch.cat([batch.episode[1:] != batch.episode[:-1], torch.tensor([True])])
    expected = torch.where(batch.ends_turn, paid + 0.9 * torch.where(last, 0.0, after), after)
    nothing = torch.zeros(len(values))
    _, targets = actor_critic.estimate(inputs, batch, values, model.target_values, nothing, config.one_step_rates())
    torch.testing.assert_close(targets, expected, atol=1e-6, rtol=0)
    old = model.target.head[-1].weight.clone()
    poad.update(UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator()))
    moved = old + 0.25 * (model.critic.head[-1].weight - old)
    assert not torch.equal(moved, old)
    torch.testing.assert_close(model.target.head[-1].weight, moved)
    restored = Model.load(dataclasses.replace(model.config))
    restored.load_state(model.state())
    assert torch.equal(restored.target.head[-1].weight, model.target.head[-1].weight)


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_shows_what_is_worth_watching(terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=300)
    line = {"kind": "update", "update": 1, "reward": 0.5, "success": 0.25, "kl": 0.01, "entropy": 1.5, "clip_share": 0.1,
            "explained_variance": 0.2, "tokens": 300, "rollout_seconds": 1.0, "update_seconds": 2.0}  # fmt: skip
    with progress.TrainProgress(console, "demo", 4) as display:
        display(line)
        display({"kind": "eval", "update": 1, "success": 0.5, "held_out": False})
    text = file.getvalue()
    for part in ("reward 0.500", "success 0.250", "kl 0.010", "entropy 1.500", "clip_share 0.100", "100 tok/s"):
        assert part in text
    assert "explained_variance 0.200" in text
    assert "games it trains on" in text
    assert ("1/4" in text) is terminal
