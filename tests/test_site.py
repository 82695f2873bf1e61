"""The docs site is built from what is there, strictly: a link that leads nowhere fails it."""

import re
import tomllib
from pathlib import Path

import pytest

from envsuite import registry
from harness.cli.envs import card

ROOT = Path(__file__).resolve().parents[1]
pytest.importorskip("material", reason="mkdocs-material is not installed")
pytestmark = pytest.mark.timeout(900)  # the site is built in the first test that asks for it


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    # strict: any warning of mkdocs, a broken link above all, ends the build
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder), extra={"replays": 0}))
    return folder


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
        assert f'src="{grid.parent.name}/heatmap.svg"' in grids
        assert (site / "leaderboards" / "generalisation" / grid.parent.name / "heatmap.svg").exists()
    assert "leaderboards/generalisation/index.html" in (site / "index.html").read_text()  # the navigation
    for board in (ROOT / "leaderboards").glob("*/metadata.json"):
        found = site / "leaderboards" / board.parent.name
        assert "<table>" in (found / "index.html").read_text()
        assert "episodes.html" in (found / "index.html").read_text()
        assert 'id="viewer"' in (found / "episodes.html").read_text()


def test_every_measured_card_is_on_the_page_of_cards(site):
    page = (site / "cards.html").read_text()
    for task in registry.tasks("*"):
        if found := card(task):
            row = re.search(rf"<td[^>]*>{re.escape(task.id)}</td>\s*<td[^>]*>(\d+)</td>\s*<td[^>]*>([\d.]+)</td>", page)
            assert row and (int(row[1]), float(row[2])) == (found["episodes"], found["random_success"]), task.id


def test_the_command_line_page_holds_every_command_and_its_flags(site):
    text = (site / "cli.html").read_text()
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]:
        assert f"usage: {name}" in text
    assert "--action-grammar" in text


def test_links_to_files_that_are_no_pages_are_plain_text_and_nothing_is_fetched(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'href="[^":]*\.(md|py)"', text), page
        assert not re.search(r'<(script|link rel="stylesheet")[^>]*(src|href)="https?://', text), page
