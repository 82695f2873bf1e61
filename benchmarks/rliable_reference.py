"""What rliable (Agarwal et al., NeurIPS 2021) makes of a table of scores: the numbers tests/harness/test_aggregate.py holds ours against.

    uv venv /tmp/rliable && uv pip install --python /tmp/rliable rliable==1.2.0 "pandas<3"
    /tmp/rliable/bin/python benchmarks/rliable_reference.py tests/rliable.json

Reads "scores" [runs, tasks], "levels", "resamples" and "seed" from the file and writes everything else anew. Run in an
environment of its own: rliable brings packages that envsuite does not need, and nothing of envsuite is imported here.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("rliable", "arch", "numpy", "scipy")


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """Estimate, lower and upper bound of each statistic, by rliable's stratified bootstrap with percentile intervals."""
    import numpy as np
    from rliable import library, metrics

    scores = {"ours": np.array(found["scores"])}
    levels = np.array(found["levels"])
    statistics = {
        "iqm": lambda drawn: np.array([metrics.aggregate_iqm(drawn)]),
        "mean": lambda drawn: np.array([metrics.aggregate_mean(drawn)]),
        "profile": lambda drawn: library.score_distributions(drawn, levels),
    }
    said: dict[str, Any] = {}
    for name, statistic in statistics.items():
        state = np.random.RandomState(found["seed"])
        values, bounds = library.get_interval_estimates(scores, statistic, reps=found["resamples"], random_state=state)
        rows = np.stack([values["ours"], *bounds["ours"]], axis=1).tolist()
        said[name] = rows if name == "profile" else rows[0]
    return said


def main(path: Path) -> None:
    found = json.loads(path.read_text())
    asked = {key: found[key] for key in ("scores", "levels", "resamples", "seed")}
    made = {"made_by": "benchmarks/rliable_reference.py", "packages": {name: version(name) for name in PACKAGES}}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**made, **asked, **measured(asked)}.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
