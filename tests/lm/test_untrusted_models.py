"""Model folders from strangers: their code never runs, and a template that loops for ever is stopped."""

import json
import threading
import time

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")

from envsuite.errors import DataError
from harness.lm.time_limit import time_limit
from harness.policies.hf import load

CODE = "import pathlib\npathlib.Path({marker!r}).touch()\nfrom transformers import PretrainedConfig, PreTrainedModel\n"
CLASSES = "class EvilConfig(PretrainedConfig):\n    model_type = 'evil'\nclass Evil(PreTrainedModel):\n    pass\n"


def test_code_in_a_models_folder_does_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = tmp_path / "ran"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "evil.py").write_text(CODE.format(marker=str(marker)) + CLASSES)
    auto = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto}))
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    with pytest.raises(DataError):
        load(str(folder), "cpu", "float32")
    assert not marker.exists()


@pytest.mark.parametrize("in_thread", [False, True])
def test_code_that_never_ends_is_stopped_in_any_thread(in_thread):
    outcome = []

    def work():
        try:
            with time_limit(0.2, "loop"):
                while True:
                    pass
        except TimeoutError as error:
            outcome.append(str(error))

    if in_thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    else:
        work()
    assert outcome == ["the loop ran longer than 0.2 s"]


def test_code_that_ends_in_time_is_left_alone():
    with time_limit(0.05, "loop"):
        pass
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        pass


def test_an_interruption_while_the_limit_starts_leaves_no_exception_behind(monkeypatch):
    start = threading.Timer.start

    def interrupted(timer):
        start(timer)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), time_limit(0.05, "loop"):
        pass
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        pass
