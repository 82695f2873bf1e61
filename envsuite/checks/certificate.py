"""Certificates: the findings of all checks as a JSON document in the format of OpenEnv's validation reports."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import envsuite
from envsuite import registry
from envsuite.checks import Finding
from envsuite.types import Task, knobs_json

POLICY = "envsuite-1"
"""version of the rules: a failed check fails the certificate, an unused seed is a warning"""
SEEDS_USED = "runtime.seed_control"


def certificate(task: Task, knobs: dict[str, Any], findings: Sequence[Finding], seeds: Sequence[int]) -> str:
    """Returns the certificate of a task whose checks are `findings`, as JSON.

    It also counts the games that `seeds` begin differently.
    """
    unused = _seed_result(task, knobs, seeds)
    failed = not all(finding.ok for finding in findings)
    report = {
        "report_schema_version": "1",
        "target": task.id,
        "source_digest": f"sha256:{_source_digest(registry.env_class(task))}",
        "signature": "openenv.yaml",
        "manifest": None,
        "policy_version": POLICY,
        "lane": "local",
        "levels_run": [2, 3],
        "results": [_settings(task, knobs, seeds), *map(_result, findings), unused],
        "verdict": "fail" if failed else "warn" if unused["status"] == "fail" else "pass",
    }
    return json.dumps(report, indent=1) + "\n"


def _settings(task: Task, knobs: dict[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Returns what was checked, as a result that always passes."""
    measured = {"envsuite": envsuite.__version__, "knobs": json.loads(knobs_json(knobs)), "seeds": list(seeds)}
    return _entry("runtime.startup", True, [f"{task.id} was built"], measured)


def _result(finding: Finding) -> dict[str, Any]:
    entry = _entry(finding.id, finding.ok, [f"{finding.name}: {finding.detail}"], {}, finding.seconds)
    return entry if finding.judged else {**entry, "status": "skip"}


def _seed_result(task: Task, knobs: dict[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Returns the number of different games among `seeds`."""
    env = registry.build(task, **knobs)
    try:
        games = set()
        for seed in seeds:
            text, info = env.reset(seed=seed)
            games.add((text, env.objective, json.dumps(info["labels"], sort_keys=True)))
    finally:
        env.close()
    used = len(games) > 1 or len(seeds) < 2
    evidence = f"{len(games)} different games of {len(seeds)} seeds"
    if not used:
        evidence += ": the task is one fixed game, or its seed is ignored"
    return _entry(SEEDS_USED, used, [evidence], {"games": len(games), "seeds": len(seeds)})


def _entry(
    check_id: str, ok: bool, evidence: list[str], measured: dict[str, Any], seconds: float = 0.0
) -> dict[str, Any]:
    return {
        "check_id": check_id,
        "status": "pass" if ok else "fail",
        "measured": measured,
        "evidence": evidence,
        "remediation": None,
        "duration_s": round(seconds, 3),
    }


def _source_digest(cls: type) -> str:
    """Returns a hash of the environment's source: of its folder within envsuite, otherwise of its file."""
    file = Path(inspect.getfile(cls))
    files = sorted(file.parent.rglob("*.py")) if cls.__module__.startswith("envsuite.") else [file]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(file.parent).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
