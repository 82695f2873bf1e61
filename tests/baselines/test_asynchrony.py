"""Playing ahead: what level 0 leaves as it was, the decoupled objective at level 1, staleness, and
resuming."""

import copy
import json
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import pytest

torch = pytest.importorskip("torch")

from baselines import memory
from baselines import recipe as recipes
from baselines.algorithms import gigpo, grpo, poad, ppo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.math.losses import NonFiniteLoss, truncated_importance
from baselines.networks.model import Model, ModelConfig
from baselines.networks.snapshot import Snapshot
from baselines.train import TrainingRun
from envsuite.errors import UsageError
from tests.baselines import hand_made as hand
from tests.baselines.test_exact_gradients import GROUPS, PLAYS, expected_advantages, flat, next_prompts
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def table(folder, **changes):
    """A recipe at rates that move the weights; checkpoints only at the end."""
    config = {"learning_rate": 3e-2, "group_size": 4}
    return {**recipe(folder, algorithm="grpo", updates=4, save_every=10, config=config), **changes}


def lines_of(path):
    """Returns the log's lines without seconds."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith("seconds")} for line in lines]


def trained(where, settings, **options):
    run = TrainingRun(recipes.parse(settings), where, **options)
    run.train()
    return run


def same(model, other):
    """True if two models have equal weights, to the bit."""
    return all(torch.equal(value, other.state()["lm"][name]) for name, value in model.state()["lm"].items())


# ---- Level 0


@pytest.mark.parametrize("algorithm", ["grpo", "poad"])
def test_at_level_0_a_run_takes_the_steps_of_a_plain_loop_to_the_bit(folder, tmp_path, algorithm):
    """The loop below plays, learns and nothing else; the run logs nothing of asynchrony."""
    settings = table(folder, updates=3)
    if algorithm == "poad":
        settings |= {"algorithm": "poad", "config": {"learning_rate": 1e-2, "entropy_coef": 0.01}}
    run = trained(tmp_path / "run", settings)
    plain = TrainingRun(recipes.parse(settings), tmp_path / "plain")
    plain._prepare_updates()
    logs = []
    for update in range(3):
        batch = plain.collector.collect(update, 0)
        inputs = UpdateInput(
            plain.model,
            plain.optimisers,
            batch.learned,
            plain.recipe.config,
            plain.generator,
            batch.final_prompts,
            plain.recipe.acting.temperature,
            update,
        )
        logs.append(plain.recipe.module.update(inputs))
    plain.close()
    assert same(run.model, plain.model) and not same(run.model, Model.load(run.recipe.model))
    updates = [line for line in lines_of(tmp_path / "run") if line["kind"] == "update"]
    assert [{name: line[name] for name in log} for line, log in zip(updates, logs, strict=True)] == logs
    for name in ("staleness", "importance", "truncated", "behaviour_kl"):
        assert name not in updates[-1]


# ---- The decoupled objective


def test_a_weight_is_the_ratio_up_to_its_cap():
    proximal, behaviour = torch.tensor([-1.0, -2.0, -0.1]), torch.tensor([-1.5, -1.0, -3.0])
    weight, truncated = truncated_importance(proximal, behaviour, 2.0)
    torch.testing.assert_close(weight, torch.tensor([0.5, -1.0, 2.9]).exp().clamp(max=2.0))
    assert truncated.tolist() == [False, False, True]


def decoupled_loss(lm, runs, proximal, advantage, config):
    """The objective of one token after the other, from plain numbers."""
    total, weights, k = 0.0, [], 0
    for turn in hand.turns(runs):
        new, entropy = hand.sampled(lm, turn)
        for j, behaviour in enumerate(turn.reply.logprobs):
            a, ratio = advantage[k], (new[j] - proximal[k]).exp()
            weight = float(torch.exp(proximal[k] - behaviour))
            weights.append(weight)
            limited = min(max(ratio.item(), 1 - config.clip_low), 1 + config.clip_high)
            gain = ratio * a if ratio.item() * a <= limited * a else torch.tensor(limited * a, dtype=torch.float64)
            total = total - min(weight, config.importance_cap) * gain - config.entropy_coef * entropy[j]
            k += 1
    return total / k, weights


@pytest.mark.parametrize(("algorithm", "config"), [(ppo, ppo.PPO), (poad, poad.POAD)])
@pytest.mark.parametrize("micro_rows", [0, 2])
def test_an_update_of_older_episodes_follows_the_decoupled_objective(algorithm, config, micro_rows):
    """The hand-made episodes were sampled by another policy; some weights are above the cap."""
    rates = (1.0, 0.7, 0.9, 0.7) if algorithm is poad else (0.9, 0.7, 0.9, 0.7)
    settings = config(
        gamma=0.9, lam=0.7, normalise="none", entropy_coef=0.03, max_grad_norm=1e9, importance_cap=1.3,
        micro_rows=micro_rows, target_kl=0.0,
    )  # fmt: skip
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, PLAYS)
    prompts = next_prompts(runs)
    advantage, _ = expected_advantages(model, runs, settings, rates, prompts)
    with torch.no_grad():
        proximal = torch.cat([hand.sampled(model.lm, turn)[0] for turn in hand.turns(runs)])
    loss, weights = decoupled_loss(model.lm, runs, proximal, flat(advantage), settings)
    expected = hand.gradient(loss, model.actor_parameters())
    inputs = UpdateInput(
        model, Optimisers(model, settings), runs, settings, torch.Generator().manual_seed(0), prompts, decoupled=True
    )
    log = algorithm.update(inputs)
    hand.agree(hand.left_by(model.actor_parameters()), expected)
    above = sum(w > 1.3 for w in weights)
    assert 0 < above < len(weights)
    assert log["truncated"] == pytest.approx(above / len(weights))
    assert log["importance"] == pytest.approx(sum(min(w, 1.3) for w in weights) / len(weights), rel=1e-5)
    assert log["kl"] == pytest.approx(0, abs=1e-6)  # the ratio of the clipping begins at 1


def test_a_second_step_clips_against_the_proximal_policy_and_keeps_the_weights():
    """Two epochs: the gradient of the second is that of the formula at the moved weights."""
    settings = ppo.PPO(
        normalise="none", max_grad_norm=1e9, importance_cap=1.3, epochs=2, learning_rate=0.01, target_kl=0.0
    )
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, PLAYS)
    prompts = next_prompts(runs)
    advantage, _ = expected_advantages(model, runs, settings, (0.99, 0.95, 0.99, 0.95), prompts)
    with torch.no_grad():
        proximal = torch.cat([hand.sampled(model.lm, turn)[0] for turn in hand.turns(runs)])
    optimisers = Optimisers(model, settings)
    moved = []
    step = optimisers.actor.step
    optimisers.actor.step = lambda: (moved.append(copy.deepcopy(model.lm)), step())[1]
    inputs = UpdateInput(model, optimisers, runs, settings, torch.Generator().manual_seed(0), prompts, decoupled=True)
    ppo.update(inputs)
    between = moved[1]
    loss, _ = decoupled_loss(between, runs, proximal, flat(advantage), settings)
    hand.agree(hand.left_by(model.actor_parameters()), hand.gradient(loss, list(between.parameters())))
    with torch.no_grad():
        new = torch.cat([hand.sampled(between, turn)[0] for turn in hand.turns(runs)])
    assert ((new - proximal).exp() - 1).abs().max() > 0.2  # some ratio is clipped


@pytest.mark.parametrize("algorithm", [grpo, gigpo])
def test_groups_learn_older_episodes_with_weights_too(algorithm):
    config = algorithm.Config(group_size=3, kl_coef=0.0, max_grad_norm=1e9, importance_cap=1.3)
    gradients = []
    for cap in (1e9, 1.3, None):
        model = hand.tiny_model("none")
        runs = hand.trajectories(model, GROUPS)
        settings = algorithm.Config(**{**vars(config), "importance_cap": cap or 1.3})
        inputs = UpdateInput(
            model, Optimisers(model, settings), runs, settings, torch.Generator(), decoupled=cap is not None
        )
        log = algorithm.update(inputs)
        gradients.append(hand.left_by(model.actor_parameters()))
        assert ("importance" in log) is (cap is not None)
    assert not torch.allclose(gradients[0], gradients[1]) and not torch.allclose(gradients[1], gradients[2])


# ---- Level 1


def test_at_level_1_every_batch_is_played_by_the_weights_of_at_most_one_update_before(folder, tmp_path):
    """In every batch but the first, the weights before the previous update give the log-probs as
    sampled."""
    run = TrainingRun(recipes.parse(table(folder, async_level=1)), tmp_path / "run")
    seen = []
    learn = run._learn

    def watched(batch, *factor):
        seen.append((batch, Model.load(run.recipe.model_config)))
        seen[-1][1].load_state(run.model.state())
        return learn(batch, *factor)

    run._learn = watched
    run.train()
    updates = [line for line in lines_of(tmp_path / "run") if line["kind"] == "update"]
    assert [line["staleness"] for line in updates] == [0, 1, 1, 1]
    assert updates[0]["behaviour_kl"] == pytest.approx(0, abs=1e-6)
    assert all(line["behaviour_kl"] > 1e-4 and line["importance"] != 1.0 for line in updates[1:])
    for number, (batch, _) in enumerate(seen):
        behaviour = seen[max(0, number - 1)][1]
        with torch.no_grad():
            for turn in hand.turns(batch.learned):
                expected, _ = hand.sampled(behaviour.lm, turn)
                torch.testing.assert_close(torch.tensor(turn.reply.logprobs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"algorithm": "dual_gae", "turns": 3, "config": {"learning_rate": 1e-2}}])
def test_a_run_at_level_1_that_is_stopped_and_resumed_takes_the_same_steps(folder, tmp_path, changes):
    """Checkpoints after updates 2 and 4: nothing is in flight there, so that nothing is discarded.
    The second run dies in update 4, with a rollout in flight at update 3."""
    settings = {**table(folder, async_level=1, updates=5), "save_every": 2, **changes}
    whole = trained(tmp_path / "whole", settings)
    broken = TrainingRun(recipes.parse(settings), tmp_path / "broken")
    learn = broken._learn

    def dies(batch, *factor):
        if broken.update == 2:
            assert broken.ahead.pending
        if broken.update == 3:
            raise NonFiniteLoss("as if killed")
        return learn(batch, *factor)

    broken._learn = dies
    with pytest.raises(NonFiniteLoss):
        broken.train()
    again = trained(tmp_path / "broken", settings, resume=True)
    assert lines_of(tmp_path / "broken") == lines_of(tmp_path / "whole")
    assert same(again.model, whole.model)
    updates = [line for line in lines_of(tmp_path / "whole") if line["kind"] == "update"]
    assert [line["staleness"] for line in updates] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("changes", [{}, {"algorithm": "dual_gae", "turns": 3, "config": {}}])
def test_an_error_in_an_update_ends_the_rollout_that_was_begun(folder, tmp_path, changes):
    run = TrainingRun(recipes.parse({**table(folder, async_level=1), **changes}), tmp_path / "run")
    begun = []

    def fails(batch, *factor):
        begun.append(run.ahead._batch)
        raise NonFiniteLoss("no step")

    run._learn = fails
    with pytest.raises(NonFiniteLoss):
        run.train()
    assert begun[0].done() and isinstance(begun[0].exception(), (CancelledError, type(None)))


def test_a_stop_ends_a_rollout_that_waits_for_a_server(folder, tmp_path):
    """The server has a request and does not answer it."""
    pytest.importorskip("peft")
    from tests.api.generating import generating
    from tests.baselines.test_training_servers import table as served

    with generating(folder) as server:
        run = TrainingRun(recipes.parse(served(folder, server.url, sync="disk", sft={})), tmp_path / "run")
        actor = run.collector.actor()
        with server.lock:  # which every answer takes
            with ThreadPoolExecutor(1) as thread:
                batch = thread.submit(run.collector.collect_with, actor, 0, 0)
                wait([batch], timeout=0.2)
                actor.stop()
                with pytest.raises(CancelledError):
                    batch.result(timeout=60)
        actor.close()
        run.close()


@pytest.mark.parametrize("rank", [0, 4])
def test_a_snapshot_keeps_the_weights_and_shares_the_frozen_ones(folder, rank):
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=rank))
    snapshot = Snapshot(model)
    ids = torch.arange(5, 25)[None]
    valid = torch.ones_like(ids, dtype=torch.bool)
    before = model.logprobs(ids, valid)[0].detach()
    with torch.no_grad():
        for parameter in model.actor_parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(snapshot.logprobs(ids, valid)[0], before)
    assert (model.logprobs(ids, valid)[0] - before).abs().max() > 1e-3
    snapshot.take()
    torch.testing.assert_close(snapshot.logprobs(ids, valid)[0], model.logprobs(ids, valid)[0].detach())
    shared = [a is b for a, b in zip(snapshot.lm.parameters(), model.lm.parameters(), strict=True)]
    trained = [parameter.requires_grad for parameter in model.lm.parameters()]
    assert shared == [not item for item in trained]
    assert not any(parameter.requires_grad for parameter in snapshot.lm.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"async_level": 2}, "async_level cannot be 2: it is at least 0 and at most 1"),
        ({"algorithm": "twosome", "acting": {"choose": "admissible"}, "config": {}}, "twosome has no ratio per token"),
        ({"algorithm": "sft", "sft": {"episodes": 2}, "config": {}}, "sft plays no games"),
        ({"fsdp": True}, "fsdp = true shards them: leave one of them out"),
        ({"config": {"importance_cap": 0.0}}, "importance_cap cannot be 0.0: it is above 0"),
    ],
)
def test_what_cannot_be_played_ahead_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        recipes.parse({**table("x", async_level=1), **changes})


@pytest.mark.parametrize("sync", ["lora", "disk"])
def test_servers_that_play_ahead_play_what_this_process_would(folder, tmp_path, sync):
    """They hold the weights before the update that runs, and their log-probs are held against these."""
    pytest.importorskip("peft")
    from tests.api.generating import generating
    from tests.baselines.test_training_servers import table as served

    settings = {"async_level": 1, "updates": 3, "save_every": 10, "sft": {}}
    with generating(folder) as server:
        there = trained(tmp_path / "there", served(folder, server.url, sync=sync, **settings))
    here = trained(tmp_path / "here", served(folder, sync=sync, **settings))
    lines, known = lines_of(tmp_path / "there"), lines_of(tmp_path / "here")
    assert [line["staleness"] for line in lines if line["kind"] == "update"] == [0, 1, 1]
    assert all(line["server_gap"] < 1e-5 for line in lines if "server_gap" in line)
    for item, expected in zip(lines, known, strict=True):
        for name in ("reward", "turns", "tokens", "kl", "policy_loss", "importance", "behaviour_kl"):
            assert item.get(name) == pytest.approx(expected.get(name), abs=1e-4), name
    for name, value in here.model.state()["lm"].items():
        torch.testing.assert_close(there.model.state()["lm"][name], value, atol=1e-4, rtol=1e-3)


def test_the_dry_run_counts_the_copy_that_plays(folder):
    level = [memory.estimate(recipes.parse(table(folder, async_level=level))) for level in (0, 1)]
    model = Model.load(recipes.parse(table(folder)).model_config)
    trained_bytes = 2 * sum(parameter.numel() for parameter in model.actor_parameters())
    assert level[1] == level[0] | {memory.SNAPSHOT: trained_bytes}
    playing, learning = level[0][memory.PLAYING], sum(level[0][name] for name in memory.LEARNING)
    assert memory.peak(level[1]) == memory.peak(level[0]) + min(playing, learning) + trained_bytes
