"""Tool calls of models in this process: templates show them as sampled, and only sampled tokens are trained on."""

import json

import pytest
import torch

from baselines.algorithms import sft
from baselines.batch import collate
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from envsuite import registry
from envsuite.errors import DataError, UsageError
from envsuite.tools import ACT
from harness import records
from harness.lm.completions import completion
from harness.lm.template import SampledReply, Template
from harness.policies import make_policy
from harness.policies.hf import HFPolicy
from harness.prompting.demos import demonstrations
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import assistant_message, read_text, result_messages, with_ids
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Reply, StopReason, Trajectory, Turn, episode
from tests import toys  # noqa: F401  registers the toys
from tests.lm.tiny import tiny_model, tiny_tokenizer

SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ '<|im_start|>system\\n' + m.content }}"
    "{% if tools %}{{ '\\n<tools>' + (tools | tojson) + '</tools>' }}{% endif %}{{ '<|im_end|>\\n' }}"
)
USER = "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
HERMES = (
    SYSTEM
    + "{% elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + m.content }}{% for c in m.tool_calls or [] %}"
    '{{ \'<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \' + (c.function.arguments | tojson) }}'
    "{{ '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>' + m.content + '</tool_response><|im_end|>\\n' }}"
    + USER
    + ASK
)
LLAMA = (
    SYSTEM
    + "{% elif m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    '{{ \'<|im_start|>assistant\\n{"name": "\' + m.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{ (m.tool_calls[0].function.arguments | tojson) + '}<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}{{ '<|im_start|>ipython\\n' + m.content + '<|im_end|>\\n' }}" + USER + ASK
)
MISTRAL = (
    "{% set ns = namespace(turn='user') %}{% for m in messages %}{% if m.role in ('user', 'assistant') and not "
    "m.tool_calls %}{% if m.role != ns.turn %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.turn = 'assistant' if m.role == 'user' else 'user' %}{% endif %}{% endfor %}"
    + SYSTEM
    + "{% elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
    "{{ raise_exception('an id has nine letters') }}{% endif %}{{ c.function | tojson }}{% endfor %}{{ ']<|im_end|>\\n' }}"
    "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
    "{% elif m.role == 'assistant' %}{{ m.content + '<|im_end|>\\n' }}" + USER
)
"""Minimal equivalents of the templates of Hermes and Qwen, of Llama 3, and of Mistral."""
SPELLED = {
    HERMES: 'I look.\n<tool_call>{{"name":"act",  "arguments": {{"command": "{0}"}}}}</tool_call>',
    LLAMA: '{{"name":"act",  "parameters": {{"command": "{0}"}}}}',
    MISTRAL: '[TOOL_CALLS][{{"name":"act",  "arguments": {{"command": "{0}"}}}}]',
}
"""Calls with other spaces than the templates write."""
TOOLS = [ACT.schema()]


def parts(template):
    tokenizer = tiny_tokenizer(template)
    return tokenizer, Template(tokenizer, {tokenizer.eos_token_id})


def sampled(tokenizer, text):
    """Tokenises letter by letter, unlike the tokenizer."""
    ids = [token for letter in text for token in tokenizer(letter, add_special_tokens=False)["input_ids"]]
    return SampledReply(text, (*ids, tokenizer.eos_token_id))


def conversation(replies):
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "a room"}]
    for turn, reply in enumerate(replies):
        calls = with_ids(read_text(reply.text)[1], turn)
        messages += [assistant_message(reply.text, calls), *result_messages(calls, f"result {turn}")]
    return messages


@pytest.mark.parametrize("source", [HERMES, LLAMA], ids=["hermes", "llama"])
def test_calls_stay_in_the_prompt_as_they_were_sampled(source):
    tokenizer, template = parts(source)
    replies, before = [], []
    for turn in range(3):
        encoded = template.encode(conversation(replies), replies, TOOLS)
        assert encoded.rewritten == 0 and encoded.ids[: len(before)] == before
        text = tokenizer.decode(encoded.ids)
        assert all(reply.text in text for reply in replies) and f"result {turn}" not in text
        assert not turn or f"result {turn - 1}" in text
        replies.append(sampled(tokenizer, SPELLED[source].format(f"go {turn}")))
        before = [*encoded.ids, *replies[-1].ids]


def test_a_template_that_accepts_calls_in_its_own_spelling_only_is_followed_and_counted():
    tokenizer, template = parts(MISTRAL)
    replies = [sampled(tokenizer, SPELLED[MISTRAL].format(word)) for word in ("go", "look")]
    encoded = template.encode(conversation(replies), replies, TOOLS)
    assert encoded.rewritten == 2
    assert '[TOOL_CALLS] [{"name": "act", "arguments": {"command": "go"}}]' in tokenizer.decode(encoded.ids)


@pytest.mark.parametrize("source", SPELLED, ids=["hermes", "llama", "mistral"])
def test_only_what_the_model_wrote_is_trained_on(source):
    tokenizer, template = parts(source)
    replies = [sampled(tokenizer, SPELLED[source].format(f"go {turn}")) for turn in range(3)]
    run = Trajectory(episode(registry.TASKS["Signpost-v0"], 0), stop_reason=StopReason.SOLVED)
    for turn, reply in enumerate(replies):
        prompt = template.encode(conversation(replies[:turn]), replies[:turn], TOOLS).ids
        run.turns.append(Turn("", Reply(reply.text, prompt, reply.ids, [0.0] * len(reply.ids)), (), 0.0, {}))
    batch = collate([run])
    assert len(batch.ids) == (2 if source == MISTRAL else 1)  # a prompt with rewritten calls begins a row
    trained = [tokenizer.decode(row[mask]) for row, mask in zip(batch.ids, batch.sampled, strict=True)]
    assert "".join(trained) == "".join(f"{reply.text}<|im_end|>" for reply in replies)
    other = [
        tokenizer.decode(row[valid & ~mask])
        for row, mask, valid in zip(batch.ids, batch.sampled, batch.valid, strict=True)
    ]
    assert "result 0" in other[-1] and "result" not in "".join(trained)


@pytest.mark.parametrize("source", SPELLED, ids=["hermes", "llama", "mistral"])
def test_demonstrations_are_spelled_by_the_template_and_masked(source):
    tokenizer, template = parts(source)
    calls = with_ids([("act", json.dumps({"command": "go"}))], 0)
    messages = [*conversation([]), assistant_message("", calls)]
    run = sft.as_trajectory(messages, template, tokenizer.eos_token_id, tools=TOOLS)
    batch = collate([run])
    (text,) = [tokenizer.decode(row[mask]) for row, mask in zip(batch.ids, batch.sampled, strict=True)]
    assert text.endswith("<|im_end|>") and read_text(text.removesuffix("<|im_end|>"))[1] == [
        ("act", '{"command": "go"}')
    ]
    assert tokenizer.decode(batch.ids[0]) == template.render(messages, TOOLS, asks=False).removesuffix("\n")


def test_a_template_that_hides_calls_cannot_be_trained_on_them():
    tokenizer, template = parts("{{ tools | tojson }}{{ messages | length }}" + ASK)
    with pytest.raises(UsageError, match="demonstrations with tool calls need another template"):
        completion(template, [*conversation([]), assistant_message("", with_ids([("act", "{}")], 0))], TOOLS)


def test_a_template_that_reads_tools_from_elsewhere_is_refused():
    """Phi-4-mini's reads them from the system message."""
    own = "{% for m in messages %}{{ m.role + m.content + (m.tools if 'tools' in m else '') }}{% endfor %}"
    _, template = parts(own + ASK)
    with pytest.raises(UsageError, match="does not declare tools"):
        template.render(conversation([]), TOOLS)


def test_an_escaped_lone_surrogate_in_a_call_is_encoded_in_the_templates_spelling():
    tokenizer, template = parts(MISTRAL)
    replies = [sampled(tokenizer, SPELLED[MISTRAL].format(word)) for word in (r"\ud800", "look")]
    encoded = template.encode(conversation(replies), replies, TOOLS)
    assert encoded.rewritten == 2 and "\ufffd" in tokenizer.decode(encoded.ids)


def test_demonstrations_of_other_tools_are_read(tmp_path):
    """With null as the text of a message with calls, and arguments as objects."""
    function = {"name": "act", "arguments": {"command": "go"}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": []}]
    messages[1]["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
    path = tmp_path / "demos.jsonl"
    path.write_text(json.dumps({"messages": messages, "tools": None}) + "\n")
    shown = sft.read(path)
    (message,) = sft.conversations_of(shown)[0][1:]
    assert message["content"] == "" and message["tool_calls"][0]["function"]["arguments"] == '{"command": "go"}'
    assert sft.tools_of(shown) == [[]]


@pytest.mark.parametrize("arguments", ["{", "[1]", None])
def test_demonstrations_with_malformed_calls_are_refused(tmp_path, arguments):
    call = {"id": "1", "type": "function", "function": {"name": "act", "arguments": arguments}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    path = tmp_path / "demos.jsonl"
    path.write_text(json.dumps({"messages": [message]}) + "\n")
    with pytest.raises(DataError, match="1 is no demonstration"):
        sft.read(path)


def test_a_model_that_learned_a_call_plays_by_it_and_is_trained_on_its_tokens_alone():
    """Fine-tunes a model of 30,000 weights on the expert's game until it repeats it, and plays that game.

    With five seeds the last loss is 0.021 to 0.036: 0.026 on average, with a standard error of 0.002.
    """
    tokenizer = tiny_tokenizer(HERMES)
    lm = tiny_model(len(tokenizer))
    model = Model(lm, tokenizer, ModelConfig("tiny", critic="none"))
    template = Template(tokenizer, {tokenizer.eos_token_id})
    prompting = Prompting("tools", thinking=False, admissible="none")
    game = [episode(registry.TASKS["Signpost-v0"], 0)]
    runs = rollout(make_policy("expert"), game, LocalExecutor(1, advice_kind="expert"))
    shown = list(demonstrations(runs, prompting))
    config = sft.SFTConfig(epochs=30, rows=1, learning_rate=1e-2)
    generator = torch.Generator().manual_seed(0)
    chats, tools = sft.conversations_of(shown), sft.tools_of(shown)
    steps = sft.FineTuning(model, chats, template, config, generator, tools).run()
    losses = [step["loss"] for step in steps]
    assert losses[-1] < 0.1 < losses[0]
    policy = HFPolicy.of(lm.eval(), tokenizer, max_tokens=90)
    (run,) = rollout(policy, game, LocalExecutor(1), prompting)
    record = records.record(run, "tiny", "sparse")
    (step,) = record["steps"]
    assert run.success and step["calls"][0]["name"] == "act" and step["reply"].startswith("<tool_call>")
    assert json.loads(step["calls"][0]["arguments"]) == {"command": step["commands"][0]}
    batch = collate([run])
    (trained,) = [tokenizer.decode(row[mask]) for row, mask in zip(batch.ids, batch.sampled, strict=True)]
    assert trained == f"{run.turns[0].reply.text}<|im_end|>"
