"""Runs of a published record's sabotaged tests, which show that its tests can fail.

`plan` makes them a part of the graded run, in forks (`judge.phases`); `can_fail` runs them separately, in a
restored sandbox, where that is impossible or does not settle it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from envsuite.envs.swegym.judge import sabotage, tampering
from envsuite.envs.swegym.judge.grading import Report, status_of
from envsuite.envs.swegym.judge.phases import PhasePlan, make
from envsuite.envs.swegym.problems import Changes
from envsuite.envs.swegym.published.logs import PARSERS
from envsuite.envs.swegym.published.repos import END, test_files
from envsuite.envs.swegym.published.runs import RecordedProblem
from envsuite.envs.swegym.published.sealing import Phases
from envsuite.errors import DataError
from envsuite.sandbox import leftovers
from envsuite.sandbox.protocol import Session

_SEVERAL = re.compile(r"[;&|]|\btox\b")
"""a command with more than one process, so that pytest may run twice"""
_FORKS = b"register_at_fork"
"""code under test that names it might tell phases apart"""


class SabotagedRun(NamedTuple):
    """Files in which tests must fail."""

    files: dict[str, bytes | None]
    expected: set[str]
    covered: set[str]


def plan(problem: RecordedProblem, admitted: Changes, rng: random.Random) -> PhasePlan | None:
    """Draws the phases of a graded run; None where its tests cannot run in forks."""
    record, command = problem.record, "".join(problem.command())
    forks = any(_FORKS in (content or b"") for content in admitted.values())
    if not (problem.sealed and problem.forked) or forks or _SEVERAL.search(command):
        return None
    if record.repo.lower() == "python/mypy":
        return None
    held_out = problem.held_out_files

    def text_of(path: str) -> str | None:
        content = held_out[path] if path in held_out else admitted.get(path, problem.tree().get(path))
        try:
            return None if content is None or path in admitted else content.decode()
        except UnicodeDecodeError:
            return None

    return make(record.fail_to_pass, record.pass_to_pass, text_of, rng, problem.failures)


def split(log: str, phases: Phases | None) -> tuple[str, list[str]]:
    """Returns the log of the first phase, and the logs of the others."""
    if phases is None:
        return log, []
    first, *later = re.split(rf"\n{phases.mark} \d+\n", log)
    if not later:
        return log, []
    return f"{first}\n{END}\n", later[:-1]


def can_fail(
    problem: RecordedProblem, session: Session, admitted: Changes, report: Report, passed: Sequence[str]
) -> str:
    """Returns the fault that a run of sabotaged tests shows; '' if they fail as they should.

    `passed`: tests that passed. Restores the session first.
    """
    session.reset()
    rng = random.SystemRandom()
    passed_before = [test for test in passed if test not in report.fail_to_pass]
    selected = sabotage.sample(report.fail_to_pass, passed_before, rng)
    sabotaged = _sabotaged(problem, session, admitted, selected, rng)
    if missed := set(report.fail_to_pass) - sabotaged.covered:
        return f"cannot_be_checked: {min(missed)}"
    log, _, fault = problem.run_tests(session, admitted, over=sabotaged.files, only=sabotaged.expected)
    after = PARSERS[problem.row.parser](log)
    if fault or not all(sabotage.failed(name, after, status_of(name, after)) for name in sabotaged.expected):
        return "tampered"
    return ""


def _sabotaged(
    problem: RecordedProblem, session: Session, changes: Changes, tests: list[str], rng: random.Random
) -> SabotagedRun:
    """Returns the files in which `tests` must fail, based on `changes` and the held-out tests.

    Changes the session's state, and restores it.
    """
    sabotaged = SabotagedRun({}, set(), set())
    patched = test_files(problem.record.test_patch)
    style = "mypy" if problem.record.repo.lower() == "python/mypy" else problem.row.parser
    style = style if style in ("mypy", "django", "sympy") else "pytest"
    if not problem.apply(session, changes, held_out=True):
        return sabotaged
    texts: dict[str, str | None] = {}
    for added in (False, True):  # a stand-in test is added only for tests that no file contains
        by_file: dict[str, list[str]] = {}
        for test in tests:
            for path in () if test in sabotaged.covered else sabotage.paths(test, style, patched):
                if path in patched or (path in problem.tree() and tampering.is_test(path)):
                    by_file.setdefault(path, []).append(test)
        for path, selected in by_file.items():
            selected = [test for test in selected if test not in sabotaged.covered]
            text = texts[path] if path in texts else _text(session, path)
            if text is None or not selected or (added and style == "mypy"):  # of mypy's tests only named ones are run
                continue
            if path.endswith(".test"):
                changed = sabotage.in_cases(text, selected, rng)
            else:
                changed = sabotage.in_python(text, selected, path, style, rng, added, problem.failures)
            texts[path], sabotaged.files[path] = changed.text, changed.text.encode()
            sabotaged.expected.update(changed.expected)
            sabotaged.covered.update(changed.covered)
    session.reset()
    return sabotaged


def _text(session: Session, path: str) -> str | None:
    with leftovers.passing("swegym") as folder:
        try:
            session.copy_out(path, Path(folder))
            return Path(folder, Path(path).name).read_text()
        except (DataError, OSError, UnicodeDecodeError):
            return None
