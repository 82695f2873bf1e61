"""Messages as a model would sample them, for training on demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

from envsuite.errors import UsageError
from harness.lm.template import Template
from harness.reasoning import CLOSE, OPEN, split
from harness.types import Message, ToolSchema


def completion(template: Template, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> str:
    """Returns the text that a model samples after a prompt to write the last message, without its end token.

    It has the spaces that the template writes before a message, lacks the <think> that a prompt ends with, and has
    the channels of gpt-oss. Raises UsageError for tool calls if the template does not show the prompt unchanged before
    them.
    """
    if messages[-1].get("tool_calls"):
        return _calls(template, messages, tools)
    content = str(messages[-1]["content"])
    if template.channels:
        thought, answer = split(content) or ("", content)
        analysis = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
        return f"{analysis}<|channel|>final<|message|>{answer}"
    if not template.opening:
        return template.first_spaces + content
    if content.startswith(OPEN):
        return content.removeprefix(template.opening).removeprefix(OPEN)
    return CLOSE + content  # the prompt has opened reasoning, of which the message has none


def _calls(template: Template, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
    """Returns the text of a message with tool calls, as the template spells it."""
    prompt = template.render(messages[:-1], tools)
    rendered = template.render(messages, tools, asks=False)
    if not rendered.startswith(prompt):
        raise UsageError(
            f"The chat template of {template.tokenizer.name_or_path or 'this model'} does not show a tool call after "
            "its prompt: demonstrations with tool calls need another template."
        )
    text = rendered[len(prompt) :]
    ends = [template.tokenizer.decode([end], skip_special_tokens=False) for end in template.end_ids]
    return text[: min((text.index(end) for end in ends if end in text), default=len(text))]


def completion_ids(
    template: Template, prompt: Sequence[Message], text: str, tools: Sequence[ToolSchema] = ()
) -> list[int]:
    """Returns the tokens of `text` as they follow a prompt: some tokenizers mark the start of a text, which this is
    not.
    """
    ids, _, tail = template.open_end(prompt, tools)
    if not tail:
        return list(template.tokens(text, ids[-1] if ids else None))
    before, together = template.tokens(tail), template.tokens(tail + text)
    if together[: len(before)] != before:  # the first token would be merged with the prompt's last one
        return list(template.tokens(text))
    return list(together[len(before) :])
