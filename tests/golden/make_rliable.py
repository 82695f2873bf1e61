"""Reference estimates by rliable (Agarwal et al., NeurIPS 2021) for tests/harness/test_aggregate.py.

    uv venv /tmp/rliable && uv pip install --python /tmp/rliable rliable==1.2.0 "pandas<3"
    /tmp/rliable/bin/python tests/golden/make_rliable.py tests/harness/rliable.json

Reads "scores" [runs, tasks], "levels", "resamples" and "seed" from the file and rewrites all other
keys. Run it in a separate environment: rliable installs packages that envsuite does not need, and this
script does not import envsuite.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("rliable", "arch", "numpy", "scipy")


def measured(inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns [estimate, lower, upper] of each statistic by rliable's stratified percentile bootstrap."""
    import numpy as np
    from rliable import library, metrics

    scores = {"ours": np.array(inputs["scores"])}
    levels = np.array(inputs["levels"])
    statistics = {
        "iqm": lambda drawn: np.array([metrics.aggregate_iqm(drawn)]),
        "profile": lambda drawn: library.score_distributions(drawn, levels),
    }
    estimates: dict[str, Any] = {}
    for name, statistic in statistics.items():
        state = np.random.RandomState(inputs["seed"])
        values, bounds = library.get_interval_estimates(scores, statistic, reps=inputs["resamples"], random_state=state)
        rows = np.stack([values["ours"], *bounds["ours"]], axis=1).tolist()
        estimates[name] = rows if name == "profile" else rows[0]
    return estimates


def main(path: Path) -> None:
    stored = json.loads(path.read_text())
    inputs = {key: stored[key] for key in ("scores", "levels", "resamples", "seed")}
    made = {"made_by": "tests/golden/make_rliable.py", "packages": {name: version(name) for name in PACKAGES}}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**made, **inputs, **measured(inputs)}.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
