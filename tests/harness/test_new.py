"""Packages created by envsuite new pass their own tests and every check."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envsuite.errors import UsageError
from harness.cli import new

ROOT = Path(__file__).resolve().parents[2]


def python(folder, *words):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_a_new_package_passes_its_own_tests_and_every_check(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        new.main(["lights-out", "-o", str(tmp_path)])
    assert done.value.code == 0 and "envsuite check 'LightsOut-*'" in capsys.readouterr().out
    folder = tmp_path / "lights-out"
    tests = python(folder, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert tests.returncode == 0 and "5 passed" in tests.stdout, tests.stdout
    checks = python(
        folder, "harness", "check", "LightsOut-hard", "--module", "lights_out", "--seconds", "1", "--seeds", "2",
    )  # fmt: skip
    assert checks.returncode == 0, checks.stdout + checks.stderr
    played = python(
        folder, "harness.cli.eval", "-m", "expert", "-e", "lightsout", "--module", "lights_out", "-n", "3",
        "--baselines", "none", "-o", tmp_path / "runs",
    )  # fmt: skip
    assert played.returncode == 0 and "100.0" in played.stdout, played.stderr
    linted = python(folder, "ruff", "check", "--isolated", "--select", "E,F,UP,B,SIM", "--line-length", "120", ".")
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2048", "is no name"), ("../up", "is no name"), ("a b", "is no name"), ("", "is no name"),
        ("json", "already a Python module"), ("class", "already a Python module"), ("none", "already a Python"),
        ("tests", "already a Python"), ("Baby-AI", "are tasks of the name"),
    ],
)  # fmt: skip
def test_invalid_package_names_are_refused(name, message):
    with pytest.raises(UsageError, match=message):
        new.names(name)


def test_existing_folders_are_not_overwritten(tmp_path):
    new.write(new.names("lights-out"), tmp_path)
    with pytest.raises(UsageError, match="lights-out exists"):
        new.write(new.names("lights-out"), tmp_path)
