"""Files of SWE-bench's harness: a report per instance, and one per model, of schema version 2.

    MODEL.RUN_ID.json
    logs/run_evaluation/RUN_ID/MODEL/INSTANCE/report.json, patch.diff and test_output.txt

As in that harness, a patch that does not apply and tests that do not end count as `error`. Errors of
the infrastructure are in `infra_failure_ids` too, so that they can be told apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import UsageError
from harness.interop.predictions import Prediction

EXIT_CODE = ">>>>> Test Exit Code"
"""marks the exit code of the tests in test_output.txt"""
UNFINISHED = ("timeout", "memory", "output", "disk", "processes")
"""faults of tests that did not run to their end"""
UNREADABLE = ("no_log", "exit_code")
"""faults of logs without usable results"""
_LONGEST = 200
"""bytes of a folder's name"""


def folder_name(text: str) -> str:
    """Returns the name of a model or instance as the harness writes it in paths.

    Raises UsageError if it cannot be a file name.
    """
    name = text.replace("/", "__")
    if not name or name.startswith(".") or not name.isprintable() or len(name.encode()) > _LONGEST:
        raise UsageError(
            f"{text[:60]!r} cannot name a folder: correct it in the predictions (no control characters, no leading "
            f"dot, at most {_LONGEST} bytes)."
        )
    return name


def instance_folder(folder: Path, run_id: str, model: str, instance_id: str) -> Path:
    """Returns the folder of an instance's files."""
    return folder / "logs" / "run_evaluation" / run_id / folder_name(model) / folder_name(instance_id)


def write_instance(folder: Path, prediction: Prediction, row: Mapping[str, Any], log: str, code: int | None) -> None:
    """Writes an instance's files; report.json only if the harness would write it."""
    write_atomically(folder / "patch.diff", prediction.patch.encode(errors="replace"))
    if log:
        ending = "" if code is None else f"\n{EXIT_CODE}: {code}\n"
        write_atomically(folder / "test_output.txt", (log + ending).encode(errors="replace"))
    if _outcome(row) in ("resolved", "unresolved"):
        write_atomically(folder / "report.json", json.dumps(instance_report(row), indent=4))


def instance_report(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of report.json for a result."""
    report: dict[str, Any] = {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": row["reason"] not in UNREADABLE,
        "resolved": row["outcome"] == "resolved",
        "infra_failure": False,
    }
    if not row["reason"]:  # otherwise no test counts
        nothing: dict[str, list[str]] = {"success": [], "failure": []}
        lists = {name: row[name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        report["tests_status"] = {**lists, "FAIL_TO_FAIL": nothing, "PASS_TO_FAIL": nothing}
    return {row["instance_id"]: report}


def _outcome(row: Mapping[str, Any]) -> str:
    """Returns the list of the run's report in which the harness would count a result."""
    if row["outcome"] in ("resolved", "empty"):
        return str(row["outcome"])
    unfinished = row["outcome"] == "unresolved" and row["reason"] in UNFINISHED
    return "unresolved" if row["outcome"] == "unresolved" and not unfinished else "error"


def run_report(rows: Sequence[Mapping[str, Any]], instance_ids: Iterable[str]) -> dict[str, Any]:
    """Returns the report of one model's results. `instance_ids`: all instances of the source."""
    ids = sorted(instance_ids)
    submitted = sorted(row["instance_id"] for row in rows)
    lists = {
        outcome: sorted(row["instance_id"] for row in rows if _outcome(row) == outcome)
        for outcome in ("resolved", "unresolved", "error", "empty")
    }
    completed = sorted(lists["resolved"] + lists["unresolved"])
    infrastructure = sorted(row["instance_id"] for row in rows if row["outcome"] == "error")
    unfinished = sorted(row["instance_id"] for row in rows if row["reason"] in UNFINISHED)
    return {
        "total_instances": len(ids),
        "submitted_instances": len(submitted),
        "completed_instances": len(completed),
        "resolved_instances": len(lists["resolved"]),
        "unresolved_instances": len(lists["unresolved"]),
        "infra_failure_instances": len(infrastructure),
        "ambiguous_failure_instances": len(unfinished),
        "empty_patch_instances": len(lists["empty"]),
        "error_instances": len(lists["error"]),
        "completed_ids": completed,
        "incomplete_ids": sorted(set(ids) - set(submitted)),
        "empty_patch_ids": lists["empty"],
        "submitted_ids": submitted,
        "resolved_ids": lists["resolved"],
        "unresolved_ids": lists["unresolved"],
        "infra_failure_ids": infrastructure,
        "ambiguous_failure_ids": unfinished,
        "failure_reasons": {row["instance_id"]: row["reason"] for row in rows if row["reason"]},
        "error_ids": lists["error"],
        "schema_version": 2,
    }
