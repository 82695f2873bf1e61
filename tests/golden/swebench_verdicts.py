"""Verdicts of the `swebench` package on the logs of `tests.envs.swe_logs`, stored in swebench_verdicts.json.

`python -m benchmarks.swebench_agreement --write` makes the file with the package. The tests compare it with our
verdicts, so that they need no package.
"""

import hashlib
import json
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def letter(resolved: bool, has_results: bool) -> str:
    """Returns R for a resolved log, U for one that is not, N for one without usable results."""
    return "R" if resolved else "U" if has_results else "N"


def digest(log: str, lists: object) -> str:
    """Returns a hash of a log and of the tests that pass and fail in it."""
    return hashlib.sha256(json.dumps([log, lists], sort_keys=True).encode()).hexdigest()[:8]
