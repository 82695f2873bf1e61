"""Evaluation of a submission on every split. Test labels never enter the sandbox."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envsuite.errors import EngineFailure
from envsuite.sandbox.protocol import Fate, Limits, Result, Spec

if TYPE_CHECKING:
    import pandas as pd

    from envsuite.envs.datascicoding.instances import PlayableTable
    from envsuite.sandbox.pool import Pool

RUNNER = Path(__file__).with_name("runner.py")
MODULES = (
    "numpy",
    "pandas",
    "scipy.stats",
    "sklearn.calibration",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.decomposition",
    "sklearn.discriminant_analysis",
    "sklearn.ensemble",
    "sklearn.feature_selection",
    "sklearn.gaussian_process",
    "sklearn.impute",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.svm",
    "sklearn.tree",
)
SPEC = Spec(
    modules=MODULES,
    program=RUNNER,
    distributions=("scikit-learn", "pandas"),
    hidden=("sklearn/datasets/data", "sklearn/datasets/images", "sklearn/datasets/tests", "scipy/spatial/tests"),
)

VERDICTS = {
    "ok": "",
    "no_code": "There is no code in the answer.",
    "too_long": "The code is too long.",
    "syntax_error": "The code is not Python.",
    "forbidden": "The code uses what is forbidden.",
    "exception": "The code raised an error.",
    "bad_return": "The code ran, but what it returned cannot be scored.",
    "exit": "The code ended its process instead of returning.",
    "crash": "The code crashed its process.",
    "timeout": "The code took too long.",
    "memory": "The code took too much memory.",
    "output": "The code printed without end.",
    "disk": "The code filled the disk.",
}
_OF_THE_RUNNER = {"ok", "syntax_error", "forbidden", "exception", "bad_return", "exit", "memory"}
_HEAD = 8192


@dataclass(frozen=True)
class Score:
    """Result of a submission: verdict and, if that is "ok", mean and standard deviation of the AUC
    over the splits.
    """

    verdict: str
    message: str = ""
    shown_auc: float = 0.0
    shown_std: float = 0.0
    """on the test halves, whose labels are training labels of other splits"""
    auc: float = 0.0
    std: float = 0.0
    """what counts: on the holdout, or the same as shown without one"""


def evaluate(
    pool: Pool,
    code: str,
    instance: PlayableTable,
    variant: str,
    splits: int,
    forbidden: tuple[str, ...],
    limits: Limits,
    error_characters: int = 0,
) -> Score:
    """Runs `code` on every split, each in a separate fork; stops at the first that fails.

    `limits.seconds` covers all splits together. `error_characters`: length of an error's text, in
    ASCII; 0 for the long form of the paper's protocol. Raises EngineFailure if the sandbox fails.
    """
    import pandas as pd

    shown: list[float] = []
    counted: list[float] = []
    left = limits.seconds
    x_held, y_held = instance.held_out()
    for number, (x_train, y_train, x_test, y_test) in enumerate(instance.splits(splits)):
        tests = len(x_test)
        order = _order(tests, len(x_held), instance.digest, number)
        rows = pd.concat([x_test, x_held]).iloc[order] if len(x_held) else x_test
        job: dict[str, object] = {"code": code, "variant": variant, "forbidden": forbidden}
        job.update(x_train=_plain(x_train), y_train=y_train, x_test=_plain(rows), output=instance.output)
        result = _run(pool, job, replace(limits, seconds=max(0.05, left)))
        if result is None:
            return Score("crash", "it took the sandbox down")
        left -= result.seconds
        score, values = read(result, len(rows), instance.width(y_train), error_characters)
        if score.verdict == "timeout":
            score = replace(score, message=f"The limit is {limits.seconds:g} seconds for {splits} splits")
        if values is None:
            return score
        values = values[np.argsort(order)]
        shown.append(instance.measure(y_train, y_test, values[:tests]))
        if len(x_held):
            counted.append(instance.measure(y_train, y_held, values[tests:]))
    counts = counted or shown
    return Score("ok", "", *map(float, (np.mean(shown), np.std(shown), np.mean(counts), np.std(counts))))


def _order(tests: int, held: int, digest: str, split: int) -> np.ndarray:
    """Returns the order in which a submission sees test rows and held-out rows, which tells them apart by nothing."""
    if not held:
        return np.arange(tests)
    key = hashlib.sha256(f"{digest}/{split}/order".encode()).digest()
    return np.random.default_rng(list(key)).permutation(tests + held)


def _run(pool: Pool, job: dict[str, object], limits: Limits) -> Result | None:
    """Runs a job; None if the job takes the sandbox down. Raises EngineFailure if the sandbox fails by itself.

    The sandbox fails by itself unless it fails twice on the job and a harmless program runs afterwards.
    """
    payload = pickle.dumps(job)
    for _ in range(2):
        with contextlib.suppress(EngineFailure):
            return pool.call(payload, limits)
    pool.call(pickle.dumps({**job, "code": ""}))
    return None


def _plain(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Returns a table as arrays by column, because pandas inside may represent text differently."""
    return {str(name): frame[name].to_numpy(dtype=float if frame[name].dtype == float else object) for name in frame}


def read(result: Result, rows: int, columns: int, error_characters: int = 0) -> tuple[Score, np.ndarray | None]:
    """Returns the score of a run, and its predictions [rows, columns] if they are valid.

    Trusts nothing from inside.
    """
    if result.fate is not Fate.EXITED:
        return Score(str(result.fate)), None
    if result.exit_code < 0:
        return Score("crash", f"signal {-result.exit_code}"), None
    if not result.value:
        return Score("exit", f"exit status {result.exit_code}"), None
    first, _, body = result.value.partition(b"\n")
    try:
        head = json.loads(first) if len(first) < _HEAD else None
    except (ValueError, RecursionError):
        head = None
    verdict = head.get("verdict") if isinstance(head, dict) else None
    if not isinstance(head, dict) or not isinstance(verdict, str) or verdict not in _OF_THE_RUNNER:
        return Score("bad_return", "the answer is garbled"), None
    if verdict != "ok":
        return Score(verdict, _clean(head.get("message"), head.get("line"), error_characters)), None
    if len(body) != rows * columns * 8:
        return Score("bad_return", "the answer is garbled"), None
    values = np.frombuffer(body, dtype="<f8").reshape(rows, columns)
    if not np.isfinite(values).all():
        return Score("bad_return", "the predictions are not all finite"), None
    return Score("ok"), values


def _clean(message: object, line: object, characters: int = 0) -> str:
    """Returns a message fit for the player, equal on every machine: no control characters, addresses
    or temporary paths.
    """
    text = message if isinstance(message, str) else ""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x...", text)
    text = re.sub(r"(/envsuite|/[^\s'\"(]*envsuite-sandbox-[^/\s'\"]+)/packages/", "", text)
    text = re.sub(r"/[^\s'\"(]*envsuite-sandbox-[^/\s'\"]+(/scratch/\d+)?", "/tmp", text)
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if characters:
        text = text.encode("ascii", "replace").decode()
        text = text if len(text) <= characters else text[: characters - 4] + " ..."
    else:
        text = text if len(text) <= 300 else text[:150] + " ... " + text[-150:]
    return f"{text} (line {line})" if isinstance(line, int) and 0 < line < 1_000_000 else text
