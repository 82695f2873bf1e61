"""Program of the sandbox: runs one submission on one split. It sees no test label and no other part of
envsuite.

`handle` takes a pickle made by `scoring` and returns a line of JSON (`verdict`, `message`, `line`,
`rows`, `columns`) and, for "ok", the predictions as rows x columns little-endian float64.
Everything it returns is checked outside, where the labels are: a submission that forges the answer
only replaces its own predictions.
"""

from __future__ import annotations

import ast
import functools
import json
import linecache
import pickle
import random
import traceback
import types
from typing import Any

NAME = "<submission>"
MOST_OBJECTS = 100_000  # of a model that are searched for forbidden estimators
FUNCTION = {"model": "build_model", "features": "transform"}


class Rejection(Exception):
    """Ends a submission with the given verdict."""

    def __init__(self, verdict: str, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.verdict, self.line = verdict, line


def warm_up() -> None:
    """Runs valid programs of both kinds on a small table, so that forks need no further imports."""
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
    except Rejection as refusal:
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
    """Returns the last line of the submission in the error's traceback; 0 if there is none."""
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
    return lines[-1] if lines else 0


def _predict(job: dict[str, Any]) -> Any:
    import numpy as np
    import pandas as pd

    code, forbidden = job["code"], set(job["forbidden"])
    program = _compile(code, forbidden)
    look_inside = _look_inside  # a submission may replace the module's own
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    names: dict[str, Any] = {"__name__": "submission", "np": np, "pd": pd}
    exec(program, names)
    function_name = FUNCTION[job["variant"]]
    function = names.get(function_name)
    if not callable(function):
        raise Rejection("bad_return", f"the code defines no function {function_name}")
    x_train, x_test = pd.DataFrame(job["x_train"]), pd.DataFrame(job["x_test"])
    y_train = pd.Series(job["y_train"], name="target")
    if job.get("output") == "numbers":
        return _numbers(function(x_train.copy(), y_train.copy()), x_test, forbidden, look_inside)
    classes = np.unique(y_train)
    if job["variant"] == "features":
        model, x_test = _fixed(function, x_train, y_train.to_numpy(), x_test)
    else:
        model = function(x_train.copy(), y_train.copy())
        if model is None:
            raise Rejection("bad_return", "build_model returned None: return the fitted estimator")
        if not hasattr(model, "predict_proba"):
            raise Rejection("bad_return", f"{type(model).__name__} has no predict_proba")
        look_inside(model, forbidden)
    values = np.asarray(model.predict_proba(x_test.copy()))
    if values.dtype.kind not in "biuf":
        raise Rejection("bad_return", f"predict_proba returned {values.dtype}, not numbers")
    if values.ndim != 2 or values.shape != (len(x_test), len(classes)):
        raise Rejection("bad_return", f"predict_proba gave shape {values.shape}, not {(len(x_test), len(classes))}")
    order = getattr(model, "classes_", None)
    if order is not None and len(order) == len(classes) and set(order) == set(classes):
        values = values[:, np.argsort(order)]
    return values.astype(float)


def _numbers(model: Any, x_test: Any, forbidden: set[str], look_inside: Any) -> Any:
    """Returns the predictions [rows, 1] of a regression model."""
    import numpy as np

    if not hasattr(model, "predict"):
        raise Rejection("bad_return", f"build_model returned {type(model).__name__}: return the fitted estimator")
    look_inside(model, forbidden)
    values = np.asarray(model.predict(x_test.copy()))
    if values.dtype.kind not in "biuf":
        raise Rejection("bad_return", f"predict returned {values.dtype}, not numbers")
    if values.shape not in ((len(x_test),), (len(x_test), 1)):
        raise Rejection("bad_return", f"predict gave shape {values.shape}, not {(len(x_test),)}")
    return values.reshape(-1, 1).astype(float)


def _compile(code: str, forbidden: set[str]) -> Any:
    """Compiles the submission. Raises Rejection for bad syntax and for forbidden names."""
    try:
        tree = ast.parse(code, NAME)
        for node in ast.walk(tree):
            named = {getattr(node, field, None) for field in ("id", "attr", "name", "value") if hasattr(node, field)}
            matches = {name.rpartition(".")[2] for name in named if isinstance(name, str)} & forbidden
            if matches:
                raise Rejection("forbidden", f"{matches.pop()} may not be used", getattr(node, "lineno", 0))
        return compile(tree, NAME, "exec")
    except SyntaxError as error:
        raise Rejection("syntax_error", f"{type(error).__name__}: {error.msg}", error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Rejection("syntax_error", f"{type(error).__name__}: {error}") from None


def _look_inside(model: Any, forbidden: set[str]) -> None:
    """Rejects a forbidden estimator that the text did not name, anywhere in the objects of which the model is made."""
    waiting: list[Any] = [model]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_OBJECTS:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, type(None))):
            continue
        seen.add(id(part))
        names = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("sklearn.")}
        if names & forbidden:
            raise Rejection("forbidden", f"{(names & forbidden).pop()} may not be used")
        waiting += _inner_objects(part)


def _inner_objects(part: Any) -> list[Any]:
    """Returns the objects that an object holds: items of containers, attributes, cells of closures."""
    import numpy as np

    inner: list[Any] = []
    if isinstance(part, dict):
        inner += part.values()
    elif isinstance(part, (list, tuple, set, frozenset)):
        inner += part
    elif isinstance(part, np.ndarray):
        inner += part.ravel().tolist() if part.dtype == object else []
    elif isinstance(part, functools.partial):
        inner += [part.func, part.args, part.keywords]
    cells = getattr(part, "__closure__", None) if isinstance(part, types.FunctionType) else None
    inner += [cell.cell_contents for cell in cells or () if cell != types.CellType()]
    inner += [getattr(part, "__self__", None)] if isinstance(part, types.MethodType) else []
    if not isinstance(part, (type, types.ModuleType)):
        inner += getattr(part, "__dict__", {}).values()
    return inner


def _fixed(transform: Any, x_train: Any, y_train: Any, x_test: Any) -> tuple[Any, Any]:
    """Fits the classifier of the feature-engineering variant to the transformed training rows."""
    import numpy as np
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    tables = []
    for part in (x_train, x_test):
        result = transform(part.copy())
        if not isinstance(result, pd.DataFrame):
            raise Rejection("bad_return", f"transform returned {type(result).__name__}, not a DataFrame")
        if len(result) != len(part):
            raise Rejection("bad_return", f"transform returned {len(result)} rows for {len(part)}")
        tables.append(result.reset_index(drop=True).replace([np.inf, -np.inf], np.nan))
    if list(tables[0].columns) != list(tables[1].columns) or not tables[0].columns.is_unique:
        raise Rejection("bad_return", "transform must give the same columns, each once, whatever rows it is given")
    tables = [part.set_axis([str(name) for name in part.columns], axis=1) for part in tables]
    numeric = list(tables[0].select_dtypes("number").columns)
    text_columns = [name for name in tables[0].columns if name not in numeric]
    tables = [part.assign(**{name: part[name].astype(str) for name in text_columns}) for part in tables]
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = ColumnTransformer(
        [
            ("numbers", numbers, numeric),
            ("text", OneHotEncoder(handle_unknown="ignore", max_categories=20), text_columns),
        ]
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=300))
    return model.fit(tables[0], y_train), tables[1]
