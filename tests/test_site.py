"""The docs site builds strictly, and its pages, links, pictures and code blocks are sound."""

import html
import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from envsuite import registry
from harness.__main__ import VERBS
from harness.cli.envs import card, share_of_wins

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CODE_TOO_WIDE = """[...document.querySelectorAll("pre code")]
    .filter(block => block.scrollWidth > block.clientWidth + 1)
    .map(block => block.closest("[data-page]").dataset.page + ": "
        + block.innerText.split("\\n").reduce((a, b) => a.length > b.length ? a : b))"""
PAGE_TOO_WIDE = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("[data-page]")]
    .filter(page => page.scrollWidth > page.clientWidth)
    .map(page => `${page.dataset.page}: ${page.scrollWidth} pixels`).concat("the page with all articles")"""
TOO_WIDE = """document.querySelector("[data-page]").insertAdjacentHTML("beforeend",
    `<pre><code>${"x".repeat(300)}</code></pre><div style="width: 2000px">x</div>`)"""
"""adds a block and a box to the first article, to see that the measurements find them"""
ARTICLE = re.compile(r'(<article class="md-content__inner md-typeset">)(.*)(</article>)', re.DOTALL)
pytest.importorskip("material", reason="mkdocs-material is not installed")
pytestmark = pytest.mark.timeout(900)  # the site is built in the first test that asks for it


@pytest.fixture(scope="session")
def site(made_once):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    def write(folder):
        # strict: any warning of mkdocs, a broken link above all, ends the build
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder), extra={"replays": 0}))

    return made_once("site", write)


def test_every_page_of_the_docs_and_every_board_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / (path.with_name("index.html") if path.stem == "README" else path)).exists(), page
    for table in (ROOT / "leaderboards" / "tables").glob("*.md"):
        name = "index" if table.stem == "README" else table.stem
        assert (site / "leaderboards" / "tables" / f"{name}.html").exists()
    for study in (ROOT / "leaderboards" / "training").glob("*/README.md"):
        assert (site / "leaderboards" / "training" / study.parent.name / "index.html").exists()
    grids = (site / "leaderboards" / "generalisation" / "index.html").read_text()
    for grid in (ROOT / "leaderboards" / "generalisation").glob("*/grid.json"):
        assert grid.parent.name in grids
    assert "leaderboards/generalisation/index.html" in (site / "index.html").read_text()  # the navigation
    for board in (ROOT / "leaderboards").glob("*/metadata.json"):
        folder = site / "leaderboards" / board.parent.name
        assert "<table>" in (folder / "index.html").read_text()
        assert "episodes.html" in (folder / "index.html").read_text()
        assert 'id="viewer"' in (folder / "episodes.html").read_text()


def test_every_measured_card_is_on_the_page_of_cards(site):
    page = (site / "envs" / "cards.html").read_text()
    for task in registry.tasks("*"):
        if measured := card(task):
            row = re.search(rf"<td[^>]*>{re.escape(task.id)}</td>\s*<td[^>]*>(\d+)</td>\s*<td[^>]*>([^<]+)</td>", page)
            assert row and (int(row[1]), row[2]) == (measured["episodes"], share_of_wins(measured, "random")), task.id


def test_the_command_line_page_holds_every_command_and_its_flags(site):
    text = (site / "reference" / "cli.html").read_text()
    for name in VERBS:
        assert re.search(rf"usage: envsuite[ -]{name}\b", text), name
    assert "--action-grammar" in text


def test_the_python_reference_shows_signatures_and_docstrings(site):
    page = (site / "reference" / "api-environments.html").read_text()
    for name in ("envsuite.make", "envsuite.tasks", "envsuite.TextEnv.reset", "envsuite.Outcome"):
        assert f'id="{name}"' in page, name


def test_links_and_pictures_of_the_built_site_lead_somewhere(site):
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        if path.name in ("404.html", "episodes.html"):  # addressed from the root; one file with its own viewer
            continue
        for target in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            address, _, anchor = unquote(html.unescape(target)).partition("#")
            if "://" in address or address.startswith(("data:", "mailto:", "javascript:")):
                continue
            file = (path.parent / address).resolve() if address else path
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{path.relative_to(site)} links to {target}"
            if anchor and file in ids and not anchor.startswith("__"):
                assert anchor in ids[file], f"{path.relative_to(site)} links to {target}"


def all_articles(site, names):
    """Writes a page with the articles of all named pages, each in a section; returns the page."""
    sections = []
    for name in names:
        text = ARTICLE.search((site / name).read_text())[2]
        text = re.sub(r'src="(?!data:)', f'src="{(site / name).parent.as_uri()}/', text)
        sections.append(f'<section data-page="{name}">{text}</section>')
    shell = (site / "index.html").read_text()
    page = site / f"all-articles-{os.getpid()}.htm"  # not .html: another process may check all pages meanwhile
    page.write_text(ARTICLE.sub(lambda found: found[1] + "".join(sections) + found[3], shell))
    return page


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_no_code_block_scrolls_sideways_at_1280_pixels_and_no_page_on_a_phone(site):
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make dev")
    written = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    names = [path.with_name("index.html") if path.stem == "README" else path.with_suffix(".html") for path in written]
    joined, wide = all_articles(site, names), []
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=180_000)
        page = browser.new_page()
        page.set_default_timeout(180_000)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(joined.as_uri(), wait_until="domcontentloaded")
        joined.unlink()  # it is no page of the site
        assert page.locator("[data-page]").count() == len(names)
        wide += [f"at 1280: {line}" for line in page.evaluate(CODE_TOO_WIDE)]
        page.set_viewport_size({"width": 390, "height": 900})
        wide += [f"at 390: {line}" for line in page.evaluate(PAGE_TOO_WIDE)]
        assert not wide, "\n".join(wide)
        page.evaluate(TOO_WIDE)
        assert page.evaluate(PAGE_TOO_WIDE)[0].startswith(f"{names[0]}: ")
        page.set_viewport_size({"width": 1280, "height": 900})
        assert page.evaluate(CODE_TOO_WIDE) == [f"{names[0]}: {'x' * 300}"]
        browser.close()


def test_links_to_files_that_are_no_pages_are_plain_text_and_nothing_is_fetched(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'href="[^":]*\.(md|py)"', text), page
        assert not re.search(r'<(script|link rel="stylesheet")[^>]*(src|href)="https?://', text), page
