"""Test runs in a fresh sandbox: the caller of `runner` (`run`, `run_each`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envsuite.envs.swegym import tampering
from envsuite.envs.swegym.forked import plan as forked
from envsuite.envs.swegym.generated.packages import Package
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
    trace: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    """last line that pytest printed, if it could not run the tests"""
    later: tuple[dict[str, str], ...] = ()
    """statuses of the phases after the first one, if the run has them"""


def run(
    pool: Pool,
    chosen: Package,
    files: Mapping[str, str],
    only: Sequence[str] | None = None,
    seconds: float = 60.0,
    explain: bool = False,
    trace: bool = False,
    plan: forked.PhasePlan | None = None,
    whole: bool = False,
) -> SuiteRun:
    """Runs the tests `only` (None: all) of the tree `files`, and the phases of `plan` in forks.

    `explain` keeps the failures, with `whole` values.
    Raises EngineFailure if the sandbox fails.
    """
    job = {
        "files": dict(files),
        "seal": tampering.seal(),
        "path": chosen.path,
        "code": chosen.code,
        "tests": _test_files(chosen, only),
        "only": None if only is None else list(only),
        "explain": explain,
        "whole": whole,
        "trace": trace,
        **({"plugin": forked.plugin(), "phases": plan.phases} if plan is not None else {}),
    }
    result = pool.call(json.dumps(job).encode(), Limits(seconds=seconds, disk_mb=64))
    if result.fate is not Fate.EXITED:
        return SuiteRun(str(result.fate), seconds=result.seconds)
    message = _last_line(result.stderr) or _last_line(result.stdout)
    try:
        suite_run = _read(json.loads(result.value), result.seconds)
        return replace(suite_run, message=message) if suite_run.exit_code > 1 else suite_run
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # The process ended before pytest did (os._exit in the code under test), or overwrote the
        # answer.
        _complain(result.stderr)
        return SuiteRun("crash", result.exit_code, seconds=result.seconds, message=message)


def run_each(
    pool: Pool,
    chosen: Package,
    files: Mapping[str, str],
    variants: Sequence[tuple[Mapping[str, str], Sequence[str] | None]],
    seconds: float,
    explain: bool = False,
) -> list[SuiteRun]:
    """Runs each variant (files that differ from `files`, tests) like `run`, in forks of one pytest,
    which is much faster.

    Only for trusted code: the process that forks handles the answers. `seconds` are per variant.
    """
    job = {
        "files": dict(files),
        "seal": tampering.seal(),
        "path": chosen.path,
        "code": chosen.code,
        "tests": [],
        "variants": [
            {"files": dict(changed), "tests": _test_files(chosen, only), "only": None if only is None else list(only)}
            for changed, only in variants
        ],
        "explain": explain,
        "seconds": seconds,
    }
    result = pool.call(json.dumps(job).encode(), Limits(seconds=60 + 2 * seconds * len(variants), disk_mb=64))
    try:
        answers = json.loads(result.value)
        assert len(answers) == len(variants)
        return [SuiteRun(answer) if isinstance(answer, str) else _read(answer) for answer in answers]
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        _complain(result.stderr)
        return [run(pool, chosen, {**files, **changed}, only, seconds, explain) for changed, only in variants]


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E ", "ERROR", "Error"))]
    return (errors or lines or [""])[-1][:200]


def _test_files(chosen: Package, only: Sequence[str] | None) -> list[str]:
    return list(chosen.tests) if only is None else sorted({test.partition("::")[0] for test in only})


def _read(answer: dict[str, Any], seconds: float = 0.0) -> SuiteRun:
    if type(answer["exit"]) is not int:
        raise TypeError("the exit code is not an integer")
    return SuiteRun(
        "exited",
        answer["exit"],
        _texts(answer["statuses"]),
        _texts(answer["uncollected"]),
        _texts(answer.get("failures", {})),
        seconds,
        {key: answer[key] for key in ("lines", "hops") if key in answer},
        later=tuple(_texts(statuses) for statuses in list(answer.get("later", ()))),
    )


def _texts(values: Any) -> dict[str, str]:
    """Returns a checked copy of {text: text}: the code under test may have written the answer. Raises TypeError."""
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise TypeError("the answer does not hold texts by name")
    clean = {name: text.encode(errors="replace").decode() for name, text in values.items()}
    return {name.encode(errors="replace").decode(): text for name, text in clean.items()}


def _complain(stderr: bytes) -> None:
    if b"No module named 'pytest'" in stderr:
        raise EngineFailure("pytest is not installed: pip install 'envsuite[swegym]'") from None
