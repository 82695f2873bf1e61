"""CONTRIBUTING.md, carried out: what its tables list is enough for the tests that look at every family or algorithm."""

import os
import re
import shutil
import string
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FAMILY_TESTS = (
    "tests/test_rooms.py",
    "tests/harness/test_suites.py",
    "tests/harness/test_curriculum.py",
)


def listed(heading: str) -> list[str]:
    """Returns the paths in the table below a heading of CONTRIBUTING.md."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """Returns a copy of the tracked files, in which a test may add files."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: git clone the repository")
    for name in subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def write(checkout: Path, files: dict[str, str], allowed: list[str]) -> None:
    """Writes files, each of which the table of CONTRIBUTING.md must list."""
    for name, text in files.items():
        assert any(name == path or (path.endswith("/") and name.startswith(path)) for path in allowed), name
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        with open(checkout / name, "a") as file:
            file.write(text)


def run(checkout: Path, *arguments: str) -> None:
    """Runs pytest in the copy; fails with its output."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    assert result.returncode == 0, result.stdout[-12000:] + result.stderr[-1000:]


MENU = '''"""Registers the tasks of the lamps."""

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

register_family(Family("lamps", default="Lamps-easy-v0", summary="find and light a lamp in a dark corridor"))
for level, length in {"easy": 3, "medium": 6, "hard": 12}.items():
    register(
        Task(
            id=f"Lamps-{level}-v0",
            entry_point="envsuite.envs.lamps.env:Lamps",
            kwargs={"length": length},
            level=level,
            summary=f"light a lamp in a corridor, {level}",
        )
    )
'''


def test_a_family_made_by_its_table_passes_the_tests_of_all_families(checkout):
    scaffold = string.Template((ROOT / "harness/scaffold/env.txt").read_text())
    source = (
        scaffold.substitute(title="Lamps", class_name="Lamps", package="lamps").partition("\n\nfor level")[0] + "\n"
    )
    family = "lamps"
    folder = f"envsuite/envs/{family}"
    files = {
        f"{folder}/__init__.py": '"""Lamps in a dark corridor."""\n',
        f"{folder}/env.py": source.replace("TextEnv, register", "TextEnv").replace("Outcome, Task, ", "Outcome, "),
        f"{folder}/menu.py": MENU,
        f"docs/envs/{family}.md": "# Lamps\n\n`Lamps-easy-v0`: a corridor with a lamp to light.\n",
    }
    write(checkout, files, [path.replace("NAME", "lamps") for path in listed("Add an environment")])
    run(checkout, *FAMILY_TESTS, "tests/test_every_task.py", "-k", "lamps or ladder or quick or user or budgets")
