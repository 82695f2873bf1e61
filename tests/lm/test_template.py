"""Chat templates in tokens: sampled tokens stay as sampled, and the template's text is respected."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AddedToken

from envsuite.errors import UsageError
from harness.lm.template import SampledReply, Template
from tests.lm.tiny import CHATML, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
OTHER_END = TOKENIZER.convert_tokens_to_ids("<|endoftext|>")
# As in Qwen3: drops the reasoning of every reply before the last question.
DROPS_REASONING = CHATML.replace(
    "m['content']", "(m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'])"
)
TRIMS = CHATML.replace("m['content']", "m['content'] | trim")
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)


def bytewise(text):
    """Tokenises `text` letter by letter, which differs from the usual tokenisation."""
    return tuple(token for letter in text for token in TOKENIZER(letter, add_special_tokens=False)["input_ids"])


def say(text, end=END):
    return SampledReply(text, (*bytewise(text), *([end] if end is not None else [])))


def talk(*contents):
    """Builds messages: system, then user and assistant alternately."""
    roles = ["system"] + ["user", "assistant"] * len(contents)
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


def holds(ids, part):
    return any(tuple(ids[at : at + len(part)]) == tuple(part) for at in range(len(ids)))


words = st.text(st.characters(codec="utf-8", exclude_characters="<|>\ue000\ue001"), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, words, st.sampled_from([END, None])), max_size=4), words)
def test_a_prompt_decodes_to_the_template_and_contains_the_sampled_tokens(turns, last):
    template = Template(TOKENIZER, {END})
    replies = [say(reply, end) for _, reply, end in turns]
    messages = talk("rules", *[part for seen, reply, _ in turns for part in (seen, reply)], last)
    encoded = template.encode(messages, replies)
    assert encoded.rewritten == 0
    assert TOKENIZER.decode(encoded.ids, clean_up_tokenization_spaces=False) == template.render(messages)
    assert all(holds(encoded.ids, reply.ids) for reply in replies)


@pytest.mark.parametrize("chat_template", [CHATML, None])
def test_a_prompt_without_roles_is_its_text_after_the_tokens_of_the_tokenizer(chat_template):
    template = Template(tiny_tokenizer(chat_template), {END})
    messages = [{"role": "completion", "content": "You are in a room.\n>"}]
    expected = TOKENIZER("You are in a room.\n>")["input_ids"]
    assert template.encode(messages).ids == expected
    ids, head, tail = template.open_end(messages)
    assert (ids, tail) == (expected, "You are in a room.\n>") and head == len(TOKENIZER("")["input_ids"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=4))
def test_each_prompt_starts_with_the_previous_prompt_and_its_reply(turns):
    template = Template(TOKENIZER, {END})
    replies, contents, before = [], ["rules"], []
    for seen, reply in turns:
        contents.append(seen)
        ids = template.encode(talk(*contents), replies).ids
        assert ids[: len(before)] == before
        replies.append(say(reply))
        contents.append(reply)
        before = [*ids, *replies[-1].ids]


def test_replies_within_the_history_window_are_matched_from_the_end():
    template = Template(TOKENIZER, {END})
    replies = [say("look"), say("go"), say("take apple")]
    encoded = template.encode(talk("rules", "b", "go", "c", "take apple", "d"), replies)
    assert holds(encoded.ids, replies[1].ids)
    assert holds(encoded.ids, replies[2].ids)
    assert not holds(encoded.ids, replies[0].ids)
    assert encoded.rewritten == 0


def test_a_changed_reply_is_tokenised_from_its_text_and_counted():
    template = Template(TOKENIZER, {END})
    encoded = template.encode(talk("rules", "a", "look", "b", "go", "c"), [say("let me look"), say("go")])
    assert encoded.rewritten == 1
    assert holds(encoded.ids, say("go").ids)
    assert holds(encoded.ids, TOKENIZER("look")["input_ids"])


@pytest.mark.parametrize("template", [DROPS_REASONING, TRIMS], ids=["drops reasoning", "trims"])
def test_a_template_that_rewrites_history_is_followed_and_counted(template):
    tokenizer = tiny_tokenizer(template)
    first, second = say("<think>hm</think> go "), say("look")
    messages = talk("rules", "a", first.text, "b", second.text, "c")
    encoded = Template(tokenizer, {END}).encode(messages, [first, second])
    assert encoded.rewritten == 1
    assert holds(encoded.ids, second.ids)
    text = tokenizer.decode(encoded.ids, clean_up_tokenization_spaces=False)
    assert text == Template(tokenizer, {END}).render(messages)


def test_a_reply_with_a_different_end_token_is_counted_as_rewritten():
    template = Template(TOKENIZER, {END, OTHER_END})
    encoded = template.encode(talk("rules", "a", "go", "b"), [say("go", OTHER_END)])
    assert encoded.rewritten == 1
    assert OTHER_END not in encoded.ids
    assert holds(encoded.ids, say("go").ids)


def test_the_thinking_switch_is_passed_to_templates_that_know_it():
    knows = tiny_tokenizer(CHATML + "{% if enable_thinking is false %}{{ '<think></think>' }}{% endif %}")
    message = [{"role": "user", "content": "go"}]
    assert Template(knows, {END}, thinking=False).render(message).endswith("<think></think>")
    assert not Template(knows, {END}, thinking=True).render(message).endswith("<think></think>")
    assert Template(TOKENIZER, {END}, thinking=False).render(message) == Template(TOKENIZER, {END}).render(message)


def test_a_template_without_system_role_gets_the_rules_in_the_first_user_message():
    template = Template(tiny_tokenizer(NO_SYSTEM), {END})
    assert "<|im_start|>user\nrules\n\na<|im_end|>" in template.render(talk("rules", "a"))


def test_a_template_that_fails_to_render_raises_one_clear_error():
    template = Template(tiny_tokenizer("{{ raise_exception('no chat today') }}"), {END})
    with pytest.raises(UsageError, match="no chat today"):
        template.render(talk("rules", "a"))


def test_a_template_that_never_ends_raises_one_clear_error(monkeypatch):
    monkeypatch.setattr("harness.lm.template.MOST_SECONDS", 0.2)
    endless = "".join(f"{{% for n{depth} in 'x' * 9999 %}}" for depth in range(5)) + "{% endfor %}" * 5
    template = Template(tiny_tokenizer(endless), {END})
    with pytest.raises(UsageError, match=r"the chat template ran longer than 0\.2 s"):
        template.render(talk("rules", "a"))


def test_a_model_without_a_template_gets_plain_text():
    template = Template(tiny_tokenizer(None), {END})
    assert template.plain
    assert template.render(talk("rules", "a", "go", "b")) == "rules\n\nUser: a\nAssistant:go\nUser: b\nAssistant:"
    encoded = template.encode(talk("rules", "a", "go", "b"), [say("go", None)])
    assert holds(encoded.ids, say("go", None).ids)


def test_tools_are_declared_to_templates_that_know_them_and_others_are_refused():
    knows = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML
    tool = {"type": "function", "function": {"name": "act", "description": "", "parameters": {"type": "object"}}}
    assert '"name": "act"' in Template(tiny_tokenizer(knows), {END}).render(talk("rules", "a"), [tool])
    for template in (CHATML, None):
        with pytest.raises(UsageError, match="does not declare tools: use --action-grammar tool"):
            Template(tiny_tokenizer(template), {END}).render(talk("rules", "a"), [tool])


def test_a_template_that_changes_the_order_of_messages_is_tokenised_from_its_text():
    template = Template(tiny_tokenizer(CHATML.replace("in messages", "in messages | reverse")), {END})
    messages = talk("rules", "a", "first", "b", "second", "c")
    encoded = template.encode(messages, [say("first"), say("second")])
    text = template.render(messages)
    assert encoded.ids == TOKENIZER(text, add_special_tokens=False)["input_ids"] and encoded.rewritten == 2


def test_the_open_end_of_a_prompt_has_exactly_the_tokens_of_its_text():
    """A special token that takes the spaces after it changes the tokens of the text that follows."""
    for swallows in (False, True):
        tokenizer = tiny_tokenizer(CHATML + "{{ '<|go|> so' }}")
        tokenizer.add_tokens([AddedToken("<|go|>", special=True, rstrip=swallows)], special_tokens=True)
        ids, head, tail = Template(tokenizer, {END}).open_end(talk("rules", "a"))
        assert list(tokenizer(tail, add_special_tokens=False)["input_ids"]) == list(ids[head:])
        assert (tail == " so") is not swallows
