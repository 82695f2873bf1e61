"""Language ability before and after training, by lm-evaluation-harness (POAD, Tables 2, 7 and 8).

Tasks are lm-eval's by name, which needs their data from a hub or its cache; task files of a folder (`include`); or two
small ones of ours that need nothing: `agreement` (200 pairs of verb forms after a noun and an attractor) and `household`
(40 everyday facts, the right end of a sentence against a wrong one). Ours tell whether a model still has its language,
not how good it is.
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
from harness.stats.intervals import Interval, paired, wilson

OURS = ("agreement", "household")
SCHEMA = "envsuite-language-1"


def measure(
    model: str,
    tasks: Sequence[str],
    include: Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> dict[str, list[float]]:
    """Accuracy per item, by task. Raises UsageError for an unknown task, DataError where a task's data is not here."""
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"Language ability needs the package {error.name!r}, which is not installed: pip install 'envsuite[lm-eval,hf]'"
        ) from error
    from harness.policies.hf import load

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    where = str(include) if include else None
    manager = TaskManager(include_path=where, include_defaults=False)
    if set(tasks) - {
        *OURS,
        *manager.all_tasks,
    }:  # lm-eval's own are read, which takes a while, where they are asked for
        manager = TaskManager(include_path=where)
    known = [*OURS, *manager.all_tasks]
    for name in tasks:
        if name not in known:
            raise UsageError(f"No language task {name!r}: lm-eval has {len(known)}.{did_you_mean(name, known)}")
    network, tokenizer = load(model, device, dtype)
    found: dict[str, list[float]] = {}
    for name in tasks:
        try:
            with _without_bars():
                done = simple_evaluate(
                    model=HFLM(pretrained=network, tokenizer=tokenizer, batch_size=8),
                    tasks=[_local(name) if name in OURS else name],
                    task_manager=manager,
                    limit=limit,
                    bootstrap_iters=0,
                    log_samples=True,
                    verbosity="ERROR",
                )
        except Exception as error:  # whatever the readers of many data sets raise
            raise DataError(
                f"Language task {name!r} cannot be run ({type(error).__name__}: {error}): its data comes from a hub; "
                f"name task files of your own with --language-tasks, or take {', '.join(OURS)}."
            ) from error
        for task, samples in done["samples"].items():
            if samples and "acc" not in samples[0]:
                raise UsageError(f"Language task {task!r} has no accuracy per item: take one of multiple choice.")
            found[task] = [float(one["acc"]) for one in sorted(samples, key=lambda one: one["doc_id"])]
    return found


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """No progress bar of this process shows meanwhile: lm-eval turns its own on whatever tqdm's settings say."""
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


def report(found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Per task: each model's accuracy, and each later model less the first, paired by item. `found`: model -> task -> items."""
    first, *others = found
    rows = []
    for task, items in found[first].items():
        right = {name: wilson(int(sum(of[task])), len(of[task])) for name, of in found.items()}
        row: dict[str, Any] = {
            "task": task,
            "accuracy": {name: _spelt(interval) for name, interval in right.items()},
            "change": {},
        }
        for name in others:
            deltas = [after - before for before, after in zip(items, found[name][task], strict=True)]
            change = paired(deltas, [right[name]], [right[first]])
            row["change"][name] = {**_spelt(change), "p": sign_flip_of(deltas)}
        rows.append(row)
    return {"schema_version": SCHEMA, "models": list(found), "tasks": rows}


def sign_flip_of(deltas: Sequence[float]) -> float:
    """Two-sided p of no change, by sign flips over the items."""
    import numpy as np

    return sign_flip(np.array(deltas))


def write(folder: Path, found: dict[str, Any]) -> Path:
    """`language.json`, whole."""
    path = folder / "language.json"
    write_atomically(path, json.dumps(found, indent=2) + "\n")
    return path


def _spelt(interval: Interval) -> dict[str, Any]:
    plain = {key: None if value != value else value for key, value in interval._asdict().items()}
    return {"mean": plain.pop("value"), **plain}
