"""The lines of metrics.jsonl: one per update, and one per evaluation on held-out games."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envsuite.types import StopReason
from harness.stats.intervals import success_interval
from harness.types import Trajectory


def episode_metrics(played: Sequence[Trajectory], learned: Sequence[Trajectory], resampled: int = 0) -> dict[str, Any]:
    """Returns numbers of a batch: its `played` episodes, and the `learned` ones that an update
    used. `resampled` of the played ones were usable and replaced."""
    turns = [turn for run in learned for turn in run.turns]
    return {
        "env_steps": len(turns),
        "turns": len(turns) / len(learned),
        "invalid": float(np.mean([bool(turn.fault) for turn in turns])),
        "broken": len(played) - len(learned) - resampled,
        "tokens": sum(len(turn.reply.ids) for turn in turns),
        "dropped_turns": sum(turn.reply.dropped_turns for turn in turns),
        "rewritten": sum(int(turn.reply.extra.get("rewritten", 0)) for turn in turns),
        "too_long": sum(run.stop_reason is StopReason.CONTEXT for run in played),
    }


def outcome_metrics(ended: Sequence[Trajectory]) -> dict[str, float]:
    """Returns mean reward and success of episodes that ended; {} if a batch of fixed turns holds no
    end."""
    if not ended:
        return {}
    return {
        "reward": float(np.mean([run.total_reward for run in ended])),
        "success": float(np.mean([float(run.success) for run in ended])),
    }


def evaluation_metrics(runs: Sequence[Trajectory]) -> dict[str, Any]:
    """Returns the success rate of evaluation episodes with its 95 % interval, and their means."""
    interval = success_interval([run.success for run in runs], range(len(runs)))
    names = sorted({name for run in runs for name in run.metrics})
    means = {name: float(np.mean([run.metrics[name] for run in runs if name in run.metrics])) for name in names}
    return {
        "n": len(runs),
        "success": interval.value,
        "low": interval.low,
        "high": interval.high,
        "reward": float(np.mean([run.total_reward for run in runs])),
        "turns": float(np.mean([len(run.turns) for run in runs])),
        "metrics": means,
    }
