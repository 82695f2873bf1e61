"""Calls of tools: how they are read, what becomes of calls that are wrong, and how a conversation shows them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.tools import ACT, call_of
from harness import records
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from harness.policies.openai import OpenAIPolicy
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import (
    MOST_CALLS,
    NOT_EXECUTED,
    assistant_message,
    command_of,
    for_template,
    read_text,
    result_messages,
    with_ids,
)
from harness.provenance import replay
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.steps import reply_calls, reply_text
from harness.types import Reply, ToolCall, episode
from tests import toys  # noqa: F401  registers the toys
from tests.api.server import answer, refuse, running

TASK = registry.TASKS["Signpost-v0"]
ENV = registry.build("ALFWorld-generated-easy-v0")


def call(name="act", arguments='{"command": "north"}', identity="call-1"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>', "", [("look", "{}")]),
        ('Hm. <tool_call>{"name": "a", "arguments": {"b": 1}}', "Hm.", [("a", '{"b": 1}')]),
        (
            '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b"}</tool_call>',
            "",
            [("a", "{}"), ("b", "{}")],
        ),
        ('<think>x <tool_call>{"name": "no"}</tool_call></think>look', None, []),
        (
            '<think>x</think><tool_call>{"name": "a", "arguments": "{\\"b\\": 1"}</tool_call>',
            "<think>x</think>",
            [("a", '{"b": 1')],
        ),
        ("<tool_call>{broken</tool_call>", "", [("", "{broken")]),
        ('{"name": "go", "parameters": {"to": "x"}}', "", [("go", '{"to": "x"}')]),
        (
            '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}',
            "",
            [("a", "{}"), ("b", "{}")],
        ),
        ('[TOOL_CALLS] [{"name": "a", "arguments": {"b": "c"}}]', "", [("a", '{"b": "c"}')]),
        ('[{"name": "a", "arguments": {}}]', "", [("a", "{}")]),
        ("[TOOL_CALLS] broken", "", [("", "broken")]),
        ('{"name": "a"}', None, []),
        ('Use {"name": "a", "arguments": {}} now', None, []),
        ("take apple 1", None, []),
    ],
)
def test_calls_in_the_formats_of_common_templates_are_read(text, content, calls):
    assert read_text(text) == (text if content is None else content, calls)


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    content, calls = read_text(text)
    assert calls or content == text


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("go_to", '{"receptacle": "fridge 1"}', "go to fridge 1"),
        ("look", "", "look"),
        ("look", "null", "not a JSON object"),
        ("fly", "{}", 'There is no tool "fly": the tools are look, inventory'),
        ("", "{}", "not valid JSON"),
        ("go_to", "{}", "needs the argument receptacle"),
        ("go_to", '{"receptacle": ""}', "receptacle of go_to must not be empty"),
        ("go_to", '{"receptacle": "fridge 1"', "not a JSON object"),
        ("go_to", '["fridge 1"]', "not a JSON object"),
        ("go_to", '{"receptacle": {"name": "fridge 1"}}', "must be a string"),
        ("go_to", '{"receptacle": "a", "receptacle": "b"}', "not a JSON object"),
    ],
)
def test_a_call_gives_a_command_or_a_note_for_the_model(name, arguments, expected):
    parsed = Prompting("tools").parse("", [ToolCall("one", name, arguments)], ENV.tools)
    if parsed.commands:
        assert parsed.commands == (expected,) and not parsed.note
    else:
        assert expected in parsed.note
    assert parsed.calls == (ToolCall("one", name, arguments),)


def test_ids_are_kept_and_missing_or_repeated_ones_replaced():
    made = [ToolCall("x", "a", ""), ToolCall("x", "b", ""), ToolCall("", "c", "")]
    assert [call.id for call in with_ids(made, 12)] == ["x", "t00012c01", "t00012c02"]


@pytest.mark.parametrize("wording", ["synonyms", "invented"])
def test_reworded_tools_give_the_environments_commands(wording):
    prompting = Prompting("tools", wording=wording)
    names = [schema["function"]["name"] for schema in prompting.tools(ENV.tools)]
    assert len(set(names)) == len(names) and "take" not in names
    for command in ("take apple 1 from fridge 1", "go to fridge 1", "look", "put apple 1 in/on desk 1"):
        index = next(number for number, tool in enumerate(ENV.tools) if tool.arguments_of(command) is not None)
        arguments = {name: prompting.reword(value) for name, value in ENV.tools[index].arguments_of(command).items()}
        made = ToolCall("one", names[index], json.dumps(arguments))
        assert prompting.parse("", [made], ENV.tools).commands == (command,)


def test_messages_with_calls_are_well_formed_however_wrong_the_call():
    made = [ToolCall("1", "go to!", "{broken"), ToolCall("2", "", "[1]"), ToolCall("3", "look", " ")]
    message = assistant_message("text", made)
    functions = [call["function"] for call in message["tool_calls"]]
    assert [function["name"] for function in functions] == ["go_to_", "invalid", "look"]
    assert [json.loads(function["arguments"]) for function in functions] == [
        {"invalid": "{broken"},
        {"invalid": "[1]"},
        {},
    ]
    results = result_messages(made, "seen")
    assert [result["tool_call_id"] for result in results] == ["1", "2", "3"]
    assert [result["content"] for result in results] == ["seen", NOT_EXECUTED, NOT_EXECUTED]


class Scripted:
    """A policy that gives prepared replies."""

    name, advice_kind, deterministic = "scripted", "", True

    def __init__(self, *replies):
        self.replies, self.prompts = list(replies), []

    def act(self, prompts):
        self.prompts += prompts
        return [self.replies[prompt.turn] for prompt in prompts]

    def close(self):
        pass


def play(*replies, task="ALFWorld-generated-easy-v0", **prompting):
    policy = Scripted(*replies)
    executor = LocalExecutor(1)
    settings = Prompting(**{"grammar": "tools", "admissible": "none", **prompting})
    episodes = [episode(registry.TASKS[task], 1)]
    try:
        (run,) = rollout(policy, episodes, executor, settings, max_turns=len(replies))
    finally:
        executor.close()
    return run, policy.prompts


def native(name, text="", **arguments):
    return Reply(text, calls=(ToolCall(f"id-{name}", name, json.dumps(arguments)),))


WRONG = {
    "no call": (Reply("I look around."), "Your reply called no tool."),
    "an unknown tool": (native("fly"), "There is no tool"),
    "wrong JSON": (Reply("", calls=(ToolCall("id", "look", "{"),)), "not a JSON object"),
    "wrong arguments": (native("go_to", where="desk 1"), "needs the argument receptacle"),
    "a call in text that is no JSON": (Reply("<tool_call>{</tool_call>"), "not valid JSON"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_costs_a_turn_and_is_explained_and_never_breaks_the_episode(wrong):
    reply, message = WRONG[wrong]
    run, prompts = play(reply, native("look"), native("look"))
    assert not run.broken and [turn.fault for turn in run.turns] == ["format", "", ""]
    assert run.turns[0].commands == () and message in run.turns[0].note
    following = prompts[1].messages[-1]
    assert message in following["content"]
    assert following["role"] == ("tool" if run.turns[0].reply.calls else "user")


def test_of_several_calls_the_first_is_executed_and_each_is_answered():
    both = Reply("", calls=(ToolCall("a", "inventory", "{}"), ToolCall("b", "look", "{}"), ToolCall("c", "fly", "{")))
    run, prompts = play(both, native("look"))
    assert run.turns[0].commands == ("inventory",) and run.turns[0].fault == ""
    *_, request, first, second, third = prompts[1].messages
    assert [call["id"] for call in request["tool_calls"]] == ["a", "b", "c"]
    assert [(m["role"], m["tool_call_id"]) for m in (first, second, third)] == [("tool", name) for name in "abc"]
    assert first["content"] == run.turns[1].observation and second["content"] == third["content"] == NOT_EXECUTED


def test_a_short_history_begins_with_a_user_message_and_every_result_follows_its_call():
    replies = [native("look"), Reply("hm"), native("inventory"), native("look"), native("inventory")]
    _, prompts = play(*replies, history=2)
    for prompt in prompts:
        system, first, *messages = prompt.messages
        assert (system["role"], first["role"]) == ("system", "user")
        open_ids = []
        for message in messages:
            if message["role"] == "tool":
                assert message["tool_call_id"] == open_ids.pop(0)
            else:
                assert not open_ids
                open_ids = [call["id"] for call in message.get("tool_calls", ())]
    assert len(prompts[-1].messages) == 6


@pytest.mark.parametrize("history", [0, 1])
def test_a_result_whose_call_is_forgotten_is_a_user_message(history):
    _, prompts = play(native("look"), native("inventory"), Reply("hm"), native("look"), history=history)
    for prompt in prompts:
        roles = [message["role"] for message in prompt.messages]
        assert roles[:2] == ["system", "user"] and len(roles) <= 2 + 2 * history
        answered = [message["tool_call_id"] for message in prompt.messages if message["role"] == "tool"]
        made = [call["id"] for message in prompt.messages for call in message.get("tool_calls", ())]
        assert answered == made


def test_further_calls_of_a_reply_are_not_read():
    text = '{"name": "a", "arguments": {}}' * MOST_CALLS
    assert read_text(text + " and more") == ("", [("a", "{}")] * MOST_CALLS)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "act\\ud800", "arguments": {"command": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "act", "arguments": "{\\"command\\": \\"\\\\ud800\\"}"}</tool_call>',
    ],
    ids=["object", "text"],
)
def test_escapes_of_lone_surrogates_reach_neither_environments_nor_templates(text):
    for grammar in ("tool", "tools"):
        parsed = Prompting(grammar).parse(text, (), [ACT])
        assert all(command == "\ufffd" for command in parsed.commands)
    (message,) = for_template([assistant_message(text, parsed.calls)])
    json.dumps(message, ensure_ascii=False).encode()


def test_tools_stay_the_same_in_all_prompts_of_an_episode():
    _, prompts = play(native("look"), native("go_to", receptacle="desk 1"), native("look"))
    assert prompts[0].tools == prompts[1].tools == prompts[2].tools and len(prompts[0].tools) == 14


def test_reasoning_apart_from_calls_is_kept_or_left_out_of_history():
    reply = Reply("<think>why</think>Well.", calls=(ToolCall("a", "look", "{}"),))
    _, complete = play(reply, native("look"))
    _, stripped = play(reply, native("look"), history_reasoning=False)
    assert complete[1].messages[2]["content"] == "<think>why</think>Well."
    assert stripped[1].messages[2]["content"] == "" and stripped[1].messages[2]["tool_calls"]


def served(tmp_path, script, **prompting):
    """Plays Signpost against a server with prepared messages; returns the file of results and the requests."""
    with running() as server:
        server.script = [answer(**parts) for parts in script]
        run = RunConfig(TASK, "openai:stub", episodes=1, prompting=Prompting("tools", **prompting))
        policy = OpenAIPolicy("stub", base_url=server.url, max_retries=0)
        try:
            evaluate(run, tmp_path, lambda: policy, Execution(num_workers=0))
        finally:
            policy.close()
        bodies = [body for body, _, _ in server.requests]
    return run.folder(tmp_path) / "results.jsonl", bodies


def test_calls_over_http_are_recorded_as_they_were_and_replay(tmp_path):
    raw = '{"command" : "south"}'
    file, bodies = served(
        tmp_path,
        [
            {"text": "", "tool_calls": [call(arguments=raw), call(identity="call-2")], "reasoning_content": "Hm."},
            {"text": "Now.", "tool_calls": [call(arguments="{")]},
        ],
    )
    (record,) = records.read_results(file)
    first, second = record["steps"]
    assert first["calls"][0] == {"id": "call-1", "name": "act", "arguments": raw} and len(first["calls"]) == 2
    assert first["reasoning"] == "Hm." and first["reply"] == "" and first["commands"] == ["south"]
    assert second["fault"] == "format" and second["calls"][0]["arguments"] == "{" and record["stop_reason"] != "broken"
    assert bodies[0]["tools"][0]["function"]["name"] == "act" and bodies[0]["parallel_tool_calls"] is False
    *_, request, result, refused = bodies[1]["messages"]
    assert request["tool_calls"][0] == call(arguments=raw) and request["content"] == "<think>Hm.</think>"
    assert (result["role"], result["tool_call_id"]) == ("tool", "call-1") and refused["content"] == NOT_EXECUTED
    assert [verdict.difference for verdict in replay.check(file, num_workers=0)] == [""]


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (lambda step: step["calls"][0].update(arguments='{"command": "east"}'), "the reply gives"),
        (lambda step: step.update(commands=["east"]), "observation|success|reward|stop|terminated"),
        (lambda step: step.pop("calls"), "the reply gives"),
        (lambda step: step["calls"][0].update(id=7), "is not a record"),
    ],
    ids=["arguments", "command", "calls removed", "an id that is a number"],
)
def test_a_changed_call_is_found_by_the_replay(tmp_path, edit, difference):
    file, _ = served(tmp_path, [{"text": "", "tool_calls": [call()]}] * 2)
    record = json.loads(file.read_text())
    edit(record["steps"][0])
    (tmp_path / "alone").mkdir()
    for name in ("config.json",):
        (tmp_path / "alone" / name).write_text((file.parent / name).read_text())
    changed = tmp_path / "alone" / "results.jsonl"
    changed.write_text(json.dumps(record) + "\n")
    if difference == "is not a record":
        with pytest.raises(Exception, match=difference):
            list(replay.check(changed, num_workers=0))
        return
    import re

    differences = [verdict.difference for verdict in replay.check(changed, num_workers=0) if verdict.difference]
    assert differences and any(re.search(difference, text) for text in differences), differences


def test_a_server_that_refuses_the_field_for_parallel_calls_gets_requests_without_it(tmp_path):
    with running() as server:
        server.script = [refuse(400, "unsupported parameter: parallel_tool_calls"), answer("", tool_calls=[call()])]
        policy = OpenAIPolicy("stub", base_url=server.url, max_retries=0)
        try:
            with pytest.warns(UserWarning, match="parallel_tool_calls"):
                (run,) = rollout(policy, [episode(TASK, 0)], LocalExecutor(1), Prompting("tools"), max_turns=1)
        finally:
            policy.close()
        assert "parallel_tool_calls" not in server.requests[-1][0] and run.success


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (400, "small-model does not support tools"),
        (404, "No endpoints found that support tool use."),
        (422, "Extra inputs are not permitted: tools"),
    ],
)
def test_a_server_without_tool_calls_ends_the_run_with_the_cure(status, message):
    with running() as server:
        server.script = [refuse(status, message)]
        policy = OpenAIPolicy("stub", base_url=server.url, max_retries=0)
        try:
            with pytest.raises(UsageError, match="--action-grammar tool, whose calls are text"):
                list(rollout(policy, [episode(TASK, 0)], LocalExecutor(1), Prompting("tools"), max_turns=1))
        finally:
            policy.close()


def test_a_server_that_cannot_read_one_call_does_not_end_the_run():
    error = refuse(500, "unexpected end of the tools' JSON")
    with running() as server:
        server.script = [answer("", tool_calls=[call(arguments="{")]), error, answer("", tool_calls=[call()])]
        policy = OpenAIPolicy("stub", base_url=server.url, max_retries=1, first_pause=0.01)
        try:
            (run,) = rollout(policy, [episode(TASK, 0)], LocalExecutor(1), Prompting("tools"), max_turns=2)
        finally:
            policy.close()
        assert not run.broken and run.success and len(run.turns) == 2


def test_a_call_that_a_text_quotes_beside_the_servers_call_is_no_difference(tmp_path):
    text = 'Not <tool_call>{"name": "act", "arguments": {"command": "east"}}</tool_call>, but:'
    file, _ = served(tmp_path, [{"text": text, "tool_calls": [call()]}] * 2)
    assert [verdict.difference for verdict in replay.check(file, num_workers=0)] == [""]


def test_the_replayed_record_equals_the_record(tmp_path):
    file, _ = served(tmp_path, [{"text": "", "tool_calls": [call(arguments='{"command": "west"}')]}] * 2)
    (record,) = records.read_results(file)
    policy = make_policy(f"replay:{file}")
    executor = LocalExecutor(1)
    (run,) = rollout(policy, [episode(TASK, record["seed"])], executor)
    again = records.record(run, record["model"], "sparse")
    for step, replayed in zip(record["steps"], again["steps"], strict=True):
        assert reply_calls(step) == reply_calls(replayed) and reply_text(step) == reply_text(replayed)


def test_score_mode_and_text_only_users_refuse_the_grammar(tmp_path):
    from harness.cli.arguments.flags import read_call
    from harness.cli.eval import parser
    from harness.cli.playing.players import run_options
    from harness.evaluate import Sampling

    args = parser().parse_args(["-m", "smollm2-135m", "-e", "babyai", "--action-mode", "score"])
    config = RunConfig(TASK, "smollm2-135m", sampling=Sampling(action_mode="score"), prompting=Prompting("tools"))
    with pytest.raises(UsageError, match="--action-grammar tools"):
        run_options(read_call(args), config)


def test_the_command_of_every_experts_turn_has_a_call_in_the_demonstrations():
    from harness.prompting.demos import demonstrations

    policy, executor = make_policy("expert"), LocalExecutor(1, advice_kind="expert")
    runs = list(rollout(policy, [episode(registry.TASKS["BabyAI-easy-v0"], 1)], executor))
    executor.close()
    (demonstration,) = demonstrations(runs, Prompting("tools", admissible="none"))
    names = [m["tool_calls"][0]["function"]["name"] for m in demonstration["messages"] if m["role"] == "assistant"]
    assert [name.replace("_", " ") for name in names] == [turn.commands[0] for turn in runs[0].turns]
    assert demonstration["tools"][0]["function"]["name"] == "turn_left"
    assert call_of(runs[0].tools, "turn left") == ("turn_left", {})
    assert command_of(ToolCall("1", "turn_left", "{}"), runs[0].tools) == "turn left"


@pytest.mark.parametrize("task", ["ALFWorld-generated-easy-v0", "BabyAI-easy-v0", "VirtualHome-easy-v0"])
def test_a_script_gets_the_same_records_by_text_and_by_tool_calls(tmp_path, task):
    """`python -m benchmarks.tool_calls` compares all families."""
    from benchmarks.tool_calls import compare

    result = compare(task, "expert", 2, tmp_path)
    assert result.differences == [] and result.records == result.won == 2
    assert result.turns > result.calls > 0
