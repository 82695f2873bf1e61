"""Runs of a published record's tests with the judge's pytest plugin (`envsuite.envs.swegym.seal`)."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable

from envsuite.envs.swegym import sabotage, tampering


def sealed(script: str, only: Iterable[str] | None, rng: random.Random) -> str:
    """Returns a shell script that runs `script` such that every pytest in it loads the plugin.

    `only`: ids of the tests to run (None: all); their parameters are ignored. The plugin's name is
    drawn for each run. It restores the environment before any test is collected.
    """
    name = f"plugin_{rng.getrandbits(40):010x}"
    selected = None if only is None else sorted({test.partition("[")[0] for test in only})
    plan = json.dumps({"only": selected})
    return "\n".join(
        (
            f"plugin=$(mktemp -d) && printf %s {_encoded(tampering.seal())} | base64 -d > $plugin/{name}.py",
            f"export ENVSUITE_TEST_PLAN=$(printf %s {_encoded(plan)} | base64 -d)",
            'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$plugin"',
            f'export PYTEST_ADDOPTS="${{PYTEST_ADDOPTS:+$PYTEST_ADDOPTS }}-p {name}"',
            script,
        )
    )


def messages(log: str) -> dict[str, sabotage.Failure]:
    """Returns how tests failed by the summary lines of a pytest log: id -> (exception's name, message)."""
    failures = {}
    for line in log.split("\n"):
        test, dash, words = line.removeprefix("FAILED ").partition(" - ")
        if line.startswith("FAILED ") and dash:
            kind, colon, message = words.partition(": ")
            known = colon and kind.isidentifier()
            failures[test] = sabotage.Failure(kind, message) if known else sabotage.Failure("AssertionError", words)
    return failures


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
