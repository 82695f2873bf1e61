"""Minimal published instances: a folder of records with setups that need no download."""

import json
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from envsuite.envs.swegym.planted import problem as planted_problem
from envsuite.envs.swegym.published import setups

CODE = "def double(x):\n    return x\n"
TESTS = "from calc import double\n\n\ndef test_zero():\n    assert double(0) == 0\n"
FIX = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def double(x):\n"
    "-    return x\n+    return {}\n"
)
TEST_PATCH = (
    "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n"
    "@@ -3,3 +3,7 @@\n \n def test_zero():\n     assert double(0) == 0\n+\n+\n+def test_one():\n"
    "+    assert double(1) == 2\n"
)


def record(name: str, fix: str = "2 * x") -> dict:
    """Returns a record in SWE-Gym's schema whose gold patch returns `fix`."""
    return {
        "instance_id": name,
        "repo": "iterative/dvc",  # whose tests are run by `pytest -rA`
        "base_commit": "0" * 40,
        "problem_statement": "double(1) is 1",
        "patch": FIX.format(fix),
        "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": ["tests/test_calc.py::test_one"],
        "PASS_TO_PASS": ["tests/test_calc.py::test_zero"],
    }


def instances(folder: Path, records: list[dict], python: str = "", test_tools: bool = True) -> str:
    """Writes NAME/instance.json and NAME/replay.json, and puts source and environment where pip would.

    `python`: the setup's version. `test_tools`: False leaves pytest out, so that no test can run.
    """
    setup = {
        "source": {"kind": "sdist", "req": "calc==1"},
        "pins": ["pytest"] if test_tools else ["pip"],
        "env": {"PYTHONPATH": "{testbed}"},
        **({"python": python} if python else {}),
    }
    for row in records:
        place = folder / row["instance_id"]
        place.mkdir(parents=True)
        (place / "instance.json").write_text(json.dumps(row))
        (place / "replay.json").write_text(json.dumps(setup))
    environment(setup, test_tools)
    home = setups.home_of(setup)
    with FileLock(home / "lock"):
        if not (home / "source" / "calc.py").exists():
            (home / "source" / "tests").mkdir(parents=True, exist_ok=True)
            (home / "source" / "tests" / "test_calc.py").write_text(TESTS)
            (home / "source" / "calc.py").write_text(CODE)
    return str(folder)


def environment(setup: dict, test_tools: bool = True) -> None:
    """Puts the setup's virtual environment where pip would create it, with this process's pytest."""
    home = setups.environment_of(setup)
    with FileLock(home / "lock"):  # `setups.prepare` takes it too, and other processes' tests share the folder
        if not (home / "venv" / "ready").exists():
            _write(home, setups.python_of(setup).executable, test_tools)


def _write(home: Path, python: str, test_tools: bool) -> None:
    """Writes a virtual environment with pytest."""
    shutil.rmtree(home / "venv", ignore_errors=True)  # remains of an interrupted test
    subprocess.run([python, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    if test_tools:
        (packages,) = (home / "venv" / "lib").glob("python3*/site-packages")
        for entry in planted_problem.pytest_site().iterdir():
            if entry.name != "bin":
                (shutil.copytree if entry.is_dir() else shutil.copyfile)(entry, packages / entry.name)
        script = home / "venv" / "bin" / "pytest"
        script.write_text('#!/bin/sh\nexec python -m pytest "$@"\n')
        script.chmod(0o755)
    (home / "venv" / "ready").touch()
