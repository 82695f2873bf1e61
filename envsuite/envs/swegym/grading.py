"""From statuses to a verdict and to what each way of paying pays.

A test passes where it is PASSED or XFAIL, and of PASS_TO_PASS also where it is SKIPPED; one that is not reported fails. A
name that the data set cut within its parameter stands for all tests that begin so, if they agree. Resolved: every FAIL_TO_PASS and every
PASS_TO_PASS passes. `f2p_gated`: the share of FAIL_TO_PASS that passes while all PASS_TO_PASS do, else 0. `pass_ratio`
pays all tests alike, as the Practitioner's Guide's code does: where PASS_TO_PASS is long, changing nothing is paid
nearly 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envsuite.envs.swegym import logs
from envsuite.envs.swegym.repos import END, START

PASSING = ("PASSED", "XFAIL")


@dataclass(frozen=True)
class Report:
    """What a graded patch achieved. The tuples hold test names."""

    fail_to_pass: tuple[str, ...] = ()
    """those that pass now"""
    fail_to_pass_left: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    pass_to_pass_broken: tuple[str, ...] = ()
    fault: str = ""
    """'' | why nothing counts: no_patch, not_applied, no_log, timeout, ..."""

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
        """SWE-bench's words: RESOLVED_FULL, RESOLVED_PARTIAL or RESOLVED_NO."""
        if self.resolved:
            return "RESOLVED_FULL"
        return "RESOLVED_PARTIAL" if 0 < self.f2p_gated < 1 else "RESOLVED_NO"


def grade(statuses: Mapping[str, str], fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]) -> Report:
    """The report of a run's statuses."""

    def passes(test: str, *also: str) -> bool:
        return status_of(test, statuses) in (*PASSING, *also)

    return Report(
        tuple(test for test in fail_to_pass if passes(test)),
        tuple(test for test in fail_to_pass if not passes(test)),
        tuple(test for test in pass_to_pass if passes(test, "SKIPPED")),
        tuple(test for test in pass_to_pass if not passes(test, "SKIPPED")),
    )


def status_of(test: str, statuses: Mapping[str, str]) -> str:
    """The status of a test; '' where it has none."""
    if test in statuses or test.count("[") <= test.count("]"):
        return statuses.get(test, "")
    found = [status for name, status in statuses.items() if name.startswith(test)]
    agree = len({status in PASSING for status in found}) == 1
    return found[0] if agree else ""


def refused(fault: str, fail_to_pass: Sequence[str] = (), pass_to_pass: Sequence[str] = ()) -> Report:
    """The report of what could not be graded: nothing passes."""
    return Report((), tuple(fail_to_pass), (), tuple(pass_to_pass), fault=fault)


def between_markers(log: str) -> str | None:
    """What the tests printed; None where the markers are not both there, in order."""
    _, start, rest = log.partition(START)
    inside, end, _ = rest.rpartition(END)
    return inside if start and end else None


def grade_log(
    log: str, parser: str, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str], exit_code: int | None = None
) -> Report:
    """The report of a printed log. A log without results is refused, and so is one that an exit code contradicts."""
    inside = between_markers(log)
    statuses = logs.PARSERS[parser](inside if inside is not None else "")
    if inside is None or not statuses:
        return refused("no_log", fail_to_pass, pass_to_pass)
    if exit_code not in (None, 0) and not {"FAILED", "ERROR"} & set(statuses.values()):
        return refused("exit_code", fail_to_pass, pass_to_pass)
    return grade(statuses, fail_to_pass, pass_to_pass)


def worth(report: Report, dense: str, right_files: bool) -> float:
    """What a report is paid. `right_files`: a file of the gold patch was changed."""
    if dense == "f2p_gated":
        return report.f2p_gated
    if dense == "pass_ratio":
        return report.pass_ratio
    kept, broken = len(report.pass_to_pass), len(report.pass_to_pass_broken)
    mended, left = len(report.fail_to_pass), len(report.fail_to_pass_left)
    if report.fault or not right_files or not mended:
        return 0.0
    return mended / (mended + left) * (kept / (kept + broken) if kept + broken else 1.0)
