"""Pages of the documentation that code cites exist, with the section that it names."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CITATION = re.compile(r'(docs/[\w./-]+\.md)(?:, "([^"]+)")?')
FOLDERS = ("envsuite", "harness", "baselines", "benchmarks", "tests")


def citations():
    listed = subprocess.run(["git", "ls-files", *FOLDERS], capture_output=True, text=True, cwd=ROOT, check=True)
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
