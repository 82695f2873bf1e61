"""Program of the sandbox for competitions: writes the files, runs the player's script, returns submission.csv.

`handle` takes a pickle with `code` and `files` (name -> bytes), and returns a line of JSON (`verdict`, `message`,
`line`) and the bytes of the submission. All of it is checked outside, where the answers are.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import random
import traceback
from typing import Any

NAME = "<submission>"
SUBMISSION = "submission.csv"


def handle(payload: bytes) -> bytes:
    import numpy as np

    job: dict[str, Any] = pickle.loads(payload)
    for name, content in job["files"].items():
        with open(name, "wb") as file:
            file.write(content)
    code: str = job["code"]
    del payload, job
    random.seed(0)
    np.random.seed(0)
    try:
        program = compile(code, NAME, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _answer("syntax_error", f"{type(error).__name__}: {error}", getattr(error, "lineno", 0) or 0)
    linecache.cache[NAME] = (len(code), None, code.splitlines(True), NAME)
    try:
        exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        if end.code not in (None, 0):
            return _answer("exit", f"the script ended with {end.code!r}"[:200])
    except MemoryError:
        return _answer("memory", "MemoryError")
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == NAME]
        return _answer("exception", f"{type(error).__name__}: {error}", lines[-1] if lines else 0)
    if not os.path.isfile(SUBMISSION) or os.path.islink(SUBMISSION):
        return _answer("bad_return", f"the script wrote no {SUBMISSION}")
    with open(SUBMISSION, "rb") as file:
        return _answer("ok") + file.read()


def _answer(verdict: str, message: str = "", line: int = 0) -> bytes:
    return json.dumps({"verdict": verdict, "message": message[:1000], "line": line}).encode() + b"\n"
