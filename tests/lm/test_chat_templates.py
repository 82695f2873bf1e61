"""The templates of known models: what each does with roles and history, and what envsuite does about it.

docs/_templates.py holds the families and measures them; the sets below are stated by hand.
"""

import datetime

import pytest

pytest.importorskip("transformers")

from docs import _templates
from docs._templates import FAMILIES, chat, render, sampled, template, tokenizer
from envsuite.errors import UsageError
from harness.lm.completions import completion, completion_ids
from harness.lm.template import SampledReply, Template, with_date
from harness.prompting.grammars import GRAMMARS
from harness.reasoning import is_thinking
from tests.lm.tiny import tiny_tokenizer

ALTERNATING = {"llama2", "mistral-v1", "mistral-v3", "mistral-v7", "gemma2", "gemma3", "command-r", "vicuna"}
EXPECTED = {
    "system refused": {"mistral-v1", "gemma2"},
    "system dropped": {"phi3"},
    "system altered": {"smollm3"},
    "system first user message": {"llama2", "gemma3"},
    "system last user message": {"mistral-v3"},
    "default_system": {"qwen2.5", "smollm2", "smollm3", "llama3.2", "granite3", "gpt-oss", "vicuna"},
    "date": {"llama3.2", "smollm3", "granite3", "gpt-oss"},
    "two_users refused": ALTERNATING,
    "two_users dropped": set(),
    "tool refused": ALTERNATING - {"mistral-v3", "mistral-v7"} | {"gpt-oss"},
    "tool dropped": {"phi3", "phi4", "zephyr"},
    "trims": {"llama2", "llama3.2", "mistral-v3", "gemma2", "gemma3", "command-r", "vicuna"},
    "drops_reasoning": {"qwen3", "qwq", "deepseek-r1"},
    "opens_reasoning": {"qwq", "deepseek-r1"},
    "thinking_switch": {"qwen3", "smollm3"},
    "continues": set(FAMILIES) - {"llama2", "mistral-v3", "gpt-oss"},
    "rewritten": {"llama2", "gpt-oss"},
    "rewritten_reasoning": {"llama2", "gpt-oss", "qwen3", "qwq", "deepseek-r1"},
    "system_shown": set(FAMILIES),
}


@pytest.mark.parametrize("fact", EXPECTED)
def test_exactly_the_named_families_have_a_property(fact):
    field, _, value = fact.partition(" ")
    measured = {name: getattr(facts, field) for name, facts in _templates.behaviours().items()}
    assert {name for name, measured_value in measured.items() if measured_value == (value or True)} == EXPECTED[fact]


def test_every_template_has_a_family_and_the_page_is_rendered_from_them():
    assert {path.stem for path in _templates.FOLDER.iterdir()} == set(FAMILIES)
    assert len(FAMILIES) >= 15
    assert _templates.PAGE.read_text() == _templates.page(), "python -m docs._templates"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_has_the_text_of_the_template_and_the_tokens_that_were_sampled(name):
    chats, encoder = template(name), tokenizer(name)
    replies = [sampled(name, "go north"), sampled(name, "<think>hm</think>go east")]
    messages = chat("ONE", replies[0].text, "TWO", replies[1].text, "THREE", system="Say the word.")
    encoded = chats.encode(messages, replies)
    text = chats.render(messages)
    assert encoder.decode(encoded.ids, clean_up_tokenization_spaces=False) == text
    if not encoded.rewritten:  # then the prompt's tokens are the tokenizer's, replies included
        assert encoded.ids == encoder(text, add_special_tokens=False)["input_ids"]
    facts = _templates.behaviours()[name]
    assert encoded.rewritten == facts.rewritten + facts.rewritten_reasoning


@pytest.mark.parametrize("name", sorted(EXPECTED["date"]))
def test_prompts_have_one_date_on_every_day(name):
    messages = chat("ONE")
    text = template(name).render(messages)
    assert "2024" in text and "%" not in text
    today = render(name, messages)  # transformers itself writes today's date
    assert str(datetime.date.today().year) in today and today != text


def test_a_date_has_every_usual_format():
    day = datetime.date(2024, 7, 6)
    forms = ("%d %b %Y", "%B %d, %Y", "%Y-%m-%d", "%A, %e %B", "%j", "%-d.%m.%y")
    source = "{{ messages[0].content }}" + "".join(f"|{{{{ strftime_now('{form}') }}}}" for form in forms)
    text = tiny_tokenizer(with_date(source, day)).apply_chat_template(chat("x"), tokenize=False)
    assert text == "|".join(["x", *map(day.strftime, forms)])


def test_tools_choose_the_template_that_gets_the_date():
    encoder = tiny_tokenizer({"default": "{{ strftime_now('%Y') }}", "tool_use": "{{ tools }}{{ strftime_now('%d') }}"})
    chats = Template(encoder, {2})
    tool = {"type": "function", "function": {"name": "act", "description": "", "parameters": {"type": "object"}}}
    assert chats.render(chat("x")) == "2024"
    assert "act" in chats.render(chat("x"), [tool]) and chats.render(chat("x"), [tool]).endswith("26")


@pytest.mark.parametrize("name", sorted(EXPECTED["opens_reasoning"]))
def test_a_command_inside_reasoning_that_the_prompt_opened_is_not_executed(name):
    chats, encoder = template(name), tokenizer(name)
    unfinished = chats.message_text(encoder("maybe <action>go north</action>", add_special_tokens=False)["input_ids"])
    assert is_thinking(unfinished)
    assert GRAMMARS["action"].parse(unfinished).commands == ()
    complete = chats.message_text(encoder("hm</think><action>go east</action>", add_special_tokens=False)["input_ids"])
    parsed = GRAMMARS["action"].parse(complete)
    assert parsed.commands == ("go east",) and parsed.thought == "hm"


def test_the_spaces_that_a_template_writes_before_a_reply_are_no_part_of_its_text():
    assert sampled("glm4", "go").text == sampled("mistral-v1", "go").text == sampled("qwen2.5", "go").text == "go"
    chats, encoder = template("glm4"), tokenizer("glm4")
    ids = encoder("\n\ngo", add_special_tokens=False)["input_ids"]
    assert chats.message_text(ids) == "\ngo"  # one newline is the template's
    assert chats.encode(chat("ONE", "\ngo", "TWO"), [SampledReply("\ngo", tuple(ids))]).rewritten == 0


def test_the_channels_of_gpt_oss_are_reasoning_and_answer():
    chats, encoder = template("gpt-oss"), tokenizer("gpt-oss")

    def text(sampled_text):
        return chats.message_text(encoder(sampled_text, add_special_tokens=False)["input_ids"])

    answer = "<|start|>assistant<|channel|>final<|message|>go<|return|>"
    reply = text("<|channel|>analysis<|message|>hm<|end|>" + answer)
    assert reply == "<think>hm</think>go"
    assert is_thinking(text("<|channel|>analysis<|message|>maybe go"))
    assert text("<|channel|>final<|message|>go<|return|>") == text("go") == "go"
    history = chats.render(chat("ONE", reply, "TWO"))
    assert "<|channel|>final<|message|>go<|end|>" in history and "hm" not in history


@pytest.mark.parametrize(
    "messages", [[*chat("ONE"), *chat("TWO")], [*chat("ONE", "go"), {"role": "tool", "content": "x"}]]
)
def test_a_refused_conversation_is_one_clear_error(messages):
    with pytest.raises(UsageError, match=r"^The chat template of llama2 cannot render this: [^\n]*alternate[^\n]*$"):
        template("llama2").render(messages)


def test_text_after_a_reply_has_the_tokens_that_it_has_in_the_whole_prompt():
    """Some special tokens include the spaces after them, as in Phi-3: the newline after a reply has no token."""
    from transformers import AddedToken

    encoder = tiny_tokenizer()
    encoder.add_tokens([AddedToken("<|im_end|>", special=True, rstrip=True)], special_tokens=True)
    end = encoder.convert_tokens_to_ids("<|im_end|>")
    reply = SampledReply("look", (*encoder("look", add_special_tokens=False)["input_ids"], end))
    chats = Template(encoder, {end})
    messages = chat("a", "look", "b", system="rules")
    encoded = chats.encode(messages, [reply])
    assert encoded.ids == encoder(chats.render(messages), add_special_tokens=False)["input_ids"]
    assert not encoded.rewritten


REPLIES = ["go north", "<think>hm</think>go east", "<action>go east</action>"]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("reply", REPLIES)
def test_a_demonstration_is_trained_on_as_the_text_and_tokens_that_sampling_gives(name, reply):
    chats, encoder = template(name), tokenizer(name)
    text = completion(chats, chat("ONE", reply))
    ids = completion_ids(chats, chat("ONE"), text)
    assert encoder.decode(ids, skip_special_tokens=False).strip() == text.strip()
    message = chats.message_text(ids)
    if name in EXPECTED["opens_reasoning"]:  # the prompt ends with "<think>\n"
        thought = reply.partition("</think>")[0] if "</think>" in reply else "<think>"
        assert message == reply.replace("<think>", "<think>\n") if "hm" in thought else f"<think>\n</think>{reply}"
    else:
        assert message == reply
        if name != "gpt-oss":
            assert ids == list(sampled(name, reply).ids[:-1])
    prompt = chats.render(chat("ONE"))
    if "hm" not in reply and name not in {
        "qwq",
        "deepseek-r1",
    }:  # their history has no reasoning, not even an empty one
        assert chats.render(chat("ONE", reply), asks=False).startswith(prompt + text)
