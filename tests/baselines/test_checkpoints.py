"""Checkpoints hold plain data and open with transformers and peft."""

import json

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from baselines import recipe as recipes
from baselines.collection.fixed_turns import EpisodeStream
from baselines.logging import checkpoints
from baselines.train import TrainingRun
from envsuite import registry
from envsuite.errors import DataError
from harness.types import Reply, episode
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


class Command:
    """A pickled call, as an attacker would put it into a checkpoint."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_reading_a_checkpoint_runs_no_code_from_it(tmp_path):
    torch.save({"update": 1, "streams": Command(tmp_path / "ran")}, tmp_path / "checkpoint.pt")
    with pytest.raises(DataError, match=r"checkpoint\.pt cannot be read"):
        checkpoints.load(tmp_path / "checkpoint.pt")
    assert not (tmp_path / "ran").exists()


def test_an_unfinished_episode_is_stored_as_plain_data(tmp_path):
    reply = Reply("go", (1, 2), [3, 4], [-0.5, -0.25], "stop", commands=("go",), extra={"candidates": [object()]})
    stream = EpisodeStream(3, episode(registry.TASKS["Signpost-v0"], 7, 2), [reply])
    state = stream.state()
    assert json.loads(json.dumps(state)) == state
    checkpoints.save(tmp_path / "checkpoint.pt", {"streams": [state]})
    (loaded,) = checkpoints.load(tmp_path / "checkpoint.pt")["streams"]
    restored = EpisodeStream.of_state(loaded)
    assert (restored.started, restored.episode) == (3, stream.episode)
    assert restored.replies[0].commands == ("go",) and list(restored.replies[0].ids) == [3, 4]


def test_the_model_of_a_run_opens_elsewhere(folder, tmp_path):
    table = recipe(
        folder,
        algorithm="grpo",
        model={"name": str(folder), "lora_rank": 4},
        config={"learning_rate": 0.01, "group_size": 4},
        updates=3,
    )
    run = TrainingRun(recipes.parse(table), tmp_path / "run")
    run.train()
    assert checkpoints.load(tmp_path / "run" / "checkpoint.pt")["update"] == 3
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        trained = run.model.lm(input_ids=ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
        adapted = peft.PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(folder), tmp_path / "run" / "adapter"
        )
        base = AutoModelForCausalLM.from_pretrained(folder)(input_ids=ids).logits
        torch.testing.assert_close(merged(input_ids=ids).logits, trained, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(adapted(input_ids=ids).logits, trained, atol=1e-4, rtol=1e-4)
    assert (base - trained).abs().max() > 1e-3


def test_an_algorithm_without_a_critic_builds_none(folder):
    parsed = recipes.parse(recipe(folder, algorithm="grpo", config={"group_size": 4}))
    assert (parsed.model.critic, parsed.model_config.critic) == ("own", "none")
    assert recipes.parse(recipe(folder)).model_config.critic == "own"
