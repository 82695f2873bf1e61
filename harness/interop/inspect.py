"""Export of runs as inspect logs, for `inspect view` and `inspect_ai.analysis`.

A game is a sample and its attempts are epochs. Success, reward and progression are scores; broken episodes are errors.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import envsuite
from envsuite.errors import UsageError
from harness.interop.rows import messages, writable
from harness.policies.inspect_messages import chat_messages
from harness.records import Record, is_broken
from harness.stats.aggregate import game_scores
from harness.stats.compare import Run

SCORES = ("success", "reward", "progression")


def write_log(run: Run, path: Path) -> None:
    """Writes a run as an `.eval` or `.json` file, chosen by the suffix. Raises UsageError for other suffixes."""
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalMetric,
        EvalResults,
        EvalScore,
        EvalSpec,
        EvalStats,
        write_eval_log,
    )

    if path.suffix not in (".eval", ".json"):
        raise UsageError(f"inspect reads .eval and .json files, not {path.name!r}: use one of these suffixes.")
    scored = [record for record in run.records if not is_broken(record)]
    scores = []
    for name in SCORES:
        by_game = list(game_scores(scored, name).values())
        mean = statistics.fmean(by_game) if by_game else math.nan
        metrics = {"mean": EvalMetric(name="mean", value=mean)}
        if len(by_game) > 1:
            error = statistics.stdev(by_game) / math.sqrt(len(by_game))
            metrics["stderr"] = EvalMetric(name="stderr", value=error)
        scores.append(EvalScore(name=name, scorer=name, metrics=metrics))
    config = run.config
    began = config.get("started_at", "1970-01-01T00:00:00Z").replace("Z", "+00:00")
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=began,
            task=config["task"],
            task_args=config["knobs"],
            model=run.name,
            dataset=EvalDataset(name=config["task"], samples=config["seeds"][1]),
            config=EvalConfig(epochs=config["attempts"]),
            packages={"envsuite": envsuite.__version__},
            metadata={key: value for key, value in config.items() if key not in ("host", "execution")},
        ),
        results=EvalResults(total_samples=len(run.records), completed_samples=len(scored), scores=scores),
        stats=EvalStats(started_at=began, completed_at=began),
        samples=[_sample(record) for record in run.records],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.partial{path.suffix}")  # inspect chooses the format by the suffix
    write_eval_log(log, str(temporary))
    temporary.replace(path)


def _sample(record: Record) -> Any:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.scorer import Score

    chat = chat_messages(writable(messages(record)))
    names = ("seed", "stop_reason", "num_turns", "faults", "labels", "metrics", "reward_mode")
    broken = is_broken(record)
    return EvalSample(
        id=f"{record['seed']}",
        epoch=record["attempt"] + 1,
        input=writable(record["objective"] or record["first_observation"]),
        target="",
        messages=chat,
        scores=None if broken else {name: Score(value=float(record[name])) for name in SCORES},
        metadata={name: record[name] for name in names},
        error=EvalError(message=record["error"], traceback="", traceback_ansi="") if broken else None,
    )
