"""Export of patches as predictions, the input of SWE-bench's official harness."""

from __future__ import annotations

import json
from pathlib import Path

from envsuite.cache import write_atomically
from envsuite.errors import UsageError
from harness.records import is_broken
from harness.stats.compare import Run


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
