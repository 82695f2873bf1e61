"""Runs one submission on one split. This file is the program of the sandbox: it sees no test label and no envsuite.

`handle` takes a pickle made by `scoring` and answers with a line of JSON (`verdict`, `message`, `line`, `rows`,
`columns`) and, for "ok", the predictions as rows x columns little-endian float64. Whatever it answers is checked
outside, where the labels are: a submission that forges the answer only replaces its own predictions.
"""

from __future__ import annotations

import ast
import json
import linecache
import pickle
import random
import traceback
from typing import Any

NAME = "<submission>"
FUNCTION = {"model": "build_model", "features": "transform"}


class Refused(Exception):
    """Ends a submission with a verdict of its own."""

    def __init__(self, verdict: str, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.verdict, self.line = verdict, line


def warm_up() -> None:
    """Runs sound programs of both kinds on a toy table, so that no fork has to import what they all need."""
    import numpy as np

    rng = np.random.default_rng(0)
    for kinds, size in ((2, 60), (3, 60)):
        frame = {
            "a": rng.normal(size=size),
            "b": rng.normal(size=size),
            "c": np.array(["x", "y"] * (size // 2), object),
        }
        job = {"forbidden": (), "x_train": frame, "x_test": frame, "y_train": np.arange(size) % kinds}
        for variant, code in (("features", "def transform(df): return df"), ("model", _TOY)):
            head = handle(pickle.dumps({**job, "variant": variant, "code": code})).partition(b"\n")[0]
            if json.loads(head)["verdict"] != "ok":
                raise RuntimeError(f"the toy program failed: {head.decode()}")


_TOY = """\
from sklearn.ensemble import *
from sklearn.linear_model import *
from sklearn.naive_bayes import *
from sklearn.neighbors import *
from sklearn.pipeline import *
from sklearn.preprocessing import *
from sklearn.tree import *
def build_model(x_train, y_train):
    parts = [LogisticRegression(), GaussianNB(), KNeighborsClassifier(), DecisionTreeClassifier(max_depth=2)]
    parts += [kind(n_estimators=2, max_depth=2) for kind in (RandomForestClassifier, GradientBoostingClassifier)]
    parts += [HistGradientBoostingClassifier(max_iter=2)]
    numbers = x_train[["a", "b"]]
    for part in parts:
        make_pipeline(StandardScaler(), part).fit(numbers, y_train).predict_proba(numbers)
    text = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    return text.fit(x_train, y_train)
"""


def handle(payload: bytes) -> bytes:
    import numpy as np

    job: dict[str, Any] = pickle.loads(payload)
    random.seed(0)
    np.random.seed(0)
    try:
        return _answer("ok", values=_predict(job))
    except Refused as refusal:
        return _answer(refusal.verdict, str(refusal), refusal.line)
    except MemoryError:
        return _answer("memory", "MemoryError")
    except SystemExit:
        return _answer("exit", "the code called exit()", 0)
    except BaseException as error:
        return _answer("exception", f"{type(error).__name__}: {error}", _line(error))


def _answer(verdict: str, message: str = "", line: int = 0, values: Any = None) -> bytes:
    rows, columns = (0, 0) if values is None else values.shape
    head = {"verdict": verdict, "message": message[:1000], "line": line, "rows": rows, "columns": columns}
    return json.dumps(head).encode() + b"\n" + (b"" if values is None else values.astype("<f8").tobytes())


def _line(error: BaseException) -> int:
    """The last line of the submission that the error passed through; 0 where it passed through none."""
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
    return lines[-1] if lines else 0


def _predict(job: dict[str, Any]) -> Any:
    import numpy as np
    import pandas as pd

    code, forbidden = job["code"], set(job["forbidden"])
    program = _compile(code, forbidden)
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    names: dict[str, Any] = {"__name__": "submission", "np": np, "pd": pd}
    exec(program, names)
    wanted = FUNCTION[job["variant"]]
    function = names.get(wanted)
    if not callable(function):
        raise Refused("bad_return", f"the code defines no function {wanted}")
    x_train, x_test = pd.DataFrame(job["x_train"]), pd.DataFrame(job["x_test"])
    y_train = pd.Series(job["y_train"], name="target")
    classes = np.unique(y_train)
    if job["variant"] == "features":
        model, x_test = _fixed(function, x_train, y_train.to_numpy(), x_test)
    else:
        model = function(x_train.copy(), y_train.copy())
        if model is None:
            raise Refused("bad_return", "build_model returned None: return the fitted estimator")
        if not hasattr(model, "predict_proba"):
            raise Refused("bad_return", f"{type(model).__name__} has no predict_proba")
        _look_inside(model, forbidden)
    values = np.asarray(model.predict_proba(x_test.copy()))
    if values.dtype.kind not in "biuf":
        raise Refused("bad_return", f"predict_proba returned {values.dtype}, not numbers")
    if values.ndim != 2 or values.shape != (len(x_test), len(classes)):
        raise Refused("bad_return", f"predict_proba gave shape {values.shape}, not {(len(x_test), len(classes))}")
    order = getattr(model, "classes_", None)
    if order is not None and len(order) == len(classes) and set(order) == set(classes):
        values = values[:, np.argsort(order)]
    return values.astype(float)


def _compile(code: str, forbidden: set[str]) -> Any:
    """The submission's code object. Raises Refused for bad syntax and for a forbidden name anywhere in it."""
    try:
        tree = ast.parse(code, NAME)
        for node in ast.walk(tree):
            named = {getattr(node, field, None) for field in ("id", "attr", "name", "value") if hasattr(node, field)}
            found = {name.rpartition(".")[2] for name in named if isinstance(name, str)} & forbidden
            if found:
                raise Refused("forbidden", f"{found.pop()} may not be used", getattr(node, "lineno", 0))
        return compile(tree, NAME, "exec")
    except SyntaxError as error:
        raise Refused("syntax_error", f"{type(error).__name__}: {error.msg}", error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused("syntax_error", f"{type(error).__name__}: {error}") from None


def _look_inside(model: Any, forbidden: set[str]) -> None:
    """Finds a forbidden estimator that the text did not name, in the model or among its parameters."""
    parts = [model]
    if hasattr(model, "get_params"):
        parts += list(model.get_params(deep=True).values())
    for part in parts:
        names = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("sklearn.")}
        if names & forbidden:
            raise Refused("forbidden", f"{(names & forbidden).pop()} may not be used")


def _fixed(transform: Any, x_train: Any, y_train: Any, x_test: Any) -> tuple[Any, Any]:
    """The classifier of the feature-engineering variant, fitted to what `transform` makes of the training rows."""
    import numpy as np
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    seen = []
    for part in (x_train, x_test):
        made = transform(part.copy())
        if not isinstance(made, pd.DataFrame):
            raise Refused("bad_return", f"transform returned {type(made).__name__}, not a DataFrame")
        if len(made) != len(part):
            raise Refused("bad_return", f"transform returned {len(made)} rows for {len(part)}")
        seen.append(made.reset_index(drop=True).replace([np.inf, -np.inf], np.nan))
    if list(seen[0].columns) != list(seen[1].columns) or not seen[0].columns.is_unique:
        raise Refused("bad_return", "transform must give the same columns, each once, whatever rows it is given")
    seen = [part.set_axis([str(name) for name in part.columns], axis=1) for part in seen]
    numeric = list(seen[0].select_dtypes("number").columns)
    other = [name for name in seen[0].columns if name not in numeric]
    seen = [part.assign(**{name: part[name].astype(str) for name in other}) for part in seen]
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = ColumnTransformer(
        [("numbers", numbers, numeric), ("text", OneHotEncoder(handle_unknown="ignore", max_categories=20), other)]
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=300))
    return model.fit(seen[0], y_train), seen[1]
