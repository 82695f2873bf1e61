"""Grading of patches that were made elsewhere: `PatchGrader` judges them as SWE-Gym's environments do.

Instances are published records, or planted tasks. The verdict tells five outcomes apart. An
`error` is a failure of the infrastructure and says nothing about the patch: the environment cannot
be built, the sandbox fails, or the gold patch of a record fails here (`preflight`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envsuite.envs.swegym import instances, preflight
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.judge.grading import Report, refused
from envsuite.envs.swegym.patches import apply_patch
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.problems import RepairProblem
from envsuite.envs.swegym.published.problem import PublishedProblem
from envsuite.errors import DataError, EngineFailure, UsageError, did_you_mean
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease

OUTCOMES = ("resolved", "unresolved", "not_applied", "empty", "error")


@dataclass(frozen=True)
class PatchVerdict:
    """Result of grading one patch."""

    outcome: str
    """one of OUTCOMES"""
    report: Report
    reason: str = ""
    """why nothing counts: the report's fault, the output of `patch`, or the error"""
    applied_with: str = ""
    """command that applied the patch"""
    log: str = ""
    """output of the tests; '' for planted tasks, whose judge reads no log"""
    exit_code: int | None = None
    """exit code of the tests"""


class PatchGrader:
    """Grades patches of the instances of one source. Its methods may be called from many threads."""

    def __init__(
        self,
        records: str = "",
        tasks: str = "",
        data_split: str = "",
        sandbox: str = "auto",
        grade_seconds: float = 600.0,
    ) -> None:
        """The arguments are knobs of the environment. Without `records`, instances are planted tasks.

        Raises UsageError, DataError, and NoSandbox if no sandbox works here.
        """
        if records and tasks:
            raise UsageError("Published records and planted tasks are graded one at a time: name one of them.")
        self.driver = drivers.choose(sandbox)
        self.seconds, self.published = grade_seconds, bool(records)
        self._instances: Mapping[str, Any] = (
            instances.published_in(records, data_split) if records else instances.planted_in(tasks)
        )
        self.ids = tuple(self._instances)
        self._leases: dict[tuple[str, ...], Lease] = {}
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Ends the sandboxes that were kept for further planted tasks; patches in progress open no others."""
        with self._lock:
            self._closed = True
            for lease in self._leases.values():
                lease.close()
            self._leases = {}

    def check_id(self, instance_id: str) -> None:
        """Raises UsageError for an unknown instance."""
        if instance_id not in self._instances:
            kind = "records" if self.published else "planted tasks"
            raise UsageError(
                f"There is no instance {instance_id!r} among the {len(self.ids)} {kind}: name the file that contains "
                f"it with --records.{did_you_mean(instance_id, self.ids)}"
            )

    def gold(self, instance_id: str) -> str:
        """Returns the gold patch of an instance."""
        instance = self._instances[instance_id]
        return str(instance[0].patch if self.published else instance.patch)

    def digest(self, instance_id: str) -> str:
        """Returns a hash of an instance, so that a changed record is graded again."""
        instance = self._instances[instance_id]
        content = repr((instance[0].plain(), instance[1])) if self.published else instance.instance_id
        return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]

    def grade(self, instance_id: str, patch: str | None) -> PatchVerdict:
        """Grades a patch of an instance in fresh sandboxes."""
        if not (patch or "").strip():
            return PatchVerdict("empty", refused("no_patch"))
        problem = None
        try:
            self._check_open()
            problem = self._open(instance_id)
            return self._judged(problem, str(patch))
        except (DataError, EngineFailure, UsageError) as error:
            return PatchVerdict("error", refused("error"), " ".join(str(error).split()))
        finally:
            if problem is not None:
                problem.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineFailure("Grading was stopped.")

    def _open(self, instance_id: str) -> RepairProblem:
        instance = self._instances[instance_id]
        if not self.published:
            needs = instance.package.needs
            with self._lock:  # keeps the judge warm between problems
                if needs not in self._leases:
                    self._leases[needs] = Lease(suite.spec(needs), self.driver)
            return PlantedProblem(instance, "nothing", False, self.driver)
        record, setup = instance
        problem = PublishedProblem(record, setup, self.driver)
        if reason := preflight.gold_failure(problem, self.seconds):
            raise EngineFailure(f"{instance_id} cannot be graded here: {reason}")
        return problem

    def _judged(self, problem: RepairProblem, patch: str) -> PatchVerdict:
        applied = apply_patch(problem, patch, self.driver)
        self._check_open()
        if applied.changes is None:
            return PatchVerdict("not_applied", refused("not_applied"), applied.message)
        report = problem.judge(applied.changes, self.seconds)
        log, exit_code = problem.test_log
        outcome = "resolved" if report.resolved else "unresolved"
        return PatchVerdict(outcome, report, report.fault, applied.command, log, exit_code)
