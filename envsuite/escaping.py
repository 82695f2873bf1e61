"""Escapes for text from outside: `terminal` for printing, `markdown` and `embedded` for pages.

`in_ascii` spells text for terminals without Unicode, and `public_url` removes secrets from a URL.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of writing
    "\u2028\u2029\ufeff\ud800-\udfff]"  # separators, byte order mark, lone surrogates
)
_IN_ASCII = {"–": "-", "—": "-", "−": "-", "×": "x", "±": "+-", "≥": ">=", "≤": "<=", "→": "->", "…": "..."}
_MARKUP = re.compile(r"([\\`*|\[\]])")


def terminal(text: object) -> str:
    r"""Returns text that cannot move the cursor, set a title or reverse the line: control characters become `\x1b`."""
    return _CONTROL.sub(lambda match: _spelled(match[0]), str(text))


def setting(name: str, value: object, most: int = 4) -> str:
    """Returns NAME=VALUE for people; of a longer list, the first `most` values and their number."""
    if isinstance(value, (list, tuple)) and len(value) > most:
        return f"{name}={', '.join(map(str, value[:most]))}, ... ({len(value)} in all)"
    return f"{name}={value}"


def one_line(text: object) -> str:
    """Returns text as one line that is safe on a terminal."""
    return " ".join(terminal(text).split())


def sendable(text: str) -> str:
    """Replaces lone surrogates, which neither UTF-8 nor a tokenizer can encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def markdown(text: object) -> str:
    """Returns text that stays text in a Markdown table: no markup, link, image or HTML, and no new line or cell."""
    escaped = _MARKUP.sub(r"\\\1", one_line(text)).replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace("://", ":&#47;&#47;")  # addresses become links by themselves
    escaped = re.sub(r"@(?=[\w-]+\.)", "&#64;", escaped)
    return re.sub(r"\b(www)\.", r"\1&#46;", escaped, flags=re.IGNORECASE)


def embedded(value: Any) -> str:
    """Returns JSON that is no markup: it cannot end the script element of a page around it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def visible(value: Any) -> Any:
    """Returns a JSON value whose strings have visible control characters, as `terminal` writes them."""
    if isinstance(value, dict):
        return {terminal(name): visible(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible(item) for item in value]
    return terminal(value) if isinstance(value, str) else value


def public_url(url: str) -> str:
    """Returns a URL without user name, password and query, for messages and records."""
    incomplete = url.rpartition("@")[2].partition("?")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return incomplete
    if not parts.netloc:
        return incomplete
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def in_ascii(text: str) -> str:
    r"""Returns text in ASCII characters: dashes and signs as people type them, all others as `\u00e9`."""
    return "".join(_IN_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in text)


def markdown_code(text: object) -> str:
    """Returns text as Markdown code that stays in its cell of a table."""
    return f"`{one_line(text).replace('`', '').replace('|', '')}`"


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
