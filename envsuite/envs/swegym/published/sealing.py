"""Runs of a published record's tests with the judge's pytest plugins (`judge.seal`, `judge.forking`)."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from envsuite.envs.swegym.judge import phases as forked
from envsuite.envs.swegym.judge import sabotage, tampering


class Phases(NamedTuple):
    """The phases of a run, in forks."""

    plan: forked.PhasePlan
    mark: str
    """begins the line after each phase's log; drawn for each run"""

    def content(self, folder: str, roots: Iterable[str]) -> bytes:
        """Returns the plugin's plan. `folder`: the repository inside; `roots`: folders that tests may write."""
        content: dict[str, Any] = {"folder": folder, "roots": list(roots), "mark": self.mark}
        return json.dumps({**content, "phases": self.plan.phases}).encode()


def sealed(script: str, only: Iterable[str] | None, rng: random.Random, phases: bool = False) -> str:
    """Returns a shell script that runs `script` such that every pytest in it loads the plugins.

    `only`: ids of the tests to run (None: all); their parameters are ignored. With `phases` the script reads
    their plan from standard input. The plugins' names are drawn for each run. The seal restores the
    environment before any test is collected.
    """
    name, forking_name = (f"plugin_{rng.getrandbits(40):010x}" for _ in range(2))
    selected = None if only is None else sorted({test.partition("[")[0] for test in only})
    plan = json.dumps({"only": selected, "phases": forking_name if phases else None})
    write_phases = (
        f"printf %s {_encoded(forked.plugin())} | base64 -d > $plugin/{forking_name}.py",
        "cat > $plugin/plan.json",
    )
    return "\n".join(
        (
            f"plugin=$(mktemp -d) && printf %s {_encoded(tampering.seal())} | base64 -d > $plugin/{name}.py",
            *(write_phases if phases else ()),
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
