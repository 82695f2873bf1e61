"""Servers that answer with anything at all: a run ends with one line or plays on, and believes no impossible number."""

import base64
import gzip
import json
import math
import tracemalloc
import warnings

import pytest

from envsuite import registry
from envsuite.errors import DataError, EnvsuiteError, UsageError
from harness import records
from harness.cli.eval import main as envsuite_eval
from harness.evaluate import Budget, BudgetReached, Execution, RunConfig, evaluate
from harness.policies.chat_completions import Price, address
from harness.policies.connections import http_answers
from harness.policies.openai import OpenAIPolicy
from harness.types import Prompt
from tests import toys  # noqa: F401
from tests.api.server import answer, completion, garbage, refuse, running, send

KEY = "sk-test-0123456789abcdef"
DEEP = "[" * 100_000
HUGE = "9" * 400


@pytest.fixture
def server():
    with running() as server:
        yield server


def ask(server, **options):
    """One reply of a policy that does not retry."""
    url = options.pop("base_url", server.url)
    policy = OpenAIPolicy(
        "small-model", **{"base_url": url, "first_pause": 0.01, "timeout": 60.0, "max_retries": 0, **options}
    )
    try:
        (reply,) = policy.act([Prompt([{"role": "user", "content": "You see a fridge."}], seed=5, key="talk")])
        return reply
    finally:
        policy.close()


def message(**fields):
    """An answer whose message has these fields."""
    return garbage(json.dumps({"choices": [{"message": fields, "finish_reason": "stop"}]}))


def call(arguments):
    return [{"id": "1", "type": "function", "function": {"name": "act", "arguments": arguments}}]


@pytest.mark.parametrize("charset", ["hex", "rot13", "undefined", "idna", "no-such", "utf-16", '"', "a\tb"])
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_an_odd_charset_is_a_fault_of_the_server_in_one_line(server, status, charset):
    server.script = [lambda handler: send(handler, status, "caf\xe9?", Content_Type=f"text/plain; charset={charset}")]
    with pytest.raises((DataError, UsageError), match=rf"answered {status}|invalid chat completion") as caught:
        raise DataError(ask(server).error)
    assert "\n" not in str(caught.value)


def packed(data: bytes):
    """A gzipped answer."""

    def behaviour(handler):
        content = gzip.compress(data, 1)
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behaviour


def endless(handler):
    """Sends an answer without end as fast as the client reads it."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(b" " * 2**16)


def redirect(handler):
    send(handler, 302, "", Location="http://127.0.0.1:1/steal")


def wrong_length(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "-5")
    handler.end_headers()
    handler.wfile.write(b"{}")
    handler.close_connection = True


def not_http(handler):
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    handler.close_connection = True


REFUSED = {
    "deep JSON": garbage('{"choices": ' + DEEP),
    "deep and whole JSON": garbage('{"choices": ' + DEEP + "]" * 100_000 + "}"),
    "a list": garbage("[]"),
    "null": garbage("null"),
    "a number": garbage("1"),
    "choices of text": garbage('{"choices": "abc"}'),
    "choices that are null": garbage('{"choices": [null]}'),
    "no message": garbage('{"choices": [{}]}'),
    "content that is a number": message(content=5),
    "content that is an object": message(content={"a": 1}),
    "content of numbers": message(content=[{"text": 5}]),
    "reasoning that is a list": message(content="x", reasoning_content=["a"], tool_calls=[1]),
    "tool calls without a function": message(content="", tool_calls=[{}]),
    "tool calls that are a number": message(content="", tool_calls=7),
    "NaN": garbage(completion("look").replace("11", "NaN")),
    "Infinity": garbage(completion("look").replace("11", "Infinity")),
    "an integer of 400 digits": garbage(completion("look").replace("11", HUGE)),
    "a duplicate key": garbage(completion("look").replace('"usage"', '"choices": [], "usage"')),
    "bytes that are no UTF-8": lambda handler: (
        handler.send_response(200),
        handler.send_header("Content-Length", "2"),
        handler.end_headers(),
        handler.wfile.write(b"\xff\xfe"),
    ),
    "gzip that is none": lambda handler: send(handler, 200, "plain text", Content_Encoding="gzip"),
    "a gzipped bomb": packed(b" " * (http_answers.MOST_ANSWER + 2**20)),
    "an answer without end": endless,
    "a reply of five million characters": answer("a" * 5_000_000),
    "a redirect": redirect,
    "a negative length": wrong_length,
    "no HTTP": not_http,
    "an error with a deep body": lambda handler: send(handler, 500, DEEP),
    "an error of a million characters": refuse(500, "x" * 2**20),
    "an error that is a number": lambda handler: send(handler, 500, '{"error": 1e999}'),
    "an error with terminal codes": refuse(500, "\x1b]0;title\x07\x1b[2Jgone"),
    "a pause that is not a number": refuse(429, Retry_After="nan"),
    "a negative pause": refuse(429, Retry_After="-1e300"),
    "a pause without end": refuse(429, Retry_After="inf"),
    "an unknown status": refuse(799),
    "a model that is not found": refuse(404, "\x1b[31mno such model\x1b[0m"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_answer_that_is_no_chat_completion_ends_in_one_line(server, kind):
    server.script = [REFUSED[kind]]
    tracemalloc.start()
    try:
        try:
            text = ask(server).error  # a server that refuses one prompt may accept others
        except (DataError, UsageError) as error:
            text = str(error)
        assert tracemalloc.get_traced_memory()[1] < 400 * 2**20
    finally:
        tracemalloc.stop()
    assert text and len(text) < 1000 and "\n" not in text and "\x1b" not in text


USAGE = {
    "negative counts": {"prompt_tokens": -5_000_000, "completion_tokens": -1},
    "counts of text": {"prompt_tokens": "11", "completion_tokens": []},
    "counts that are true": {"prompt_tokens": True, "completion_tokens": True},
    "counts beyond belief": {"prompt_tokens": 10**15, "completion_tokens": 10**15},
    "a list": [],
    "a negative cost": {"prompt_tokens": 0, "completion_tokens": 0, "cost": -1e9},
    "a cost beyond belief": {"prompt_tokens": 0, "completion_tokens": 0, "cost": 1e300},
    "details of text": {"prompt_tokens_details": {"cached_tokens": -4}},
}


@pytest.mark.parametrize("kind", USAGE)
def test_impossible_usage_is_not_believed(server, kind):
    server.script = [answer("look", usage=USAGE[kind])]
    if kind == "a list":
        server.script = [garbage(json.dumps({**json.loads(completion("look")), "usage": []}))]
    reply = ask(server, price=Price(1.0, 1.0))
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (0, 0, 0)
    assert reply.cost == 0.0 and reply.text == "look"
    assert reply.estimated is not None and all(math.isfinite(value) and value >= 0 for value in reply.estimated)


def test_budgets_hold_although_the_server_pays_back(server, tmp_path):
    usage = {"prompt_tokens": -(10**7), "completion_tokens": -(10**7), "cost": -1000.0}
    server.says = lambda body: "<action>1</action>"
    server.script = [answer("<action>1</action>", usage=usage) for _ in range(200)]
    config = RunConfig(registry.TASKS["HiLo-v0"], "some-model", episodes=20, max_turns=5)
    policy = lambda: OpenAIPolicy("small-model", base_url=server.url, price=Price(100.0, 100.0))
    with pytest.raises(BudgetReached):
        evaluate(config, tmp_path, policy, Execution(max_concurrent=1, budget=Budget(tokens=200)))


def test_a_lone_surrogate_is_replaced_and_the_game_goes_on(server, tmp_path):
    raw = completion("no command SURROGATE").replace("SURROGATE", "\\ud83d")
    server.script = [garbage(raw)]
    server.says = "<action>2</action>"
    config = RunConfig(registry.TASKS["HiLo-v0"], "some-model", episodes=1, max_turns=3)
    results, summary = evaluate(config, tmp_path, lambda: OpenAIPolicy("small-model", base_url=server.url))
    assert summary["broken"] == 0
    (record,) = records.read_results(results.paths[0])
    assert record["steps"][0]["reply"].endswith("\ufffd")
    assert "\ufffd" in json.dumps(server.requests[1][0], ensure_ascii=False)


def test_a_key_that_the_server_echoes_is_stored_nowhere(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    server.says = lambda body: f"<action>1</action> Bearer {KEY}"
    config = RunConfig(registry.TASKS["HiLo-v0"], "some-model", episodes=2, max_turns=3)
    policy = lambda: OpenAIPolicy("small-model", base_url=server.url, api_key_var="MY_KEY", watch=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluate(config, tmp_path, policy)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"results.jsonl", "journal.jsonl", "weights.json"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_key_and_a_password_are_in_no_message(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    url = server.url.replace("http://", "http://user:hunter2secret@")
    server.serves = [KEY, "hunter2secret"]
    for behaviour in (refuse(404, f"Bearer {KEY} hunter2secret"), refuse(500, f"{KEY} hunter2secret"), garbage(KEY)):
        server.script = [behaviour]
        with pytest.raises(EnvsuiteError) as caught:
            ask(server, api_key_var="MY_KEY", base_url=url)
        assert KEY not in str(caught.value) and "hunter2secret" not in str(caught.value)


def test_a_password_is_hidden_also_as_the_header_sends_it(server):
    header = base64.b64encode(b"user:hunter2secret").decode()
    server.script = [refuse(404, f"You sent Authorization: Basic {header}")]
    with pytest.raises(EnvsuiteError, match=r"Basic \*\*\*") as caught:
        ask(server, base_url=server.url.replace("http://", "http://user:hunter2secret@"))
    assert header not in str(caught.value)


def test_a_dry_run_prints_no_password(capsys):
    with pytest.raises(SystemExit):
        envsuite_eval(
            [
                "-m",
                "m",
                "-e",
                "HiLo-v0",
                "-n",
                "1",
                "--dry-run",
                "--base-url",
                "http://user:hunter2secret@localhost:1/v1",
            ]
        )
    output = capsys.readouterr()
    assert "http://localhost:1/v1" in output.out and "hunter2secret" not in output.out + output.err


@pytest.mark.parametrize(
    "url", ["ftp://user:hunter2secret@host", "http://user:hunter2secret@:x/v1", "http://[a:hunter2secret@"]
)
def test_an_address_that_cannot_be_used_is_named_without_its_password(url):
    with pytest.raises(UsageError) as caught:
        address(url)
    assert "hunter2secret" not in str(caught.value)


def test_the_pause_that_a_server_requests_during_the_check_of_its_weights_is_kept(server):
    server.script = [refuse(429, "slow down", Retry_After="0.2")]
    reply = ask(server, watch=True, max_retries=1)
    first, second = (when for _, _, when in server.requests[:2])
    assert not reply.error and second - first >= 0.2
