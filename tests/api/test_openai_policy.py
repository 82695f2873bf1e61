"""OpenAIPolicy against a loopback server with scripted faults."""

import itertools
import json
import logging
import time

import httpx
import pytest

from envsuite.errors import DataError, UsageError
from envsuite.tools import ACT
from harness.policies.chat_completions import Price, read
from harness.policies.connections.failures import REFUSALS, SILENT_ROUNDS, FailureStreak
from harness.policies.connections.health import PAUSE
from harness.policies.identities import Fingerprint
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.reasoning import is_thinking
from harness.types import Prompt, Reply, ToolCall
from tests.api import server as misbehaving
from tests.api.server import answer, cut, drip, garbage, hang, hang_up, refuse

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def server():
    with misbehaving.running() as loopback_server:
        yield loopback_server


def ask(server, *prompts, **options):
    """Returns the replies of a policy with short retry pauses."""
    url = options.pop("base_url", server.url)
    who = OpenAIPolicy("small-model", **{"base_url": url, "first_pause": 0.01, "timeout": 60.0, **options})
    try:
        return who.act(prompts or [prompt()])
    finally:
        who.close()


def prompt(text="You see a fridge.", seed=5, key="talk", **more):
    return Prompt(
        [{"role": "system", "content": "Play."}, {"role": "user", "content": text}], seed=seed, key=key, **more
    )


def test_request_and_reply_hold_all_fields(server):
    usage = {"prompt_tokens": 100, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}}
    server.script = [answer("<action>look", usage=usage)]
    options = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 33, "stop": ["</action>"], "thinking": False}
    reply = ask(server, prompt(seed=2**40 + 5), price=Price(2.0, 10.0), **options)[0]
    body, headers, _ = server.requests[0]
    assert body == {
        "model": "small-model",
        "messages": [{"role": "system", "content": "Play."}, {"role": "user", "content": "You see a fridge."}],
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 33,
        "stop": ["</action>"],
        "seed": 5,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert "Authorization" not in headers
    assert reply.text == "<action>look</action>", "the stop tag that the server removed is restored"
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (100, 64, 8)
    assert reply.cost == pytest.approx((100 * 2 + 8 * 10) / 1e6)
    assert (reply.finish_reason, reply.error, reply.ids) == ("stop", "", ())


def test_fields_and_headers_of_the_user_are_sent(server):
    server.script = [answer("look")]
    ask(
        server,
        temperature=None,
        reasoning_effort="low",
        extra_body='{"top_k": 20}',
        headers=["X-Team: blue", "X-Trace:a:b"],
    )
    body, headers, _ = server.requests[0]
    assert "temperature" not in body and (body["reasoning_effort"], body["top_k"]) == ("low", 20)
    assert (headers["X-Team"], headers["X-Trace"]) == ("blue", "a:b")


@pytest.mark.parametrize(
    ("refused", "options", "advice"),
    [
        ("temperature does not support 0.0 with this model", {}, "--temperature default"),
        ("Unrecognized argument: reasoning_effort", {"reasoning_effort": "low"}, "leave out --reasoning-effort"),
        ("top_p is not supported", {"top_p": 0.5}, "leave out --top-p"),
    ],
)
def test_a_refused_field_is_named_with_its_flag(server, refused, options, advice):
    server.script = [refuse(400, refused)]
    with pytest.raises(UsageError, match=advice):
        ask(server, **options)


@pytest.mark.parametrize("word", ["no colon", ": hunter2", "X-A: h\u00fcnter2", "X-A: hunter2\nX-B: b"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(server, word):
    with pytest.raises(UsageError, match="--header takes NAME:VALUE") as caught:
        ask(server, headers=[word])
    assert "nter2" not in str(caught.value) and "colon" not in str(caught.value)


def test_reasoning_and_tool_calls_are_kept_apart_from_the_text(server):
    call = {"id": "1", "type": "function", "function": {"name": "act", "arguments": '{"command": "open fridge"}'}}
    nameless = {"type": "function", "function": {"name": "look"}}
    server.script = [answer("", finish="tool_calls", reasoning_content="Food is cold.", tool_calls=[call, nameless])]
    prompting = Prompting("tools")
    reply = ask(server, prompt(tools=prompting.tools([ACT])))[0]
    assert reply.calls == (ToolCall("1", "act", '{"command": "open fridge"}'), ToolCall("", "look", "{}"))
    parsed = prompting.parse(reply.text, reply.calls, [ACT])
    assert (parsed.commands, parsed.thought) == (("open fridge",), "Food is cold.")
    assert server.requests[0][0]["tools"] == [ACT.schema()]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_reply_with_reasoning_alone_is_closed_and_counts_as_cut_off_in_its_reasoning(server, field):
    server.script = [answer("", finish="length", **{field: "Food is"})]
    reply = ask(server)[0]
    assert (reply.text, reply.finish_reason) == ("<think>Food is</think>", "length")
    assert is_thinking(reply.text)


def test_a_truncated_reply_has_finish_reason_length(server):
    server.script = [answer("<action>go to", finish="length")]
    reply = ask(server, stop=["</action>"])[0]
    assert (reply.text, reply.finish_reason) == ("<action>go to", "length")


FAULTS = {
    "429": refuse(429, "slow down"),
    "500": refuse(500, "oops"),
    "503 in HTML": lambda handler: misbehaving.send(handler, 503, "<html>busy</html>"),
    "garbage": garbage("<html>welcome to the portal</html>"),
    "empty": garbage(""),
    "no choices": garbage('{"choices": []}'),
    "a list": garbage("[1, 2]"),
    "odd usage": garbage('{"choices": [{"message": {"content": "x"}}], "usage": 7}'),
    "not text": garbage('{"choices": [{"message": {"content": 3}}]}'),
    "hang": hang(120.0),
    "cut stream": cut,
    "hang up": hang_up,
    "slow drip": drip,
}


TIMED_OUT = ("hang", "slow drip")
"""Faults that end with the policy's timeout; the others answer at once, even on a loaded machine."""


@pytest.mark.parametrize("fault", FAULTS)
def test_transient_faults_are_retried(server, fault):
    server.script = [FAULTS[fault]]
    reply = ask(server, timeout=3.0 if fault in TIMED_OUT else 60.0)[0]
    assert (reply.text, reply.error) == ("<action>look</action>", "")
    assert len(server.requests) == 2
    assert server.requests[0][0] == server.requests[1][0], "the same prompt and seed"


def test_concurrent_requests_are_unaffected_by_a_fault(server):
    server.script = [refuse(500), refuse(429), garbage("?"), cut]
    replies = ask(server, *[prompt(f"room {number}", key=str(number)) for number in range(8)])
    assert [reply.text for reply in replies] == ["<action>look</action>"] * 8
    assert len(server.requests) == 12


@pytest.mark.parametrize("fault", ["500", "garbage", "hang up"])
def test_a_request_that_keeps_failing_is_an_error_of_its_reply_only(server, fault):
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01, max_retries=2)
    assert who.act([prompt()])[0].error == ""
    server.script = [FAULTS[fault]] * 3
    reply = who.act([prompt()])[0]
    assert (reply.text, reply.ids) == ("", ())
    assert server.url in reply.error
    assert "(tried 3 times)" in reply.error
    assert who.act([prompt()])[0].error == ""
    who.close()


def test_an_unreachable_server_ends_the_run_at_once():
    with misbehaving.running() as gone:
        pass
    with pytest.raises(DataError, match=r"ConnectError.*--resume"):
        ask(gone, max_retries=1)


def test_a_server_that_dies_ends_the_run_before_it_breaks_every_episode(server):
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01, max_retries=0)
    assert not who.act([prompt()])[0].error
    server.script = [hang_up] * SILENT_ROUNDS
    for _ in range(SILENT_ROUNDS - 1):
        assert who.act([prompt()])[0].error
    with pytest.raises(DataError, match="--resume"):
        who.act([prompt()])
    who.close()


def test_one_conversation_at_a_time_survives_refusals_until_there_are_too_many(server):
    """Also if the first prompt of the run is refused, and the server has never accepted one."""
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01)
    server.script = [refuse(400, "flagged by the content filter")] * (REFUSALS - 1)
    for _ in range(REFUSALS - 1):
        assert "flagged" in who.act([prompt()])[0].error
    assert not who.act([prompt()])[0].error
    server.script = [refuse(400, "flagged by the content filter")] * REFUSALS
    with pytest.raises(DataError, match=rf"flagged.*{REFUSALS} failures in a row.*--resume"):
        [who.act([prompt()]) for _ in range(REFUSALS)]
    assert not server.script
    who.close()


NO_ANSWER, REFUSAL = (
    Reply("", error="no answer", finish_reason="silent"),
    Reply("", error="no", finish_reason="refused"),
)


@pytest.mark.parametrize(
    ("replies", "ends"),
    [
        ([REFUSAL, REFUSAL, Reply("x"), REFUSAL], False),
        ([NO_ANSWER] * 4, True),
        ([NO_ANSWER, NO_ANSWER, REFUSAL, NO_ANSWER], False),  # a refusal is an answer: more failures are needed
        ([NO_ANSWER, NO_ANSWER, NO_ANSWER, Reply("x")], False),
    ],
)
def test_the_end_of_a_run_does_not_depend_on_the_order_of_replies(replies, ends):
    for order in itertools.permutations(range(4)):
        streak = FailureStreak()
        for ticket in range(4):
            streak.submitted(ticket)
        decisions = [streak.replied(ticket, replies[ticket]) for ticket in order]
        assert any(decisions) is ends, order


def test_retry_after_is_respected(server):
    server.script = [refuse(429, Retry_After="0.5")]
    began = time.monotonic()
    ask(server)
    assert server.requests[1][2] - began >= 0.5


def test_requests_respect_the_rate_limit(server):
    began = time.monotonic()
    ask(server, *[prompt(key=str(number)) for number in range(4)], requests_per_minute=120)
    assert len(server.requests) == 4
    last = max(moment for _, _, moment in server.requests)
    assert last - began > 1.4, "four requests, half a second apart, timed from before the first"


def test_conversations_stay_on_their_server_until_it_fails():
    with misbehaving.running() as first, misbehaving.running() as second:
        who = OpenAIPolicy("m", base_url=f"{first.url},{second.url}", first_pause=0.01)
        talks = [prompt(key=str(number)) for number in range(12)]
        who.act(talks)
        before = len(first.requests)
        assert 0 < before < 12
        who.act(talks)
        assert len(first.requests) == 2 * before
        first.script = [refuse(500)] * 12
        assert all(reply.text for reply in who.act(talks))
        who.close()


def test_the_oldest_turns_are_dropped_if_the_prompt_is_too_long(server):
    long = refuse(400, "This model's maximum context length is 10 tokens. However, you requested 12 tokens.")
    server.script = [long, long]
    messages = [{"role": "system", "content": "Play."}]
    for turn in range(3):
        messages += [{"role": "user", "content": f"room {turn}"}, {"role": "assistant", "content": "look"}]
    messages.append({"role": "user", "content": "room 3"})
    reply = ask(server, Prompt(messages))[0]
    assert reply.dropped_turns == 2
    assert [m["content"] for m in server.requests[-1][0]["messages"]] == ["Play.", "room 2", "look", "room 3"]
    server.script = [long] * 4
    assert ask(server, Prompt(messages))[0].finish_reason == "context"


def test_a_refused_prompt_fails_only_its_own_episode(server):
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01)
    server.script = [refuse(400, "flagged by the content filter")]
    replies = who.act([prompt(), prompt(key="other")])
    assert sorted(bool(reply.error) for reply in replies) == [False, True]
    assert len(server.requests) == 2, "not retried"
    who.close()


def test_refused_request_fields_are_omitted_afterwards(server):
    server.script = [refuse(400, "Unknown parameter: 'chat_template_kwargs'")]
    who = OpenAIPolicy("m", base_url=server.url, thinking=False)
    with pytest.warns(UserWarning, match="chat_template_kwargs"):
        assert who.act([prompt()])[0].text
    who.act([prompt()])
    assert "chat_template_kwargs" in server.requests[0][0]
    assert all("chat_template_kwargs" not in body for body, _, _ in server.requests[1:])
    who.close()


def test_newer_models_get_max_completion_tokens(server):
    server.script = [refuse(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")]
    assert ask(server, max_tokens=9)[0].text
    assert server.requests[1][0]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[1][0]


def test_an_unknown_model_raises_an_error_with_the_served_models(server):
    server.script = [refuse(404, "The model does not exist")]
    server.serves = ["small-model-2", "large"]
    with pytest.raises(UsageError, match=r"serves small-model-2, large.*Did you mean 'small-model-2'"):
        ask(server)


def test_the_api_key_is_sent_in_the_header_only(server, monkeypatch, caplog, capfd):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    who = OpenAIPolicy("m", base_url=server.url, api_key_var="MY_KEY", first_pause=0.01, max_retries=0)
    assert who.act([prompt()])[0].text
    assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(server.requests[0][0])
    for fault in (refuse(500, f"bad key {KEY}"), garbage(f"hello {KEY}"), refuse(400, f"{KEY}?")):
        server.script = [fault]
        reply = who.act([prompt()])[0]
        assert "***" in reply.error
        assert KEY not in reply.error
        who.act([prompt()])
    server.script = [refuse(401, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(UsageError, match=r"\*\*\*.*refused") as caught:
        who.act([prompt()])
    assert KEY not in str(caught.value)
    who.close()
    assert KEY not in repr(who) + caplog.text + "".join(capfd.readouterr())


def test_a_missing_key_names_its_variable(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        OpenAIPolicy("gpt-4o-mini")
    with pytest.raises(UsageError, match="NO_SUCH"):
        OpenAIPolicy("m", base_url=server.url, api_key_var="NO_SUCH")


def test_a_refused_request_without_a_key_names_the_flag(server):
    server.script = [refuse(401, "no key")]
    with pytest.raises(UsageError, match="--api-key-var"):
        ask(server)


def test_a_password_in_the_url_is_not_printed(server):
    url = server.url.replace("http://", "http://me:hunter2@")
    who = OpenAIPolicy("m", base_url=url, first_pause=0.01, max_retries=0)
    who.act([prompt()])
    server.script = [refuse(500)]
    assert "hunter2" not in who.act([prompt()])[0].error + repr(who)
    who.close()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://"])
def test_an_invalid_url_is_refused(url):
    with pytest.raises(UsageError, match="--base-url"):
        OpenAIPolicy("m", base_url=url)


def test_a_url_without_a_path_gets_v1():
    assert OpenAIPolicy("m", base_url="http://localhost:8000").servers == ["http://localhost:8000/v1"]


def test_a_server_that_returns_must_hold_the_same_weights(server):
    """Sends the fixed question again after a failure; the same answer continues, another ends the run."""
    who = OpenAIPolicy("small-model", base_url=server.url, first_pause=0.01, timeout=60.0, watch=True)
    try:
        assert not who.act([prompt()])[0].error
        requests = len(server.requests)
        assert not who.act([prompt()])[0].error
        assert len(server.requests) == requests + 1, "a server without a failure is not checked again"
        server.script = [hang_up]
        assert not who.act([prompt()])[0].error
        server.script, server.says = [hang_up], "<action>jump</action>"
        with pytest.raises(DataError, match="came back with other weights"):
            who.act([prompt()])
    finally:
        who.close()


def test_a_server_that_cannot_list_its_models_is_used_all_the_same(server):
    """`transformers serve` without a hub cache answers GET /models with 500 and drops the connection."""
    server.fails_to_list = True
    replies = ask(server, prompt(), watch=True, max_retries=0)
    assert [reply.error for reply in replies] == [""]


def test_two_servers_of_one_run_must_hold_the_same_weights(server):
    with misbehaving.running() as second:
        second.says = "<action>jump</action>"
        talks = [prompt(key=str(talk)) for talk in range(8)]
        with pytest.raises(DataError, match="hold other weights"):
            ask(server, *talks, base_url=f"{server.url},{second.url}", watch=True)


@pytest.mark.parametrize(
    ("tokens", "root", "same"),
    [
        ((("a", -0.11), ("b", -0.9)), "", True),
        ((("a", -0.1), ("c", -0.92)), "", True),  # a tie resolved differently by other kernels
        ((("c", -0.1), ("b", -0.9)), "", False),
        ((("a", -0.6), ("b", -0.9)), "", False),
        ((), "weights/a", True),
        ((), "weights/b", False),
    ],
)
def test_fingerprints_tolerate_numerical_noise_but_not_other_weights(tokens, root, same):
    first = Fingerprint("weights/a", "a b", (("a", -0.1), ("b", -0.9)))
    assert (first.difference(Fingerprint(root, "a b", tokens)) == "") is same


def talks(*names):
    return [prompt(f"room {name}", key=name) for name in names]


def test_a_new_conversation_goes_to_the_least_loaded_server_and_stays_there(server):
    with misbehaving.running() as second:
        who = OpenAIPolicy("m", base_url=f"{server.url},{second.url}", first_pause=0.01)

        def rooms(loopback_server):
            contents = [body["messages"][1]["content"] for body, _, _ in loopback_server.requests]
            return [content.removeprefix("room ") for content in contents]

        who.act(talks(*"abcdefgh"))
        here, there = rooms(server), rooms(second)
        assert (len(here), len(there)) == (4, 4)
        who.act(talks(*here, *"wxyz"))
        who.close()
        assert sorted(rooms(server)[4:]) == sorted(here), "each server has the prefixes of its own conversations"
        assert sorted(rooms(second)[4:]) == list("wxyz"), "the second server was idle"


def test_a_hanging_server_is_paused_after_one_timeout_and_reused_once_it_answers(server):
    with misbehaving.running() as second:
        second.script = [hang(60.0)] * 100
        who = OpenAIPolicy("m", base_url=f"{server.url},{second.url}", first_pause=0.01, timeout=2.0)
        assert not any(reply.error for reply in who.act(talks(*"abcdefgh")))
        assert len(second.requests) == 4, "each request timed out once, concurrently"
        for _ in range(3):
            assert not any(reply.error for reply in who.act(talks(*"abcdefgh", *"wxyz")))
        assert len(second.requests) == 4, "no further request waited for it"
        second.script = []
        who._health._paused_until[1] = 0.0  # the pause is over
        who.act(talks("new", "newer"))
        assert len(second.requests) == 5, "each server gets one of two new conversations"
        who.close()


def test_a_dead_server_is_probed_before_it_is_used_again(server):
    with misbehaving.running() as gone:
        pass
    who = OpenAIPolicy("m", base_url=f"{server.url},{gone.url}", first_pause=0.01)
    assert not any(reply.error for reply in who.act(talks("a", "b")))
    for _ in range(3):
        who._health._paused_until[1] = 0.0
        assert not any(reply.error for reply in who.act(talks("a", "b")))
        assert who._health.available() == [0]
    assert who._health._pause[1] == 16 * PAUSE, "the pause grows each time"
    who.close()


def test_a_chat_answer_may_have_a_text_field_too():
    choice = {"text": None, "message": {"content": "look"}, "finish_reason": "stop"}
    reply = read(httpx.Response(200, json={"choices": [choice]}), (), Price())
    assert reply is not None and reply.text == "look"


def test_a_server_that_only_takes_conversations_is_named_for_a_prompt_without_roles():
    with misbehaving.running() as server:
        server.script = [refuse(404, "Not Found")]
        with pytest.raises(UsageError, match=r"404: Not Found; prompts without roles need its /v1/completions; "):
            ask(server, Prompt([{"role": "completion", "content": "A room.\n>"}], seed=1, key="a"))
