"""envsuite grade: grades patches of SWE-Gym and SWE-bench instances that were made elsewhere."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError, did_you_mean
from envsuite.escaping import one_line
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.interop.predictions import Prediction, read_predictions
from harness.stats.intervals import success_interval
from harness.suites.plan import parse_setting

GOLD = "gold"
"""stands for the instances' own patches, as in SWE-bench's harness"""
KNOBS = ("tasks", "data_split", "sandbox", "grade_seconds")
"""knobs of SWE-Gym that matter for grading"""


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite grade",
        description="Grade patches that were made elsewhere, as SWE-Gym's environments grade theirs. Writes the report "
        "of SWE-bench's harness and results.jsonl. An environment that cannot be built is an error, never a failure "
        "of the model.",
        epilog="Example: envsuite grade --predictions preds.jsonl --records records.jsonl --set sandbox=docker",
    )
    parser.add_argument(
        "-p", "--predictions", required=True,
        help="a .jsonl or .json file with instance_id, model_patch and model_name_or_path; gold: the instances' own "
        "patches",
    )  # fmt: skip
    parser.add_argument(
        "--records", default="",
        help="the instances: a file of SWE-Gym or SWE-bench records, a folder of instances, or a data set on the hub; "
        "default: the shipped planted tasks",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help=f"set a knob of SWE-Gym: {', '.join(KNOBS)}"
    )
    parser.add_argument("-i", "--instances", nargs="+", default=[], metavar="ID", help="grade only these instances")
    parser.add_argument(
        "-o", "--output-dir", type=Path, default=None, help="folder of the results (default: grades/RUN_ID)"
    )
    parser.add_argument(
        "--run-id", default="", help="part of the report's name (default: a hash of the predictions and the records)"
    )
    parser.add_argument("--resume", action="store_true", help="keep the results of an interrupted run; retry errors")
    parser.add_argument(
        "-j", "--num-workers", type=int, default=0, help="patches graded at the same time (default: one per core)"
    )
    add_common(parser, "verbose")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.num_workers < 0:
        raise UsageError(f"--num-workers must be at least 1, not {args.num_workers}.")
    if args.run_id and not re.fullmatch(r"\w[\w.+-]{0,99}", args.run_id):
        raise UsageError(f"--run-id {args.run_id!r} must consist of letters, digits and . _ + - only.")
    from envsuite.envs.swegym.submissions import PatchGrader
    from harness.grading.run import grade_all, report_file

    grader = PatchGrader(args.records, **_knobs(args.set))
    predictions = _predictions(args.predictions, args.instances, grader)
    if not predictions:
        raise UsageError(f"There is nothing to grade: {args.predictions} has no predictions for {args.records}.")
    run_id = args.run_id or _run_id(predictions, args.records)
    folder = args.output_dir or Path("grades") / run_id
    graded = 0

    def show(row: dict[str, Any]) -> None:
        nonlocal graded
        graded += 1
        reason = f": {one_line(row['reason'])[:200]}" if row["reason"] else ""
        name = one_line(row["instance_id"])
        print(f"{graded:4}  {row['outcome']:11} {name}  {row['seconds']:.1f} s{reason}", flush=True)

    try:
        workers = args.num_workers or len(os.sched_getaffinity(0))
        rows = grade_all(predictions, grader, folder, run_id, workers, args.resume, show)
    finally:
        grader.close()
    for model in dict.fromkeys(row["model"] for row in rows):
        print(_summary(model, [row for row in rows if row["model"] == model]))
        print(f"report: {report_file(folder, run_id, model)}")
    print(f"results: {folder / 'results.jsonl'}")
    errors = sum(row["outcome"] == "error" for row in rows)
    if errors:
        print(f"{cli.plural(errors, 'prediction')} could not be graded: mend the cause, then use --resume.")
    return 1 if errors else 0


def _knobs(settings: Sequence[str]) -> dict[str, Any]:
    """Returns knobs from KNOB=VALUE, checked as the environment checks them. Raises UsageError."""
    from envsuite import registry

    chosen = dict(parse_setting(word) for word in settings)
    for name in chosen:
        if name not in KNOBS:
            raise UsageError(f"--set {name}: grading has the knobs {', '.join(KNOBS)}.{did_you_mean(name, KNOBS)}")
    return registry.overrides(registry.TASKS["SWEGym-medium-v0"], chosen)


def _predictions(source: str, only: Sequence[str], grader: Any) -> list[Prediction]:
    if source == GOLD:
        predictions = [Prediction(name, GOLD, grader.gold(name)) for name in grader.ids]
    else:
        predictions = read_predictions(Path(source))
    if not only:
        return predictions
    chosen = [prediction for prediction in predictions if prediction.instance_id in only]
    known = {prediction.instance_id for prediction in chosen}
    if missing := [name for name in only if name not in known]:
        names = [prediction.instance_id for prediction in predictions]
        raise UsageError(f"--instances: no prediction for {missing[0]!r}.{did_you_mean(missing[0], names)}")
    return chosen


def _run_id(predictions: Sequence[Prediction], records: str) -> str:
    content = repr((records, sorted((entry.model, entry.instance_id, entry.patch) for entry in predictions)))
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:8]


def _summary(model: str, rows: Sequence[dict[str, Any]]) -> str:
    """Returns a line with the share of resolved instances; errors do not count."""
    graded = [row for row in rows if row["outcome"] != "error"]
    counts = Counter(row["outcome"] for row in rows)
    counted = ", ".join(f"{counts[outcome]} {noun}" for outcome, noun in _SHOWN.items() if counts[outcome])
    if not graded:
        return f"{one_line(model)}: none of {cli.plural(len(rows), 'prediction')} could be graded ({counted})"
    rate = success_interval([row["outcome"] == "resolved" for row in graded], [row["instance_id"] for row in graded])
    return (
        f"{one_line(model)}: resolved {100 * rate.value:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}] of "
        f"{len(graded)} ({counted})"
    )


_SHOWN = {
    "resolved": "resolved",
    "unresolved": "unresolved",
    "not_applied": "patches that do not apply",
    "empty": "empty",
    "error": "errors",
}

main = cli.command(_main, resumes="--resume", kept="grades")
