"""Exports keep tool calls: ids, names, arguments and the result of each call."""

import json

import pytest

from envsuite import registry
from harness import records
from harness.interop.rows import messages, table
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, ToolCall, episode
from tests import toys  # noqa: F401  registers the toys

REPLIES = [
    Reply("<think>Which?</think>I try.", calls=(ToolCall("a", "act", '{"command":"no"}'), ToolCall("b", "act", "{"))),
    Reply("north"),
]


class Prepared:
    name, advice_kind, deterministic = "prepared", "", True

    def act(self, prompts):
        return [REPLIES[prompt.turn] for prompt in prompts]

    def close(self):
        pass


@pytest.fixture(scope="module")
def record():
    (run,) = rollout(
        Prepared(), [episode(registry.TASKS["Signpost-v0"], 0)], LocalExecutor(1), Prompting("tools"), max_turns=2
    )
    return json.loads(records.dump(records.record(run, "prepared", "sparse")))


def test_chats_have_the_roles_and_ids_of_openais_format(record):
    chat = messages(record)
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    calls = chat[1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"command":"no"}', '{"invalid": "{"}']
    assert [message["tool_call_id"] for message in chat[2:4]] == [call["id"] for call in calls] == ["a", "b"]


def test_tables_have_columns_of_calls_only_if_there_are_any(record):
    pytest.importorskip("pyarrow")
    rows = table([record]).to_pylist()
    assert rows[0]["messages"][1]["tool_calls"][0]["function"] == {"name": "act", "arguments": '{"command":"no"}'}
    plain = {**record, "steps": [{**step, "calls": []} for step in record["steps"]]}
    assert set(table([plain]).to_pylist()[0]["messages"][0]) == {"role", "content"}
