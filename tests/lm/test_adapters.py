"""LoRA adapters: a folder of one plays as its base with the adapter merged."""

import hashlib
import json
import shlex
import subprocess
from pathlib import Path

import pytest
import torch

from envsuite.errors import DataError
from harness.cli import eval as evaluation
from harness.lm import adapters, model_files
from harness.policies import hf, identities
from harness.policies.hf import HFPolicy
from harness.types import Prompt
from tests.lm.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "leaderboards" / "adapters" / "smollm2-alfworld"
COMMITTED_ADAPTERS = sorted(path.parent for path in (ROOT / "leaderboards" / "adapters").glob("*/adapter_config.json"))

peft = pytest.importorskip("peft")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tokenizer = tiny_tokenizer()
    tiny_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapted(base, tmp_path_factory):
    """A folder with a random adapter of `base`, and the logits that peft computes with it."""
    network, _ = hf.load(str(base), "cpu", "float32")
    settings = peft.LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    network = peft.get_peft_model(network, settings)
    torch.manual_seed(1)
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    folder = tmp_path_factory.mktemp("adapter")
    network.peft_config["default"].base_model_name_or_path = str(base)
    network.save_pretrained(folder)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        return folder, network.eval()(ids).logits


def changed(adapted, tmp_path, **settings):
    """Copies the adapter with other settings."""
    for file in adapted[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    table = json.loads((tmp_path / adapters.CONFIG).read_text())
    (tmp_path / adapters.CONFIG).write_text(json.dumps({**table, **settings}))
    return str(tmp_path)


def test_a_merged_adapter_computes_what_peft_computes(base, adapted):
    folder, expected = adapted
    ids = torch.arange(40)[None]
    merged, _ = hf.load(str(folder), "cpu", "float32")
    plain, _ = hf.load(str(base), "cpu", "float32")
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, expected, atol=1e-3, rtol=1e-3)
        assert (plain(ids).logits - expected).abs().max() > 0.1


def test_an_adapters_folder_plays_and_is_another_model_than_its_base(base, adapted):
    name = str(adapted[0])
    assert model_files.resolve(name).kind == "adapter"
    assert model_files.folder(name) == base
    assert model_files.weights_hash(name) not in ("", model_files.weights_hash(str(base)))
    assert identities.of_files(name, {}) != identities.of_files(str(base), {})
    prompt = Prompt([{"role": "user", "content": "go to fridge 1"}])
    texts = [HFPolicy(model, max_tokens=12).act([prompt])[0].text for model in (name, str(base))]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use_dora": True}, "use_dora = True"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"peft_type": "IA3"}, "peft_type = 'IA3'"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"base_model_name_or_path": None}, "add the name of the adapter's base model"),
        ({"r": 0}, "r = 0"),
    ],
)
def test_an_adapter_that_is_more_than_a_product_of_matrices_is_refused(adapted, tmp_path, settings, words):
    with pytest.raises(DataError, match=words):
        hf.load(changed(adapted, tmp_path, **settings), "cpu", "float32")


def test_an_adapter_of_another_architecture_names_the_layer(adapted, tmp_path):
    shallow = tmp_path / "shallow"
    tokenizer = tiny_tokenizer()
    network = tiny_model(len(tokenizer))
    network.model.layers = network.model.layers[:1]
    network.config.num_hidden_layers = 1
    network.save_pretrained(shallow)
    tokenizer.save_pretrained(shallow)
    (tmp_path / "adapter").mkdir()
    with pytest.raises(DataError, match=r"does not fit .*layers\.1\."):
        hf.load(changed(adapted, tmp_path / "adapter", base_model_name_or_path=str(shallow)), "cpu", "float32")


def test_the_base_of_an_adapter_is_no_adapter(adapted, tmp_path):
    name = changed(adapted, tmp_path, base_model_name_or_path=str(adapted[0]))
    with pytest.raises(DataError, match="is another adapter"):
        model_files.folder(name)


@pytest.mark.parametrize("folder", COMMITTED_ADAPTERS, ids=lambda folder: folder.name)
def test_every_committed_adapter_is_the_one_on_its_card(folder):
    card = json.loads((folder / "card.json").read_text())
    weights = (folder / adapters.WEIGHTS).read_bytes()
    assert hashlib.sha256(weights).hexdigest() == card["sha256"]
    assert len(weights) == card["bytes"] < 6_000_000
    assert adapters.read(folder).base == card["base"] == "smollm2-135m"
    assert (ROOT / card["recipe"]).is_file()


def test_make_eval_plays_the_model_before_and_after_training_on_the_same_games(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = subprocess.run(["make", "-n", "eval"], capture_output=True, text=True, check=True).stdout.splitlines()
    _, *words = shlex.split(next(line for line in lines if "envsuite-eval" in line))
    args = evaluation.parser().parse_args(words)
    assert args.model == ["smollm2-135m", str(COMMITTED.relative_to(ROOT))]
    assert args.baselines == "random,expert"
    with pytest.raises(SystemExit) as ended:
        evaluation.main([*words, "--dry-run"])
    assert not ended.value.code
    assert capsys.readouterr().out.count("10 seeds from 1000000") == 2
