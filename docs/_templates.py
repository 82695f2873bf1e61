"""Writes docs/reference/templates.md, the table of chat templates: `python -m docs._templates`.

docs/_chat_templates holds a minimal equivalent of the chat template of each family of models. This
module renders them with transformers and measures what they do with roles and with earlier replies.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import write_atomically
from harness.lm.template import DATE, SampledReply, Template, with_date
from harness.prompting.messages import shared_prefix
from harness.types import Message

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_chat_templates"
PAGE = ROOT / "docs" / "reference" / "templates.md"
SPECIAL = re.compile(r"<\|[^|<>]+\|>|<｜[^｜]+｜>|</?s>|<sop>|\[gMASK\]|</?(?:start|end)_of_turn>|\[/?[A-Z_]+\]")
RULES = "Reason between <think> and </think>. Then act."
THOUGHT = "<think>north is open</think>go north"
ANOTHER_DAY = datetime.date(2031, 3, 9)


class Family(NamedTuple):
    """A family of models that share a chat template."""

    models: str
    end: str
    metaspace: bool = False  # SentencePiece: a word begins with a mark for the space before it
    plain_words: tuple[str, ...] = ()  # words in brackets that are no special tokens


FAMILIES = {
    "qwen2.5": Family("Qwen2.5, Qwen2.5-Coder", "<|im_end|>"),
    "qwen3": Family("Qwen3", "<|im_end|>"),
    "qwq": Family("QwQ-32B, Qwen3-Thinking-2507", "<|im_end|>"),
    "deepseek-v3": Family("DeepSeek-V3", "<｜end▁of▁sentence｜>"),
    "deepseek-r1": Family("DeepSeek-R1 and its distilled models", "<｜end▁of▁sentence｜>"),
    "llama2": Family("Llama 2 Chat", "</s>", True, ("[INST]", "[/INST]")),
    "llama3.2": Family("Llama 3.2 and 3.3", "<|eot_id|>"),
    "mistral-v1": Family("Mistral 7B Instruct v0.1, v0.2, Mixtral", "</s>", True, ("[INST]", "[/INST]")),
    "mistral-v3": Family("Mistral 7B Instruct v0.3", "</s>", True),
    "mistral-v7": Family("Mistral Large 2411, Small 3", "</s>"),
    "gemma2": Family("Gemma 1 and 2", "<end_of_turn>"),
    "gemma3": Family("Gemma 3", "<end_of_turn>"),
    "phi3": Family("Phi-3 as first released", "<|end|>", True),
    "phi4": Family("Phi-4", "<|im_end|>"),
    "smollm2": Family("SmolLM2", "<|im_end|>"),
    "smollm3": Family("SmolLM3", "<|im_end|>"),
    "glm4": Family("GLM-4-9B-Chat", "<|user|>"),
    "command-r": Family("Command R", "<|END_OF_TURN_TOKEN|>"),
    "granite3": Family("Granite 3", "<|end_of_text|>"),
    "gpt-oss": Family("gpt-oss", "<|return|>"),
    "zephyr": Family("Zephyr, TinyLlama", "</s>", True),
    "vicuna": Family("Vicuna 1.5", "</s>", True),
}


class Behaviour(NamedTuple):
    """Properties of a chat template: what it does with roles, system messages and earlier replies."""

    system: str  # "own message", "first user message", "last user message", "refused", "dropped" or "altered"
    default_system: bool  # it writes a default system text if the conversation has none
    date: bool
    two_users: str  # two user messages in a row: "shown", "dropped" or "refused"
    tool: str  # a message with a tool's result
    trims: bool  # the spaces around a reply
    drops_reasoning: bool  # of earlier replies
    opens_reasoning: bool  # the prompt ends with <think>
    thinking_switch: bool
    continues: bool  # the prompt after a short reply begins with the tokens of the prompt before it and the reply
    rewritten: bool  # a short reply's tokens change
    rewritten_reasoning: bool  # the tokens of a reply with reasoning change
    system_shown: bool  # envsuite's prompt holds the rules unchanged


@functools.cache
def tokenizer(name: str) -> Any:
    """Returns a small tokenizer with a family's template and special tokens."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    family, source = FAMILIES[name], (FOLDER / f"{name}.jinja").read_text()
    words = [word for word in SPECIAL.findall(source) if word not in family.plain_words]
    special = ["<|pad|>", family.end, "<s>", *words]
    core = Tokenizer(BPE())
    if family.metaspace:
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        core.decoder = decoders.Metaspace(prepend_scheme="first")
        alphabet = ["\n", *map(chr, range(33, 127))]
    else:
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    corpus = ["Say the word. Objective: Say it. north east south west Yes. go <think> </think> assistant user"] * 4
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(dict.fromkeys(special)),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token=family.end,
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = source
    made.name_or_path = name
    return made


def template(name: str, thinking: bool = True) -> Template:
    """Returns envsuite's template of a family."""
    encoder = tokenizer(name)
    return Template(encoder, {encoder.eos_token_id}, thinking)


def render(name: str, messages: Sequence[Message], **options: Any) -> str | None:
    """Renders messages as transformers does, without envsuite; returns None if the template refuses them."""
    try:
        text = tokenizer(name).apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **options
        )
    except Exception:  # jinja errors
        return None
    return str(text)


def chat(*contents: str, system: str = "") -> list[Message]:
    """Returns a conversation of user and assistant."""
    start: list[Message] = [{"role": "system", "content": system}] if system else []
    roles = ("user", "assistant")
    return start + [{"role": roles[index % 2], "content": text} for index, text in enumerate(contents)]


def behaviour(name: str) -> Behaviour:
    """Measures a template."""
    two_users: list[Message] = [*chat("ONE"), *chat("TWO")]
    tool: list[Message] = [*chat("ONE", "go"), {"role": "tool", "content": "TWO"}]
    first = render(name, chat("ONE")) or ""
    trimmed = render(name, chat("ONE", "  go  ", "TWO")) or ""
    reasoned = render(name, chat("ONE", THOUGHT, "TWO")) or ""
    source = tokenizer(name).chat_template
    continues, rewritten = _second_prompt(name, "go north")
    _, rewritten_reasoning = _second_prompt(name, THOUGHT)
    return Behaviour(
        system=_system(name),
        default_system=len(re.findall(r"[a-z]{3,}", SPECIAL.sub("", first.partition("ONE")[0]))) > 3,
        date=any(
            render(name, messages, chat_template=with_date(source, DATE))
            != render(name, messages, chat_template=with_date(source, ANOTHER_DAY))
            for messages in (chat("ONE"), chat("ONE", system=RULES))
        ),
        two_users=_shown(render(name, two_users), "ONE", "TWO"),
        tool=_shown(render(name, tool), "TWO"),
        trims="  go  " not in trimmed,
        drops_reasoning="north is open" not in reasoned,
        opens_reasoning=first.rstrip().endswith("<think>"),
        thinking_switch="enable_thinking" in source and render(name, chat("ONE"), enable_thinking=False) != first,
        continues=continues,
        rewritten=rewritten,
        rewritten_reasoning=rewritten_reasoning,
        system_shown=RULES in template(name).render(chat("ONE", system=RULES)),
    )


def _system(name: str) -> str:
    """Returns what a template does with a system message."""
    text = render(name, chat("ONE", "go", "TWO", system=RULES))
    if text is None:
        return "refused"
    if RULES not in text:
        return "altered" if "Reason between" in text else "dropped"
    if text.index(RULES) > text.index("ONE"):
        return "last user message"
    start = text.index("ONE")
    between = text[text.index(RULES) + len(RULES) : start]
    turn = _common_end(text[:start], text[: text.index("TWO")])
    return "own message" if turn.strip() and turn.strip() in between else "first user message"


def _common_end(first: str, second: str) -> str:
    return first[len(first) - shared_prefix(first[::-1], second[::-1]) :]


def _shown(text: str | None, *contents: str) -> str:
    if text is None:
        return "refused"
    return "shown" if all(content in text for content in contents) else "dropped"


def sampled(name: str, reply: str) -> SampledReply:
    """Returns a reply as a model would sample it after the prompt: in the form that the template shows."""
    chats, encoder = template(name), tokenizer(name)
    start = chats.render(chat("ONE"))
    text = chats.render(chat("ONE", reply, "TWO"))
    reply_text = reply.removeprefix("<think>") if chats.opening else reply
    if text.startswith(start) and reply in text:
        reply_text = text[len(start) : text.index(reply) + len(reply)]
    head = encoder(start, add_special_tokens=False)["input_ids"]
    ids = encoder(start + reply_text, add_special_tokens=False)["input_ids"][len(head) :]
    ids.append(encoder.eos_token_id)
    return SampledReply(chats.message_text(ids), tuple(ids))


def _second_prompt(name: str, reply: str) -> tuple[bool, bool]:
    """Returns whether the prompt after a reply continues the prompt before it, and whether it changes the reply."""
    chats, second_reply = template(name), sampled(name, reply)
    before = chats.encode(chat("ONE", system=RULES)).ids
    after = chats.encode(chat("ONE", second_reply.text, "TWO", system=RULES), [second_reply])
    expected = [*before, *second_reply.ids]
    return after.ids[: len(expected)] == expected, bool(after.rewritten)


@functools.cache
def behaviours() -> dict[str, Behaviour]:
    """Returns the behaviour of every family."""
    return {name: behaviour(name) for name in FAMILIES}


INTRODUCTION = f"""# Chat templates

A chat template is a program that comes with a tokenizer and turns messages into the text of a prompt. Templates
differ in the roles that they accept and in what they show of earlier replies. This page shows what the
templates of {len(FAMILIES)} families of models do, and what envsuite does about it for a model in this process and in
training. Servers apply their own template to chat requests.

The tables are measured. `python -m docs._templates` renders a minimal equivalent of each template, written by us
in `docs/_chat_templates`, with transformers. A model's own file can differ in other ways, and between releases.
"""

ROLES = """
## Roles

"Refused" means that the template raises an error, "dropped" that the message is missing from the prompt without an
error.

"""

REPLIES = """
## Earlier replies

The tokens of a sampled reply stay in later prompts as they were sampled, if the template shows the reply unchanged.
"Kept" means that this is so for a short reply, and for a reply that begins with `<think>`. "Continues" means that the
second prompt begins with the first prompt and the short reply, token for token.

"""

ACTIONS = f"""
## What envsuite does

| the template | envsuite |
|---|---|
| refuses, drops or alters a system message | moves the rules to the start of the first user message |
| writes a default system text | sends a system message of its own in every prompt |
| prints today's date | gives it the date {DATE:%d %B %Y} on every day, so that prompts are reproducible |
| refuses two user messages in a row, or tool results | stops with the template's error in one line |
| opens the reasoning in the prompt | adds `<think>` to the reply's text: a command inside is not executed |
| drops the reasoning of earlier replies, or trims them | follows it; `extra.rewritten` counts the changed replies |
| has a thinking switch | sets it by `--thinking` |
| writes channels (gpt-oss) | reads the analysis channel as `<think>`, and shows only the answer in history |

Training computes the probability of a reply after the very prompt for which it was sampled, so that the importance
ratio is 1 before the first step under every template of this page. A conversation is one row as long as each prompt
continues the last, and begins a new row where it does not: a template that does not continue costs time, not
correctness. `tests/baselines/test_chat_templates.py` checks this for all of them.
"""


def page() -> str:
    """Returns the page."""
    roles = ["| template | models | system message | default system text | date | two user messages | tool result |"]
    roles.append("|---|---|---|---|---|---|---|")
    replies = [
        "| template | trims | drops reasoning | opens `<think>` | switch | short reply | with reasoning | continues |"
    ]
    replies.append("|---|---|---|---|---|---|---|---|")
    for name, facts in behaviours().items():
        cells = [_yes(facts.default_system), _yes(facts.date), facts.two_users, facts.tool]
        roles.append(f"| `{name}` | {FAMILIES[name].models} | {facts.system} | {' | '.join(cells)} |")
        flags = (facts.trims, facts.drops_reasoning, facts.opens_reasoning, facts.thinking_switch)
        changes = ["changed" if changed else "kept" for changed in (facts.rewritten, facts.rewritten_reasoning)]
        replies.append(f"| `{name}` | {' | '.join([*map(_yes, flags), *changes, _yes(facts.continues)])} |")
    return "\n".join([INTRODUCTION + ROLES + "\n".join(roles), REPLIES + "\n".join(replies), ACTIONS])


def _yes(flag: bool) -> str:
    return "yes" if flag else "–"


def main() -> None:
    write_atomically(PAGE, page())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
