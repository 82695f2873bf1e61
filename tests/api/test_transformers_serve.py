"""A model behind `transformers serve` replies as it does in this process."""

import importlib.util
import socket
import subprocess
import sys
import time

import httpx
import pytest
import torch

from harness.policies.hf import HFPolicy
from harness.policies.openai import OpenAIPolicy
from harness.types import Prompt
from tests.lm.tiny import tiny_model, tiny_tokenizer

MISSING = [name for name in ("fastapi", "uvicorn", "openai") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"transformers serve is not installed: envsuite[serving] lacks {MISSING}"),
    pytest.mark.timeout(900),  # two models are loaded
]
TOKENS = 8
TURNS = 2
TIE = 1e-3
CONTINUOUS = ("--continuous-batching", "--cb-num-blocks", "64", "--cb-max-batch-tokens", "512")
"""Options for paged attention; without the bounds it would use half of the memory."""


@pytest.fixture(
    scope="module",
    params=[
        ("tiny", ()),
        pytest.param(("smollm", ()), marks=pytest.mark.slow),
        pytest.param(("smollm", CONTINUOUS), marks=pytest.mark.slow),
    ],
    ids=["tiny", "smollm", "smollm-continuous"],
)
def served(request, tmp_path_factory):
    """Returns the folder of a model, and the address of a server that holds it."""
    name, options = request.param
    if name == "smollm":
        folder = request.getfixturevalue("smollm")
    else:
        folder, tokenizer = tmp_path_factory.mktemp("tiny"), tiny_tokenizer()
        tokenizer.save_pretrained(folder)
        tiny_model(len(tokenizer)).save_pretrained(folder)
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--device", "cpu", "--dtype", "float32", *options, "--port"]
    process = None
    try:
        for _ in range(3):  # another process may take the port before the server does
            port = free_port()
            with log.open("w") as file:
                process = subprocess.Popen([*command, str(port)], stdout=file, stderr=file)
            if answers(process, f"http://127.0.0.1:{port}/health", log):
                break
            assert "address already in use" in log.read_text(), log.read_text()
        assert process.poll() is None, log.read_text()
        yield folder, f"http://127.0.0.1:{port}/v1"
    finally:
        stop(process)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(process, address, log):
    """Waits until the server answers (True) or has exited (False)."""
    deadline = time.monotonic() + 400
    while process.poll() is None:
        try:
            if httpx.get(address, timeout=30).status_code == 200 and process.poll() is None:
                return True
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return False


def stop(process):
    if process is not None:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def talks():
    for task in ("put a clean apple in the fridge", "look at the bowl under the desklamp"):
        system = f"You play a household game. Answer with exactly one command. Your task is to: {task}."
        seen = "You are in the middle of a room. You see a cabinet 1, a fridge 1, and a sinkbasin 1."
        yield [{"role": "system", "content": system}, {"role": "user", "content": seen}]


def test_greedy_replies_equal_those_of_the_local_policy_except_at_ties(served):
    folder, url = served
    local = HFPolicy(str(folder), max_tokens=TOKENS, dtype="float32", device="cpu")
    options = {"served_model_name": str(folder), "max_tokens": TOKENS, "max_retries": 1}
    remote = OpenAIPolicy("smollm2", base_url=url, **options)
    ties = 0
    for messages in talks():
        for turn in range(TURNS):
            here = local.act([Prompt(messages, turn=turn)])[0]
            there = remote.act([Prompt(messages, turn=turn)])[0]
            assert there.error == ""
            assert there.input_tokens == here.input_tokens
            assert there.finish_reason == here.finish_reason or there.text != here.text
            if there.text != here.text:
                assert is_tie(local, here, there.text), (here.text, there.text)
                ties += 1
            messages = [
                *messages,
                {"role": "assistant", "content": here.text},
                {"role": "user", "content": "Nothing happens."},
            ]
    remote.close()
    assert ties <= 1, "ties are rare"


def is_tie(local, here, text):
    """Returns True if the texts first differ at two tokens whose logits are equal up to rounding."""
    local_ids = local.tokenizer(text, add_special_tokens=False)["input_ids"]
    place = next((i for i, (a, b) in enumerate(zip(here.ids, local_ids, strict=False)) if a != b), len(local_ids))
    ids = torch.tensor([[*here.prompt_ids, *here.ids[:place]]])
    with torch.no_grad():
        logits = local.network(ids).logits[0, -1]
    rival = local_ids[place] if place < len(local_ids) else next(iter(local.settings.end_ids))
    return float(logits.max() - logits[rival]) < TIE
