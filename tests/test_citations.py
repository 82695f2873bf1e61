"""Pages of the documentation that code cites exist, with the section that it names."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CITATION = re.compile(r'(docs/[\w./-]+\.md)(?:, "([^"]+)")?')
FOLDERS = ("envsuite", "harness", "baselines", "benchmarks", "tests")


def citations():
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", *FOLDERS], capture_output=True, text=True, cwd=ROOT, check=True
    )
    for name in listed.stdout.splitlines():
        if name.endswith((".py", ".toml")):
            for match in CITATION.finditer((ROOT / name).read_text()):
                yield name, match[1], match[2]


def test_cited_pages_and_sections_exist():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: git clone the repository")
    checked = list(citations())
    assert len(checked) >= 15
    for name, page, section in checked:
        assert (ROOT / page).is_file(), f"{name} cites {page}"
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert section is None or section in headings, f"{name} cites {page}, {section!r}"


def test_no_code_cites_an_untracked_specification():
    listed = subprocess.run(
        ["git", "grep", "-nE", r"(^|[^/])specs/|spec section"], capture_output=True, text=True, cwd=ROOT
    )
    lines = [line for line in listed.stdout.splitlines() if not line.startswith(("docs/", "tests/test_citations"))]
    wrong = [line for line in lines if line.split(":")[0].endswith((".py", ".toml")) and "docs/specs/" not in line]
    assert not wrong, "\n".join(wrong)


def test_links_of_the_contributors_page_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_a_page_for_contributors_names_exist(page):
    made = {"journal.jsonl", "results.jsonl", "summary.json", "metrics.jsonl", "best/"}  # by a run
    roots = (ROOT, ROOT / "harness", ROOT / "baselines", ROOT / "baselines" / "algorithms", ROOT / "tests")
    roots += (ROOT / "envsuite" / "envs", ROOT / "envsuite" / "envs" / "alfworld")
    quoted = re.findall(r"`([\w./-]+(?:/|\.(?:py|toml|json|jsonl|md|gz|txt)))`", (ROOT / page).read_text())
    named = {path for path in quoted if "NAME" not in path and "SUITE" not in path} - made
    assert len(named) > 10
    missing = [path for path in sorted(named) if not any((root / path).exists() for root in roots)]
    assert not missing, f"{page} names {missing}"


def test_the_architecture_page_describes_every_folder():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for package in ("harness", "baselines"):
        folders = [path.parent.name for path in (ROOT / package).glob("*/__init__.py")]
        assert folders
        missing = [name for name in folders if f"`{name}/`" not in text]
        assert not missing, f"docs/architecture.md does not describe {missing} of {package}/"
