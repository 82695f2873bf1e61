"""Settings of a run that do not change its result: concurrency, workers, timeouts, budgets, and access to models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envsuite.errors import EnvsuiteError, UsageError
from harness.settings import check, setting
from harness.stats.summary import Summary


@dataclass(frozen=True)
class Budget:
    """Limits at which a run stops cleanly; 0 means no limit. Tokens and cost include records from
    earlier calls of the run, but not reused episodes.
    """

    cost: float = setting(
        0.0,
        "USD for all runs of the call; a run stops at this limit (exit code 3), and --resume continues",
        "max_cost",
        at_least=0,
    )
    tokens: int = setting(0, "limit on prompt and reply tokens, as --max-cost", "max_tokens_total", at_least=0)
    seconds: float = setting(0.0, "limit in seconds on this call, as --max-cost", "max_time", at_least=0)
    before: tuple[float, int, float] = (0.0, 0, 0.0)
    """cost, tokens and seconds used by earlier runs of the same call"""

    def __post_init__(self) -> None:
        check(self)

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

    max_concurrent: int = setting(16, "episodes at once", short="-c", at_least=1)
    num_workers: int = setting(-1, "environment processes; -1 as needed, 0 none", at_least=-1)
    resume: bool = setting(False, "continue a run of the same settings")
    budget: Budget = Budget()
    patience: float = 0.0
    """seconds to wait for another process that is writing to the same run"""
    executor: str = setting("local", "ray: on the nodes of a cluster", choices=["local", "ray"])
    ray_address: str = setting("", "host:port or auto; empty: a cluster of this process")
    env_timeout: float = setting(
        0.0,
        "seconds for an environment to answer a reset or a turn, else its episode is broken; starts worker processes "
        "(default: 600, and processes only where they are needed)",
        at_least=0,
        metavar="S",
    )
    isolate_unknown: bool = False
    """runs environments that are not part of envsuite in worker processes, where a crash only
    breaks an episode
    """

    def __post_init__(self) -> None:
        check(self)
        if self.ray_address and self.executor != "ray":
            raise UsageError("--ray-address needs --executor ray.")
        if self.env_timeout and not self.num_workers:
            raise UsageError("--env-timeout needs worker processes: remove --num-workers 0.")


@dataclass(frozen=True)
class Connection:
    """Access to a model: its device, its server, and limits of requests. Policies check the values."""

    device: str = setting("auto", "cpu, cuda, cuda:N, mps; auto: a GPU if there is one")
    base_url: str | None = setting(
        None, "http://host:port/v1; several, separated by commas, share the episodes", type=str
    )
    api_key_var: str | None = setting(None, "environment variable that holds the key; never the key itself", type=str)
    served_model_name: str | None = setting(None, "the model's name on the server", type=str)
    headers: Sequence[str] = setting(
        (), "sent with every request and never stored; may be repeated", "header", action="append", metavar="NAME:VALUE"
    )
    timeout: float = setting(300.0, "seconds per request")
    max_retries: int = setting(6, "per request, with growing pauses")
    requests_per_minute: float | None = setting(None, "all requests together", type=float)
    price: str | None = setting(None, "USD per million tokens, for --max-cost and records", type=str, metavar="IN,OUT")
    server_python: str = setting(
        "",
        "interpreter or virtual environment that has the server (default: this one, the PATH, the cache)",
        metavar="PATH",
    )
    server_context: int = setting(0, "tokens of a conversation; 0: vLLM the model's own, llama.cpp 4096", metavar="N")
    server_gpu_share: float = setting(0.0, "part of the GPU memory; 0: the server's own", metavar="F")
    server_tensor_parallel: int = setting(1, "GPUs that share each layer", metavar="N")
    server_args: str = setting("", "further words of the server's command line", metavar="WORDS")
