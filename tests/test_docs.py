"""The pages' commands run as printed, and their links lead somewhere."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.__main__ import GROUPS
from tests.forking import Forks

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "PYPI.md",
    ROOT / "leaderboards" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"Save (?:it|this) as `(\S+)`")
MODELS = Path(os.environ.get("ENVSUITE_CACHE") or Path.home() / ".cache" / "envsuite") / "models"


def follow(page: Path, work: Path, forks: Forks | None = None) -> dict[str, str]:
    """Saves every file and runs every bash block of a page in its order; returns what each block printed.

    A block of Python or TOML after "Save it as `NAME`" becomes that file. Other blocks are only read. With `forks`, the
    commands that need torch run in forks of a process that has imported it.
    """
    commands = work / "bin"
    commands.mkdir()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    modules = {name: target.partition(":")[0] for name, target in scripts.items()}
    python = {name: forks.python if forks and name != "envsuite" else sys.executable for name in ["python", *modules]}
    lines = {name: f"{python[name]} -m {module}" for name, module in modules.items()}
    lines["python"] = str(python["python"])
    for name, line in lines.items():  # as pip would install them, of this tree
        (commands / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (commands / name).chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "HOME": str(work),
        "ENVSUITE_CACHE": str(MODELS.parent),
        "COLUMNS": "160",
    }
    text = page.read_text()
    printed = {}
    after = 0
    typed = "".join(f"open {number}\n" for number in range(1, 9))  # a player's input, where one is asked for
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        names = SAVED.findall(text[after : block.start()])
        after = block.end()
        if names and kind in ("python", "toml"):
            (work / names[-1]).write_text(body)
        elif kind == "bash":
            done = subprocess.run(
                ["bash", "-ec", body], input=typed, capture_output=True, text=True, cwd=work, env=environment
            )
            assert done.returncode == 0, f"{body}\n{done.stdout}{done.stderr}"
            printed[body.strip()] = done.stdout
    return printed


def output(printed: dict[str, str], command: str) -> str:
    """Returns what the only block that contains `command` printed."""
    (text,) = (text for block, text in printed.items() if command in block)
    return text


def success(table: str, model: str) -> float:
    """Returns a model's success in percent from a printed table."""
    return float(re.search(rf"^\s*\S*{model}\s+([\d.]+) \[", table, re.MULTILINE)[1])


@pytest.mark.skipif(
    not (MODELS / "smollm2-135m").exists(),
    reason="the bundled model is not fetched: envsuite models get smollm2-135m",
)
@pytest.mark.timeout(1800)  # a minute on two idle cores; many on a crowded machine
def test_the_first_hour_runs_command_by_command(tmp_path, forks):
    printed = follow(ROOT / "docs" / "tutorial" / "first-hour.md", tmp_path, forks)
    first = output(printed, "-m smollm2-135m")
    assert success(first, "expert") == 100
    assert "> [" in output(printed, "python read.py")
    assert "FAIL" not in output(printed, "envsuite check")
    before, after = output(printed, "-o runs/before"), output(printed, "-o runs/after")
    assert success(before, "tiny") < 20 and success(before, "expert") == 100
    assert success(after, "model") >= 50
    assert "success" in output(printed, "envsuite compare")
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.timeout(900)
def test_the_page_on_environments_runs_command_by_command(tmp_path):
    printed = follow(ROOT / "docs" / "howto" / "own-environment.md", tmp_path)
    assert (tmp_path / "lights-out" / "pyproject.toml").exists()
    block = output(printed, "envsuite check doors")
    assert "FAIL" not in block and success(block, "expert") == 100
    assert "among 8 doors" in block and "It opens." in block


def test_the_reference_lists_every_command():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert re.findall(r"^\| (?:`([a-z]+)`|\*\*.*\*\*) \|", page, re.M) == [
        name for verbs in GROUPS.values() for name in ("", *verbs)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target and not target.endswith("cli.md"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
