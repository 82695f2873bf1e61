"""Where metrics go beside metrics.jsonl: TensorBoard and Weights & Biases, where a recipe asks for them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol

from envsuite.errors import MissingExtra, UsageError, did_you_mean


class Tracker(Protocol):
    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None: ...

    def log(self, numbers: dict[str, float], step: int) -> None: ...


class TensorBoard:
    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        _need("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call]
        self.writer.flush()  # type: ignore[no-untyped-call]


class WeightsAndBiases:
    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        self.run = _need("wandb").init(project="envsuite", name=folder.name, dir=str(folder), config=recipe)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def _need(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"The recipe tracks with {package}, which is not installed: pip install {package}"
        ) from error


def check(name: str) -> None:
    if name not in TRACKERS:
        raise UsageError(f"There is no tracker {name!r}: {', '.join(TRACKERS)}.{did_you_mean(name, TRACKERS)}")
