"""Plans of a judge's forked test phases (`forking`), and what their results say.

The first phase runs the tests as they are. In the second all failing tests and a sample of the others
are sabotaged, and must fail; two that are not sabotaged must pass. In the third the failing tests fail
as they did before the change, where that is known. The results only save a separate run: whatever else
they say, the judge sabotages tests in fresh sandboxes, as it does where no plan is possible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.envs.swegym.judge import sabotage
from envsuite.envs.swegym.judge.grading import Report, status_of

CONTROLS = 2
"""tests that are not sabotaged and must pass in the second phase"""
ALWAYS = 2
"""drawn tests that run even if time is short"""


class PhasePlan(NamedTuple):
    """Content of the phases after the first one."""

    phases: list[dict[str, Any]]
    """see `forking.TestPhases`"""
    drawn: tuple[str, ...]
    """PASS_TO_PASS tests that are sabotaged"""
    controls: tuple[str, ...]
    repeated: tuple[str, ...]
    """FAIL_TO_PASS tests that fail in the third phase as they did before the change"""


@cache
def plugin() -> str:
    """Returns the text of the plugin."""
    return Path(__file__).with_name("forking.py").read_text()


def make(
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    text_of: Callable[[str], str | None],
    rng: random.Random,
    failures: Mapping[str, sabotage.Failure] | None = None,
) -> PhasePlan | None:
    """Draws a plan; None if a failing test's file is not found. `text_of` returns a test file's text.

    A failing test whose function is not in its file, because it is inherited or made when the file is imported,
    fails at its first statement.
    """
    by_file: dict[str, list[str]] = {}
    for test in (*fail_to_pass, *pass_to_pass):
        by_file.setdefault(test.partition("::")[0], []).append(test)
    texts = {path: text_of(path) for path in by_file if path.endswith(".py")}
    known = {path: text for path, text in texts.items() if text is not None}
    located = {test for path, text in known.items() for test in sabotage.located(text, by_file[path])}
    elsewhere = [test for test in fail_to_pass if test not in located]
    if not fail_to_pass or any(test.partition("::")[0] not in known or test.count("::") < 2 for test in elsewhere):
        return None
    drawn = sabotage.sample([], [test for test in pass_to_pass if test in located], rng)
    sabotaged = {_function(test) for test in (*fail_to_pass, *drawn)}
    methods = {_method(test) for test in elsewhere}  # other classes may inherit the same function
    honest = [test for test in pass_to_pass if _function(test) not in sabotaged and _method(test) not in methods]
    controls = rng.sample(honest, min(CONTROLS, len(honest)))
    required = [*fail_to_pass, *drawn[:ALWAYS], *controls]
    phases = [_phase(known, [*fail_to_pass, *drawn], elsewhere, required, drawn[ALWAYS:], rng, None)]
    repeated = [test for test in fail_to_pass if test in (failures or {})]
    if repeated:
        phases.append(_phase(known, repeated, elsewhere, repeated, [], rng, failures))
    return PhasePlan(phases, tuple(drawn), tuple(controls), tuple(repeated))


def _function(test: str) -> str:
    return test.partition("[")[0]


def _method(test: str) -> str:
    return _function(test).rpartition("::")[2]


def _phase(
    texts: Mapping[str, str],
    tests: Sequence[str],
    elsewhere: Sequence[str],
    required: Sequence[str],
    drawn: Sequence[str],
    rng: random.Random,
    failures: Mapping[str, sabotage.Failure] | None,
) -> dict[str, Any]:
    files = {}
    for path in sorted({test.partition("::")[0] for test in tests}):
        own = [test for test in tests if test.partition("::")[0] == path and test not in elsewhere]
        files[path] = sabotage.in_functions(texts[path], own, rng, failures)
    return {
        "texts": {path: file.text for path, file in files.items()},
        "functions": {path: file.functions for path, file in files.items()},
        "statements": {test: sabotage.statement(test, rng, failures) for test in tests if test in elsewhere},
        "required": list(required),
        "drawn": list(drawn),
    }


def confirms(plan: PhasePlan, report: Report, first: Mapping[str, str], later: Sequence[Mapping[str, str]]) -> bool:
    """Returns True if every sabotaged test that the first phase passed has failed, and the controls have passed.

    `first` and `later` are the statuses of the phases.
    """
    if len(later) != len(plan.phases):
        return False

    def failed(test: str, statuses: Mapping[str, str]) -> bool:
        return sabotage.failed(test, statuses, status_of(test, statuses))

    second = later[0]
    passed = [test for test in (*plan.drawn, *plan.controls) if status_of(test, first) == "PASSED"]
    drawn = [test for test in passed if test in plan.drawn]
    return (
        all(failed(test, second) for test in report.fail_to_pass)
        and all(failed(test, second) for test in drawn if test in plan.phases[0]["required"] or status_of(test, second))
        and all(status_of(test, second) == "PASSED" for test in passed if test in plan.controls)
        and all(failed(test, later[1]) for test in plan.repeated if test in report.fail_to_pass)
    )
