"""Checks that a killed and resumed training run continues its run in a real tracker.

    python -m benchmarks.trackers wandb|mlflow|trackio [--markdown benchmarks/trackers.md]

Use an environment that has the package: `make tracker-proof` makes one for each. A process logs steps 1 to 3 and is
killed with SIGKILL, another one resumes at step 3 and logs to step 5. Then the tracker's own files are read: they must
have one run with every step from the resume on. An offline run of W&B can lose what it logged just before a kill.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from baselines.logging import trackers

NAME = "update/reward"
RESUMED, LAST = 3, 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracker", choices=tuple(READERS))
    parser.add_argument("--markdown", type=Path, help="replace the row of this tracker on this page")
    parser.add_argument("--log", nargs=2, metavar=("FOLDER", "FIRST"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.log:
        _log(args.tracker, Path(args.log[0]), int(args.log[1]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ids, steps = _killed_and_resumed(args.tracker, Path(folder))
    good = len(ids) == 1 and set(steps) >= set(range(RESUMED, LAST + 1))
    package = "mlflow-skinny" if args.tracker == "mlflow" else args.tracker
    version = f"{package} {importlib.metadata.version(package)}"
    steps_found = ", ".join(map(str, steps))
    print(f"{version}: {len(ids)} run, steps {steps_found}: {'ok' if good else 'FAIL'}")
    if args.markdown and good:
        _write_row(args.markdown, f"| {args.tracker} | {version} | {len(ids)} | {steps_found} |")
    return 0 if good else 1


def _write_row(path: Path, row: str) -> None:
    """Replaces the row of a tracker on the page; the other rows come from other environments."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = {line.split()[1]: line for line in lines if line.split()[1:2] and line.split()[1] in READERS}
    rows[row.split()[1]] = row
    path.write_text(PAGE + "".join(f"{rows[name]}\n" for name in READERS if name in rows))


def _log(name: str, folder: Path, first: int) -> None:
    """Logs from step `first` on; the first process waits for its death after step 3."""
    resume = first > 1
    tracker = trackers.open_trackers((name,), folder, {"updates": LAST}, resume)[name]
    for step in range(first, LAST + 1):
        tracker.log({NAME: step / 10}, step)
        if not resume and step == RESUMED:
            time.sleep(3)  # trackers write in the background
            os.kill(os.getpid(), signal.SIGKILL)
    tracker.close()


def _killed_and_resumed(name: str, root: Path) -> tuple[set[str], list[int]]:
    """Returns the ids of the runs in the tracker's files, and the steps of the metric."""
    folder = root / "run"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    environment |= {"WANDB_MODE": "offline", "TRACKIO_DIR": str(root / "trackio"), "HF_HUB_OFFLINE": "1"}
    ids = set()
    for first, status in ((1, -signal.SIGKILL), (RESUMED, 0)):
        command = [sys.executable, "-m", "benchmarks.trackers", name, "--log", str(folder), str(first)]
        with (root / "output").open("w+") as output:  # a file: a tracker's own processes may keep a pipe open
            done = subprocess.run(command, env=environment, timeout=240, stdout=output, stderr=output)
            output.seek(0)
            if done.returncode != status:
                raise SystemExit(f"{name}: exit status {done.returncode}, not {status}\n{output.read()[-2000:]}")
        ids.add((folder / trackers.IDS).read_text())
    stored, steps = READERS[name](root)
    return ids | stored if len(ids) > 1 else stored, sorted(set(steps))


def _wandb(root: Path) -> tuple[set[str], list[int]]:
    """Reads the files of offline runs, which `wandb sync` uploads to the run of their id."""
    ids: set[str] = set()
    steps: list[int] = []
    for path in sorted(root.glob("run/wandb/offline-run-*/*.wandb")):
        ids.add(path.stem.removeprefix("run-"))
        values = re.findall(NAME.encode() + rb"\W{1,4}(\d\.\d)", path.read_bytes())  # records are not compressed
        steps += [round(10 * float(value)) for value in values]
    return ids, steps


def _mlflow(root: Path) -> tuple[set[str], list[int]]:
    with sqlite3.connect(root / "run" / "mlflow.db") as database:
        runs = database.execute("SELECT run_uuid, status FROM runs").fetchall()
        steps = database.execute("SELECT step FROM metrics WHERE key = ?", (NAME,)).fetchall()
    unfinished = [run for run, status in runs if status != "FINISHED"]
    if unfinished:
        raise SystemExit(f"mlflow: runs {unfinished} are not marked as finished")
    return {run for run, _ in runs}, [step for (step,) in steps]


def _trackio(root: Path) -> tuple[set[str], list[int]]:
    (path,) = (root / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT run_name, step FROM metrics ORDER BY step").fetchall()
    return {name for name, _ in rows}, [step for _, step in rows]


READERS = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}
PAGE = f"""# Metric trackers: a run that is killed and resumed

Written by `make tracker-proof`, each tracker in its own environment. A process logs steps 1 to {RESUMED},
waits 3 seconds and is killed with SIGKILL; a second one resumes at step {RESUMED} and logs to step {LAST}. The last two
columns are read from the tracker's own files, without its server. Passing means one run with all steps
from {RESUMED} on. An offline run of W&B can lose what it logged just before the kill.

| tracker | package | runs | steps in its files |
|---|---|--:|---|
"""


if __name__ == "__main__":
    sys.exit(main())
