"""Programs in the replies of language models: which fenced block, or blocks, are the code (`extract`)."""

from __future__ import annotations

import ast
import re

_BLOCK = re.compile(r"(`{3,}|~{3,})[ \t]*([^\n`]*)\r?\n(.*?)(?:\1|\Z)", re.DOTALL)
_PYTHON = re.compile(r"(i?python|py)[\d.]*|")


def extract(answer: str, function: str = "build_model") -> str:
    """Returns the code in an answer: all of it if it has no fenced Python block.

    Otherwise the last block that defines `function`, after the earlier blocks with its imports and helpers; later
    blocks, which show how to use it, and drafts that define it too, are left out. If no block defines it: the last one.
    """
    blocks = [text for _, info, text in _BLOCK.findall(answer) if _is_python(info)]
    if not blocks:
        return answer
    defining = [number for number, text in enumerate(blocks) if _defines(text, function)]
    if not defining:
        return blocks[-1]
    last = defining[-1]
    helpers = [text for number, text in enumerate(blocks[:last]) if number not in defining and _compiles(text)]
    return "".join([*helpers, blocks[last]])


def _is_python(info: str) -> bool:
    """Returns True for the info string of a Python block: `python`, `{python}`, `py title="m.py"`, or none at all."""
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return _PYTHON.fullmatch(words[0].lstrip(".").lower() if words else "") is not None


def _defines(text: str, function: str) -> bool:
    return re.search(rf"^\s*(async\s+)?def\s+{function}\b|^{function}\s*=", text, re.MULTILINE) is not None


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
