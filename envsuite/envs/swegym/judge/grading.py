"""Grading: test statuses to a `Report`.

A test passes if it is PASSED or XFAIL, and in PASS_TO_PASS also if it is SKIPPED; a test without a
status fails. A name that the data set truncated inside its parameter matches all tests with that
prefix, if they agree. Resolved: every FAIL_TO_PASS and PASS_TO_PASS test passes. `f2p_gated`: the
share of FAIL_TO_PASS that passes if all PASS_TO_PASS pass, otherwise 0. `pass_ratio` weights all
tests equally, as in the Practitioner's Guide's code: if PASS_TO_PASS is long, changing nothing
earns nearly 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envsuite.envs.swegym.published import logs
from envsuite.envs.swegym.published.repos import END, START

PASSING = ("PASSED", "XFAIL")
FAILING = 20
"""failing tests that a record names"""
FAULT_MARKS = tuple(
    f">>>>> {fault}" for fault in ("Patch Apply Failed", "Reset Failed", "Tests Errored", "Tests Timed Out")
)
"""lines with which SWE-bench's scripts say that the tests did not run; a log with one has no results"""


@dataclass(frozen=True)
class Report:
    """Result of grading a patch. The tuples hold test names."""

    fail_to_pass: tuple[str, ...] = ()
    """tests that pass now"""
    fail_to_pass_left: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    pass_to_pass_broken: tuple[str, ...] = ()
    fault: str = ""
    """reason why nothing counts: no_patch, not_applied, no_log, timeout, ...; '' if there is none"""

    @property
    def resolved(self) -> bool:
        return (
            not self.fault and bool(self.fail_to_pass) and not self.fail_to_pass_left and not self.pass_to_pass_broken
        )

    @property
    def f2p_gated(self) -> float:
        total = len(self.fail_to_pass) + len(self.fail_to_pass_left)
        if self.fault or self.pass_to_pass_broken or not total:
            return 0.0
        return len(self.fail_to_pass) / total

    @property
    def pass_ratio(self) -> float:
        passed = len(self.fail_to_pass) + len(self.pass_to_pass)
        total = passed + len(self.fail_to_pass_left) + len(self.pass_to_pass_broken)
        return passed / total if total and not self.fault else 0.0

    @property
    def status(self) -> str:
        """SWE-bench's status: RESOLVED_FULL, RESOLVED_PARTIAL or RESOLVED_NO."""
        if self.resolved:
            return "RESOLVED_FULL"
        return "RESOLVED_PARTIAL" if 0 < self.f2p_gated < 1 else "RESOLVED_NO"

    def plain(self) -> dict[str, Any]:
        """Returns the summary that records keep: numbers of tests, and the first tests that fail."""
        return {
            "fail_to_pass": [len(self.fail_to_pass), len(self.fail_to_pass) + len(self.fail_to_pass_left)],
            "pass_to_pass": [len(self.pass_to_pass), len(self.pass_to_pass) + len(self.pass_to_pass_broken)],
            "failing": [*self.fail_to_pass_left, *self.pass_to_pass_broken][:FAILING],
            "status": self.status,
        }


def grade(statuses: Mapping[str, str], fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]) -> Report:
    """Returns the report for a run's statuses."""

    def passes(test: str, *accepted: str) -> bool:
        return status_of(test, statuses) in (*PASSING, *accepted)

    return Report(
        tuple(test for test in fail_to_pass if passes(test)),
        tuple(test for test in fail_to_pass if not passes(test)),
        tuple(test for test in pass_to_pass if passes(test, "SKIPPED")),
        tuple(test for test in pass_to_pass if not passes(test, "SKIPPED")),
    )


def status_of(test: str, statuses: Mapping[str, str]) -> str:
    """Returns the status of a test; '' if it has none."""
    if test in statuses or test.count("[") <= test.count("]"):
        return statuses.get(test, "")
    matches = [status for name, status in statuses.items() if name.startswith(test)]
    agree = len({status in PASSING for status in matches}) == 1
    return matches[0] if agree else ""


def refused(fault: str, fail_to_pass: Sequence[str] = (), pass_to_pass: Sequence[str] = ()) -> Report:
    """Returns the report of a submission that could not be graded: no test passes."""
    return Report((), tuple(fail_to_pass), (), tuple(pass_to_pass), fault=fault)


def between_markers(log: str) -> str | None:
    """Returns the tests' output; None unless both markers are there in order."""
    _, start, after = log.partition(START)
    inside, end, _ = after.rpartition(END)
    return inside if start and end else None


def grade_log(
    log: str, parser: str, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str], exit_code: int | None = None
) -> Report:
    """Grades a printed log. Rejects a log without results or one that contradicts the exit code."""
    inside = None if any(mark in log for mark in FAULT_MARKS) else between_markers(log)
    statuses = logs.PARSERS[parser](inside if inside is not None else "")
    if inside is None or not statuses:
        return refused("no_log", fail_to_pass, pass_to_pass)
    if exit_code not in (None, 0) and not {"FAILED", "ERROR"} & set(statuses.values()):
        return refused("exit_code", fail_to_pass, pass_to_pass)
    return grade(statuses, fail_to_pass, pass_to_pass)
