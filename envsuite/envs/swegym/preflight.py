"""Preflight of published records: the gold patch must resolve a record before anybody else plays it.

A record whose tests do not run here, or whose gold patch fails here, says nothing about a player.
`require_gold` raises EngineFailure for it, so its episodes are broken and never scored. Verdicts
are cached by record, setup, driver and interpreter; timeouts are not, because a busy machine
causes them too.

A verdict also holds how the failing tests fail before the change, for `sabotage`, and whether the gold
patch passes with the plugin that seals pytest (`seal`) and in a fork (`phases`). If it does not, as in
repositories that change pytest themselves or start threads when they are imported, the record is judged without.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.swegym.judge.grading import Report, between_markers
from envsuite.envs.swegym.judge.sabotage import Failure
from envsuite.envs.swegym.published.sealing import messages
from envsuite.errors import DataError, EngineFailure

if TYPE_CHECKING:
    from envsuite.envs.swegym.published.problem import PublishedProblem

JUDGE = 3
"""version of the judge; verdicts of other versions are ignored"""
_TAIL = 300
"""characters of the tests' output in a reason"""


def require_gold(problem: PublishedProblem, seconds: float) -> None:
    """Raises EngineFailure with the reason if the gold patch does not resolve the record here."""
    if reason := gold_failure(problem, seconds):
        raise EngineFailure(
            f"{problem.instance_id} cannot be graded here: {reason} Exclude it with --set deny={problem.instance_id}, "
            "or fix its setup."
        )


def gold_failure(problem: PublishedProblem, seconds: float) -> str:
    """Returns why the gold patch does not resolve the record here, '' if it does; from the cache if possible.

    Sets what the problem's judge learns from it: `sealed`, `forked`, `plain` and `failures`.
    """
    from filelock import FileLock

    file = cache_dir("swegym", "preflight") / f"{_key(problem)}.json"
    with FileLock(f"{file}.lock"):
        verdict = _cached(file)
        if verdict is None:
            verdict, lasting = examine(problem, seconds)
            if lasting:
                write_atomically(file, json.dumps({"instance": problem.instance_id, **verdict._asdict()}).encode())
    problem.sealed, problem.forked, problem.plain = verdict.sealed, verdict.forked, dict(verdict.plain)
    problem.failures = {test: Failure(*failure) for test, failure in verdict.failures.items()}
    return verdict.reason


class PreflightVerdict(NamedTuple):
    """Result of a record's preflight."""

    reason: str
    """why the gold patch does not resolve it; '' if it does"""
    sealed: bool
    """the gold patch passes with the plugin that seals pytest"""
    forked: bool
    """the gold patch passes in a fork of the process that has collected the tests"""
    failures: dict[str, Failure]
    """how FAIL_TO_PASS fails before the change, as far as the log says"""
    plain: dict[str, str]
    """statuses of PASS_TO_PASS tests that are not passed before the change, such as skipped ones"""


def examine(problem: PublishedProblem, seconds: float) -> tuple[PreflightVerdict, bool]:
    """Grades the gold patch; returns the verdict and whether that lasts."""
    try:
        gold = problem.gold()
    except DataError as error:
        reason = f"its gold patch does not apply ({error})."
        return PreflightVerdict(reason, problem.sealed, problem.forked, {}, {}), True
    report = problem.judge(gold, seconds)
    for way in ("forked", "sealed"):
        if not report.resolved and getattr(problem, way) and problem.sealed and report.fault != "timeout":
            setattr(problem, way, False)
            report = problem.judge(gold, seconds)
    ways = problem.sealed, problem.forked
    if report.resolved:
        log, _ = problem.log_of({}, seconds)
        inside = between_markers(log) or ""
        before = messages(inside) if problem.sealed else {}
        failures = {test: before[test] for test in problem.record.fail_to_pass if test in before}
        return PreflightVerdict("", *ways, failures, problem.passed_otherwise(inside)), True
    reason = f"its gold patch fails ({_failure(problem, report, seconds)})."
    return PreflightVerdict(reason, *ways, {}, {}), report.fault != "timeout"


def _failure(problem: PublishedProblem, report: Report, seconds: float) -> str:
    if report.fault == "no_log":
        log, fault = problem.log_of({}, seconds)
        output = " ".join((between_markers(log) or log).split())[-_TAIL:]
        return f"no test runs: {fault or output or 'no output'}"
    if report.fault:
        return report.fault
    wrong = [*report.fail_to_pass_left, *report.pass_to_pass_broken]
    return f"{len(wrong)} tests do not pass, {wrong[0]} first"


def _key(problem: PublishedProblem) -> str:
    content: list[Any] = [JUDGE, problem.record.plain(), problem.setup, problem.driver, problem.installation.image]
    content.append(problem.installation.environment)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _cached(file: Any) -> PreflightVerdict | None:
    try:
        stored = json.loads(file.read_text())
        verdict = PreflightVerdict(*(stored[name] for name in PreflightVerdict._fields))
        fits = isinstance(verdict.reason, str) and isinstance(verdict.sealed, bool) and isinstance(verdict.plain, dict)
        return verdict if fits and all(len(failure) == 2 for failure in verdict.failures.values()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
