"""Files of a run's folder, replaced atomically: a kill or a full disk leaves the old file or the
new one.

A checkpoint holds tensors and plain data only, and is read with `weights_only`, so that reading one
never runs code.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from envsuite.cache import replacing
from envsuite.errors import DataError

LATEST = "checkpoint.pt"


def save(path: Path, state: dict[str, Any]) -> None:
    """Replaces a checkpoint. Raises DataError if the disk is full; the old checkpoint then remains."""
    with _one_line_errors(path), replacing(path) as file:
        torch.save(state, file)


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint. Raises DataError for a damaged file, and for one with anything but
    tensors and plain data."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}, not a dictionary")
    except Exception as error:  # whatever a damaged archive raises
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{path} cannot be read ({reason}): remove the folder to start again.") from error
    return state


def export(path: Path, write: Callable[[Path], None]) -> None:
    """Replaces the folder `path` by what `write` writes. The old folder is set aside first and
    removed last."""
    work, aside = path.with_name(f".{path.name}.new"), _aside(path)
    shutil.rmtree(work, ignore_errors=True)
    try:
        with _one_line_errors(path):
            write(work)
            for file in work.rglob("*"):
                if file.is_file():
                    file.chmod(0o644)  # safetensors makes files private, and servers read these too
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    if path.exists():
        path.rename(aside)
    work.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Repairs what a kill left: restores folders that were set aside and removes unfinished
    checkpoints."""
    for name in ("model", "best", "adapter"):
        aside = _aside(folder / name)
        if aside.exists() and not (folder / name).exists():
            aside.rename(folder / name)
    for unfinished in folder.glob(".checkpoint*"):
        unfinished.unlink()


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Raises DataError for whatever torch and safetensors raise when nothing more can be written."""
    try:
        yield
    except Exception as error:
        systems = (cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror)
        reason = next(systems, str(error))
        raise DataError(
            f"Cannot write {path}: {reason}. What was saved before is intact: free some space and use --resume."
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
