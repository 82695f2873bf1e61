"""Evaluation of a submission on every split. Test labels never enter the sandbox."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envsuite.errors import EngineFailure
from envsuite.sandbox import packages
from envsuite.sandbox.protocol import Fate, HostKill, Limits, Result, Spec

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
    sockets=False,
    environment=(("JOBLIB_MULTIPROCESSING", "0"),),  # no worker processes: `n_jobs=2` runs as `n_jobs=1`
    hidden=("sklearn/datasets/data", "sklearn/datasets/images", "sklearn/datasets/tests", "scipy/spatial/tests"),
)


@cache
def sealed_modules(forbidden: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the modules of scikit-learn that define estimators of these names.

    The program disables the classes themselves, and runs cannot read the files to make a second copy (`spec`).
    """
    if not forbidden:
        return ()
    definition = re.compile(rf"^class ({'|'.join(map(re.escape, forbidden))})\b", re.MULTILINE)
    folder = packages.closure(("scikit-learn",))["sklearn"]
    paths = (path for path in sorted(folder.rglob("*.py")) if "tests" not in path.parts)
    defining = [path for path in paths if definition.search(path.read_text(encoding="utf-8"))]
    return tuple(".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in defining)


@cache
def spec(forbidden: tuple[str, ...]) -> Spec:
    """Returns the sandbox in which submissions run that may not use these estimators."""
    sealed = tuple(name.replace(".", "/") + ".py" for name in sealed_modules(forbidden))
    return replace(SPEC, sealed=sealed)


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
    "processes": "The code started too many processes.",
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
    seconds: float = 0.0
    """of all runs together, as the limit counts them"""


def evaluate(
    pool: Pool,
    code: str,
    instance: PlayableTable,
    splits: int,
    forbidden: tuple[str, ...],
    limits: Limits,
    error_characters: int = 0,
) -> Score:
    """Runs `code` on every split, each in a separate fork; stops at the first that fails.

    `limits.seconds` covers all runs together. `error_characters`: length of an error's
    text, in ASCII; 0 for the long form of the paper's protocol. Raises EngineFailure if the sandbox fails.
    """
    job: dict[str, object] = {"code": code, "variant": "model", "output": instance.output}
    job.update(forbidden=forbidden, sealed=sealed_modules(forbidden))
    rows = SplitRows(instance, splits)
    score, predictions = _predict(pool, job, rows, limits, error_characters)
    if score.verdict == "timeout":
        return replace(score, message=f"The limit is {limits.seconds:g} seconds for {splits} splits")
    if score.verdict != "ok":
        return score
    shown: list[float] = []
    counted: list[float] = []
    for (_, y_train, x_test, y_test), values in zip(rows.parts, predictions, strict=True):
        shown.append(instance.measure(y_train, y_test, values[: len(x_test)]))
        if len(rows.y_held):
            counted.append(instance.measure(y_train, rows.y_held, values[len(x_test) :]))
    counts = counted or shown
    shown_auc, shown_std, auc, std = (float(f(scores)) for scores in (shown, counts) for f in (np.mean, np.std))
    return replace(score, shown_auc=shown_auc, shown_std=shown_std, auc=auc, std=std)


class SplitRows:
    """The splits of a table, and the held-out rows that submissions see mixed with the test rows of each."""

    def __init__(self, instance: PlayableTable, splits: int) -> None:
        self.parts = instance.splits(splits)
        """per split: training rows, their answers, test rows, their answers"""
        self.x_held, self.y_held = instance.held_out()
        self.orders = [
            row_order(len(part[2]), len(self.x_held), instance.digest, number) for number, part in enumerate(self.parts)
        ]
        self.widths = [instance.width(part[1]) for part in self.parts]
        """columns of predictions"""

    def seen(self, number: int) -> pd.DataFrame:
        """Returns test and held-out rows in the order in which a submission sees them."""
        import pandas as pd

        x_test = self.parts[number][2]
        return pd.concat([x_test, self.x_held]).iloc[self.orders[number]] if len(self.x_held) else x_test


def _predict(
    pool: Pool, job: Mapping[str, object], rows: SplitRows, limits: Limits, error_characters: int
) -> tuple[Score, list[np.ndarray]]:
    """Fits and predicts in a run per split; returns the verdict, and the values of the rows that are predicted."""
    left, predictions = limits.seconds, []
    for number, (x_train, y_train, _, _) in enumerate(rows.parts):
        tables = {"x_train": plain_table(x_train), "y_train": y_train, "x_test": plain_table(rows.seen(number))}
        left_now = replace(limits, seconds=max(0.05, left))
        score, body, seconds = run_job(pool, {**job, **tables}, left_now, error_characters)
        left -= seconds
        order = rows.orders[number]
        if score.verdict == "ok":
            score, values = predictions_of(body, [(len(order), rows.widths[number])])
        if score.verdict != "ok":
            return score, []
        predictions.append(values[0][np.argsort(order)])
    return Score("ok", seconds=limits.seconds - left), predictions


def row_order(tests: int, held: int, digest: str, split: int) -> np.ndarray:
    """Returns the order in which a submission sees test rows and held-out rows, which tells them apart by nothing."""
    if not held:
        return np.arange(tests)
    key = hashlib.sha256(f"{digest}/{split}/order".encode()).digest()
    return np.random.default_rng(list(key)).permutation(tests + held)


def run_job(pool: Pool, job: dict[str, object], limits: Limits, error_characters: int) -> tuple[Score, bytes, float]:
    """Runs a job; returns its score without numbers, what it returned if that is "ok", and its seconds.

    Raises EngineFailure if the sandbox fails by itself: unless it fails twice on the job and a harmless program runs
    afterwards. A run that the machine has killed twice raises HostKill, whatever runs afterwards.
    """
    payload = pickle.dumps(job)
    killed: HostKill | None = None
    for _ in range(2):
        try:
            result = pool.call(payload, limits)
        except HostKill as error:
            killed = error
        except EngineFailure:
            continue
        else:
            return *read(result, error_characters), result.seconds
    if killed:
        raise killed
    pool.call(pickle.dumps({**job, "variant": "model", "code": ""}))
    return Score("crash", "it took the sandbox down"), b"", 0.0


def plain_table(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Returns a table as arrays by column, because pandas inside may represent text differently."""
    return {str(name): frame[name].to_numpy(dtype=float if frame[name].dtype == float else object) for name in frame}


def read(result: Result, error_characters: int = 0) -> tuple[Score, bytes]:
    """Returns the verdict of a run, and what it returned if that is "ok". Trusts nothing from inside."""
    if result.fate is not Fate.EXITED:
        return Score(str(result.fate)), b""
    if result.exit_code < 0:
        return Score("crash", f"signal {-result.exit_code}"), b""
    if not result.value:
        return Score("exit", f"exit status {result.exit_code}"), b""
    first, _, body = result.value.partition(b"\n")
    try:
        head = json.loads(first) if len(first) < _HEAD else None
    except (ValueError, RecursionError):
        head = None
    verdict = head.get("verdict") if isinstance(head, dict) else None
    if not isinstance(head, dict) or not isinstance(verdict, str) or verdict not in _OF_THE_RUNNER:
        return Score("bad_return", "the answer is garbled"), b""
    if verdict != "ok":
        return Score(verdict, clean_message(head.get("message"), head.get("line"), error_characters)), b""
    return Score("ok"), body


def predictions_of(body: bytes, shapes: list[tuple[int, int]]) -> tuple[Score, list[np.ndarray]]:
    """Returns the predictions of one or more splits, arrays of `shapes` (rows, columns), if they are valid."""
    sizes = [rows * columns for rows, columns in shapes]
    if len(body) != sum(sizes) * 8:
        return Score("bad_return", "the answer is garbled"), []
    values = np.frombuffer(body, dtype="<f8")
    if not np.isfinite(values).all():
        return Score("bad_return", "the predictions are not all finite"), []
    parts = np.split(values, np.cumsum(sizes)[:-1])
    return Score("ok"), [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def clean_message(message: object, line: object, characters: int = 0) -> str:
    """Returns a message fit for the player, equal on every machine: no control characters, addresses
    or temporary paths.
    """
    text = neutral(message) if isinstance(message, str) else ""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if characters:
        text = text.encode("ascii", "replace").decode()
        text = text if len(text) <= characters else text[: characters - 4] + " ..."
    else:
        text = text if len(text) <= 300 else text[:150] + " ... " + text[-150:]
    return f"{text} (line {line})" if isinstance(line, int) and 0 < line < 1_000_000 else text


def neutral(text: str) -> str:
    """Returns a text without addresses and temporary paths, which differ from run to run."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x...", text)
    text = re.sub(r"(/envsuite|/[^\s'\"(]*envsuite-sandbox-[^/\s'\"]+)/packages/", "", text)
    return re.sub(r"/[^\s'\"(]*envsuite-sandbox-[^/\s'\"]+(/scratch/\d+)?", "/tmp", text)
