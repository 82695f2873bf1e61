"""Turns formulas into MathML while the site is built, so that a page fetches no script to show them.

Pages write TeX between dollar signs, which code hosts render as well. The extension `pymdownx.arithmatex`
marks the formulas, and this hook replaces each of them.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)


def on_page_content(page_html: str, page: Any, config: Any, files: Any) -> str:
    """Replaces every marked formula by MathML."""
    return FORMULA.sub(_mathml, page_html)


def _mathml(match: re.Match[str]) -> str:
    kind, tex = match.groups()
    block = kind == "div"
    formula = convert(html.unescape(tex).strip(), display="block" if block else "inline")
    return f'<div style="overflow: auto hidden; padding: 0.4em 0">{formula}</div>' if block else formula
