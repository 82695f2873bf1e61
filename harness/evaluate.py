"""Evaluation: a policy plays a task's episodes, and each becomes a record on disk as it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import filelock

import envsuite
from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import check_knobs
from envsuite.errors import EnvsuiteError, UsageError, did_you_mean
from envsuite.types import Panel, Task, knobs_json
from harness import records
from harness.lm import model_files
from harness.policies import is_model
from harness.prompting.prompting import Prompting
from harness.records import Journal, Record, Results
from harness.rollout.executors import Executor, LocalExecutor, ProcessExecutor
from harness.rollout.loop import rollout
from harness.rollout.vector import VectorExecutor, seated
from harness.stats.summary import Summary, summarise
from harness.types import Episode, Policy, Trajectory


@dataclass(frozen=True)
class Sampling:
    """How a model's tokens are drawn."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    action_mode: str = "write"
    """write | score: choose among the admissible commands by their likelihood (TWOSOME)"""
    normalisation: str = "word"
    """of these likelihoods: sum | token | word"""
    dtype: str = "auto"


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run measures: two runs of equal `run_id` are the same experiment."""

    task: Task
    model: str
    knobs: dict[str, Any] = field(default_factory=dict)
    split: str = ""
    episodes: int | None = None
    """seeds played, from the split's first; None: a whole panel, or 100"""
    attempts: int = 1
    seed: int = 0
    """the first seed's offset in the split"""
    reward_mode: str = "sparse"
    max_turns: int | None = None
    sampling: Sampling = Sampling()
    prompting: Prompting = Prompting()

    def identity(self) -> dict[str, Any]:
        """What is hashed into `run_id`. Prompting and sampling count for models alone."""
        panel = self.panel
        found: dict[str, Any] = {
            "schema_version": records.SCHEMA,
            "envsuite": envsuite.__version__,
            "task": self.task.id,
            "knobs": self.knobs,
            "model": self.model,
            "seeds": [self.seeds[0], len(self.seeds)],
            "attempts": self.attempts,
            "reward_mode": self.reward_mode,
            "max_turns": self.max_turns,
            "panel": [panel.name, panel.digest, len(panel)] if panel else None,
        }
        if is_model(self.model):
            found["sampling"], found["prompting"] = asdict(self.sampling), asdict(self.prompting)
            if self.prompting.wording == "plain":  # runs from before there were wordings keep their names
                del found["prompting"]["wording"]
            found["weights"] = model_files.fingerprint(self.model.removeprefix("hf:"))
        return found

    @property
    def run_id(self) -> str:
        spelled = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(spelled.encode()).hexdigest()[:12]

    @property
    def panel(self) -> Panel | None:
        return registry.panel(self.task, **self.knobs)

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds played: of a panel by index, else of the split's range."""
        panel = self.panel
        if panel is not None:
            span: Sequence[int] = range(len(panel))
            what = f"panel {panel.name} holds {len(panel)} games"
            if not len(panel):
                raise UsageError(f"{self.task.id}: panel {panel.name} holds no games on this machine.")
        else:
            name = self.split or registry.default_split(self.task)
            if name not in self.task.splits:
                known = [*self.task.splits, *self.task.split_ids]
                raise UsageError(
                    f"{self.task.id} has no split {name!r}: it has {', '.join(known)}.{did_you_mean(name, known)}"
                )
            span = self.task.splits[name]
            what = f"split {name!r} holds {len(span)} seeds"
        count = self.episodes if self.episodes is not None else len(span) if panel is not None else min(100, len(span))
        if count < 1:
            raise UsageError(f"--episodes must be at least 1, not {count}.")
        if self.seed < 0 or self.seed + count > len(span):
            raise UsageError(f"{self.task.id}: {what}, and {count} from number {self.seed} on were asked for.")
        return span[self.seed : self.seed + count]

    def all_episodes(self) -> list[Episode]:
        """In the order they are played: every seed's first attempt, then the second ones."""
        knobs = knobs_json(self.knobs)
        return [Episode(self.task, knobs, seed, attempt) for attempt in range(self.attempts) for seed in self.seeds]

    def folder(self, output_dir: Path) -> Path:
        name = re.sub(r"[^\w.+=-]+", "_", self.model.rstrip("/").removesuffix(".jsonl"))[-80:]
        return output_dir / f"{self.task.id}--{name}" / self.run_id


@dataclass(frozen=True)
class Budget:
    """What a run may use before it stops cleanly; 0: no bound. Tokens and cost count what the journal holds already."""

    cost: float = 0.0
    """USD"""
    tokens: int = 0
    """prompt and reply tokens together"""
    seconds: float = 0.0
    """of this call"""
    before: tuple[float, int, float] = (0.0, 0, 0.0)
    """cost, tokens and seconds that other runs of the same call have used"""

    def after(self, began: float, used: Sequence[Summary]) -> Budget:
        """The same bounds for the next of several runs, of which the first `began` then and these are through."""
        tokens = sum(one["input_tokens"] + one["output_tokens"] for one in used)
        return replace(self, before=(sum(one["cost"] for one in used), tokens, time.monotonic() - began))

    def spent(self, found: Iterable[Record], began: float) -> str:
        """Which bound has been reached, in words; '' while there is room."""
        cost, tokens, seconds = self.before
        if self.seconds and seconds + time.monotonic() - began >= self.seconds:
            return f"--max-time {self.seconds:g} s"
        if not (self.cost or self.tokens):
            return ""
        for one in found:
            tokens += one["input_tokens"] + one["output_tokens"]
            cost += one["cost"]
        if self.tokens and tokens >= self.tokens:
            return f"--max-tokens-total {self.tokens:,}"
        return f"--max-cost {self.cost:g} USD" if self.cost and cost >= self.cost else ""


class BudgetReached(EnvsuiteError):
    """A run stopped at its budget: what had ended is in the journal, and --resume goes on."""


@dataclass(frozen=True)
class Execution:
    """How a run is carried out: nothing here changes what it measures."""

    max_concurrent: int = 16
    num_workers: int = -1
    """worker processes for environments; 0 none, -1 as the environment needs"""
    resume: bool = False
    budget: Budget = Budget()
    patience: float = 0.0
    """seconds to wait for another process that writes to the same run"""
    executor: str = "local"
    """local | ray"""
    ray_address: str = ""
    """host:port | auto | "" for a cluster of this process"""

    def __post_init__(self) -> None:
        if self.ray_address and self.executor != "ray":
            raise UsageError("--ray-address belongs to --executor ray, which was not given.")


def resolve_split(task: Task, split: str) -> tuple[Task, str]:
    """The task that holds `split`: where splits are tasks of their own, another one than was named."""
    if split in task.split_ids:
        return registry.TASKS[task.split_ids[split]], ""
    return task, split


def evaluate(
    config: RunConfig,
    output_dir: Path,
    make_policy: Callable[[], Policy],
    execution: Execution = Execution(),
    on_episode: Callable[[Record, Trajectory], None] = lambda record, run: None,
    play: Callable[[Sequence[Episode]], Iterator[Trajectory]] | None = None,
) -> tuple[Results, Summary]:
    """Plays what the run folder does not hold yet; returns all records (`records.light`), sorted, and their summary.

    Raises UsageError where the folder exists and `resume` is off, or another process is writing to it. Interrupted at
    any point, what has ended is in the journal, and a later call with `resume` goes on from there. `play` replaces the
    rollout of a policy, where somebody else plays: a person.

    Examples:
        >>> import tempfile
        >>> from harness.policies import make_policy
        >>> config = RunConfig(registry.tasks("overcooked-easy")[0], "expert", episodes=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results, summary = evaluate(config, Path(folder), lambda: make_policy("expert"))
        >>> summary["success"]["value"]
        1.0
    """
    folder = config.folder(output_dir)
    episodes = config.all_episodes()
    kept = folder / "journal.jsonl"
    if not execution.resume and kept.exists() and kept.stat().st_size:
        raise UsageError(f"{folder} exists: go on with --resume, remove it, or choose another --output-dir.")
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=execution.patience)
    except filelock.Timeout:
        raise UsageError(
            f"{folder} is in use by another process: wait for it, or choose another --output-dir."
        ) from None
    try:
        _write_config(folder, config, execution)
        journal = Journal(kept)
        try:
            done = journal.done()
            todo = [episode for episode in episodes if episode.key not in done]
            weights = folder / "weights.json"
            if not done:
                weights.unlink(missing_ok=True)  # nothing was played with them
            if todo:
                runs = play(todo) if play else _roll(config, todo, make_policy, execution, weights)
                with contextlib.closing(runs):  # type: ignore[type-var]
                    _keep(config, runs, journal, len(done), folder / "timing.jsonl", execution.budget, on_episode)
            found = records.write_results(folder / "results.jsonl", journal, {episode.key for episode in episodes})
        finally:
            journal.close()
        summary = {**config.identity(), **summarise(found)}
        write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        return found, summary
    finally:
        lock.release()


def _roll(
    config: RunConfig, todo: Sequence[Episode], make_policy: Callable[[], Policy], execution: Execution, weights: Path
) -> Iterator[Trajectory]:
    policy = make_policy()
    if hasattr(policy, "keep_weights"):  # a server's may change behind the run's back
        policy.keep_weights(weights)
    slots = open_slots(config, execution, len(todo), policy.advice_kind)
    try:
        yield from rollout(policy, todo, slots, config.prompting, config.max_turns)
    finally:
        slots.close()


def _keep(
    config: RunConfig,
    runs: Iterator[Trajectory],
    journal: Journal,
    played: int,
    timing: Path,
    budget: Budget,
    on_episode: Callable[[Record, Trajectory], None],
) -> None:
    """`played`: episodes that the journal holds already."""
    began = time.monotonic()
    with timing.open("a") as times:
        for run in runs:
            record = records.record(run, config.model, config.reward_mode)
            journal.append(record)
            line = {"key": list(run.episode.key), "seconds": round(run.seconds, 3), "ended": time.time()}
            line["cached_tokens"] = sum(turn.reply.cached_tokens for turn in run.turns)
            times.write(json.dumps(line) + "\n")
            on_episode(record, run)
            played += not run.broken
            reached = budget.spent([journal.spent], began)
            if reached and played < len(config.all_episodes()):
                raise BudgetReached(
                    f"{reached} is used up after {played} of {len(config.all_episodes())} episodes: --resume goes on."
                )


def open_slots(
    config: RunConfig, execution: Execution, episodes: int, advice_kind: str, shaping_gamma: float = 0.99
) -> Executor:
    """The slots a run needs: in this process for engines that answer at once, else in a pool; or on a Ray cluster."""
    count = max(1, min(execution.max_concurrent, episodes))
    workers = execution.num_workers
    cls = registry.env_class(config.task)
    settings = check_knobs(cls, {**config.task.kwargs, **config.knobs})
    if execution.executor == "ray":
        from harness.cluster import connect
        from harness.cluster.executors import RayExecutor

        needs = cls.resources(settings)
        # A cluster of our own has a whole one of each, of which every worker takes its share.
        ray = connect.connect(execution.ray_address, offers=dict.fromkeys(needs, 1.0))
        if workers <= 0:
            workers = max(1, int(ray.available_resources().get("CPU", 1)))
        fast = not cls.needs_process(settings)
        return RayExecutor(ray, count, workers, config.reward_mode, advice_kind, shaping_gamma, needs, fast)
    if workers < 0:
        workers = min(count, os.cpu_count() or 1) if cls.needs_process(settings) else 0
    if workers:
        return ProcessExecutor(count, workers, config.reward_mode, advice_kind, shaping_gamma)
    if advice_kind:  # nobody is waited for, and one environment at a time stays in the processor's caches
        return LocalExecutor(1, config.reward_mode, advice_kind, shaping_gamma)
    if seated(config.task, settings):
        return VectorExecutor(
            count, config.task, knobs_json(config.knobs), config.reward_mode, advice_kind, shaping_gamma
        )
    return LocalExecutor(count, config.reward_mode, advice_kind, shaping_gamma)


def _write_config(folder: Path, config: RunConfig, execution: Execution) -> None:
    found = {
        **config.identity(),
        "run_id": config.run_id,
        "split": config.split,
        "execution": asdict(execution),
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": {"platform": platform.platform(), "python": sys.version.split()[0], "cpus": os.cpu_count()},
    }
    write_atomically(folder / "config.json", json.dumps(found, indent=2) + "\n")
