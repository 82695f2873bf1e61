"""`backend = "tinker"`: the steps of a local model, whole runs, and what is refused, against a small true service."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft", reason="peft is not installed")

from baselines import cli
from baselines import recipe as recipes
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.collection.tinker import TinkerDecoder
from baselines.math.losses import NonFiniteLoss
from baselines.networks.model import Model
from baselines.networks.tinker import TinkerModel
from baselines.train import TrainingRun
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.registry import register
from envsuite.types import Outcome, Task
from harness.lm.decode import Settings
from tests.baselines import tinker_service
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import ROOT, recipe, write
from tests.baselines.tinker_service import PROJECTIONS, Package, RetryableException
from tests.toys import Signpost

LORA = {"lora_rank": 4, "lora_targets": ["attn", "mlp"]}
SHORT = {"max_turns": 1, "eval_episodes": 1, "acting": {"max_tokens": 3}}
RATES = {"learning_rate": 2e-2, "group_size": 4, "weight_decay": 0.01, "max_grad_norm": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


@pytest.fixture
def service(folder, monkeypatch):
    package = Package(str(folder))
    monkeypatch.setitem(sys.modules, "tinker", package)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    return package


class Lengths(Signpost):
    """Pays by the length of a command: replies of random weights earn differently."""

    def _act(self, command):
        return Outcome(self.word, reward=len(command) % 4 / 4, valid=True)


register(Task(id="Lengths-v0", entry_point="tests.baselines.test_tinker:Lengths"))


def table(folder, algorithm="grpo", config=(), **changes):
    model = {"name": str(folder), **LORA}
    config = {**RATES, **dict(config)}
    plain = recipe(folder, algorithm=algorithm, tasks=["Lengths-v0"], save_every=10, model=model, config=config)
    return {**plain, "backend": "tinker", "reward_mode": "dense", **changes}


def adapter(parameters):
    """Returns the weights of an adapter by name."""
    return {name: parameter.detach().clone() for name, parameter in parameters if parameter.requires_grad}


def differs(mine, other):
    """Returns the largest difference between two adapters."""
    assert mine.keys() == other.keys()
    return max((value - other[name]).abs().max().item() for name, value in mine.items())


# ---- The same steps as a local model


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        ("grpo", {"kl_coef": 0.0}),
        ("grpo", {"epochs": 2, "minibatches": 2, "micro_rows": 2, "kl_coef": 0.05, "dual_clip": 1.5}),
        ("rloo", {"epochs": 2, "kl_coef": 0.05, "clip_high": 0.3, "aggregation": "seq-mean-token-sum"}),
        ("gigpo", {"epochs": 2, "kl_coef": 0.05, "ratio": "turn", "adam_betas": [0.8, 0.9]}),
        ("sdar", {"epochs": 2, "distil_coef": 0.3, "teacher": "first"}),
        ("sdar", {"epochs": 2, "distil_coef": 0.3, "distillation": "kl"}),
    ],
)
def test_two_updates_move_the_adapter_as_a_local_trainer_does_on_the_same_episodes(
    folder, tmp_path, service, algorithm, config
):
    settings = table(folder, algorithm, config, max_turns=2)
    run = TrainingRun(recipes.parse(settings), tmp_path)
    run._prepare_updates()
    targets = [name for group in LORA["lora_targets"] for name in PROJECTIONS[group]]
    local = Model.load(dataclasses.replace(run.recipe.model, critic="none", lora_targets=tuple(targets)))
    local.keep_reference()
    optimisers = Optimisers(local, run.recipe.config)
    start = adapter(local.lm.named_parameters())
    for update in range(2):
        batch = run.collector.collect(update, 0)
        assert batch.server_gap["server_gap"] < 1e-5
        assert len({run.total_reward for run in batch.learned}) > 1
        logs = []
        for model, optimiser in ((run.model, run.optimisers), (local, optimisers)):
            dice = torch.Generator().manual_seed(update)
            inputs = UpdateInput(model, optimiser, batch.learned, run.recipe.config, dice, step=update)
            logs.append(run.recipe.module.update(inputs))
        remote, mine = ({key: value for key, value in log.items() if key != "entropy"} for log in logs)
        assert remote == pytest.approx(mine, rel=1e-3, abs=1e-6)
        assert logs[0]["entropy"] == pytest.approx(logs[1]["entropy"], rel=0.5)  # an estimate from the sampled tokens
    run.close()
    mine, theirs = adapter(local.lm.named_parameters()), adapter(service.training.lm.named_parameters())
    moved = differs(mine, start)
    assert moved > 1e-2
    assert differs(mine, theirs) < 1e-3 * moved


def test_what_is_sent_after_a_step_is_the_gradient_of_the_next_one_alone(folder, service):
    """Two passes before a step are summed; nothing of them is left after it."""
    settings = recipes.parse(table(folder))
    model = TinkerModel(settings.model)
    optimisers = Optimisers(model, settings.config)
    ids = torch.randint(5, 250, (2, 9), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(ids, dtype=torch.bool)
    valid[1, 6:] = False
    sampled = valid & (torch.arange(9) > 3)

    def gradient(*weights):
        for weight in weights:
            (model.logprobs(ids, valid, sampled=sampled)[0] * weight).sum().backward()
        norm = optimisers.actor.step()
        assert not any((parameter.grad != 0).any() for parameter in service.training.adapter.values() if parameter.grad)
        return norm

    optimisers.actor.rate = 0.0
    whole = gradient(3.0)
    assert whole > 0
    assert gradient(1.0, 2.0) == pytest.approx(whole, rel=1e-4)
    with torch.no_grad():
        model.logprobs(ids, valid, sampled=sampled)
    assert gradient(1.0) == pytest.approx(whole / 3, rel=1e-4)


def test_no_step_is_taken_with_a_gradient_that_is_not_finite(folder, service):
    settings = recipes.parse(table(folder))
    model = TinkerModel(settings.model)
    optimisers = Optimisers(model, settings.config)
    ids = torch.randint(5, 250, (1, 5))
    before = adapter(model.training.lm.named_parameters())
    with pytest.raises(NonFiniteLoss, match="log-probs"):
        (model.logprobs(ids, ids > 0)[0] * torch.inf).sum().backward()
    optimisers.actor.step()  # nothing had been sent
    assert differs(adapter(service.training.lm.named_parameters()), before) == 0


# ---- Runs


def test_a_run_whose_results_the_service_lost_resumes_with_the_steps_of_one_that_was_not_interrupted(
    folder, tmp_path, service, monkeypatch
):
    """The package's RetryableException is no TinkerError, and leaves open whether the service took the step."""
    settings = recipes.parse(table(folder, updates=3, **SHORT))
    TrainingRun(settings, tmp_path / "whole").train()
    expected = adapter(service.training.lm.named_parameters())
    passes, step = tinker_service.TrainingClient._passes, tinker_service.TrainingClient._step
    lost = RetryableException("Promise expired/broken for request 7")
    sent = []

    def lose_a_backward_pass(self, data, loss_fn, backward):
        sent.append(backward)
        if sum(sent) == 2:  # of the second update; the step with what else was sent is taken
            raise lost
        return passes(self, data, loss_fn, backward)

    def lose_a_step(self, params):
        step(self, params)
        raise lost

    parts = tmp_path / "parts"
    monkeypatch.setattr(tinker_service.TrainingClient, "_passes", lose_a_backward_pass)
    message = r"^Tinker took no step \(RetryableException: Promise expired/broken for request 7\)\.$"
    with pytest.raises(DataError, match=message):
        TrainingRun(settings, parts).train()
    monkeypatch.setattr(tinker_service.TrainingClient, "_passes", passes)
    monkeypatch.setattr(tinker_service.TrainingClient, "_step", lose_a_step)
    with pytest.raises(DataError, match=message):
        TrainingRun(settings, parts, resume=True).train()
    monkeypatch.setattr(tinker_service.TrainingClient, "_step", step)
    TrainingRun(settings, parts, resume=True).train()
    assert differs(adapter(service.training.lm.named_parameters()), expected) < 1e-6
    lines = [json.loads(line) for line in (parts / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["eval", "update", "update", "update", "eval"]
    assert all(line["grad_norm"] > 0 and line["server_gap"] < 1e-5 for line in lines if line["kind"] == "update")
    exported = json.loads((parts / "model" / "tinker.json").read_text())
    assert exported["base_model"] == str(folder)
    saved = service.saved[exported["weights"]][1]
    assert differs(adapter(service.training.lm.named_parameters()), adapter(saved.items())) == 0
    assert exported["sampler_weights"] in service.saved
    assert (parts / "model" / "tokenizer_config.json").exists()
    assert not (parts / "adapter").exists()


def test_states_are_saved_once_between_two_steps(folder, tmp_path, service):
    TrainingRun(recipes.parse(table(folder, **SHORT)), tmp_path).train()
    assert sum("/weights/" in path for path in service.saved) == 2  # before the first update, and after the last


def test_a_forward_pass_that_the_service_lost_is_one_line(folder, service, monkeypatch):
    def lose(self, data, loss_fn, backward):
        raise RetryableException("Promise expired/broken for request 7")

    model = TinkerModel(recipes.parse(table(folder)).model)
    monkeypatch.setattr(tinker_service.TrainingClient, "_passes", lose)
    ids = torch.randint(5, 250, (1, 5))
    with pytest.raises(DataError, match=r"^Tinker computed no forward pass \(RetryableException: Promise .*\)\.$"):
        model.logprobs(ids, ids > 0)


def test_a_sampler_with_old_weights_is_caught(folder, tmp_path, service):
    service.stale = True
    run = TrainingRun(recipes.parse(table(folder, generation={"tolerance": 1e-4}, **SHORT)), tmp_path)
    with pytest.raises(DataError, match="its weights are stale"):
        run.train()


def test_replies_end_at_a_stop_text_or_an_end_token(folder, tmp_path, service):
    """The service takes texts or tokens; with texts, end tokens are among them by name."""
    run = TrainingRun(recipes.parse(table(folder)), tmp_path)
    ends = run.collector.actor().policy._decoder.stop
    assert ends and all(isinstance(end, int) for end in ends)
    tagged = {**table(folder), "prompting": {"grammar": "action", "thinking": False, "history": 0}}
    run.close()
    other = TrainingRun(recipes.parse(tagged), tmp_path / "tagged")
    texts = other.collector.actor().policy._decoder.stop
    assert texts == ["</action>", *(run.model.tokenizer.decode([end]) for end in ends)]
    sampler = other.collector.actor().policy._decoder.sampler
    newline = run.model.tokenizer("\n")["input_ids"][-1]
    assert TinkerDecoder(sampler, Settings(end_ids=frozenset({newline}), stop=("x",))).stop == ["x", "\n"]
    other.close()


@pytest.mark.parametrize("refusal", [ValueError("lost\nresult"), RuntimeError("closed"), TimeoutError("late")])
def test_whatever_the_service_raises_is_one_line_and_saves_the_updates_before_it(
    folder, tmp_path, service, monkeypatch, refusal
):
    run = TrainingRun(recipes.parse(table(folder, **SHORT)), tmp_path)

    def refuse(self, prompt, params):
        raise refusal

    step = run._step

    def step_then_lose_the_service():
        step()
        monkeypatch.setattr(tinker_service.SamplingClient, "_sample", refuse)

    monkeypatch.setattr(run, "_step", step_then_lose_the_service)
    with pytest.raises(DataError, match=rf"^Tinker sampled no reply \({type(refusal).__name__}: .*\)\.$") as error:
        run.train()
    assert "\n" not in str(error.value)
    assert (tmp_path / "checkpoint.pt").exists()


def test_an_error_of_the_checkpoint_does_not_replace_that_of_the_rollout(folder, tmp_path, service, monkeypatch):
    run = TrainingRun(recipes.parse(table(folder, **SHORT)), tmp_path)

    def refuse(self, *arguments):
        raise service.TinkerError("no network")

    step = run._step

    def step_then_lose_the_service():
        step()
        monkeypatch.setattr(tinker_service.SamplingClient, "_sample", refuse)
        monkeypatch.setattr(tinker_service.TrainingClient, "save_state", refuse)

    monkeypatch.setattr(run, "_step", step_then_lose_the_service)
    with pytest.raises(DataError, match="Tinker sampled no reply"):
        run.train()
    assert not (tmp_path / "checkpoint.pt").exists()


# ---- What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "poad", "config": {}}, "poad needs a critic: use grpo"),
        ({"model": {"name": "x", "lora_rank": 4}}, r"lora_targets cannot be \['q_proj', 'v_proj'\]"),
        ({"model": {"name": "x", "lora_targets": ["attn"]}}, r"lora_rank is 0: set it \(32\)"),
        ({"model": {"name": "x", **LORA, "lora_alpha": 8}}, "lora_alpha = 8 .* leave it at 16"),
        ({"acting": {"temperature": 0.7}}, "temperature = 0.7 .* at temperature 1"),
        ({"config": {"entropy_coef": 0.01}}, "entropy_coef = 0.01 .* no entropies"),
        ({"config": {"target_kl": 0.1}}, "target_kl = 0.1 .* cannot be taken back"),
        ({"async_level": 1}, "async_level = 1 .* take turns"),
        ({"fsdp": True}, "fsdp = True .* shards"),
        ({"sft": {"episodes": 3}}, "sft.episodes = 3"),
        ({"generation": {"base_url": "http://x/v1"}}, "base_url = 'http://x/v1' .*the service samples"),
    ],
)
def test_settings_that_the_service_cannot_express_are_refused_in_one_line(changes, message):
    with pytest.raises(UsageError, match=message) as error:
        recipes.parse({**table("x"), "model": {"name": "x", **LORA}, **changes})
    assert "\n" not in str(error.value)


def test_one_line_names_the_missing_package(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(MissingExtra, match=r"needs the package 'tinker': pip install 'envsuite\[tinker\]'"):
        TinkerModel(recipes.parse(table(folder)).model)


def test_one_line_names_the_missing_key_and_an_unknown_model(folder, service, monkeypatch):
    def refuse(self):
        raise service.TinkerError("The api_key client option must be set\nby passing it")

    settings = recipes.parse(table(folder)).model
    service.folder = "another"
    with pytest.raises(DataError, match=r"^Tinker did not open the model \(TinkerError: no model .*\)\.$"):
        TinkerModel(settings)
    monkeypatch.setattr(service.ServiceClient, "__init__", refuse)
    with pytest.raises(UsageError, match=r"^backend = 'tinker' needs a key: set TINKER_API_KEY.* \(The api_key .*$"):
        TinkerModel(settings)


@pytest.mark.parametrize(("package", "missing"), [(None, "needs the package 'tinker'"), (1, "needs a key")])
def test_package_and_key_are_asked_for_before_transformers_is_imported(folder, tmp_path, package, missing):
    file = write(tmp_path / "x.toml", {**table(folder), "tasks": ["BabyAI-goto-v0"]})
    if package:
        (tmp_path / "tinker.py").write_text("raise AssertionError('imported')")
    else:
        pytest.skip("tinker is installed") if find_spec("tinker") else None
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from baselines import cli\n"
        f"try: cli.main([{str(file)!r}, '-o', {str(tmp_path / 'run')!r}])\n"
        "finally: assert 'transformers' not in sys.modules"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "TINKER_API_KEY": "", "TINKER_CREDENTIAL_CMD": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert missing in done.stderr
    assert "Error" not in done.stderr


def test_a_dry_run_names_what_is_missing_here(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    with pytest.raises(SystemExit) as exit:
        cli.main([str(write(tmp_path / "x.toml", table(folder))), "--dry-run"])
    assert exit.value.code == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missing here: ")]
    assert ["envsuite[tinker]" in line for line in lines] == [True, False]
    assert ["TINKER_API_KEY" in line for line in lines] == [False, True]


def test_the_documented_recipe_trains(folder, tmp_path, service):
    page = (ROOT / "docs" / "explanation" / "training.md").read_text()
    text = page.partition("## On Tinker's service")[2].partition("```toml\n")[2].partition("```")[0]
    documented = tomllib.loads(text)
    recipes.parse(documented)
    small = {"updates": 1, "episodes": 8, "eval_episodes": 2, "max_turns": 1, "acting": {"max_tokens": 2}}
    changes = {"tasks": ["Lengths-v0"], "reward_mode": "dense", "model": {**documented["model"], "name": str(folder)}}
    run = TrainingRun(recipes.parse({**documented, **small, **changes}), tmp_path)
    run.train()
    assert run.update == 1


def test_a_dry_run_says_that_nothing_is_loaded_here(folder, tmp_path, capsys):
    file = write(tmp_path / "x.toml", table(folder))
    with pytest.raises(SystemExit) as exit:
        cli.main([str(file), "--dry-run"])
    assert exit.value.code == 0
    assert "Tinker's service holds the model" in capsys.readouterr().out


def test_the_stand_in_has_the_names_of_the_package():
    """Every method and field that a run uses is one of the package itself."""
    real = pytest.importorskip("tinker", reason="tinker is not installed")

    def names(function):
        return set(inspect.signature(function).parameters)

    for name in ("ServiceClient", "TrainingClient", "SamplingClient"):
        methods = {**vars(getattr(tinker_service, name))}
        for method in sorted(methods.keys() - {"later", "lm"}):
            if inspect.isfunction(methods[method]) and not method.startswith("_"):
                assert names(methods[method]) <= names(getattr(getattr(real, name), method)), f"{name}.{method}"
    for name in ("AdamParams", "SamplingParams", "Datum"):
        assert names(getattr(tinker_service, name)) <= names(getattr(real, name)), name
    from tinker.lib.retryable_exception import RetryableException as Lost

    assert issubclass(real.TinkerError, Exception) and not issubclass(Lost, real.TinkerError)
    assert str(Lost("Promise expired")) == str(RetryableException("Promise expired"))
    datum = real.Datum(
        model_input=real.ModelInput.from_ints([5, 6]),
        loss_fn_inputs={
            "target_tokens": real.TensorData.from_torch(torch.tensor([6, 7])),
            "weights": real.TensorData.from_torch(torch.tensor([0.0, -2.0])),
        },
    )
    assert datum.loss_fn_inputs["weights"].to_torch().tolist() == [0.0, -2.0]
    assert real.SamplingParams(max_tokens=3, seed=2**31 - 1, stop=["</action>"], temperature=0.0).stop == ["</action>"]
    assert real.SamplingParams(max_tokens=3, seed=1, stop=[2, 0]).stop == [2, 0]
