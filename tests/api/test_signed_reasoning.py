"""Reasoning that a provider signs goes back to it unchanged, against loopback servers with the providers' interfaces."""

import json

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")

from envsuite.tools import ACT
from harness.policies.inspect_models import InspectPolicy
from harness.prompting.tool_calls import assistant_message, result_messages, with_ids
from harness.types import Prompt
from tests.api.providers import THOUGHT, Provider
from tests.api.server import serving
from tests.api.test_inspect_models import INSTALLED, KEY

MODELS = [
    ("anthropic/claude-3-7-sonnet-latest", "", "/v1/messages"),
    ("google/gemini-2.5-pro", "", ":generateContent"),
    ("openai/o3", "/v1", "/responses"),
]
MODELS = [row for row in MODELS if INSTALLED[row[0].partition("/")[0]]]
ARGUMENTS = {"command": "look"}
SIGNATURES = ["c2lnbmF0dXJlMAAA", "c2lnbmF0dXJlMQAA"]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    for name in ("ANTHROPIC", "GOOGLE", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)


class Calling(Provider):
    """Answers each of the first two turns with a signed thought and a tool call."""

    turn = 2

    def answer(self, path):
        body = super().answer(path)
        if self.turn == 2 or "count_tokens" in path:
            return body
        signature, thought = SIGNATURES[self.turn], f"{THOUGHT} {self.turn}"
        if "messages" in path:
            body["content"] = [
                {"type": "thinking", "thinking": thought, "signature": signature},
                {"type": "tool_use", "id": f"toolu_{self.turn}", "name": "act", "input": ARGUMENTS},
            ]
            body["stop_reason"] = "tool_use"
        elif "generate" in path:
            body["candidates"][0]["content"]["parts"] = [
                {"text": thought, "thought": True},
                {"functionCall": {"name": "act", "args": ARGUMENTS}, "thoughtSignature": signature},
            ]
        else:
            call = {"type": "function_call", "id": f"fc_{self.turn}", "call_id": f"call_{self.turn}"}
            body["output"][0] |= {"id": f"rs_{self.turn}", "encrypted_content": signature}
            body["output"][1] = {**call, "status": "completed", "name": "act", "arguments": json.dumps(ARGUMENTS)}
        return body


@pytest.fixture
def provider():
    with serving(Calling()) as server:
        yield server


def third_request(provider, model, base, shorten=str, results=("Result 0.", "Result 1.", ""), **options):
    """Plays two turns with tool calls and asks for a third; returns the text of that request."""
    talk = [{"role": "system", "content": "Play."}, {"role": "user", "content": "A fridge."}]
    settings = {"max_retries": 0, "max_tokens": 4000, "temperature": None, "thinking_budget": 2000, **options}
    policy = InspectPolicy(model, base_url=provider.url + base, **settings)
    try:
        policy.act([Prompt(talk)])  # before o3's first reply, inspect sends it another question
        for turn in range(3):
            provider.turn = turn
            (reply,) = policy.act([Prompt(list(talk), key="talk", turn=turn, tools=[ACT.schema()])])
            assert reply.error == "" and "message" not in reply.extra
            calls = with_ids(reply.calls, turn)
            assert [call[1:] for call in calls] == ([("act", json.dumps(ARGUMENTS))] if turn < 2 else [])
            talk += [assistant_message(shorten(reply.text), calls), *result_messages(calls, results[turn])]
    finally:
        policy.close()
    return json.dumps(asked(provider)[-1])


def asked(provider):
    """Returns the requests for a reply; inspect also asks Anthropic for the length of some."""
    return [body for path, body, _ in provider.requests if "count_tokens" not in path]


def in_order(sent):
    """Returns True if each signature is in a request once and before the result of its call."""
    counts = [sent.count(signature) for signature in SIGNATURES]
    results = [sent.index(f"Result {turn}.") for turn in range(2)]
    return counts == [1, 1] and all(map(int.__lt__, map(sent.index, SIGNATURES), results))


@pytest.mark.parametrize(("model", "base", "path"), MODELS)
def test_signed_reasoning_goes_back_with_its_tool_call(provider, model, base, path):
    sent = third_request(provider, model, base)
    assert in_order(sent) and "<think>" not in sent
    if model.startswith("anthropic"):  # the signature is of this text
        assert sent.count(THOUGHT) == 2


@pytest.mark.parametrize(("model", "base", "path"), MODELS)
def test_a_tool_call_keeps_its_signed_reasoning_where_the_history_drops_reasoning(provider, model, base, path):
    assert in_order(third_request(provider, model, base, shorten=lambda text: ""))
