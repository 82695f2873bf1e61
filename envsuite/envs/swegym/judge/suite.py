"""Test runs of a package in a fresh sandbox, by the program `runner`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.judge import phases, tampering
from envsuite.envs.swegym.judge.phases import PhasePlan
from envsuite.envs.swegym.planted.packages import Package
from envsuite.errors import EngineFailure
from envsuite.sandbox.pool import Pool
from envsuite.sandbox.protocol import Fate, Limits, Spec

RUNNER = Path(__file__).with_name("runner.py")


def spec(needs: tuple[str, ...] = ()) -> Spec:
    """Returns a sandbox that runs tests; `needs`: distributions inside in addition to pytest."""
    return Spec(program=RUNNER, distributions=("pytest", *needs), limits=Limits(seconds=60, disk_mb=64))


def pools(driver: str, workers: int, needs: tuple[str, ...] = ()) -> list[Pool]:
    """Opens three pools of sandboxes whose interpreters have different hash seeds, if the driver
    allows it.
    """
    specs = [replace(spec(needs), environment=(("PYTHONHASHSEED", str(seed)),)) for seed in range(3)]
    return [Pool(each, driver, workers) for each in specs]


@dataclass(frozen=True)
class SuiteRun:
    """Result of a run of tests."""

    fate: str
    """'exited', or the limit that ended it: timeout, memory, ..."""
    exit_code: int = -1
    """pytest's: 0 all passed, 1 some failed, 2 and above not completed"""
    statuses: dict[str, str] = field(default_factory=dict)
    uncollected: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """with `trace`: the tests that execute a line, by path and number"""
    message: str = ""
    """last line that pytest printed, if it could not run the tests"""
    later: tuple[dict[str, str], ...] = ()
    """statuses of the phases after the first one, if the run has them"""


@dataclass(frozen=True)
class SuiteJob:
    """Order of a run of tests."""

    package: Package
    files: Mapping[str, str]
    """the complete tree"""
    only: Sequence[str] | None = None
    """ids of the tests to run; None: all"""
    seconds: float = 60.0
    explain: str = ""
    """keeps the failures, with `short` or with `whole` values"""
    trace: bool = False
    """records which test executes which line"""
    plan: PhasePlan | None = None
    """phases that run in forks after the tests"""

    def encoded(self) -> bytes:
        """Returns the order as the runner reads it."""
        every = self.only is None
        content: dict[str, Any] = {
            "files": dict(self.files),
            "seal": tampering.seal(),
            "path": self.package.path,
            "code": self.package.code,
            "tests": list(self.package.tests)
            if every
            else sorted({test.partition("::")[0] for test in self.only or ()}),
            "only": None if every else list(self.only or ()),
            "explain": self.explain,
            "trace": self.trace,
        }
        if self.plan is not None:
            content |= {"plugin": phases.plugin(), "phases": self.plan.phases}
        return json.dumps(content).encode()


def run(pool: Pool, job: SuiteJob) -> SuiteRun:
    """Runs tests. Raises EngineFailure if the sandbox fails."""
    result = pool.call(job.encoded(), Limits(seconds=job.seconds, disk_mb=64))
    if result.fate is not Fate.EXITED:
        return SuiteRun(str(result.fate), seconds=result.seconds)
    message = _last_line(result.stderr) or _last_line(result.stdout)
    try:
        suite_run = _read(json.loads(result.value), result.seconds)
        return replace(suite_run, message=message) if suite_run.exit_code > 1 else suite_run
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # The process ended before pytest did (os._exit in the code under test), or overwrote the
        # answer.
        if b"No module named 'pytest'" in result.stderr:
            raise EngineFailure("pytest is not installed: pip install 'envsuite[swegym]'") from None
        return SuiteRun("crash", result.exit_code, seconds=result.seconds, message=message)


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E ", "ERROR", "Error"))]
    return (errors or lines or [""])[-1][:200]


def _read(answer: dict[str, Any], seconds: float) -> SuiteRun:
    if type(answer["exit"]) is not int:
        raise TypeError("the exit code is not an integer")
    return SuiteRun(
        "exited",
        answer["exit"],
        _texts(answer["statuses"]),
        _texts(answer["uncollected"]),
        _texts(answer.get("failures", {})),
        seconds,
        answer.get("lines", {}),
        later=tuple(_texts(statuses) for statuses in list(answer.get("later", ()))),
    )


def _texts(values: Any) -> dict[str, str]:
    """Returns a checked copy of {text: text}: the code under test may have written the answer. Raises TypeError."""
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise TypeError("the answer does not hold texts by name")
    clean = {name: text.encode(errors="replace").decode() for name, text in values.items()}
    return {name.encode(errors="replace").decode(): text for name, text in clean.items()}
