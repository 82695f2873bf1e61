"""Hosted models through inspect_ai, against loopback servers with the providers' interfaces."""

import importlib.metadata
import json

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")

from inspect_ai.model import ModelOutput, ModelUsage

from envsuite import registry
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.tools import ACT
from harness.cli.arguments.flags import read_call
from harness.cli.eval import parser
from harness.cli.playing.players import run_options
from harness.evaluate import RunConfig, Sampling
from harness.policies import find, make_policy
from harness.policies.inspect_models import InspectPolicy
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import NOT_EXECUTED, assistant_message, result_messages, with_ids
from harness.types import Prompt
from tests.api import providers
from tests.api.providers import TEXT, THOUGHT
from tests.api.test_eval_on_a_server import run

KEY = "key-0123456789abcdef"


def version(package):
    try:
        return tuple(map(int, importlib.metadata.version(package).split(".")[:2]))
    except importlib.metadata.PackageNotFoundError:
        return (0, 0)


NEEDS = {"anthropic": ("anthropic", (2, 0)), "google": ("google-genai", (2, 14)), "openai": ("openai", (3, 4))}
INSTALLED = {provider: version(package) >= least for provider, (package, least) in NEEDS.items()}
MODELS = [
    ("anthropic/claude-test", "", "/v1/messages"),
    ("google/gemini-test", "", ":generateContent"),
    ("openai/gpt-4o", "/v1", "/chat/completions"),
    ("openai/o3", "/v1", "/responses"),
]
MODELS = [row for row in MODELS if INSTALLED[row[0].partition("/")[0]]]


@pytest.fixture
def provider():
    with providers.running() as server:
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch):
    for name in ("ANTHROPIC", "GOOGLE", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)


def prompt(*texts, **more):
    roles = ("system", *("user", "assistant") * 5)
    messages = [{"role": role, "content": text} for role, text in zip(roles, ("Play.", *texts), strict=False)]
    return Prompt(messages, seed=5, key="talk", **more)


def ask(model, *prompts, **options):
    policy = InspectPolicy(model, **{"max_retries": 0, **options})
    try:
        return policy.act(prompts or [prompt("You see a fridge.")]), policy.connection()
    finally:
        policy.close()


def test_at_least_one_provider_can_be_tried():
    assert INSTALLED["anthropic"] or INSTALLED["google"], "pip install 'envsuite[hosted]'"


@pytest.mark.parametrize(("model", "base", "path"), MODELS)
def test_text_reasoning_usage_and_cost_reach_the_reply(provider, model, base, path):
    options = {"temperature": None, "max_tokens": 2000, "price": "1,10", "stop": ["</action>"]}
    (reply,), changes = ask(model, base_url=provider.url + base, **options)
    assert reply.error == "" and path in provider.requests[0][0]
    assert reply.text == f"<think>{THOUGHT}</think>{TEXT}"
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (100, 60, 12)
    assert reply.cost == pytest.approx((100 + 120) / 1e6) and reply.finish_reason == "stop"
    assert changes["request_fields"]["defaulted"] == ["temperature"]
    sent = json.dumps([body for _, body, _ in provider.requests])  # inspect asks o3 a question of its own first
    assert "You see a fridge." in sent and "Play." in sent and "temperature" not in sent
    assert any(KEY in value for value in provider.requests[0][2].values()), "the key is in a header"


@pytest.mark.parametrize(("model", "base", "path"), MODELS)
def test_a_reply_that_is_cut_off_and_a_conversation_are_translated(provider, model, base, path):
    provider.cut = True
    (reply,), _ = ask(model, prompt("one", "two", "three"), base_url=provider.url + base, temperature=None)
    assert reply.finish_reason == "length"
    sent = json.dumps([body for _, body, _ in provider.requests])
    assert sent.index("one") < sent.index("two") < sent.index("three")


@pytest.mark.parametrize(("model", "base", "path"), MODELS)
def test_refusals_name_their_cure(provider, model, base, path):
    def error(status, message):
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": message, "code": status}}
        provider.script = [(status, body)] * 50
        return ask(model, base_url=provider.url + base)[0][0]

    if model not in ("anthropic/claude-test", "openai/o3"):  # inspect sends no temperature to these
        with pytest.raises(UsageError, match=r"temperature .*Use --temperature default"):
            error(400, "temperature is not supported with this model")
    with pytest.raises(UsageError, match=r"answered 401: invalid [^{]*; the key was refused: --api-key-var"):
        error(401, f"invalid x-api-key {KEY}")
    with pytest.raises(UsageError, match=r"is '[\w-]+' a model of this provider"):
        error(404, "model not found")
    reply = error(400, f"this prompt is refused {KEY}")
    assert reply.finish_reason == "refused" and f"{model} answered 400" in reply.error and KEY not in reply.error
    with pytest.raises(DataError, match=f"{model} answered 500: .*oops"):
        error(500, "oops")


@pytest.mark.skipif(not INSTALLED["anthropic"], reason="anthropic 2 is not installed")
def test_the_oldest_turns_are_dropped_if_the_prompt_is_too_long(provider):
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    provider.script = [(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})]
    (reply,), _ = ask("anthropic/claude-test", prompt("one", "two", "three"), base_url=provider.url)
    assert reply.dropped_turns == 1 and reply.text
    sent = json.dumps([body["messages"] for path, body, _ in provider.requests if "count_tokens" not in path][-1])
    assert "one" not in sent and "three" in sent


def mock(*texts, **options):
    usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=5, reasoning_tokens=1, total_cost=0.5)
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in texts]
    for output in outputs:
        output.usage = usage
    return ask("mockllm/model", outputs=outputs, **options)


def test_a_mock_model_needs_no_internet():
    (reply,), _ = ask("mockllm/model")
    assert (reply.text, reply.error, reply.input_tokens) == ("Default output from mockllm/model", "", 0)


def test_a_mock_model_gives_its_own_cost_and_reasoning_tokens():
    (reply,), _ = mock("look", price="100,100")
    assert (reply.text, reply.cost, reply.reasoning_tokens, reply.input_tokens) == ("look", 0.5, 1, 3)


CALLED = {
    "content": [
        {"type": "text", "text": "I go."},
        {"type": "tool_use", "id": "toolu_1", "name": "act", "input": {"command": "open fridge"}},
        {"type": "tool_use", "id": "toolu_2", "name": "act", "input": {"command": "look"}},
    ],
    "stop_reason": "tool_use",
}
GOOGLE = [
    {"functionCall": {"name": "act", "args": {"command": "open fridge"}}},
    {"functionCall": {"name": "act", "args": {"command": "look"}}},
]


@pytest.mark.parametrize(("model", "base", "path"), [row for row in MODELS if row[0][0] in "ag"])
def test_tool_calls_and_their_results_speak_the_providers_interface(provider, model, base, path):
    body = provider.answer("x" + path)
    if model.startswith("anthropic"):
        body = {**body, **CALLED}
    else:
        body = {**body, "candidates": [{**body["candidates"][0], "content": {"role": "model", "parts": GOOGLE}}]}
    provider.script = [(200, body)]
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "A fridge."}]
    tools = [ACT.schema()]
    policy = InspectPolicy(model, base_url=provider.url + base, temperature=None, max_retries=0)
    try:
        (reply,) = policy.act([Prompt(messages, tools=tools)])
        assert [call[1:] for call in reply.calls] == [
            ("act", '{"command": "open fridge"}'),
            ("act", '{"command": "look"}'),
        ]
        calls = with_ids(reply.calls, 0)
        parsed = Prompting("tools").parse(reply.text, calls, [ACT])
        assert parsed.commands == ("open fridge",)
        talk = [*messages, assistant_message(reply.text, calls), *result_messages(calls, "The fridge is empty.")]
        (second,) = policy.act([Prompt(talk, tools=tools, turn=1)])
        assert second.error == "" and second.text.endswith(TEXT)
    finally:
        policy.close()
    sent = json.dumps([sent for where, sent, _ in provider.requests if "count_tokens" not in where][-1])
    assert "open fridge" in sent and "The fridge is empty." in sent and NOT_EXECUTED in sent
    assert ("tool_result" in sent) if model.startswith("anthropic") else ("functionResponse" in sent)


def test_a_prompt_without_roles_is_refused():
    policy = make_policy("inspect:mockllm/model")
    try:
        with pytest.raises(UsageError, match="reads conversations, and the protocol's prompt is plain text"):
            policy.act([Prompt([{"role": "completion", "content": "You are in a room.\n>"}])])
    finally:
        policy.close()


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("inspect:claude", {}, UsageError, "needs a provider and a model's name"),
        (
            "inspect:antropic/x",
            {},
            UsageError,
            r"no provider 'antropic'\. It has .*google.*Did you mean 'anthropic'\?$",
        ),
        ("inspect:mistral/x", {}, MissingExtra, r"Mistral API requires .*pip install mistralai"),
        ("inspect:mockllm/x", {"reasoning_effort": "huge"}, UsageError, "reasoning_effort"),
        ("inspect:anthropic/x", {"api_key_var": "NO_SUCH"}, UsageError, "NO_SUCH has no key"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(name, options, error, message):
    with pytest.raises(error, match=message) as caught:
        make_policy(name, **options)
    assert "\n" not in str(caught.value) and "[bold]" not in str(caught.value)


@pytest.mark.skipif(INSTALLED["openai"], reason="guards against accidents: an older openai")
def test_an_openai_package_that_is_too_old_is_named_with_its_cure():
    with pytest.raises(MissingExtra, match=r"at least version 3\.4.*an environment without verifiers") as caught:
        make_policy("inspect:openai/gpt-4o")
    assert str(caught.value).count("pip install") == 1


def test_an_address_keeps_the_provider():
    assert find("inspect:anthropic/x", "http://localhost:1")[1] == "anthropic/x"


@pytest.mark.skipif(not INSTALLED["anthropic"], reason="anthropic 2 is not installed")
def test_a_run_with_a_thinking_budget_plays_and_stores_no_key(provider, tmp_path):
    words = ["--temperature", "default", "--thinking-budget", "1500", "--max-tokens", "2000", "--price", "1,10"]
    done = run(tmp_path, provider, *words, "--max-turns", "1", model="inspect:anthropic/claude-3-7-sonnet-latest")
    assert done.returncode == 0, done.stderr
    body = provider.requests[0][1]
    assert body["thinking"]["budget_tokens"] == 1500, body
    (config,) = tmp_path.glob("**/config.json")
    assert json.loads(config.read_text())["sampling"]["thinking_budget"] == 1500
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    (summary,) = tmp_path.glob("**/summary.json")
    assert json.loads(summary.read_text())["cost"] > 0


def test_a_budget_of_reasoning_is_refused_for_other_models():
    def options(model):
        call = read_call(parser().parse_args(["-m", model, "-e", "hilo"]))
        sampling = Sampling(thinking_budget=5)
        return run_options(call, RunConfig(registry.TASKS["BabyAI-easy-v0"], model, sampling=sampling))

    assert options("random") == {} and options("inspect:mockllm/m")
    with pytest.raises(UsageError, match=r"--thinking-budget needs a model of inspect:.*, not openai:m"):
        options("openai:m")
