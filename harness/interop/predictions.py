"""Predictions: files of patches, one per instance, that SWE-bench's harness and `envsuite grade` read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.cache import write_atomically
from envsuite.errors import DataError, UsageError
from harness.records import is_broken
from harness.stats.compare import Run


@dataclass(frozen=True)
class Prediction:
    """A model's patch for an instance."""

    instance_id: str
    model: str
    patch: str


def read_predictions(path: Path) -> list[Prediction]:
    """Reads a `.jsonl` file, or a `.json` file with a list or with an object of predictions by instance.

    Each prediction has `instance_id` and `model_patch`, which may be null; `model_name_or_path` is the file's name
    if it is missing. Raises DataError naming the line or entry.
    """
    predictions: dict[tuple[str, str], Prediction] = {}
    for where, row in _rows(path):
        prediction = _prediction(row, where, path.stem)
        key = prediction.model, prediction.instance_id
        if key in predictions:
            raise DataError(f"{where}: {key[0]} has a second patch for {key[1]}: remove one of them.")
        predictions[key] = prediction
    if not predictions:
        raise DataError(f"{path} contains no predictions.")
    return list(predictions.values())


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields each prediction with its position in the file."""
    if path.suffix == ".jsonl":
        for number, line in reading.read_lines(path):
            if line.strip():
                try:
                    yield f"{path}:{number}", reading.parse_json(line)
                except ValueError as error:
                    raise DataError(f"{path}:{number} is not JSON ({error}): correct or remove that line.") from None
        return
    if path.suffix != ".json":
        raise DataError(f"{path} is not a file of predictions: it must end in .jsonl or .json.")
    try:
        document = reading.read_json(path)
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}).") from None
    if isinstance(document, dict):
        if not all(isinstance(row, dict) for row in document.values()):
            raise DataError(f"{path} must hold a list of predictions, or an object of predictions by instance.")
        document = [{"instance_id": name, **row} for name, row in document.items()]
    if not isinstance(document, list):
        raise DataError(f"{path} must hold a list of predictions, or an object of predictions by instance.")
    yield from ((f"{path}, prediction {number}", row) for number, row in enumerate(document, 1))


def _prediction(row: Any, where: str, default: str) -> Prediction:
    if not isinstance(row, dict):
        raise DataError(f"{where}: a prediction is a JSON object, not {str(row)[:40]!r}.")
    name, model = row.get("instance_id"), row.get("model_name_or_path", default)
    if "model_patch" not in row:
        raise DataError(f"{where}: field 'model_patch' is missing.")
    patch = "" if row["model_patch"] is None else row["model_patch"]
    for field, value in (("instance_id", name), ("model_name_or_path", model), ("model_patch", patch)):
        if not isinstance(value, str) or (field != "model_patch" and not value.strip()):
            raise DataError(f"{where}: field {field!r} is {str(value)[:40]!r}, not text.")
    return Prediction(name, model, patch)  # type: ignore[arg-type]


def write_predictions(run: Run, path: Path) -> int:
    """Writes one JSON line per instance: `instance_id`, `model_name_or_path`, `model_patch`.

    The lowest attempt at an instance that is not broken counts. Returns the number of lines. Raises
    UsageError if no episode holds a patch.
    """
    lines: dict[str, str] = {}
    for record in sorted(run.records, key=lambda record: record["attempt"]):
        patch = record.get("artifacts", {}).get("patch")
        instance = record["labels"].get("instance", "")
        if patch is None or not instance or is_broken(record):
            continue
        prediction = {"instance_id": instance, "model_name_or_path": run.name, "model_patch": patch}
        lines.setdefault(instance, json.dumps(prediction, ensure_ascii=False))
    if not lines:
        raise UsageError(
            f"No episode of {run.name} holds a patch: export a SWE-Gym run that this version of envsuite has played."
        )
    write_atomically(path, "".join(f"{line}\n" for line in lines.values()).encode("utf-8", "backslashreplace"))
    return len(lines)
