"""The tutorial is followed to the letter, and links lead somewhere."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def commands(tmp_path):
    """A folder of the console scripts as pip would install them, of this tree."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, target in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {target.partition(":")[0]} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def test_the_tutorial_is_followed_to_the_letter(tmp_path, commands):
    """Every block in its order: Python is saved under the name that the page gives it, shell lines are run as they stand."""
    page = (ROOT / "docs" / "environments.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    files = iter(re.findall(r"Save it as `(\S+)`", page))
    work = tmp_path / "work"
    work.mkdir()
    environment = {"PYTHONPATH": str(ROOT), "PATH": f"{commands}:{os.defpath}", "HOME": str(tmp_path)}
    said = {}
    for kind, text in blocks:
        if kind == "python":
            (work / next(files)).write_text(text)
            continue
        assert kind == "bash", f"the page has a block of {kind}, which nobody follows"
        for line in text.splitlines():
            guesses = "".join(f"open {number}\n" for number in range(1, 9))  # what the player types, where asked
            done = subprocess.run(
                ["bash", "-c", line], input=guesses, capture_output=True, text=True, cwd=work, env=environment
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            said[line.split()[0]] = done.stdout
    assert next(files, None) is None and len(said) == 3
    assert "Doors-v0" in said["envsuite-check"] and "FAIL" not in said["envsuite-check"]
    assert "random" in said["envsuite-eval"] and "expert" in said["envsuite-eval"]
    assert "Find the right one of 8 doors." in said["envsuite-play"] and "It opens." in said["envsuite-play"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
