"""Fine-tuning resumes within a pass, leaves out long demonstrations, and adds an adapter exactly."""

import copy
import dataclasses
import json
import shutil

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.networks.fused_lora import FusedLinear
from baselines.networks.lora import continued
from baselines.networks.model import Model, ModelConfig
from baselines.train import TrainingRun
from envsuite.errors import DataError, UsageError
from harness.policies import hf
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe

TRAIN = {"learning_rate": 3e-3, "epochs": 2, "rows": 2, "save_every": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def tuned(folder, output, resume=False, **train):
    table = recipe(
        folder,
        algorithm="sft",
        config={},
        model={"name": str(folder), "lora_rank": 2},
        sft={"episodes": 8, "train": {**TRAIN, **train}},
    )
    return TrainingRun(recipes.parse(table), output, resume)


def test_fine_tuning_that_was_cut_goes_on_to_the_very_same_weights(folder, tmp_path):
    whole = tuned(folder, tmp_path / "whole")
    whole.train()
    cut = tuned(folder, tmp_path / "cut")
    saved = []

    def save_and_stop():
        TrainingRun.save(cut)
        saved.append(cut.tuning["step"])
        if len(saved) == 2:  # in the middle of the second pass
            raise KeyboardInterrupt

    cut.save = save_and_stop
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    assert saved == [3, 6]
    assert (tmp_path / "cut" / "adapter" / "adapter_model.safetensors").exists()
    resumed = tuned(folder, tmp_path / "cut", resume=True)
    resumed.train()
    for name, value in whole.model.state()["lm"].items():
        assert torch.equal(value, resumed.model.state()["lm"][name]), name
    texts = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut")]
    assert [text.count('"kind": "sft"') for text in texts] == [8, 8]


def test_long_demonstrations_are_left_out(folder, tmp_path):
    with pytest.raises(DataError, match=r"All 8 demonstrations have more than sft\.train\.max_length = 3 tokens"):
        tuned(folder, tmp_path / "none", max_length=3).train()


def test_an_adapter_names_its_base_as_the_recipe_does(folder, tmp_path):
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=2))
    model.config = dataclasses.replace(model.config, name="smollm2-135m")
    model.save(tmp_path, adapter=True)
    assert '"base_model_name_or_path": "smollm2-135m"' in (tmp_path / "adapter_config.json").read_text()


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory):
    """A folder with an adapter of `folder` that changes it."""
    path = tmp_path_factory.mktemp("adapter")
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=2))
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.actor_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save(path, adapter=True)
    return path


def test_training_continues_a_published_adapter_and_saves_it_over_the_same_base(folder, adapter, tmp_path):
    ids = torch.arange(5, 45)[None]
    valid = torch.ones_like(ids, dtype=torch.bool)
    merged = Model.load(ModelConfig(str(adapter), critic="own"))
    model = Model.load(ModelConfig(str(adapter), critic="own", lora_rank=2))
    plain = Model.load(ModelConfig(str(folder), critic="none", lora_rank=2))
    with torch.no_grad():
        before = model.logprobs(ids, valid)[0]
        torch.testing.assert_close(before, merged.logprobs(ids, valid)[0], atol=1e-4, rtol=1e-4)
        assert (before - plain.logprobs(ids, valid)[0]).abs().max() > 0.1
        torch.testing.assert_close(
            model.critic.trunk(input_ids=ids).last_hidden_state, merged.lm.base_model(ids).last_hidden_state
        )
        model.keep_reference()
        trained = list(model.actor_parameters())
        assert len(trained) == len(list(plain.actor_parameters()))
        for parameter in trained:
            parameter.mul_(1.3)
        after = model.logprobs(ids, valid)[0]
    assert (after - before).abs().max() > 0.01
    torch.testing.assert_close(model.reference_logprobs(ids, valid), before)
    model.save(tmp_path, adapter=True)
    assert f'"base_model_name_or_path": "{folder}"' in (tmp_path / "adapter_config.json").read_text()
    network, _ = hf.load(str(tmp_path), "cpu", "float32")
    with torch.no_grad():
        expected = network(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(after[0, 1:], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_rank": 4}, "model.lora_rank = 4, and the adapter in .* has 2: set model.lora_rank = 2"),
        ({"lora_rank": 2, "lora_alpha": 8}, "model.lora_alpha = 8, .* has 16"),
        ({"lora_rank": 2, "lora_targets": ("q_proj",)}, r"lora_targets = \['q_proj'\], .* has \['q_proj', 'v_proj'\]"),
    ],
)
def test_an_adapter_is_continued_with_its_own_settings_alone(adapter, settings, words):
    with pytest.raises(UsageError, match=words):
        Model.load(ModelConfig(str(adapter), critic="none", **settings))


def test_an_adapter_that_names_its_layers_by_a_pattern_is_not_continued(adapter, tmp_path):
    shutil.copytree(adapter, tmp_path / "pattern")
    config = tmp_path / "pattern" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "target_modules": ".*(q|v)_proj"}))
    with pytest.raises(UsageError, match=r"does not list the names of its layers .*lora_rank = 0"):
        continued(ModelConfig(str(tmp_path / "pattern"), critic="none", lora_rank=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fused_layer_computes_the_output_and_gradients_of_peft(folder, dtype):
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=3, lora_targets=("q_proj", "down_proj")))
    fused = next(module for module in model.lm.modules() if isinstance(module, FusedLinear)).to(dtype)
    torch.nn.init.normal_(fused.lora_B["default"].weight)
    plain = copy.deepcopy(fused)
    plain.__class__ = FusedLinear.__mro__[1]
    x = torch.randn(2, 5, fused.in_features, dtype=dtype)
    results = []
    for layer in (fused, plain):
        entry = x.clone().requires_grad_()
        y = layer(entry)
        (y**2).sum().backward()
        results.append((y, entry.grad, layer.lora_A["default"].weight.grad, layer.lora_B["default"].weight.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert "Fused" in type(results[0][0].grad_fn).__name__
