"""Runs of `envsuite grade`: predictions are graded in parallel, and every result is kept at once.

    OUTPUT_DIR/
        journal.jsonl   a line per graded patch, appended and flushed, with its duration
        results.jsonl   the journal's latest lines of these predictions, sorted, without durations;
                        written when all are graded
        ...             the files of SWE-bench's harness (`reports`)

With `resume`, a result is used again if its patch, its instance and the judge's version are the same.
Errors of the infrastructure are tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock

from envsuite import reading
from envsuite.cache import write_atomically
from envsuite.envs.swegym.preflight import JUDGE
from envsuite.envs.swegym.submissions import PatchGrader, PatchVerdict
from envsuite.errors import DataError, UsageError
from harness.grading import reports
from harness.interop.predictions import Prediction
from harness.records import check_types

SCHEMA = "envsuite-grade-1"
Row = dict[str, Any]
Identity = tuple[Any, ...]
"""values of IDENTITY, on which a result depends"""
IDENTITY = ("model", "instance_id", "patch_hash", "instance_hash", "judge")
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("instance_id", "model", "outcome", "reason", "applied_with", "status"), str),
    **dict.fromkeys(("patch_hash", "instance_hash"), str),
    **{"judge": int, "seconds": (int, float), "FAIL_TO_PASS": dict, "PASS_TO_PASS": dict},
}


def grade_all(
    predictions: Sequence[Prediction],
    grader: PatchGrader,
    folder: Path,
    run_id: str,
    workers: int,
    resume: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Grades the predictions that have no result yet; returns the rows of all, sorted by model and instance.

    `on_row` is called after each patch. Raises UsageError for an unknown instance, if the folder holds results and
    `resume` is off, or if another process writes to it.
    """
    for prediction in predictions:
        grader.check_id(prediction.instance_id)
        reports.instance_folder(folder, run_id, prediction.model, prediction.instance_id)
    file = folder / "journal.jsonl"
    if not resume and file.exists() and file.stat().st_size:
        raise UsageError(f"{folder} exists: continue with --resume, remove it, or choose another --output-dir.")
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UsageError(f"{folder} is in use by another process: wait for it, or name another folder.") from None
    try:
        rows = {_key(row): row for row in _journal(file) if row["outcome"] != "error"}
        keys = [(prediction, _identity(prediction, grader)) for prediction in predictions]
        todo = [(prediction, key) for prediction, key in keys if key not in rows]
        with file.open("ab") as journal:
            for prediction, key, verdict, seconds in _graded(todo, grader, workers):
                row = _row(key, verdict, seconds)
                instance_folder = reports.instance_folder(folder, run_id, prediction.model, prediction.instance_id)
                reports.write_instance(instance_folder, prediction, row, verdict.log, verdict.exit_code)
                journal.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
                journal.flush()
                rows[key] = row
                on_row(row)
        results = sorted((rows[key] for _, key in keys), key=lambda row: (row["model"], row["instance_id"]))
        _write_results(folder, run_id, results, grader)
        return results
    finally:
        lock.release()


def _graded(
    predictions: Sequence[tuple[Prediction, Identity]], grader: PatchGrader, workers: int
) -> Iterator[tuple[Prediction, Identity, PatchVerdict, float]]:
    """Yields each prediction with its identity, its verdict and the seconds it took, as they finish."""
    todo: queue.SimpleQueue[tuple[Prediction, Identity]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Prediction, Identity, PatchVerdict, float] | BaseException] = queue.SimpleQueue()
    for entry in predictions:
        todo.put(entry)

    def work() -> None:
        try:
            while True:
                prediction, key = todo.get_nowait()
                began = time.monotonic()
                verdict = grader.grade(prediction.instance_id, prediction.patch)
                done.put((prediction, key, verdict, time.monotonic() - began))
        except queue.Empty:
            pass
        except BaseException as error:  # raised again in the main thread
            done.put(error)

    for number in range(min(workers, len(predictions))):  # the work is in other processes: threads suffice
        threading.Thread(target=work, name=f"envsuite-grade-{number}", daemon=True).start()
    try:
        for _ in predictions:
            graded = done.get()
            if isinstance(graded, BaseException):
                raise graded
            yield graded
    finally:  # after Ctrl-C or an error, no thread begins another patch, whose sandbox nobody would end
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _identity(prediction: Prediction, grader: PatchGrader) -> Identity:
    """Returns what a result depends on."""
    names = prediction.model, prediction.instance_id
    return *names, _hash(prediction.patch), grader.digest(prediction.instance_id), JUDGE


def _key(row: Row) -> Identity:
    return tuple(row[name] for name in IDENTITY)


def _row(key: Identity, verdict: PatchVerdict, seconds: float) -> Row:
    report = verdict.report
    return {
        "schema_version": SCHEMA,
        **dict(zip(IDENTITY, key, strict=True)),
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "status": report.status,
        "applied_with": verdict.applied_with,
        "FAIL_TO_PASS": {"success": list(report.fail_to_pass), "failure": list(report.fail_to_pass_left)},
        "PASS_TO_PASS": {"success": list(report.pass_to_pass), "failure": list(report.pass_to_pass_broken)},
        "seconds": round(seconds, 3),
    }


def _journal(file: Path) -> list[Row]:
    """Reads the journal, and removes a last line that a crash left incomplete. Raises DataError."""
    rows: list[Row] = []
    if not file.exists():
        return rows
    for number, line in reading.resume_lines(file):
        try:
            row = reading.parse_json(line)
            if row["schema_version"] != SCHEMA:
                raise ValueError(f"schema_version is {row['schema_version']!r}, not {SCHEMA!r}")
            check_types(row, _TYPES)
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"{file}:{number} is not a result ({error}): remove that line to grade again.") from None
        rows.append(row)
    return rows


def _write_results(folder: Path, run_id: str, rows: Sequence[Row], grader: PatchGrader) -> None:
    lines = ({name: value for name, value in row.items() if name != "seconds"} for row in rows)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_atomically(folder / "results.jsonl", text.encode("utf-8", "backslashreplace"))
    for model in dict.fromkeys(row["model"] for row in rows):
        report = reports.run_report([row for row in rows if row["model"] == model], grader.ids)
        write_atomically(report_file(folder, run_id, model), json.dumps(report, indent=4) + "\n")


def report_file(folder: Path, run_id: str, model: str) -> Path:
    """Returns the path of a model's report."""
    return folder / f"{reports.folder_name(model)}.{run_id}.json"
