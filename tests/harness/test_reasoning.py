"""Reasoning in replies: where it ends, how it is stored apart from the answer, and how conversations show it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite import registry
from harness import reasoning, records, steps
from harness.prompting.grammars import GRAMMARS
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import read_text
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, Turn, episode
from tests import toys  # noqa: F401  registers the toys

PARTS = ["<think>", "</think>", "a", "<action>go</action>", " ", "<tool_call>", "</tool_call>", "{"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=7).map("".join)


@given(TEXTS, st.sampled_from([(), ("go",), ("a",)]))
def test_a_stored_reply_is_read_back_to_the_letter(text, commands):
    stored = json.loads(json.dumps(steps.step(Turn("", Reply(text), commands, 0.0, {}), "seen")))
    assert steps.reply_text(stored) == text


@given(TEXTS)
def test_closed_reasoning_is_never_open(text):
    assert not reasoning.is_open(reasoning.closed(text))
    assert reasoning.closed(text).startswith(text)


@pytest.mark.parametrize(
    ("text", "stored", "answer"),
    [
        ("<think>why</think><action>go</action>", "why", "<action>go</action>"),
        ("<think>why</think>", "why", ""),
        ("<think>why", None, "<think>why"),
        ("Well. <think>why</think>go", None, "Well. <think>why</think>go"),
        ("<think></think>go", None, "<think></think>go"),
    ],
)
def test_reasoning_at_the_start_is_a_field_of_its_own(text, stored, answer):
    step = steps.step(Turn("", Reply(text), (), 0.0, {}, fault="format"), "seen")
    assert (step.get("reasoning"), step["reply"]) == (stored, answer)


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think>why", True),
        ("<think>why</think>", True),
        ("<think>why</think>\n", True),
        ("<think>a</think>b<think>c", True),
        ("<think>why</think>go", False),
        ("go", False),
        ("", False),
    ],
)
def test_a_reply_without_an_answer_is_still_thinking(text, thinking):
    assert reasoning.is_thinking(text) is thinking


@given(TEXTS)
def test_the_definitions_of_reasoning_agree(text):
    thought, answer = reasoning.separate(text)
    assert bool(reasoning.blocks(text)) is (reasoning.end_of_reasoning(text) > 0)
    assert answer.endswith(text[reasoning.end_of_reasoning(text) :])
    assert reasoning.without(text) in (text, answer.strip())
    if parts := reasoning.split(text):
        assert thought.startswith(parts[0].strip())


CALL = '<tool_call>{"name": "write", "arguments": {"text": "<think>a</think> b </think>"}}</tool_call>'
JSON_CALL = '{"name": "write", "parameters": {"text": "<think>a</think> b </think>"}}'


@pytest.mark.parametrize("call", [CALL, JSON_CALL, f"<|python_tag|>{JSON_CALL}", f"[{JSON_CALL}]"])
@pytest.mark.parametrize("before", ["", "<think>why</think>", "<think>why</think>\n", "why</think>"])
def test_the_tags_of_reasoning_in_a_calls_arguments_belong_to_the_arguments(before, call):
    text, calls = read_text(before + call)
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("write", {"text": "<think>a</think> b </think>"})
    ]
    assert text.strip() == before.strip() and not reasoning.is_open(before + call)
    assert reasoning.separate(before + call) == ("why" if before else "", before.partition("</think>")[2] + call)


@pytest.mark.parametrize("grammar", ["action", "actions", "bare", "tool", "bash"])
def test_a_command_in_reasoning_that_the_prompt_opened_is_not_played(grammar):
    no, yes = (GRAMMARS[grammar].spell(command, "") for command in ("no", "yes"))
    parsed = Prompting(grammar).parse(f"First {no}? No.</think>\n{yes}")
    assert parsed.commands == ("yes",) and "No." in parsed.thought
    assert Prompting(grammar).parse(f"First {no}? No.</think>").commands == ()


class Thinker:
    name, advice_kind, deterministic = "thinker", "", True

    def __init__(self, *replies):
        self.replies, self.prompts = replies, []

    def act(self, prompts):
        self.prompts += prompts
        return [self.replies[prompt.turn] for prompt in prompts]

    def close(self):
        pass


@pytest.mark.parametrize(
    ("history_reasoning", "first", "second"),
    [
        (True, "<think>why</think>", "<think>so</think><action>no</action>"),
        (False, "", "<action>no</action>"),
        (1, "", "<think>so</think><action>no</action>"),
    ],
)
def test_history_shows_reasoning_closed_or_not_at_all(history_reasoning, first, second):
    cut = Reply("<think>why", finish_reason="length")
    policy = Thinker(cut, Reply("<think>so</think><action>no</action>"), Reply("<action>no</action>"))
    prompting = Prompting(history_reasoning=history_reasoning)
    game = [episode(registry.TASKS["Signpost-v0"], 0, max_steps=3)]
    (run,) = rollout(policy, game, LocalExecutor(1), prompting)
    shown = [message["content"] for message in policy.prompts[2].messages if message["role"] == "assistant"]
    assert shown == [first, second]
    assert [turn.fault for turn in run.turns] == ["thinking", "invalid", "invalid"]
    record = records.record(run, "thinker", "sparse")
    assert record["faults"]["thinking"] == 1 and record["steps"][1]["reasoning"] == "so"
