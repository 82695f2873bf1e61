"""Card of a model: its source, size, context, chat template, memory, and the command that runs it here.

Reads the model's JSON files and the headers of its weights, renders its chat template, and loads no weights. A
model whose files are not on this machine has a card with its source only.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.errors import DataError, UsageError, did_you_mean
from envsuite.reading import parse_json, read_json
from harness.lm import model_files
from harness.lm.model_files import Source
from harness.lm.template import Template

MOST_HEADER = 32 * 2**20
"""bytes of the header of a file of weights"""
MOST_TEMPLATE = 2**20
CONVERSATIONS = 16
"""conversations at once, for which the memory of keys and values is stated"""


class CardRow(NamedTuple):
    """A line of a card."""

    name: str
    value: str


def card(name: str) -> list[CardRow]:
    """Returns the card of a model's name, which may have the prefix `hf:`, `vllm:` or `llamacpp:`.

    Raises UsageError for an unknown name, with the nearest known one.
    """
    bare = re.sub(r"^(hf|vllm|llamacpp|score):", "", name)
    file = Path(bare).expanduser()
    if file.suffix == ".gguf":
        return _gguf_card(bare, file)
    source = model_files.resolve(bare)
    folder = model_files.here(source)
    rows = [CardRow("name", bare), CardRow("source", str(source))]
    if source.kind == "bundled":
        rows.append(CardRow("licence", model_files.BUNDLED[bare.lower()].licence))
    if folder is None:
        return [*rows, *_absent(bare, source)]
    size = model_files.cached_size(folder)
    rows.append(CardRow("here", f"{folder} ({size / 1e6:,.0f} MB)"))
    try:
        config = read_json(folder / "config.json")
        parameters = sum(_parameters(file) for file in sorted(folder.glob("*.safetensors")))
        return rows + [*_sizes(config, parameters), *_template_rows(folder), *_commands(bare, parameters)]
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise DataError(f"The files of {bare} in {folder} are damaged ({error}): download them again.") from error


def _absent(name: str, source: Source) -> Iterator[CardRow]:
    yield CardRow("here", "no")
    size = re.search(r"(\d+(?:\.\d+)?)b\b", source.where.lower())
    if size:
        count = float(size[1]) * 1e9
        yield CardRow("parameters", f"about {size[1]} billion, from the name")
        yield CardRow("weights", f"about {count * 2 / 1e9:,.1f} GB in bfloat16, {count * 4 / 1e9:,.1f} GB in float32")
    yield CardRow("more", f"envsuite models get {name} downloads it; then this card is complete")


def _parameters(file: Path) -> int:
    """Returns the number of parameters in a safetensors file, from its header. Raises ValueError."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(MOST_HEADER, file.stat().st_size):
            raise ValueError(f"{file.name} has no header")
        header = parse_json(stream.read(length))
    return sum(math.prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__")


def _sizes(config: dict[str, Any], parameters: int) -> Iterator[CardRow]:
    """Yields parameters, context and memory."""
    text = config.get("text_config") or config
    context = text.get("max_position_embeddings")
    yield CardRow("architecture", ", ".join(config.get("architectures") or [config.get("model_type", "unknown")]))
    if parameters:
        yield CardRow("parameters", f"{parameters / 1e6:,.0f} million")
        weights = ", ".join(f"{parameters * size / 1e9:,.2f} GB in {kind}" for kind, size in _KINDS.items())
        yield CardRow("weights", weights)
    if context:
        yield CardRow("context", f"{context:,} tokens")
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    if layers and heads and context:
        size = text.get("head_dim") or text["hidden_size"] // heads
        per_token = 2 * layers * (text.get("num_key_value_heads") or heads) * size
        tokens = min(context, 4096)
        memory = ", ".join(
            f"{per_token * bytes_ * tokens * CONVERSATIONS / 1e9:,.2f} GB in {kind}" for kind, bytes_ in _KINDS.items()
        )
        yield CardRow("keys and values", f"{memory}, for {CONVERSATIONS} conversations of {tokens:,} tokens")


_KINDS = {"bfloat16": 2, "float32": 4}


def _template_rows(folder: Path) -> Iterator[CardRow]:
    """Yields what the chat template supports, from its text and from rendering it."""
    template = _template(folder)
    text = template if isinstance(template, str) else json.dumps(template)
    if not template:
        yield CardRow("chat template", "none: prompts have the form 'User: ...' and 'Assistant: ...'")
        return
    yield CardRow("chat template", f"{len(text):,} characters")
    switch = "enable_thinking" in text
    yield CardRow("thinking switch", "yes: --thinking off turns reasoning off" if switch else "no")
    yield CardRow("tools", _tools(template))


def _tools(template: str | dict[str, str]) -> str:
    """Returns whether a chat template declares tools, which only rendering it shows."""
    try:
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast
    except ModuleNotFoundError:
        return "unknown: pip install 'envsuite[hf]' to render the template"
    renderer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
    renderer.chat_template = template
    declared = Template(renderer, ()).declares_tools
    return "declared in the prompt (--action-grammar tools)" if declared else "not in the template"


def _template(folder: Path) -> str | dict[str, str]:
    """Returns a model's chat template, or its templates by name; '' if it has none."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_bytes()[:MOST_TEMPLATE].decode("utf-8", "replace")
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.is_file() else None
    if isinstance(template, list):
        return {item["name"]: item["template"] for item in template}
    return template or ""


def _commands(name: str, parameters: int) -> Iterator[CardRow]:
    """Yields the commands that play a task with this model, and a word on this machine's memory."""
    yield CardRow("run it here", f"envsuite-eval -m {name} -e alfworld")
    yield CardRow("on a server", f"envsuite-eval -m vllm:{name} -e alfworld")
    if (memory := _memory()) and parameters * 4 > memory:
        yield CardRow("note", f"this machine's {memory / 1e9:,.0f} GB of memory are too few for float32 on the CPU")


def _memory() -> int:
    """Returns the bytes of this machine's memory; 0 if they are not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _gguf_card(name: str, file: Path) -> list[CardRow]:
    if not file.is_file():
        near = did_you_mean(file.name, [path.name for path in file.parent.glob("*.gguf")])
        raise UsageError(f"No GGUF file {name!r}.{near}")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise DataError(f"{name} is not a GGUF file: it begins with other bytes.")
    return [
        CardRow("name", name),
        CardRow("source", f"{file.resolve()} (GGUF, for llama.cpp)"),
        CardRow("weights", f"{file.stat().st_size / 1e6:,.0f} MB, with the memory of keys and values on top"),
        CardRow("context", "--server-context tokens per conversation; 4,096 unless set"),
        CardRow("run it here", f"envsuite-eval -m llamacpp:{name} -e alfworld"),
    ]
