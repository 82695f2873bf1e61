"""Programs in the replies of language models: which fenced block, or blocks, are the code (`extract`).

In tasks with exploring turns a reply either submits a program or runs code in the interpreter (`submitted`, `cell`).
"""

from __future__ import annotations

import ast
import re

_BLOCK = re.compile(r"(`{3,}|~{3,})[ \t]*([^\n`]*)\r?\n(.*?)(?:\1|\Z)", re.DOTALL)
_PYTHON = re.compile(r"(i?python|py)[\d.]*|submit|")
_SUBMIT = re.compile(r"\s*#\s*submit\b.*", re.IGNORECASE)
_RUN = re.compile(r"\s*#\s*run\b.*", re.IGNORECASE)


def extract(answer: str, function: str = "build_model") -> str:
    """Returns the code in an answer: all of it if it has no fenced Python block.

    Otherwise the last block that defines `function`, after the earlier blocks with its imports and helpers; later
    blocks, which show how to use it, and drafts that define it too, are left out. If no block defines it: the last one.
    """
    blocks = [text for _, info, text in _BLOCK.findall(answer) if _is_python(info)]
    return _joined(blocks, function) if blocks else answer


def submitted(answer: str, function: str = "build_model") -> str | None:
    """Returns the program that an answer submits; None if the answer is code for the interpreter.

    A program is submitted by a block whose info string says `submit`, by code that begins with the line `# submit`,
    and by an answer without any block, unless it begins with the line `# run`.
    """
    if _SUBMIT.match(answer) or _RUN.match(answer):
        return answer if _SUBMIT.match(answer) else None
    blocks = _BLOCK.findall(answer)
    marked = [text for _, info, text in blocks if "submit" in _words(info)]
    marked = marked or [text for _, info, text in blocks if _is_python(info) and _SUBMIT.match(text)]
    if marked:
        return _joined(marked, function)
    return None if any(_is_python(info) for _, info, _ in blocks) else answer


def is_marked(answer: str) -> bool:
    """Returns True if an answer has a block, or begins with the line `# run` or `# submit`."""
    return bool(_SUBMIT.match(answer) or _RUN.match(answer) or _BLOCK.search(answer))


def cell(answer: str) -> str:
    """Returns the code of an answer that `submitted` leaves to the interpreter: all its Python blocks.

    A first line `# run` is left out, so that line numbers in tracebacks are those of the code.
    """
    if mark := _RUN.match(answer):
        return answer[mark.end() :].removeprefix("\n")
    blocks = [text for _, info, text in _BLOCK.findall(answer) if _is_python(info)]
    return "\n".join(blocks) if blocks else answer


def _joined(blocks: list[str], function: str) -> str:
    """Returns the last block that defines `function` after the earlier blocks with its helpers, or the last one."""
    defining = [number for number, text in enumerate(blocks) if _defines(text, function)]
    if not defining:
        return blocks[-1]
    last = defining[-1]
    helpers = [text for number, text in enumerate(blocks[:last]) if number not in defining and _compiles(text)]
    return "".join([*helpers, blocks[last]])


def _is_python(info: str) -> bool:
    """Returns True for the info string of a Python block: `python`, `{python}`, `py title="m.py"`, or none at all."""
    words = _words(info)
    return _PYTHON.fullmatch(words[0].lstrip(".") if words else "") is not None


def _words(info: str) -> list[str]:
    return info.replace("{", " ").replace("}", " ").replace(",", " ").lower().split()


def _defines(text: str, function: str) -> bool:
    return re.search(rf"^\s*(async\s+)?def\s+{function}\b|^{function}\s*=", text, re.MULTILINE) is not None


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
