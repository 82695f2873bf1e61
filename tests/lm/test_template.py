"""Prompts in tokens: what was sampled stays as it was sampled, and templates are obeyed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite.errors import UsageError
from harness.lm.template import SampledReply, Template
from tests.lm.tiny import CHATML, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
OTHER_END = TOKENIZER.convert_tokens_to_ids("<|endoftext|>")
# Qwen3's way: reasoning is dropped from every reply before the last question.
DROPS_REASONING = CHATML.replace(
    "m['content']", "(m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'])"
)
TRIMS = CHATML.replace("m['content']", "m['content'] | trim")
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)


def bytewise(text):
    """The least likely way to say `text`: letter by letter."""
    return tuple(token for letter in text for token in TOKENIZER(letter, add_special_tokens=False)["input_ids"])


def say(text, end=END):
    return SampledReply(text, (*bytewise(text), *([end] if end is not None else [])))


def talk(*contents):
    """system, then user and assistant in turn."""
    roles = ["system"] + ["user", "assistant"] * len(contents)
    return [{"role": role, "content": content} for role, content in zip(roles, contents)]


def holds(ids, part):
    return any(tuple(ids[at : at + len(part)]) == tuple(part) for at in range(len(ids)))


words = st.text(st.characters(codec="utf-8", exclude_characters="<|>\ue000\ue001"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, words, st.sampled_from([END, None])), max_size=4), words)
def test_a_prompt_says_what_the_template_says_in_the_sampled_tokens(turns, last):
    template = Template(TOKENIZER, {END})
    said = [say(reply, end) for _, reply, end in turns]
    messages = talk("rules", *[part for seen, reply, _ in turns for part in (seen, reply)], last)
    encoded = template.encode(messages, said)
    assert encoded.rewritten == 0
    assert TOKENIZER.decode(encoded.ids, clean_up_tokenization_spaces=False) == template.render(messages)
    assert all(holds(encoded.ids, reply.ids) for reply in said)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=4))
def test_each_prompt_begins_with_the_one_before_and_its_reply(turns):
    template = Template(TOKENIZER, {END})
    said, contents, before = [], ["rules"], []
    for seen, reply in turns:
        contents.append(seen)
        ids = template.encode(talk(*contents), said).ids
        assert ids[: len(before)] == before
        said.append(say(reply))
        contents.append(reply)
        before = [*ids, *said[-1].ids]


def test_only_the_turns_that_are_remembered_are_matched_from_the_end():
    template = Template(TOKENIZER, {END})
    said = [say("look"), say("go"), say("take apple")]
    encoded = template.encode(talk("rules", "b", "go", "c", "take apple", "d"), said)
    assert holds(encoded.ids, said[1].ids)
    assert holds(encoded.ids, said[2].ids)
    assert not holds(encoded.ids, said[0].ids)
    assert encoded.rewritten == 0


def test_a_reply_that_the_prompt_itself_changed_is_tokenised_from_its_text_and_counted():
    template = Template(TOKENIZER, {END})
    encoded = template.encode(talk("rules", "a", "look", "b", "go", "c"), [say("let me look"), say("go")])
    assert encoded.rewritten == 1
    assert holds(encoded.ids, say("go").ids)
    assert holds(encoded.ids, TOKENIZER("look")["input_ids"])


@pytest.mark.parametrize("template", [DROPS_REASONING, TRIMS], ids=["drops reasoning", "trims"])
def test_a_template_that_rewrites_history_is_obeyed_and_counted(template):
    tokenizer = tiny_tokenizer(template)
    one, two = say("<think>hm</think> go "), say("look")
    messages = talk("rules", "a", one.text, "b", two.text, "c")
    encoded = Template(tokenizer, {END}).encode(messages, [one, two])
    assert encoded.rewritten == 1
    assert holds(encoded.ids, two.ids)
    text = tokenizer.decode(encoded.ids, clean_up_tokenization_spaces=False)
    assert text == Template(tokenizer, {END}).render(messages)


def test_a_reply_ended_by_another_token_than_the_templates_is_counted():
    template = Template(TOKENIZER, {END, OTHER_END})
    encoded = template.encode(talk("rules", "a", "go", "b"), [say("go", OTHER_END)])
    assert encoded.rewritten == 1
    assert OTHER_END not in encoded.ids
    assert holds(encoded.ids, say("go").ids)


def test_thinking_reaches_templates_that_know_the_switch_only():
    knows = tiny_tokenizer(CHATML + "{% if enable_thinking is false %}{{ '<think></think>' }}{% endif %}")
    message = [{"role": "user", "content": "go"}]
    assert Template(knows, {END}, thinking=False).render(message).endswith("<think></think>")
    assert not Template(knows, {END}, thinking=True).render(message).endswith("<think></think>")
    assert Template(TOKENIZER, {END}, thinking=False).render(message) == Template(TOKENIZER, {END}).render(message)


def test_a_template_without_system_messages_gets_the_rules_in_the_first_question():
    template = Template(tiny_tokenizer(NO_SYSTEM), {END})
    assert "<|im_start|>user\nrules\n\na<|im_end|>" in template.render(talk("rules", "a"))


def test_a_template_that_cannot_render_is_one_clear_error():
    template = Template(tiny_tokenizer("{{ raise_exception('no chat today') }}"), {END})
    with pytest.raises(UsageError, match="no chat today"):
        template.render(talk("rules", "a"))


def test_a_model_without_template_is_shown_plain_text():
    template = Template(tiny_tokenizer(None), {END})
    assert template.plain
    assert template.render(talk("rules", "a", "go", "b")) == "rules\n\nUser: a\nAssistant:go\nUser: b\nAssistant:"
    encoded = template.encode(talk("rules", "a", "go", "b"), [say("go", None)])
    assert holds(encoded.ids, say("go", None).ids)


def test_tools_are_declared_to_templates_that_know_them_only():
    knows = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML
    tool = {"type": "function", "function": {"name": "act", "description": "", "parameters": {"type": "object"}}}
    assert '"name": "act"' in Template(tiny_tokenizer(knows), {END}).render(talk("rules", "a"), [tool])
    assert "act" not in Template(TOKENIZER, {END}).render(talk("rules", "a"), [tool])
