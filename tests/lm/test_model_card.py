"""The card of a model, from files that a stranger may have written."""

import json

import pytest
import torch
from safetensors.torch import save_file

from envsuite.errors import DataError, UsageError
from harness.cli.models import main
from harness.lm.model_card import card

CONFIG = {
    "architectures": ["TinyForCausalLM"],
    "max_position_embeddings": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "hidden_size": 64,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    template = "{% if enable_thinking %}{{ tools }}{% endif %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    save_file({"a": torch.zeros(1000, 2000), "b": torch.zeros(7)}, tmp_path / "model.safetensors")
    return tmp_path


def test_size_memory_template_and_command_come_from_the_files(folder):
    rows = dict(card(f"hf:{folder}"))
    assert rows["architecture"] == "TinyForCausalLM" and rows["context"] == "2,048 tokens"
    assert rows["parameters"] == "2 million" and "0.01 GB in float32" in rows["weights"]
    # keys and values of 2 layers, 1 head and 16 numbers: 64 numbers per token, for 16 times 2,048 tokens
    assert rows["keys and values"].startswith("0.00 GB in bfloat16, 0.01 GB in float32, for 16 conversations of 2,048")
    assert rows["thinking switch"].startswith("yes") and rows["tools"].startswith("declared")
    assert rows["run it here"] == f"envsuite-eval -m {folder} -e alfworld"


@pytest.mark.parametrize(
    ("template", "declared"),
    [
        ("{{ bos_token + messages[0].content }}{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{# no tools here #}{{ messages[0].content }}", False),
        ("{{ messages[0].content }}{% if messages[0].tools %}{{ messages[0].tools }}{% endif %}", False),
        ([{"name": "default", "template": "x"}, {"name": "tool_use", "template": "{{ tools | tojson }}"}], True),
    ],
)
def test_tools_are_declared_if_the_prompt_changes_with_them(folder, template, declared):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert dict(card(str(folder)))["tools"].startswith("declared" if declared else "not in")


def test_a_model_without_a_template_says_so(folder):
    (folder / "tokenizer_config.json").unlink()
    assert dict(card(str(folder)))["chat template"].startswith("none")


def test_a_model_that_is_not_here_shows_its_source_and_its_size_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    rows = dict(card("some-org/model-1.5b"))
    assert rows["here"] == "no" and rows["parameters"] == "about 1.5 billion, from the name"
    assert rows["weights"] == "about 3.0 GB in bfloat16, 6.0 GB in float32"


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, (10**6).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7) + b"[]"]
)
def test_damaged_weights_are_refused_in_one_line(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="are damaged"):
        card(str(folder))


def test_a_gguf_file_is_for_llama_cpp_and_others_are_refused(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    assert dict(card(f"llamacpp:{file}"))["run it here"] == f"envsuite-eval -m llamacpp:{file} -e alfworld"
    with pytest.raises(UsageError, match=r"No GGUF file .*Did you mean 'tiny\.gguf'"):
        card(str(tmp_path / "tinny.gguf"))
    file.write_bytes(b"else")
    with pytest.raises(DataError, match="begins with other bytes"):
        card(str(file))


def test_the_command_takes_a_bare_name_and_names_the_nearest(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(folder)])
    assert ended.value.code == 0 and "context" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["smollm2-136m"])
    assert ended.value.code == 2 and "Did you mean 'smollm2-135m'" in capsys.readouterr().err
