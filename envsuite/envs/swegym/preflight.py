"""Preflight of published records: the gold patch must resolve a record before anybody else plays it.

A record whose tests do not run here, or whose gold patch fails here, says nothing about a player.
`require_gold` raises EngineFailure for it, so its episodes are broken and never scored. Verdicts
are cached by record, recipe, driver and interpreter; timeouts are not, because a busy machine
causes them too.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.swegym.grading import Report, between_markers
from envsuite.errors import DataError, EngineFailure

if TYPE_CHECKING:
    from envsuite.envs.swegym.published.problem import PublishedProblem

JUDGE = 1
"""version of the judge; verdicts of other versions are ignored"""
_TAIL = 300
"""characters of the tests' output in a reason"""


def require_gold(problem: PublishedProblem, seconds: float) -> None:
    """Raises EngineFailure with the reason if the gold patch does not resolve the record here."""
    if reason := gold_failure(problem, seconds):
        raise EngineFailure(
            f"{problem.instance_id} cannot be graded here: {reason} Exclude it with --set deny={problem.instance_id}, "
            "or fix its recipe."
        )


def gold_failure(problem: PublishedProblem, seconds: float) -> str:
    """Returns why the gold patch does not resolve the record here, '' if it does; from the cache if possible."""
    from filelock import FileLock

    file = cache_dir("swegym", "preflight") / f"{_key(problem)}.json"
    with FileLock(f"{file}.lock"):
        reason = _cached(file)
        if reason is None:
            reason, lasting = examine(problem, seconds)
            if lasting:
                write_atomically(file, json.dumps({"instance": problem.instance_id, "reason": reason}).encode())
    return reason


def examine(problem: PublishedProblem, seconds: float) -> tuple[str, bool]:
    """Grades the gold patch; returns the reason why it fails ('' if it resolves) and whether that lasts."""
    try:
        gold = problem.gold()
    except DataError as error:
        return f"its gold patch does not apply ({error}).", True
    report = problem.judge(gold, seconds)
    if report.resolved:
        return "", True
    return f"its gold patch fails ({_failure(problem, report, seconds)}).", report.fault != "timeout"


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
    content: list[Any] = [JUDGE, problem.record.plain(), problem.recipe, problem.driver, problem.place.image]
    content.append(problem.place.environment)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _cached(file: Any) -> str | None:
    try:
        reason = json.loads(file.read_text())["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return reason if isinstance(reason, str) else None
