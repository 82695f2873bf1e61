"""Program of the sandbox: runs one submission on one split. It sees no test label and no other part of
envsuite.

`converse` is the interpreter of the exploring turns.

`handle` takes a pickle made by `scoring`. Its `variant` is `model` (the submission fits a model and predicts),
`features` (the submission transforms two tables, and gets no label at all) or `fixed` (the fixed classifier of
`features` is fitted in a new process, which no submission has touched).

It returns a line of JSON (`verdict`, `message`, `line`) and, for "ok", little-endian arrays: probabilities
[rows, columns] as float64, or the tables in the form of `steps.features`. Everything is checked outside, where the test
labels are: a submission that forges the answer only replaces its own predictions or features.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import linecache
import os
import pickle
import random
import traceback
import types
from collections.abc import Callable, Iterable
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
        labels = np.arange(size) % kinds
        job = {"forbidden": (), "sealed": (), "x_train": frame, "x_test": frame, "y_train": labels}
        job["classifiers"] = ("logistic",)
        plain = (np.column_stack([frame["a"], frame["b"]]), [(["x", "y"], labels % 2)])
        splits = [(plain, labels, plain)]
        for variant, code in (("features", "def transform(df): return df"), ("model", _TOY), ("fixed", "")):
            head = handle(pickle.dumps({**job, "variant": variant, "code": code, "splits": splits})).partition(b"\n")[0]
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
        return _answer("ok", body=VARIANTS[job["variant"]](job))
    except Rejection as refusal:
        return _answer(refusal.verdict, str(refusal), refusal.line)
    except MemoryError:
        return _answer("memory", "MemoryError")
    except SystemExit:
        return _answer("exit", "the code called exit()", 0)
    except BaseException as error:
        return _answer("exception", f"{type(error).__name__}: {error}", _line(error))


def converse(payload: bytes, messages: Iterable[bytes], end_turn: Callable[[bytes], None]) -> None:
    """Runs pieces of code in one namespace, with training rows and labels; prints what a notebook would show.

    The mark of a turn is b"+" if its code raised no error.
    """
    import numpy as np
    import pandas as pd

    job: dict[str, Any] = pickle.loads(payload)
    os.dup2(1, 2)  # one stream, in the order of printing
    random.seed(0)
    np.random.seed(0)
    _disable(set(job["forbidden"]), job["sealed"])
    rows, labels = pd.DataFrame(job["x_train"]), pd.Series(job["y_train"], name="target")
    names: dict[str, Any] = {"__name__": "exploring", "np": np, "pd": pd, "x_train": rows, "y_train": labels}
    for number, message in enumerate(messages, 1):
        end_turn(b"+" if _run_cell(message.decode(), f"<turn {number}>", names) else b"-")


def _run_cell(code: str, name: str, names: dict[str, Any]) -> bool:
    """Runs code and prints the value of its last expression; False, after the traceback, if it raises an error."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None
        if value is not None:
            print(repr(value))
        return True
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("<turn ")]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
        print("".join([*lines, *traceback.format_exception_only(error)]).rstrip())
        return False


def _answer(verdict: str, message: str = "", line: int = 0, body: bytes = b"") -> bytes:
    head = {"verdict": verdict, "message": message[:1000], "line": line}
    return json.dumps(head).encode() + b"\n" + body


def _line(error: BaseException) -> int:
    """Returns the last line of the submission in the error's traceback; 0 if there is none."""
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
    return lines[-1] if lines else 0


def _submitted(job: dict[str, Any]) -> Any:
    """Runs the submission's code; returns the function that it defines."""
    import numpy as np
    import pandas as pd

    code, forbidden = job["code"], set(job["forbidden"])
    program = _compile(code, forbidden)
    _disable(forbidden, job["sealed"])
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    names: dict[str, Any] = {"__name__": "submission", "np": np, "pd": pd}
    exec(program, names)
    function_name = FUNCTION[job["variant"]]
    function = names.get(function_name)
    if not callable(function):
        raise Rejection("bad_return", f"the code defines no function {function_name}")
    return function


def _predict(job: dict[str, Any]) -> bytes:
    """Returns the probabilities that the submission's model predicts for the test rows."""
    import numpy as np
    import pandas as pd

    look_inside = _look_inside  # a submission may replace the module's own
    function = _submitted(job)
    x_train, x_test = pd.DataFrame(job["x_train"]), pd.DataFrame(job["x_test"])
    y_train = pd.Series(job["y_train"], name="target")
    if job.get("output") == "numbers":
        return _numbers(function(x_train, y_train), x_test, set(job["forbidden"]), look_inside)
    classes = np.unique(y_train)
    model = function(x_train, y_train.copy())
    if model is None:
        raise Rejection("bad_return", "build_model returned None: return the fitted estimator")
    if not hasattr(model, "predict_proba"):
        raise Rejection("bad_return", f"{type(model).__name__} has no predict_proba")
    look_inside(model, set(job["forbidden"]))
    values = np.asarray(model.predict_proba(x_test))
    if values.dtype.kind not in "biuf":
        raise Rejection("bad_return", f"predict_proba returned {values.dtype}, not numbers")
    if values.ndim != 2 or values.shape != (len(x_test), len(classes)):
        raise Rejection("bad_return", f"predict_proba gave shape {values.shape}, not {(len(x_test), len(classes))}")
    order = getattr(model, "classes_", None)
    if order is not None and len(order) == len(classes) and set(order) == set(classes):
        values = values[:, np.argsort(order)]
    return bytes(values.astype("<f8").tobytes())


def _numbers(model: Any, x_test: Any, forbidden: set[str], look_inside: Any) -> bytes:
    """Returns the predictions [rows, 1] of a regression model."""
    import numpy as np

    if not hasattr(model, "predict"):
        raise Rejection("bad_return", f"build_model returned {type(model).__name__}: return the fitted estimator")
    look_inside(model, forbidden)
    rows = len(x_test)
    values = np.asarray(model.predict(x_test))
    if values.dtype.kind not in "biuf":
        raise Rejection("bad_return", f"predict returned {values.dtype}, not numbers")
    if values.shape not in ((rows,), (rows, 1)):
        raise Rejection("bad_return", f"predict gave shape {values.shape}, not {(rows,)}")
    return bytes(values.astype("<f8").tobytes())


def _transform(job: dict[str, Any]) -> bytes:
    """Returns the submission's features of training and test rows as plain arrays: see `steps.features`."""
    import numpy as np
    import pandas as pd

    function = _submitted(job)
    frames = []
    for part in (pd.DataFrame(job["x_train"]), pd.DataFrame(job["x_test"])):
        rows = len(part)
        result = function(part)
        if not isinstance(result, pd.DataFrame):
            raise Rejection("bad_return", f"transform returned {type(result).__name__}, not a DataFrame")
        if len(result) != rows:
            raise Rejection("bad_return", f"transform returned {len(result)} rows for {rows}")
        frames.append(result)
    if list(frames[0].columns) != list(frames[1].columns) or not frames[0].columns.is_unique:
        raise Rejection("bad_return", "transform must give the same columns, each once, whatever rows it is given")
    numeric = list(frames[0].select_dtypes("number").columns)
    numbers, texts, codes = [], [], []
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if name in numeric:
            numbers.append(np.concatenate([part.to_numpy(dtype="<f8", na_value=np.nan) for part in parts]))
        else:
            words, numbered = np.unique([str(value) for part in parts for value in part], return_inverse=True)
            texts.append(words.tolist())
            codes.append(numbered.astype("<i4"))
    head = json.dumps({"numbers": len(numbers), "texts": texts}).encode()
    return head + b"\n" + b"".join(column.tobytes() for column in (*numbers, *codes))


def _fit_fixed(job: dict[str, Any]) -> bytes:
    """Returns the predictions for the test rows of each split by each of the job's `classifiers`.

    A split is (training features, training labels, test features); features are an array of numbers [rows, columns]
    and, for each column of text, its words and the number of each row's word.
    """
    import numpy as np

    predictions = []
    for train, labels, test in job["splits"]:
        rows, new_rows = _frame(train), _frame(test)
        for name in job["classifiers"]:
            fitted = _fixed(len(train[0][0]), len(train[1]), name).fit(rows, labels)
            predictions.append(fitted.predict_proba(new_rows))
    return b"".join(np.asarray(values).astype("<f8").tobytes() for values in predictions)


def _frame(features: Any) -> Any:
    import numpy as np
    import pandas as pd

    numbers, texts = features
    columns = {f"n{place}": numbers[:, place] for place in range(numbers.shape[1])}
    for place, (words, codes) in enumerate(texts):
        columns[f"t{place}"] = np.array(words, object)[codes]
    return pd.DataFrame(columns)


VARIANTS = {"model": _predict, "features": _transform, "fixed": _fit_fixed}


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


def _disable(forbidden: set[str], sealed: tuple[str, ...]) -> None:
    """Makes scikit-learn's classes of these names useless in this process, however a submission gets hold of them.

    `sealed`: the modules that define them; their files cannot be read from here, so that no second copy can be made.
    """
    for name in sealed:
        for value in list(vars(importlib.import_module(name)).values()):
            if isinstance(value, type) and value.__name__ in forbidden and value.__module__ == name:
                _empty(value)


def _empty(kind: type) -> None:
    """Removes everything that a class can do. Creating an instance, or one of a subclass, raises Rejection."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Rejection("forbidden", f"{kind.__name__} may not be used")

    for name, value in list(vars(kind).items()):
        if callable(value) or hasattr(value, "__get__"):
            with contextlib.suppress(AttributeError, TypeError):
                delattr(kind, name)
    kind.__bases__ = (_Nothing,)
    for name in ("__new__", "__init__", "__init_subclass__", "fit"):
        setattr(kind, name, refuse)


class _Nothing:
    """Base of an emptied class."""


def _look_inside(model: Any, forbidden: set[str]) -> None:
    """Rejects a forbidden estimator that the text did not name, anywhere in the objects of which the model is made."""
    waiting: list[Any] = [model]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_OBJECTS:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, type(None))):
            continue
        seen.add(id(part))
        names = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.partition(".")[0] == "sklearn"}
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


def _fixed(numbers: int, texts: int, name: str) -> Any:
    """Returns an unfitted classifier (logistic, forest or boosting) for a table made by `_frame`."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scaled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    encoded = OneHotEncoder(handle_unknown="ignore", max_categories=20)
    columns = ColumnTransformer(
        [
            ("numbers", scaled, [f"n{place}" for place in range(numbers)]),
            ("text", encoded, [f"t{place}" for place in range(texts)]),
        ]
    )
    if name == "forest":
        return make_pipeline(columns, RandomForestClassifier(n_estimators=60, min_samples_leaf=2, random_state=0))
    if name == "boosting":
        return make_pipeline(columns, GradientBoostingClassifier(n_estimators=40, random_state=0))
    return make_pipeline(columns, LogisticRegression(max_iter=300))
