"""Shared prefixes, several processes, memory estimates, recipes, studies and bad input."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from baselines import cli, memory
from baselines import recipe as recipes
from baselines.algorithms.optimisers import Optimisers
from baselines.distributed import collectives
from baselines.logging import progress
from baselines.math.losses import NonFiniteLoss
from baselines.networks import prefix_sharing
from baselines.networks.model import Model, ModelConfig
from baselines.studies import curves, run
from baselines.train import TrainingRun
from envsuite.errors import DataError, UsageError
from harness.evaluate import Execution
from harness.policies import make_policy
from harness.prompting.demos import conversations
from harness.prompting.prompting import Prompting
from harness.stats import intervals
from harness.suites import training_studies
from harness.types import Reply, Trajectory, Turn, episode
from tests import toys  # noqa: F401
from tests.baselines.test_training import made

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def recipe(folder, **changes):
    return {
        "algorithm": "poad",
        "model": {"name": str(folder)},
        "tasks": ["Signpost-v0"],
        "updates": 2,
        "episodes": 8,
        "eval_every": 0,
        "eval_episodes": 4,
        "save_every": 1,
        "acting": {"max_tokens": 5},
        "prompting": {"grammar": "bare", "thinking": False, "history": 0, "admissible": "none"},
        "config": {"learning_rate": 1e-3, "entropy_coef": 0.01},
        **changes,
    }


def write(path, table):
    """A recipe file from a table of tables (JSON's values are TOML's here)."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    tables = [
        line
        for key, value in table.items()
        if isinstance(value, dict)
        for line in (f"[{key}]", *(f"{name} = {json.dumps(item)}" for name, item in value.items()))
    ]
    path.write_text("\n".join([*plain, *tables]) + "\n")
    return path


def test_what_rows_share_is_computed_once_and_changes_no_value_and_no_gradient(folder, monkeypatch):
    model = Model.load(ModelConfig(str(folder), critic="own"))
    torch.nn.init.normal_(model.critic.head[-1].weight)
    dice = torch.Generator().manual_seed(0)
    same = torch.randint(5, 250, (1, 40), generator=dice).expand(6, -1)
    ids = torch.cat([same, torch.randint(5, 250, (6, 20), generator=dice)], dim=1)
    ids[3] = ids[1]  # a copy
    lengths = torch.tensor([60, 55, 50, 55, 58, 60])
    valid = torch.arange(60)[None] < lengths[:, None]
    sampled = valid & (torch.arange(60) >= 45)[None]

    def result():
        model.lm.zero_grad()
        model.critic.zero_grad()
        logprobs, spread = model.logprobs(ids, valid, 1.0, sampled)
        values = model.values(ids, valid, sampled)
        ((logprobs + spread + values) * sampled).sum().backward()
        gradients = [p.grad for p in (*model.lm.parameters(), *model.critic.parameters()) if p.grad is not None]
        return torch.stack([logprobs, spread, values]).detach() * sampled, torch.cat([g.flatten() for g in gradients])

    rows = prefix_sharing.distinct_rows(ids, valid, sampled, model.device)
    assert (len(rows.ids), prefix_sharing.shared_prefix(rows)) == (5, 40)
    once, once_gradient = result()
    monkeypatch.setattr(prefix_sharing, "MIN_PREFIX", 1000)
    parts = []
    for row in range(len(ids)):  # one at a time, so that no row has a copy
        model.lm.zero_grad()
        model.critic.zero_grad()
        item = slice(row, row + 1)
        logprobs, spread = model.logprobs(ids[item], valid[item], 1.0, sampled[item])
        values = model.values(ids[item], valid[item], sampled[item])
        ((logprobs + spread + values) * sampled[item]).sum().backward()
        gradients = [p.grad for p in (*model.lm.parameters(), *model.critic.parameters()) if p.grad is not None]
        parts.append((torch.stack([logprobs, spread, values]).detach(), torch.cat([g.flatten() for g in gradients])))
    each = torch.cat([numbers for numbers, _ in parts], dim=1) * sampled
    each_gradient = sum(gradient for _, gradient in parts)
    torch.testing.assert_close(once, each, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(once_gradient, each_gradient, atol=1e-3, rtol=1e-3)


def test_rows_of_one_game_share_a_pass_and_what_they_begin_with(folder, monkeypatch):
    model = Model.load(ModelConfig(str(folder), critic="own"))
    torch.nn.init.normal_(model.critic.head[-1].weight)
    dice = torch.Generator().manual_seed(0)
    rules = torch.randint(5, 250, (1, 20), generator=dice).expand(8, -1)
    games = torch.randint(5, 250, (2, 120), generator=dice).repeat(4, 1)  # rows of the two games in turn
    ids = torch.cat([rules, games, torch.randint(5, 250, (8, 30), generator=dice)], dim=1)
    valid = torch.arange(170)[None] < torch.tensor([170, 160] * 4)[:, None]
    sampled = valid & (torch.arange(170) >= 145)[None]
    rows = prefix_sharing.distinct_rows(ids, valid, sampled, model.device)
    parts = prefix_sharing.passes(model.lm, rows)
    assert [(len(part.ids), prefix_sharing.shared_prefix(part)) for part in parts] == [(4, 140), (4, 140)]
    assert sorted(part.ids.shape[1] for part in parts) == [160, 170]
    assert torch.cat([part.tokens for part in parts]).equal(rows.tokens)

    def result():
        model.lm.zero_grad()
        model.critic.zero_grad()
        logprobs, spread = model.logprobs(ids, valid, 1.0, sampled)
        values = model.values(ids, valid, sampled)
        ((logprobs + spread + values) * sampled).sum().backward()
        gradients = [p.grad for p in (*model.lm.parameters(), *model.critic.parameters()) if p.grad is not None]
        return torch.stack([logprobs, spread, values]).detach(), torch.cat([g.flatten() for g in gradients])

    model.keep_reference()
    numbers, gradient = result()
    with torch.no_grad():
        reference = model.reference_logprobs(ids, valid, 1.0, sampled)
    monkeypatch.setattr(prefix_sharing, "PASS_TOKENS", 10**9)
    assert prefix_sharing.passes(model.lm, rows)[0].ids.equal(rows.ids)
    together, gradient_together = result()
    torch.testing.assert_close(numbers, together, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(reference, together[0], atol=1e-5, rtol=1e-5)
    assert (gradient - gradient_together).norm() < 2e-6 * gradient_together.norm()


def test_a_window_of_history_makes_every_turn_a_demonstration():
    from envsuite import registry

    run = Trajectory(episode(registry.TASKS["Signpost-v0"], 0))
    run.turns = [Turn(f"o{t}", Reply(f"a{t}"), (f"a{t}",), 0.0, {}) for t in range(3)]
    whole = conversations(run, Prompting("bare", False, -1, admissible="none"))
    assert [[message["content"] for message in chat][1:] for chat in whole] == [["o0", "a0", "o1", "a1", "o2", "a2"]]
    windows = conversations(run, Prompting("bare", False, 1, admissible="none"))
    spelled = [[message["content"] for message in chat][1:] for chat in windows]
    assert spelled == [["o0", "a0"], ["o0", "a0", "o1", "a1"], ["o1", "a1", "o2", "a2"]]


PAIR = "tests.baselines.pair"
ACCELERATE = "accelerate.commands.launch --multi_gpu --num_machines 1 --mixed_precision no --dynamo_backend no"


@pytest.mark.timeout(900)  # interpreters that import torch, on whatever else the machine does
@pytest.mark.parametrize(
    ("algorithm", "launcher"),
    [
        ("poad", PAIR),
        pytest.param("poad", f"{ACCELERATE} --num_processes 2 --main_process_port", marks=pytest.mark.slow),
        pytest.param("twosome", "torch.distributed.run --nproc-per-node 2 --master-port", marks=pytest.mark.slow),
    ],
)
def test_two_processes_take_the_steps_of_one(folder, tmp_path, algorithm, launcher, forks):
    """gloo on loopback: each plays half of the games and carries half of each minibatch."""
    acting = {"max_tokens": 5, "choose": "admissible" if algorithm == "twosome" else "free"}
    sft = {"episodes": 4}
    path = write(tmp_path / "recipe.toml", recipe(folder, algorithm=algorithm, acting=acting, sft=sft))
    command = ["-m", "baselines.cli", str(path), "--module", "tests.toys", "-o"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    python = forks.python if launcher == PAIR else sys.executable
    TrainingRun(recipes.load(path), tmp_path / "one").train()
    for _ in range(3):  # another process may take the port before the launcher does
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        together = [python, "-m", *launcher.split(), port, *command, tmp_path / "two"]
        done = subprocess.run(together, cwd=ROOT, env=quiet, capture_output=True, text=True)
        if "EADDRINUSE" not in done.stderr and "is already in use" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two" / "recipe.json").read_text())["processes"] == 2
    assert done.stdout.count("on held-out games") == 1  # one speaks for all
    item, two = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("one", "two"))
    for part in ("lm", "critic"):
        for name, value in item["model"][part].items():
            torch.testing.assert_close(two["model"][part][name], value, atol=2e-5, rtol=1e-3)


REFUSED = [
    (
        "--cpu --num_processes 2",
        {"ACCELERATE_USE_CPU": "true", "MASTER_PORT": "29500"},
        "--multi_gpu --num_processes N",
    ),
    ("--mixed_precision bf16", {"ACCELERATE_MIXED_PRECISION": "bf16"}, "model.dtype"),
]
"""Options of `accelerate launch`, the variables by which a process learns of them, and words of the refusal."""


@pytest.mark.parametrize(("words", "variables", "message"), REFUSED)
def test_what_a_launcher_cannot_give_is_refused(folder, tmp_path, words, variables, message, monkeypatch, capsys):
    path = write(tmp_path / "recipe.toml", recipe(folder))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        cli.main([str(path), "--module", "tests.toys", "-o", str(tmp_path / "run")])
    error = capsys.readouterr().err
    assert end.value.code == 2 and message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="fsdp = true"):
        collectives._reject_unsupported({"ACCELERATE_USE_FSDP": "true"})


def test_one_process_needs_no_launcher():
    assert (collectives.size(), collectives.first(), collectives.share([1, 2]), collectives.gather([3])) == (
        1,
        True,
        [1, 2],
        [3],
    )


@pytest.mark.parametrize(("lora", "critic"), [(0, "own"), (4, "none"), (0, "head")])
def test_the_memory_estimate_counts_the_very_parameters(folder, lora, critic):
    table = recipe(folder, model={"name": str(folder), "critic": critic, "lora_rank": lora, "dtype": "float32"})
    if critic == "none":
        table |= {"algorithm": "grpo", "config": {"learning_rate": 1e-3, "group_size": 2}}
    parts = memory.estimate(recipes.parse(table))
    model = Model.load(recipes.parse(table).model_config)
    size = lambda result: sum(p.numel() * p.element_size() for p in result)
    learning = [*model.actor_parameters(), *model.critic_parameters()]
    assert parts["actor's weights"] == size(model.lm.parameters())
    assert parts["critic's weights"] == (size(model.critic.parameters()) if model.critic else 0)
    assert parts["gradients"] == size(learning)
    optimisers = Optimisers(model, recipes.parse(table).config)
    for p in learning:
        p.grad = torch.zeros_like(p)
    optimisers.actor.step()
    if optimisers.critic is not None:
        optimisers.critic.step()
    moments = [
        item
        for optimiser in (optimisers.actor, optimisers.critic)
        if optimiser is not None
        for state in optimiser.optimiser.state.values()
        for name, item in state.items()
        if name != "step"
    ]
    assert parts["optimisers' moments"] == size(moments)


def test_three_billion_parameters_with_lora_fit_a_gpu_of_24_gb():
    parts = memory.estimate(recipes.load(recipes.find("alfworld-gigpo-3b")))
    assert 6.1e9 < parts["actor's weights"] < 6.3e9  # 3.09 billion in bfloat16
    assert memory.peak(parts) < 24e9


def test_what_a_pass_of_fine_tuning_holds_are_its_own_rows(folder):
    tuned = lambda **change: recipe(folder, **change, sft={"episodes": 9, "train": {"rows": 4, "micro_rows": 2}})
    alone = tuned(algorithm="sft", config={}, episodes=64)
    before = tuned(episodes=64)
    stored = [memory.estimate(recipes.parse(table))["activations"] for table in (alone, before)]
    assert stored[1] == 32 * stored[0]  # two rows to learn from demonstrations, 64 from a batch of episodes


@pytest.mark.parametrize(("history", "whole", "times"), [(0, True, 6), (-1, False, 6), (-1, True, 1)])
def test_a_pass_over_a_whole_batch_holds_every_turn_that_is_a_row(folder, history, whole, times):
    def activations(**changes):
        prompting = {"grammar": "bare", "thinking": False, "history": history, "admissible": "none"}
        table = recipe(folder, prompting=prompting, **{"config": {"whole": whole}, **changes})
        return memory.estimate(recipes.parse(table))["activations"]

    once = activations()
    assert activations(max_turns=6) == activations(turns=6) == times * once
    few = [activations(max_turns=turns, config={"whole": whole, "micro_rows": 2}) for turns in (0, 6)]
    assert few[0] == few[1] == once / 4


@pytest.mark.parametrize("path", sorted(recipes.SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_is_sound(path):
    from envsuite import registry

    result = recipes.load(recipes.find(path.stem))
    assert all(registry.tasks(pattern) for pattern in result.tasks)


def test_labels_of_the_axis_end_inside_the_picture():
    run = {"updates": [{"env_steps": 10, "success": 0.2}, {"env_steps": 1_000_000, "success": 0.4}]}
    result = curves.picture({"poad": curves.curve([run])})
    assert 'text-anchor="end">1,000,000</text>' in result and 'text-anchor="middle">750,000</text>' in result


def test_every_curve_of_many_is_drawn_under_its_name():
    run = {"updates": [{"env_steps": 10, "success": 0.2}, {"env_steps": 20, "success": 0.4}]}
    result = curves.picture({f"<{number}>": curves.curve([run]) for number in range(7)})
    assert result.count("stroke-width") == 7 and "&lt;6&gt;" in result and "<6>" not in result


@pytest.mark.parametrize(
    "stored", sorted((ROOT / "leaderboards" / "training").glob("*/plan.json")), ids=lambda path: path.parent.name
)
def test_the_committed_curves_are_what_their_records_give(stored):
    files = curves.rendered(stored.parent)
    displayed = stored.parent.relative_to(ROOT).as_posix()
    files["README.md"] = files["README.md"].replace(stored.parent.as_posix(), displayed)
    assert {name: (stored.parent / name).read_text() for name in files} == files
    pictures = {path.name for path in stored.parent.glob("*.svg")}
    assert pictures == {name for name in files if name.endswith(".svg")}


def test_the_committed_index_is_what_the_plans_and_records_give():
    parent = ROOT / "leaderboards" / "training"
    assert (parent / "README.md").read_text() == curves.index(parent)


def test_a_study_runs_what_is_missing_and_keeps_its_models(folder, tmp_path):
    path = write(tmp_path / "toy.toml", recipe(folder, updates=1))
    methods = {"algorithm": {"poad": {"algorithm": "poad"}, "ntpo": {"algorithm": "ntpo"}}}
    plan = {"title": "Toys", "recipe": str(path), "factors": methods, "compare": "algorithm", "seeds": 1, "set": {}}
    study = tmp_path / "studies" / "toys"
    study.mkdir(parents=True)
    (study / "plan.json").write_text(json.dumps(plan))
    curves._main([str(tmp_path / "studies")])
    assert "Not run yet." in (study / "README.md").read_text()
    assert "not run (2)" in (tmp_path / "studies" / "README.md").read_text()
    run._main([str(study), "--module", "tests.toys", "--keep", str(tmp_path / "kept")])
    stored = training_studies.read(study / "runs.jsonl")
    assert [(item["variant"], item["seed"]) for item in stored] == [("poad", 0), ("ntpo", 0)]
    assert Model.load(ModelConfig(str(tmp_path / "kept" / "toys-poad-0"), critic="none")).actor_parameters()
    (study / "plan.json").write_text(json.dumps({**plan, "seeds": 2}))
    run._main([str(study), "--minutes", "1e-9"])
    assert training_studies.read(study / "runs.jsonl") == stored
    curves._main([str(study)])
    assert "2 of 4 runs of the plan were run." in (study / "README.md").read_text()
    assert (study / "curves-all.svg").read_text().startswith("<svg")
    with pytest.raises(DataError, match="is not a study"):
        curves.rendered(tmp_path)


def test_bands_are_students():
    mean, low, high = intervals.student([1.0, 2.0, 3.0])[:3]
    assert (mean, high - mean) == pytest.approx((2.0, 4.3026527 / 3**0.5))
    assert mean - low == pytest.approx(high - mean)


def test_a_flattened_draw_is_refused_where_tokens_are_learnt():
    """The log-probs of drawn commands are those at temperature 1, and the trainer would recompute
    them at another."""
    acting = {"choose": "admissible", "temperature": 0.7}
    with pytest.raises(UsageError, match="set it to 1"):
        recipes.parse(recipe("m", acting=acting))
    recipes.parse(recipe("m", algorithm="twosome", acting=acting))  # learns the distribution it draws from


def test_environments_stay_between_batches_unless_others_are_asked_for(folder, tmp_path):
    execution = Execution(num_workers=1, max_concurrent=8)
    run = TrainingRun(recipes.parse(recipe(folder)), tmp_path / "run", execution=execution)
    there = lambda advice_kind: (
        run.collector.environments.executor(
            run.collector.sampler.configs[0], execution, 8, advice_kind, run.recipe.shaping
        )
        ._workers[0]
        .process
    )
    try:
        run._prepare_updates()
        run._step()
        worker = there("")
        run._step()
        assert there("") is worker and worker.is_alive()
        run.collector.play(run.collector.sampler.configs[0], run.collector.sampler.batch(0, 0), make_policy("expert"))
        assert there("expert") is not worker and not worker.is_alive()
        worker = there("expert")
    finally:
        run.close()
    assert not worker.is_alive()


def test_a_ladder_of_tasks_is_climbed_and_remembered(folder, tmp_path):
    table = recipe(folder, tasks=["Signpost-v0", "HiLo-v0"], advance_at=0.01, updates=1)
    run = TrainingRun(recipes.parse(table), tmp_path / "run")
    assert {game.task.id for game in run.collector.sampler.batch(0, run.stage)} == {"Signpost-v0"}
    run.stage = 1
    assert {game.task.id for update in range(4) for game in run.collector.sampler.batch(update, run.stage)} == {
        "Signpost-v0",
        "HiLo-v0",
    }
    run._prepare_updates()
    run.evaluate()
    run.save()
    run.close()
    again = TrainingRun(recipes.parse(table), tmp_path / "run", resume=True)
    assert again.stage == 1 and again.optimisers is not None


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(folder, tmp_path):
    run = TrainingRun(recipes.parse(recipe(folder, eval_episodes=2)), tmp_path / "run")
    play = run.collector.play

    def poisoned(*args):
        runs = play(*args)
        if run.update == 1:  # as a task with a fault in its reward would pay
            runs[0].turns[-1].reward = float("nan")
        return runs

    run.collector.play = poisoned
    with pytest.raises(NonFiniteLoss, match=r"Update 2 of .*run: .*lower the learning rate.*checkpoint.pt is of"):
        run.train()
    TrainingRun(
        recipes.parse(recipe(folder, eval_episodes=2)), tmp_path / "run", resume=True
    ).train()  # continues from the last good checkpoint


def test_faults_are_said_by_name(folder, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'tensorboard'"):
        recipes.parse(recipe(folder, trackers=["tensorbord"]))
    with pytest.raises(UsageError, match="Did you mean 'food-preparation'"):
        recipes.find("food-preperation")
    with pytest.raises(UsageError, match="not on this machine"):
        memory.configuration("qwen2.5-7b")


def test_warnings_name_what_collapses_and_the_cure():
    assert progress.warnings_of({"entropy": 1.0, "invalid": 0.1, "kl": 0.01, "flat_groups": 0.5}) == []
    for line, message in (
        ({"entropy": 0.0}, "entropy"),
        ({"invalid": 0.95}, "not understood"),
        ({"kl": 0.9}, "target_kl"),
        ({"flat_groups": 1.0}, "group_size"),
        ({"dropped_turns": 3}, "3 turns were left out"),
        ({"too_long": 2}, "acting.context"),
    ):
        (result,) = progress.warnings_of(line)
        assert message in result


def test_prompts_that_are_too_long_lose_their_oldest_turns_and_are_counted(folder, tmp_path):
    talk = {"grammar": "bare", "thinking": False, "history": -1, "admissible": "none"}
    free = TrainingRun(recipes.parse(recipe(folder, prompting=talk)), tmp_path / "free")
    (first, *_) = free.collector.play(
        free.collector.sampler.configs[0], free.collector.sampler.batch(0, 0), free.collector.actor()
    )[0].turns
    fits = len(first.reply.prompt_ids) + 5  # the first prompt and a reply
    TrainingRun(recipes.parse(recipe(folder, prompting=talk, updates=1, acting={"max_tokens": 5, "context": fits + 3})),
        tmp_path / "run").train()  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (update,) = [line for line in lines if line["kind"] == "update"]
    assert update["dropped_turns"] > 0
    short = recipe(folder, prompting=talk, acting={"max_tokens": 5, "context": 10})
    with pytest.raises(DataError, match=r"too long.*acting\.context"):
        TrainingRun(recipes.parse(short), tmp_path / "short").train()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_resumes_to_the_same_weights(folder, tmp_path):
    updates = 30
    path = write(tmp_path / "recipe.toml", recipe(folder, updates=updates))
    words = [sys.executable, "-m", "baselines.cli", str(path), "--module", "tests.toys", "-o"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*words, tmp_path / "whole"], check=True, cwd=ROOT, env=quiet, capture_output=True)
    cut = subprocess.Popen([*words, tmp_path / "cut"], cwd=ROOT, env=quiet, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (tmp_path / "cut" / "checkpoint.pt").exists() and cut.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    cut.send_signal(signal.SIGKILL)
    assert cut.wait() == -signal.SIGKILL, "it was to be killed while it ran"
    assert torch.load(tmp_path / "cut" / "checkpoint.pt", weights_only=True)["update"] < updates
    subprocess.run([*words, tmp_path / "cut", "--resume"], check=True, cwd=ROOT, env=quiet, capture_output=True)
    item, two = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("whole", "cut"))
    assert all(torch.equal(value, two["model"]["lm"][name]) for name, value in item["model"]["lm"].items())
