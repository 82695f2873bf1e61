"""Settings of a run that do not change its result: concurrency, workers, timeouts and budgets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envsuite.errors import EnvsuiteError, UsageError
from harness.stats.summary import Summary


@dataclass(frozen=True)
class Budget:
    """Limits at which a run stops cleanly; 0 means no limit. Tokens and cost include records from
    earlier calls of the run, but not reused episodes.
    """

    cost: float = 0.0
    """USD"""
    tokens: int = 0
    """prompt and reply tokens"""
    seconds: float = 0.0
    """duration of this call"""
    before: tuple[float, int, float] = (0.0, 0, 0.0)
    """cost, tokens and seconds used by earlier runs of the same call"""

    def __post_init__(self) -> None:
        limits = {"--max-cost": self.cost, "--max-tokens-total": self.tokens, "--max-time": self.seconds}
        for flag, limit in limits.items():
            if not limit >= 0:
                raise UsageError(f"{flag} must be at least 0 (0: no limit), not {limit:g}.")

    def after(self, began: float, used: Sequence[Summary]) -> Budget:
        """Returns the budget of the next run of a call that began at time `began` and has finished
        the runs with the summaries `used`. Reused episodes do not count, estimates do.
        """
        spent = [summary["spent"] for summary in used]
        tokens = sum(run["input_tokens"] + run["output_tokens"] for run in spent)
        cost = sum(run["cost"] for run in spent)
        return replace(self, before=(cost, tokens, time.monotonic() - began))

    def reached(self, records: Iterable[Mapping[str, Any]], began: float) -> str:
        """Returns the limit that `records` and the time since `began` have reached, as its flag; ''
        if none.
        """
        cost, tokens, seconds = self.before
        if self.seconds and seconds + time.monotonic() - began >= self.seconds:
            return f"--max-time {self.seconds:g} s"
        if not (self.cost or self.tokens):
            return ""
        for record in records:
            tokens += record["input_tokens"] + record["output_tokens"]
            cost += record["cost"]
        if self.tokens and tokens >= self.tokens:
            return f"--max-tokens-total {self.tokens:,}"
        return f"--max-cost {self.cost:g} USD" if self.cost and cost >= self.cost else ""


class BudgetReached(EnvsuiteError):
    """Raised when a run stops at its budget. Finished episodes are in the journal, and --resume
    continues.
    """


@dataclass(frozen=True)
class Execution:
    """Settings of a run that do not change its result."""

    max_concurrent: int = 16
    num_workers: int = -1
    """worker processes for environments; 0: none, -1: as the environment needs"""
    resume: bool = False
    budget: Budget = Budget()
    patience: float = 0.0
    """seconds to wait for another process that is writing to the same run"""
    executor: str = "local"
    """local | ray"""
    ray_address: str = ""
    """host:port | auto | "" for a cluster started by this process"""
    env_timeout: float = 0.0
    """seconds for an environment to answer, which implies worker processes; 0: 600 s, and workers
    only if needed
    """
    isolate_unknown: bool = False
    """runs environments that are not part of envsuite in worker processes, where a crash only
    breaks an episode
    """

    def __post_init__(self) -> None:
        if self.ray_address and self.executor != "ray":
            raise UsageError("--ray-address needs --executor ray.")
        if self.num_workers < -1:
            raise UsageError(f"--num-workers must be at least 0, or -1 for as many as needed, not {self.num_workers}.")
        if self.env_timeout < 0:
            raise UsageError(f"--env-timeout must be at least 0 seconds, not {self.env_timeout:g}.")
        if self.env_timeout and not self.num_workers:
            raise UsageError("--env-timeout needs worker processes: remove --num-workers 0.")
