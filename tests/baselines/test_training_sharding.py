"""A model sharded over two processes (FSDP2 over gloo) learns what a single process learns."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from baselines import memory
from baselines import recipe as recipes
from baselines.distributed import collectives
from baselines.networks.model import Model, ModelConfig
from baselines.train import TrainingRun
from envsuite.errors import UsageError
from tests.api.generating import generating
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe

pytestmark = pytest.mark.timeout(1800)  # two processes train, on whatever else the machine does
ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "poad": {"lm", "critic", "target", "reference"},
    "lora": {"lm", "reference"},
    "head": {"lm", "critic", "reference"},
}
"""what a checkpoint of each of the recipes holds"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def tables(folder):
    """Recipes with everything that can be sharded: both kinds of critic, target, reference,
    adapter."""
    name, few = (
        str(folder),
        {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "kl_coef": 0.05, "entropy_coef": 0.05},
    )
    tuned = {"episodes": 4, "train": {"learning_rate": 1e-3, "rows": 3, "micro_rows": 1}}
    return {
        # Rows in threes: of the last passes of a step there is one for two processes.
        "poad": recipe(folder, config={**few, "target_tau": 0.5, "minibatches": 2, "micro_rows": 3}, sft=tuned),
        "lora": recipe(
            folder,
            algorithm="grpo",
            model={"name": name, "critic": "none", "lora_rank": 4, "gradient_checkpointing": True},
            config={**few, "learning_rate": 0.01, "group_size": 4},
        ),
        # The penalty is nothing at first but rounding: not to be scaled up.
        "head": recipe(
            folder,
            algorithm="ppo",
            model={"name": name, "critic": "head", "critic_hidden": [16]},
            config={**few, "kl_in": "reward", "normalise": "none"},
        ),
    }


def together(todo, python):
    """Has two processes train."""
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for _ in range(3):  # another process may take the port before the launcher does
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        words = [python, "-m", "tests.baselines.pair", port, "-m", "tests.baselines.sharded", json.dumps(todo)]
        done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True)
        if "EADDRINUSE" not in done.stderr:
            break
    return done


@pytest.fixture(scope="module")
def runs(request, folder, tmp_path_factory, forks):
    """The folder of runs of a recipe by one process and by two; the latter stopped after an update and resumed.

    With the adapter, a server also plays for two.
    """
    place = tmp_path_factory.mktemp("runs")
    name = request.param
    table = tables(folder)[name]
    TrainingRun(recipes.parse(table), place / "one").train()
    todo = [[{**table, "fsdp": True, "updates": 1 + resume}, str(place / "two"), resume] for resume in (False, True)]
    if name == "lora":
        with generating(folder) as server:
            generation = {"base_url": server.url, "tolerance": 1e-4}
            todo.append([{**table, "fsdp": True, "generation": generation}, str(place / "served"), False])
            done = together(todo, forks.python)
    else:
        done = together(todo, forks.python)
    assert done.returncode == 0, done.stderr
    return name, place


RECIPES = ["lora", pytest.param("poad", marks=pytest.mark.slow), pytest.param("head", marks=pytest.mark.slow)]


@pytest.mark.parametrize("runs", RECIPES, indirect=True)
def test_two_processes_with_a_share_each_take_the_steps_of_one(folder, runs):
    name, place = runs
    single, two = (torch.load(place / way / "checkpoint.pt", weights_only=True) for way in ("one", "two"))
    assert two["update"] == 2
    start = Model.load(recipes.parse(tables(folder)[name]).model).state()
    parts = set(single["model"])
    assert parts == PARTS[name]
    for part in parts:
        for key, value in single["model"][part].items():
            torch.testing.assert_close(two["model"][part][key], value, atol=5e-5, rtol=1e-3, msg=f"{part} {key}")
    for part in parts - {"reference", "target"}:
        moved = [(value - start[part][key]).abs().max().item() for key, value in two["model"][part].items()]
        assert max(moved) > 5e-4, part
    for optimiser in ("actor", "critic") if "critic" in parts else ("actor",):
        mine, theirs = (results["optimisers"][optimiser]["state"] for results in (two, single))
        assert mine.keys() == theirs.keys()
        for index, moments in theirs.items():
            torch.testing.assert_close(mine[index]["exp_avg"], moments["exp_avg"], atol=1e-4, rtol=1e-2)
    lines = [
        [json.loads(line) for line in (place / way / "metrics.jsonl").read_text().splitlines()]
        for way in ("one", "two")
    ]
    updates, shares = ([line for line in results if line["kind"] == "update"] for results in lines)
    for one_line, two_line in zip(updates, shares, strict=True):
        for key in ("grad_norm", "policy_loss", "entropy", "kl", "success", "tokens"):
            assert two_line[key] == pytest.approx(one_line[key], rel=1e-2, abs=1e-5), key


@pytest.mark.parametrize("runs", ["lora"], indirect=True)
def test_a_server_plays_for_two_processes_with_the_adapter_they_share(runs):
    """It loads what they have put together, and its games teach what those played here do."""
    _, place = runs
    lines = [json.loads(line) for line in (place / "served" / "metrics.jsonl").read_text().splitlines()]
    gaps = [line["server_gap"] for line in lines if line["kind"] == "update"]
    assert len(gaps) == 2
    assert max(gaps) < 1e-5
    here, there = (
        torch.load(place / way / "checkpoint.pt", weights_only=True)["model"]["lm"] for way in ("one", "served")
    )
    for key, value in here.items():
        torch.testing.assert_close(there[key], value, atol=5e-5, rtol=1e-3)


@pytest.mark.parametrize("runs", RECIPES[:2], indirect=True)
def test_the_model_that_is_left_is_whole(runs):
    _, place = runs
    results, expected = (Model.load(ModelConfig(str(place / way / "model"), critic="none")) for way in ("two", "one"))
    for key, value in expected.state()["lm"].items():
        torch.testing.assert_close(results.state()["lm"][key], value, atol=5e-5, rtol=1e-3)
    assert results.lm.generation_config.eos_token_id == expected.lm.generation_config.eos_token_id
    names = {single.name for single in (place / "one" / "model").iterdir()}
    assert {single.name for single in (place / "two" / "model").iterdir()} == names


@pytest.mark.parametrize("runs", RECIPES[:2], indirect=True)
def test_a_run_of_two_goes_on_with_one(folder, runs, tmp_path):
    """With all moments: its third update equals that of a run by one process."""
    name, place = runs
    results = []
    for way in ("one", "two"):
        shutil.copytree(place / way, tmp_path / way)
        run = TrainingRun(recipes.parse({**tables(folder)[name], "updates": 3}), tmp_path / way, resume=True)
        run.train()
        assert run.update == 3
        results.append(run.model.state())
    single, two = results
    for part in PARTS[name] - {"reference"}:
        for key, value in single[part].items():
            torch.testing.assert_close(two[part][key], value, atol=1e-4, rtol=1e-3, msg=f"{part} {key}")


@pytest.mark.parametrize("runs", RECIPES[:2], indirect=True)
def test_the_memory_estimate_is_what_a_process_holds(folder, runs):
    name, place = runs
    table = {**tables(folder)[name], "fsdp": True}
    table["model"] = {**table["model"], "dtype": "float32"}
    both = [json.loads((place / "two" / f"held-{rank}.json").read_text()) for rank in (0, 1)]
    parts = memory.estimate(recipes.parse(table), processes=2)
    assert sum(held["actor"] for held in both) / 2 == parts["actor's weights"]
    wholly = memory.estimate(recipes.parse(table), processes=1)
    assert wholly["actor's weights"] == 2 * parts["actor's weights"]
    if name == "lora":  # of "poad" the estimate counts the critic's moments too
        assert sum(held["moments"] for held in both) / 2 == parts["optimisers' moments"]


def test_all_take_equally_many_passes(monkeypatch):
    monkeypatch.setattr(collectives, "size", lambda: 3)
    taken = []
    for rank in range(3):
        monkeypatch.setattr(collectives, "share", lambda items, rank=rank: list(items[rank::3]))
        taken.append(collectives.rounds("abcd", even=True))
    assert taken == [[("a", 1.0), ("d", 1.0)], [("b", 1.0), ("a", 0.0)], [("c", 1.0), ("a", 0.0)]]
    monkeypatch.setattr(collectives, "share", lambda items: [])
    assert collectives.rounds("a", even=True) == [("a", 0.0)]
    assert collectives.rounds("a", even=False) == []


def test_what_shares_cannot_do_is_refused(folder):
    acting = {"choose": "admissible"}
    with pytest.raises(UsageError, match="leave fsdp out"):
        recipes.parse(recipe(folder, algorithm="twosome", acting=acting, fsdp=True))
