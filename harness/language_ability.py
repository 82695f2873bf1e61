"""Language ability before and after training, measured by lm-evaluation-harness (POAD, Tables 2, 7 and 8).

Tasks are named as in lm-eval, which needs their data from a hub or its cache, or come from task files in a folder
(`include`). Two small built-in tasks need no data: `agreement` (200 pairs of verb forms after a noun and an attractor)
and `household` (40 everyday facts with a right and a wrong ending). They detect whether training damaged a model's
language, not how good it is.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError, MissingExtra, UsageError, did_you_mean
from harness.stats.compare import sign_flip
from harness.stats.intervals import SHARE, interval_fields, mean_interval, paired

BUILT_IN = ("agreement", "household")
SCHEMA = "envsuite-language-1"


def measure(
    model: str,
    tasks: Sequence[str],
    include: Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> dict[str, list[float]]:
    """Returns the accuracy per item and task. Raises UsageError for unknown tasks, DataError if data is missing."""
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"Language ability needs the package {error.name!r}: pip install 'envsuite[lm-eval,hf]'"
        ) from error
    from harness.policies.hf import load

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    where = str(include) if include else None
    manager = TaskManager(include_path=where, include_defaults=False)
    if set(tasks) - {*BUILT_IN, *manager.all_tasks}:  # reading lm-eval's own tasks takes a while
        manager = TaskManager(include_path=where)
    known = [*BUILT_IN, *manager.all_tasks]
    for name in tasks:
        if name not in known:
            raise UsageError(f"Unknown language task {name!r}: lm-eval has {len(known)}.{did_you_mean(name, known)}")
    network, tokenizer = load(model, device, dtype)
    accuracies: dict[str, list[float]] = {}
    for name in tasks:
        try:
            with _without_bars():
                done = simple_evaluate(
                    model=HFLM(pretrained=network, tokenizer=tokenizer, batch_size=8),
                    tasks=[_local(name) if name in BUILT_IN else name],
                    task_manager=manager,
                    limit=limit,
                    bootstrap_iters=0,
                    log_samples=True,
                    verbosity="ERROR",
                )
        except Exception as error:  # readers of data sets raise many types
            raise DataError(
                f"Language task {name!r} cannot be run ({type(error).__name__}: {error}): its data comes from a hub; "
                f"name your own task files with --language-tasks, or use {', '.join(BUILT_IN)}."
            ) from error
        for task, samples in done["samples"].items():
            if samples and "acc" not in samples[0]:
                raise UsageError(f"Language task {task!r} has no accuracy per item: use a multiple-choice task.")
            accuracies[task] = [float(sample["acc"]) for sample in sorted(samples, key=lambda sample: sample["doc_id"])]
    return accuracies


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Disables all progress bars of this process, since lm-eval ignores tqdm's settings."""
    from tqdm import tqdm

    begin = tqdm.__init__
    tqdm.__init__ = lambda self, *args, **options: begin(self, *args, **{**options, "disable": True})
    try:
        yield
    finally:
        tqdm.__init__ = begin


def _local(name: str) -> dict[str, Any]:
    path = importlib.resources.files("harness") / "language_tasks" / f"{name}.jsonl"
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }


def report(results: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Returns, per task, the accuracy of each model and its paired difference to the first model.

    `results` maps model -> task -> accuracy per item.
    """
    first, *later = results
    rows = []
    for task, items in results[first].items():
        right = {name: mean_interval(of[task], limits=SHARE) for name, of in results.items()}
        row: dict[str, Any] = {
            "task": task,
            "accuracy": {name: interval_fields(interval) for name, interval in right.items()},
            "change": {},
        }
        for name in later:
            deltas = [after - before for before, after in zip(items, results[name][task], strict=True)]
            change = paired(deltas, SHARE)
            row["change"][name] = {**interval_fields(change), "p": sign_flip_of(deltas)}
        rows.append(row)
    return {"schema_version": SCHEMA, "models": list(results), "tasks": rows}


def sign_flip_of(deltas: Sequence[float]) -> float:
    """Returns the two-sided p-value of no change, by sign flips over the items."""
    import numpy as np

    return sign_flip(np.array(deltas))


def write(folder: Path, contents: dict[str, Any]) -> Path:
    """Writes `language.json` atomically and returns its path."""
    path = folder / "language.json"
    write_atomically(path, json.dumps(contents, indent=2) + "\n")
    return path
