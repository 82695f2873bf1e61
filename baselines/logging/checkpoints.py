"""A run's folder: files that are replaced whole, so that a kill or a full disk leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from envsuite.cache import replacing
from envsuite.errors import DataError


def save(path: Path, state: dict[str, Any]) -> None:
    """Replaces a checkpoint. Raises DataError where the disk is full; what was there stays."""
    with _said(path), replacing(path) as file:
        torch.save(state, file)


def load(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # whatever a damaged archive raises
        raise DataError(f"{path} cannot be read ({error}): remove the folder to start again.") from error
    return state


def export(path: Path, write: Callable[[Path], None]) -> None:
    """Replaces the folder `path` by what `write` leaves; the old one is set aside first, and removed last."""
    work, aside = path.with_name(f".{path.name}.new"), _aside(path)
    shutil.rmtree(work, ignore_errors=True)
    try:
        with _said(path):
            write(work)
            for file in work.rglob("*"):
                if file.is_file():
                    file.chmod(0o644)  # safetensors leaves its files to their owner alone, and servers read these too
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    if path.exists():
        path.rename(aside)
    work.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Puts right what a kill left: a folder that was set aside goes back, half-written checkpoints go."""
    for name in ("model", "best"):
        aside = _aside(folder / name)
        if aside.exists() and not (folder / name).exists():
            aside.rename(folder / name)
    for left in folder.glob(".checkpoint.pt*"):
        left.unlink()


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """One line for whatever torch and safetensors raise where nothing more can be written."""
    try:
        yield
    except Exception as error:
        reason = next((one.strerror for one in _causes(error) if isinstance(one, OSError) and one.strerror), str(error))
        raise DataError(
            f"Cannot write {path}: {reason}. What was saved before stands: free some space and go on with --resume."
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
