"""Setups of SWE-Gym: six kinds on several versions of Python, four submissions each.

    `python -m benchmarks.swegym_setups [--pythons 3.9 3.10 3.12 3.13] [--driver bwrap] [--markdown FILE]`

A small package with a bug is written to disk as a source archive, a wheel, a commit of git and a folder. Two more
setups use the folder: one installs the package with `pip install -e`, the other has its own test command and log
parser. pip installs pytest for each version. The judge of published records grades four submissions: the gold
patch must resolve the record; no change, a wrong patch, and a value that equals everything must not. Exits
with 1 otherwise. A version that is not on this machine is named and skipped.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym import preflight
from envsuite.envs.swegym.published import interpreters, records
from envsuite.envs.swegym.published.problem import PublishedProblem
from envsuite.errors import DataError
from envsuite.sandbox import drivers

CODE = "def double(x):\n    return x\n\n\ndef half(x):\n    return x / 2\n"
TESTS = "from calc import double, half\n\n\ndef test_half():\n    assert half(4) == 2\n"
PYPROJECT = (
    '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    '[project]\nname = "calc"\nversion = "1"\n\n[tool.setuptools]\npy-modules = ["calc"]\n'
)
TREE = {"calc.py": CODE, "tests/test_calc.py": TESTS, "pyproject.toml": PYPROJECT}
PATCH = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,3 +1,3 @@\n def double(x):\n"
    "-    return x\n+    return 2 * x\n \n"
)
TEST_PATCH = (
    "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n"
    "@@ -3,3 +3,8 @@\n \n def test_half():\n     assert half(4) == 2\n+\n+\n+def test_double():\n"
    "+    assert double(1) == 2\n+    assert double(3) == 6\n"
)
EQUALS_ALL = (
    "class Value(int):\n    __hash__ = int.__hash__\n\n    def __eq__(self, other):\n        return True\n\n\n"
    "def double(x):\n    return Value(x)\n\n\ndef half(x):\n    return x / 2\n"
)
SUBMISSIONS: dict[str, bytes | None] = {
    "gold": None,
    "empty": b"",
    "wrong": CODE.replace("return x\n", "return x + 1\n").encode(),
    "tampering": EQUALS_ALL.encode(),
}
"""contents of calc.py; None stands for the gold patch, '' for no change"""
PINS = ["pytest==8.3.5"]
PATHS = {"env": {"PYTHONPATH": "{testbed}"}, "test_cmd": "pytest -rA"}


def setups(folder: Path) -> dict[str, dict[str, Any]]:
    """Writes the package in each form below a folder; returns the setup of each kind."""
    tree = folder / "tree"
    for name, text in TREE.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    with tarfile.open(folder / "calc-1.tar.gz", "w:gz") as tar:
        for name, text in TREE.items():
            entry = tarfile.TarInfo(f"calc-1/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    with zipfile.ZipFile(folder / "calc-1-py3-none-any.whl", "w") as wheel:
        for name, text in TREE.items():
            wheel.writestr(name, text)
    path = {"kind": "path", "path": str(tree)}
    return {
        "sdist": {"source": {"kind": "sdist", "req": str(folder / "calc-1.tar.gz")}, **PATHS},
        "wheel": {"source": {"kind": "wheel", "req": str(folder / "calc-1-py3-none-any.whl")}, **PATHS},
        "git": {"source": _commit(tree, folder / "repository"), **PATHS},
        "path": {"source": path, **PATHS},
        "own install": {"source": path, "install": "pip install -q --no-deps -e .", "test_cmd": "pytest -rA"},
        "own command and parser": {
            "source": path,
            "env": PATHS["env"],
            "test_cmd": "python -m pytest -rA -vv -o console_output_style=classic --tb=no",
            "directives": "tests",
            "parser": "pytest_plain",
        },
    }


def _commit(tree: Path, repository: Path) -> dict[str, str]:
    """Commits a tree to a new repository; returns the setup's source."""
    git = ["git", f"--git-dir={repository}", f"--work-tree={tree}", "-c", "user.name=a", "-c", "user.email=a@b.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return {"kind": "git", "url": f"file://{repository}", "commit": done.stdout.strip()}


def grade(setup: dict[str, Any], driver: str) -> dict[str, str]:
    """Returns what the judge says of each submission: 'resolved', or why not."""
    record = records.parse(
        {
            "instance_id": "calc__calc-1",
            "repo": "calc/calc",
            "base_commit": "0" * 40,
            "patch": PATCH,
            "test_patch": TEST_PATCH,
            "problem_statement": "double(1) is 1",
            "FAIL_TO_PASS": ["tests/test_calc.py::test_double"],
            "PASS_TO_PASS": ["tests/test_calc.py::test_half"],
        },
        "the record of the benchmark",
    )
    problem = PublishedProblem(record, setup, driver)
    reason = preflight.gold_failure(problem, 120.0)
    verdicts = {}
    for name, content in SUBMISSIONS.items():
        changes = problem.gold() if content is None else {"calc.py": content} if content else {}
        report = problem.judge(changes, 120.0)
        verdicts[name] = "resolved" if report.resolved else report.fault or "tests fail"
    return {**verdicts, "gold": reason or verdicts["gold"]}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pythons", nargs="+", default=["3.9", "3.10", "3.12", "3.13"], help="versions")
    parser.add_argument("--driver", default="auto", help="driver of the sandbox (default: the best one here)")
    parser.add_argument("--markdown", type=Path, help="file to write")
    args = parser.parse_args(argv)
    driver, began = drivers.choose(args.driver), time.monotonic()
    rows, counts, skipped = [], dict.fromkeys(SUBMISSIONS, 0), []
    with tempfile.TemporaryDirectory() as scratch:
        kinds = setups(Path(scratch))
        for version in args.pythons:
            try:
                exact = interpreters.find(version).version
            except DataError as error:
                skipped.append(str(error))
                continue
            for kind, setup in kinds.items():
                verdicts = grade({**setup, "pins": PINS, "python": version}, driver)
                for name, verdict in verdicts.items():
                    counts[name] += verdict == "resolved"
                rows.append(f"| {kind} | {exact} | {' | '.join(verdicts.values())} |")
                print(rows[-1], file=sys.stderr, flush=True)
    head, _, text = (__doc__ or "").partition("\n\n")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [f"# {head}", "", *(line.strip() for line in text.strip().splitlines()), ""]
    lines += [f"| setup | Python | {' | '.join(SUBMISSIONS)} |", "|---|---|---|---|---|---|", *rows, ""]
    totals = ", ".join(f"{name} {count}" for name, count in counts.items())
    seconds = f"{time.monotonic() - began:.0f} s"
    lines += [f"Resolved of {len(rows)} each: {totals}. Driver {driver}; {seconds}; load average {load}."]
    lines += ["", *(f"Skipped: {reason}" for reason in skipped)] if skipped else []
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        write_atomically(args.markdown, text)
    return int(not rows or counts != {name: len(rows) if name == "gold" else 0 for name in SUBMISSIONS})


if __name__ == "__main__":
    sys.exit(main())
