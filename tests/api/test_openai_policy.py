"""A model behind a server, and a real server that misbehaves."""

import json
import logging
import time

import pytest

from envsuite.errors import DataError, UsageError
from harness.policies.chat_completions import Price
from harness.policies.health import PAUSE
from harness.policies.openai import SILENT_ROUNDS, OpenAIPolicy
from harness.policies.server_weights import Fingerprint
from harness.types import Prompt
from tests.api import server as misbehaving
from tests.api.server import answer, cut, drip, garbage, hang, hang_up, refuse

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def server():
    with misbehaving.running() as one:
        yield one


def ask(server, *prompts, **options):
    """Replies of a policy that pauses for a moment only."""
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


def test_a_request_says_what_was_asked_for_and_a_reply_what_came(server):
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
    assert reply.text == "<action>look</action>", "the tag that the server cut off is put back"
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (100, 64, 8)
    assert reply.cost == pytest.approx((100 * 2 + 8 * 10) / 1e6)
    assert (reply.finish_reason, reply.error, reply.ids) == ("stop", "", ())


def test_reasoning_and_tool_calls_become_text_that_the_grammars_read(server):
    from harness.prompting.prompting import Prompting

    call = {"id": "1", "type": "function", "function": {"name": "act", "arguments": '{"command": "open fridge"}'}}
    server.script = [answer("", finish="tool_calls", reasoning_content="Food is cold.", tool_calls=[call])]
    tools = Prompting(grammar="tool").tools([])
    reply = ask(server, prompt(tools=tools))[0]
    parsed = Prompting(grammar="tool").parse(reply.text)
    assert (parsed.commands, parsed.thought) == (("open fridge",), "Food is cold.")
    assert server.requests[0][0]["tools"] == tools


def test_a_reply_cut_by_its_length_says_so(server):
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


SILENT = ("hang", "slow drip")
"""end with the policy's patience; the others answer at once, however long that takes on a loaded machine"""


@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again_and_nothing_is_lost(server, fault):
    server.script = [FAULTS[fault]]
    reply = ask(server, timeout=10.0 if fault in SILENT else 60.0)[0]
    assert (reply.text, reply.error) == ("<action>look</action>", "")
    assert len(server.requests) == 2
    assert server.requests[0][0] == server.requests[1][0], "the same question, the same dice"


def test_neighbours_of_a_fault_get_their_replies(server):
    server.script = [refuse(500), refuse(429), garbage("?"), cut]
    replies = ask(server, *[prompt(f"room {number}", key=str(number)) for number in range(8)])
    assert [reply.text for reply in replies] == ["<action>look</action>"] * 8
    assert len(server.requests) == 12


@pytest.mark.parametrize("fault", ["500", "garbage", "hang up"])
def test_a_reply_that_never_comes_is_an_error_and_spares_the_others(server, fault):
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01, max_retries=2)
    assert who.act([prompt()])[0].error == ""
    server.script = [FAULTS[fault]] * 3
    reply = who.act([prompt()])[0]
    assert (reply.text, reply.ids) == ("", ())
    assert server.url in reply.error
    assert "(tried 3 times)" in reply.error
    assert who.act([prompt()])[0].error == ""
    who.close()


def test_a_server_that_was_never_there_ends_the_run_at_once():
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


def test_the_pause_a_server_asks_for_is_made(server):
    server.script = [refuse(429, Retry_After="0.5")]
    began = time.monotonic()
    ask(server)
    assert server.requests[1][2] - began >= 0.5


def test_requests_keep_to_the_rate(server):
    began = time.monotonic()
    ask(server, *[prompt(key=str(number)) for number in range(4)], requests_per_minute=120)
    assert len(server.requests) == 4
    last = max(moment for _, _, moment in server.requests)
    assert last - began > 1.4, "four requests, half a second apart; from before the first, which may itself come late"


def test_conversations_keep_to_their_server_and_leave_it_when_it_fails():
    with misbehaving.running() as one, misbehaving.running() as two:
        who = OpenAIPolicy("m", base_url=f"{one.url},{two.url}", first_pause=0.01)
        talks = [prompt(key=str(number)) for number in range(12)]
        who.act(talks)
        before = len(one.requests)
        assert 0 < before < 12
        who.act(talks)
        assert len(one.requests) == 2 * before
        one.script = [refuse(500)] * 12
        assert all(reply.text for reply in who.act(talks))
        who.close()


def test_the_oldest_turns_go_where_the_server_finds_the_prompt_too_long(server):
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


def test_a_prompt_the_server_will_not_answer_breaks_its_own_episode_only(server):
    who = OpenAIPolicy("m", base_url=server.url, first_pause=0.01)
    server.script = [refuse(400, "flagged by the content filter")]
    replies = who.act([prompt(), prompt(key="other")])
    assert sorted(bool(reply.error) for reply in replies) == [False, True]
    assert len(server.requests) == 2, "not asked again"
    who.close()


def test_fields_a_server_refuses_are_left_out_from_then_on(server):
    server.script = [refuse(400, "Unknown parameter: 'chat_template_kwargs'")]
    who = OpenAIPolicy("m", base_url=server.url, thinking=False)
    with pytest.warns(UserWarning, match="chat_template_kwargs"):
        assert who.act([prompt()])[0].text
    who.act([prompt()])
    assert "chat_template_kwargs" in server.requests[0][0]
    assert all("chat_template_kwargs" not in body for body, _, _ in server.requests[1:])
    who.close()


def test_newer_models_are_told_max_completion_tokens(server):
    server.script = [refuse(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")]
    assert ask(server, max_tokens=9)[0].text
    assert server.requests[1][0]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[1][0]


def test_a_model_that_is_not_served_is_one_line_with_those_that_are(server):
    server.script = [refuse(404, "The model does not exist")]
    server.serves = ["small-model-2", "large"]
    with pytest.raises(UsageError, match=r"serves small-model-2, large.*Did you mean 'small-model-2'"):
        ask(server)


def test_the_key_goes_into_the_header_and_nowhere_else(server, monkeypatch, caplog, capfd):
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


def test_a_refused_request_without_key_says_how_to_name_one(server):
    server.script = [refuse(401, "no key")]
    with pytest.raises(UsageError, match="--api-key-var"):
        ask(server)


def test_a_password_in_the_address_is_not_repeated(server):
    url = server.url.replace("http://", "http://me:hunter2@")
    who = OpenAIPolicy("m", base_url=url, first_pause=0.01, max_retries=0)
    who.act([prompt()])
    server.script = [refuse(500)]
    assert "hunter2" not in who.act([prompt()])[0].error + repr(who)
    who.close()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://"])
def test_what_is_no_address_is_said_to_be(url):
    with pytest.raises(UsageError, match="--base-url"):
        OpenAIPolicy("m", base_url=url)


def test_an_address_without_path_gets_the_usual_one():
    assert OpenAIPolicy("m", base_url="http://localhost:8000").servers == ["http://localhost:8000/v1"]


def test_a_server_is_known_again_by_its_weights(server):
    """After a failure it is asked the fixed question anew: the same goes on, another ends the run."""
    who = OpenAIPolicy("small-model", base_url=server.url, first_pause=0.01, timeout=60.0, watch=True)
    try:
        assert not who.act([prompt()])[0].error
        asked = len(server.requests)
        assert not who.act([prompt()])[0].error
        assert len(server.requests) == asked + 1, "one that has not failed is not asked again"
        server.script = [hang_up]
        assert not who.act([prompt()])[0].error
        server.script, server.says = [hang_up], "<action>jump</action>"
        with pytest.raises(DataError, match="came back with other weights"):
            who.act([prompt()])
    finally:
        who.close()


def test_two_servers_of_one_run_must_hold_the_same_weights(server):
    with misbehaving.running() as other:
        other.says = "<action>jump</action>"
        talks = [prompt(key=str(talk)) for talk in range(8)]
        with pytest.raises(DataError, match="hold other weights"):
            ask(server, *talks, base_url=f"{server.url},{other.url}", watch=True)


@pytest.mark.parametrize(
    ("tokens", "root", "same"),
    [
        ((("a", -0.11), ("b", -0.9)), "", True),
        ((("a", -0.1), ("c", -0.92)), "", True),  # a tie that other kernels broke
        ((("c", -0.1), ("b", -0.9)), "", False),
        ((("a", -0.6), ("b", -0.9)), "", False),
        ((), "weights/a", True),
        ((), "weights/b", False),
    ],
)
def test_numerical_noise_is_told_from_other_weights(tokens, root, same):
    first = Fingerprint("weights/a", "a b", (("a", -0.1), ("b", -0.9)))
    assert (first.difference(Fingerprint(root, "a b", tokens)) == "") is same


def talks(*names):
    return [prompt(f"room {name}", key=name) for name in names]


def test_a_conversation_stays_with_its_server_and_a_new_one_goes_where_the_least_is_to_do(server):
    with misbehaving.running() as other:
        who = OpenAIPolicy("m", base_url=f"{server.url},{other.url}", first_pause=0.01)
        asked = lambda one: [body["messages"][1]["content"].removeprefix("room ") for body, _, _ in one.requests]
        who.act(talks(*"abcdefgh"))
        here, there = asked(server), asked(other)
        assert (len(here), len(there)) == (4, 4)
        who.act(talks(*here, *"wxyz"))
        who.close()
        assert sorted(asked(server)[4:]) == sorted(here), "each knows the prefix of its own"
        assert sorted(asked(other)[4:]) == list("wxyz"), "the other had nothing else to do"


def test_a_server_that_hangs_is_paid_for_once_and_used_again_when_it_answers(server):
    with misbehaving.running() as other:
        other.script = [hang(60.0)] * 100
        who = OpenAIPolicy("m", base_url=f"{server.url},{other.url}", first_pause=0.01, timeout=2.0)
        assert not any(reply.error for reply in who.act(talks(*"abcdefgh")))
        assert len(other.requests) == 4, "each timed out once, side by side"
        for _ in range(3):
            assert not any(reply.error for reply in who.act(talks(*"abcdefgh", *"wxyz")))
        assert len(other.requests) == 4, "nobody has waited for it again"
        other.script = []
        who._health._paused_until[1] = 0.0  # its rest is over
        who.act(talks("new"))
        assert len(other.requests) == 5, "it holds the fewest conversations"
        who.close()


def test_a_dead_server_is_looked_at_before_it_is_used_again(server):
    with misbehaving.running() as gone:
        pass
    who = OpenAIPolicy("m", base_url=f"{server.url},{gone.url}", first_pause=0.01)
    assert not any(reply.error for reply in who.act(talks("a", "b")))
    for _ in range(3):
        who._health._paused_until[1] = 0.0
        assert not any(reply.error for reply in who.act(talks("a", "b")))
        assert who._health.available() == [0]
    assert who._health._pause[1] == 16 * PAUSE, "it rests longer each time"
    who.close()
