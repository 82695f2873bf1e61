"""Metric trackers besides metrics.jsonl: TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol

from envsuite.errors import MissingExtra, UsageError, did_you_mean


class Tracker(Protocol):
    """Receives the numbers of each log line."""

    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None: ...

    def log(self, numbers: dict[str, float], step: int) -> None: ...


class TensorBoard:
    """Writes event files to `folder`/tensorboard."""

    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        _import("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call]
        self.writer.flush()  # type: ignore[no-untyped-call]


class WeightsAndBiases:
    """Logs to a Weights & Biases run of the project "envsuite"."""

    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        self.run = _import("wandb").init(project="envsuite", name=folder.name, dir=str(folder), config=recipe)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"The recipe tracks with {package}, which is not installed: pip install {package}"
        ) from error


def check(name: str) -> None:
    """Raises UsageError for an unknown tracker."""
    if name not in TRACKERS:
        raise UsageError(f"There is no tracker {name!r}: {', '.join(TRACKERS)}.{did_you_mean(name, TRACKERS)}")
