"""Metric trackers besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow and trackio.

A run that is resumed continues its run in each tracker: `trackers.json` in the run's folder holds
their ids.
"""

from __future__ import annotations

import importlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

from envsuite.cache import write_atomically
from envsuite.errors import MissingExtra, UsageError, did_you_mean

PROJECT = "envsuite"
IDS = "trackers.json"


class Tracker(Protocol):
    """Receives the numbers of each log line.

    `run_id` is the id of the run that is continued, or "" for a new run.
    """

    run_id: str

    def __init__(self, folder: Path, recipe: dict[str, Any], run_id: str) -> None: ...

    def log(self, numbers: dict[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Writes event files to `folder`/tensorboard; TensorBoard joins the files of a resumed run."""

    def __init__(self, folder: Path, recipe: dict[str, Any], run_id: str) -> None:
        _import("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.run_id = "tensorboard"
        self.writer = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call]
        self.writer.flush()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self.writer.close()  # type: ignore[no-untyped-call]


class WeightsAndBiases:
    """Logs to a Weights & Biases run. Its own variables (WANDB_MODE, WANDB_PROJECT, ...) apply."""

    def __init__(self, folder: Path, recipe: dict[str, Any], run_id: str) -> None:
        self.run = _import("wandb").init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.name,
            dir=str(folder),
            config=recipe,
            id=run_id or None,
            resume="allow" if run_id else None,
        )
        self.run_id = str(self.run.id)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """Logs to an MLflow run in MLFLOW_TRACKING_URI, or else in `folder`/mlflow.db."""

    PARAM_LENGTH = 500
    """Characters of a parameter's value that every version of MLflow stores."""

    def __init__(self, folder: Path, recipe: dict[str, Any], run_id: str) -> None:
        mlflow = _import("mlflow", "mlflow-skinny sqlalchemy alembic")
        self._entities = importlib.import_module("mlflow.entities")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self.client = mlflow.MlflowClient(uri)
        if run_id:
            self.client.update_run(run_id, status="RUNNING")
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self.client.get_experiment_by_name(name)
            number = experiment.experiment_id if experiment else self.client.create_experiment(name)
            run_id = str(self.client.create_run(number, run_name=folder.name).info.run_id)
            params = [self._entities.Param(key, str(value)[: self.PARAM_LENGTH]) for key, value in recipe.items()]
            self.client.log_batch(run_id, params=params)
        self.run_id = run_id

    def log(self, numbers: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(name, float(value), now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.run_id)


class Trackio:
    """Logs to trackio's local database (TRACKIO_DIR), or to the Space in TRACKIO_SPACE_ID."""

    def __init__(self, folder: Path, recipe: dict[str, Any], run_id: str) -> None:
        trackio = _import("trackio")
        self.run_id = run_id or f"{folder.name}-{uuid.uuid4().hex[:8]}"
        self.run = trackio.init(
            project=PROJECT, name=self.run_id, config=recipe, resume="allow" if run_id else "never", embed=False
        )

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def open_trackers(names: tuple[str, ...], folder: Path, recipe: dict[str, Any], resume: bool) -> dict[str, Tracker]:
    """Opens trackers by name. With `resume` each continues the run whose id is in the folder."""
    path = folder / IDS
    ids = json.loads(path.read_text()) if resume and path.exists() else {}
    opened = {name: TRACKERS[name](folder, recipe, ids.get(name, "")) for name in names}
    if opened:
        write_atomically(path, json.dumps({**ids, **{name: opened[name].run_id for name in opened}}) + "\n")
    return opened


def _import(package: str, install: str = "") -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtra(
            f"The recipe tracks with {package}, which is not installed: pip install {install or package}"
        ) from error


def check(name: str) -> None:
    """Raises UsageError for an unknown tracker."""
    if name not in TRACKERS:
        raise UsageError(f"There is no tracker {name!r}: {', '.join(TRACKERS)}.{did_you_mean(name, TRACKERS)}")
