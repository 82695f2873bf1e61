"""Formulas of the documentation become MathML, so that pages show them without fetching a script."""

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
markdown = pytest.importorskip("markdown", reason="the docs extra is not installed: make dev")
pytest.importorskip("latex2mathml", reason="the docs extra is not installed: make dev")
pytest.importorskip("pymdownx", reason="the docs extra is not installed: make dev")
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "$$" in page.read_text()]


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("_math", ROOT / "docs" / "_math.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_some_pages_have_formulas():
    assert len(PAGES) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_formula_becomes_valid_mathml(page, hook):
    settings = {"pymdownx.arithmatex": {"generic": True}}
    extensions = ["tables", "pymdownx.superfences", "pymdownx.arithmatex"]
    html = markdown.markdown(page.read_text(), extensions=extensions, extension_configs=settings)
    built = hook.on_page_content(html, None, None, None)
    assert "arithmatex" not in built
    formulas = re.findall(r"<math.*?</math>", built, re.DOTALL)
    assert formulas
    for formula in formulas:
        words = "".join(ElementTree.fromstring(formula).itertext())
        assert "\\" not in words and "&" not in words, f"{page.name}: {words}"
