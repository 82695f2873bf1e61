"""The tutorial is followed to the letter, and links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_tutorials_environment_passes_every_check(tmp_path):
    text = (ROOT / "docs" / "environments.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    (tmp_path / "doors.py").write_text(code)
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    command = [sys.executable, "-m", "harness.cli.check", "doors", "--module", "doors", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, "-m", "harness.cli.eval", "-m", "random", "-e", "doors", "--module", "doors", "-n", "5"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
