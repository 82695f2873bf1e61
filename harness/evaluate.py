"""Evaluation: a policy plays the episodes of a task, and each finished episode is recorded on disk.

Main entry points: `RunConfig` (settings that define a result), `Execution` (settings that do not
change it), `evaluate` and `open_slots`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import filelock

import envsuite
from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import TextEnv, check_knobs
from envsuite.errors import UsageError, did_you_mean
from envsuite.reading import parse_json
from envsuite.types import DEFAULT_SHAPING, Panel, RewardMode, Shaping, Task, knobs_json
from harness import config_file, hash_chain, records
from harness.episodes.reused import ReusedEpisodes
from harness.episodes.store import Series
from harness.execution import Budget, BudgetReached, Execution
from harness.policies import is_model, weights
from harness.prompting.prompting import Prompting
from harness.records import Journal, Record, Results
from harness.rollout.activity import Activity, Heartbeat
from harness.rollout.executors import Executor, LocalExecutor, ProcessExecutor
from harness.rollout.hosts import check_expert
from harness.rollout.loop import rollout
from harness.settings import omissions, setting
from harness.stats.summary import Summary, summarise
from harness.types import Episode, HashesWeights, Policy, Trajectory, WatchesWeights

DEFAULT_EXECUTION = Execution()
OnEpisode = Callable[[Record, Trajectory | None], None]
"""Receives the record of each episode, and the trajectory if it was played: None for a reused episode."""
JOURNAL = "journal.jsonl"
WEIGHTS = "weights.json"
"""File in a run's folder with a served model's answer to a fixed question."""
ENV_TIMEOUT = 600.0
"""Seconds for an environment in a worker to answer, unless `Execution.env_timeout` is set."""


OWN_FIELDS = {
    "model", "messages", "prompt", "tools", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "stop",
}  # fmt: skip
"""fields of a request that have their own flags or belong to the harness"""


def _temperature(text: str) -> float | None:
    """Reads --temperature; None stands for the server's default."""
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or 'default', not {text!r}") from None


def _canonical_body(text: str) -> str:
    """Returns the JSON object of --extra-body with sorted keys; '' for none. Raises UsageError."""
    if not text:
        return ""
    try:
        body = parse_json(text)
    except ValueError as error:
        raise UsageError(f"--extra-body takes a JSON object, and {text[:80]!r} is none: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f'--extra-body takes a JSON object such as {{"top_k": 20}}, not {text[:80]!r}.')
    if fixed := OWN_FIELDS & body.keys():
        raise UsageError(f"--extra-body cannot set {', '.join(sorted(fixed))}: that is what the run itself sends.")
    return json.dumps(body, sort_keys=True)


@dataclass(frozen=True)
class Sampling:
    """Sampling settings of a model."""

    temperature: float | None = setting(
        0.0,
        "0: the most likely token; 'default': the server's own (default: 0)",
        at_least=0,
        type=_temperature,
        metavar="T",
    )
    top_p: float = setting(1.0, "share of the probability mass to sample from")
    max_tokens: int = setting(512, "per reply", at_least=1)
    action_mode: str = setting(
        "write", "score: choose the most likely admissible command (TWOSOME)", choices=["write", "score"]
    )
    normalisation: str = setting(
        "word", "of likelihoods, with --action-mode score", choices=["sum", "token", "word", "trie"]
    )
    dtype: str = setting(
        "auto", "float32, bfloat16, float16; auto: float32 on a CPU, bfloat16 on a GPU that supports it"
    )
    reasoning_effort: str = setting(
        "", "such as low, medium or high, for servers that know it", omitted=True, metavar="LEVEL"
    )
    extra_body: str = setting(
        "",
        "fields added to every request, such as '{\"top_k\": 20}'",
        read=_canonical_body,
        omitted=True,
        metavar="JSON",
    )
    thinking_budget: int = setting(
        0,
        "most tokens of reasoning per reply; for inspect:, vllm: and llamacpp:; 0: the provider's own",
        omitted=True,
        metavar="N",
    )


@dataclass(frozen=True)
class RunConfig:
    """All settings that define a run's result: two runs with equal `run_id` are the same
    experiment.
    """

    task: Task
    model: str
    gguf_file: str = field(default="", kw_only=True)
    """path of the model's file, if `model` is its name alone"""
    knobs: dict[str, Any] = field(default_factory=dict)
    split: str = setting("", "train | test | the splits of the task; default: the task's last one")
    episodes: int | None = setting(None, "seeds per task (default: a whole panel, or 100)", short="-n", type=int)
    attempts: int = setting(1, "attempts per seed", "repeats", short="-r", at_least=1)
    seed: int = setting(0, "number of the split's first seed to play")
    reward_mode: str = setting(
        "sparse", "reward mode of the task", "reward", choices=[str(mode) for mode in RewardMode]
    )
    max_turns: int | None = setting(
        None, "limit on the model's turns, besides the environment's own", at_least=1, type=int
    )
    sampling: Sampling = Sampling()
    prompting: Prompting = Prompting()

    def identity(self) -> dict[str, Any]:
        """Returns the settings hashed into `run_id`; prompting and sampling only count for models."""
        panel = self.panel
        identity: dict[str, Any] = {
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
            identity["sampling"] = asdict(self.sampling)
            identity["prompting"] = asdict(self.prompting)
            for part, cls in (("sampling", Sampling), ("prompting", Prompting)):
                for name, default in omissions(cls).items():
                    if identity[part][name] == default:
                        del identity[part][name]
            if not self.prompting.protocol:
                del identity["prompting"]["words"]
            identity["weights"] = weights(self.model, self.gguf_file)
        return identity

    @property
    def turn_cap(self) -> int:
        """Largest number of turns of an episode; 0 if each game has its own limit."""
        cap = {**registry.knob_names(self.task), **self.knobs}["max_steps"]
        return min((limit for limit in (cap, self.max_turns) if limit), default=0)

    def protocol(self) -> dict[str, Any]:
        """Returns the settings that decide an episode of this run, whatever other episodes the run has."""
        protocol = self.identity()
        del protocol["seeds"], protocol["attempts"]
        protocol["panel"] = protocol["panel"] and protocol["panel"][:2]  # name and hash, which covers the games
        return protocol

    @property
    def run_id(self) -> str:
        """Hash of `identity`, 12 hexadecimal digits."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def panel(self) -> Panel | None:
        """The fixed list of games of the task with these knobs, if it has one."""
        return registry.panel(self.task, **self.knobs)

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds to play: indices into the panel, or numbers from the split's range."""
        panel = self.panel
        if panel is not None:
            span: Sequence[int] = range(len(panel))
            available = f"panel {panel.name} has {len(panel)} games"
            if not len(panel):
                raise UsageError(f"{self.task.id}: panel {panel.name} has no games on this machine.")
        else:
            name = self.split or registry.default_split(self.task)
            if name not in self.task.splits:
                known = [*self.task.splits, *self.task.split_ids]
                raise UsageError(
                    f"{self.task.id} has no split {name!r}: it has {', '.join(known)}.{did_you_mean(name, known)}"
                )
            span = self.task.splits[name]
            available = f"split {name!r} has {len(span)} seed{'' if len(span) == 1 else 's'}"
        count = self.episodes if self.episodes is not None else len(span) if panel is not None else min(100, len(span))
        if count < 1:
            raise UsageError(f"--episodes must be at least 1, not {count}.")
        if self.seed < 0:
            raise UsageError(f"--seed must be at least 0, not {self.seed}: it counts from the split's first seed.")
        if self.seed + count > len(span):
            raise UsageError(f"{self.task.id}: {available}, but {count} starting at number {self.seed} were requested.")
        return span[self.seed : self.seed + count]

    def all_episodes(self) -> list[Episode]:
        """Returns all episodes in playing order: the first attempt of every seed, then the second ones."""
        knobs = knobs_json(self.knobs)
        return [Episode(self.task, knobs, seed, attempt) for attempt in range(self.attempts) for seed in self.seeds]

    def folder(self, output_dir: Path) -> Path:
        """Returns the run folder below `output_dir`."""
        name = re.sub(r"[^\w.+=-]+", "_", self.model.rstrip("/").removesuffix(".jsonl"))[-80:]
        return output_dir / f"{self.task.id}--{name}" / self.run_id


def resolve_split(task: Task, split: str) -> tuple[Task, str]:
    """Returns the task and split name for `split`; the task is another one if splits are separate tasks."""
    if split in task.split_ids:
        return registry.TASKS[task.split_ids[split]], ""
    return task, split


def evaluate(
    config: RunConfig,
    output_dir: Path,
    make_policy: Callable[[], Policy],
    execution: Execution = DEFAULT_EXECUTION,
    on_episode: OnEpisode = lambda record, run: None,
    play: Callable[[Sequence[Episode]], Iterator[Trajectory]] | None = None,
    activity: Activity | None = None,
    open_series: Callable[[], Series | None] = lambda: None,
) -> tuple[Results, Summary]:
    """Plays the episodes missing in the run folder; returns all records (`records.light`), sorted,
    and their summary.

    After an interruption, the journal has all finished episodes, and a later call with `resume`
    continues from there. `play` replaces the policy's rollout, for example when a person plays.
    `activity` is for displays. While the run lasts, progress.json holds its snapshot.
    `open_series` returns stored episodes with the same settings, which are reused, and to which the
    played ones are added; it is called if an episode is missing.
    Raises UsageError if the folder exists and `resume` is off, or if another process is writing to
    it; BudgetReached at a limit of `execution.budget`.

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
    if not execution.resume and _has_records(folder):
        raise UsageError(f"{folder} exists: continue with --resume, remove it, or choose another --output-dir.")
    with _claimed(folder, output_dir, execution.patience), contextlib.ExitStack() as stack:
        settings = {"run_id": config.run_id, "split": config.split, "execution": asdict(execution)}
        config_file.write(folder, {**config.identity(), **settings})
        reused = ReusedEpisodes(folder / "reused.jsonl")
        journal = stack.enter_context(contextlib.closing(Journal(folder / JOURNAL, reused.dates)))
        todo = _missing(config, folder, journal, reused)
        series = open_series() if todo else None
        if series is not None:
            stack.callback(series.close)
            for record in reused.take(series, todo, journal):
                on_episode(record, None)
            todo = [episode for episode in todo if episode.key not in reused.dates]
        activity = activity or Activity()
        activity.episodes = len(config.all_episodes())
        activity.ended = activity.episodes - len(todo)
        if todo:
            activity.most_turns = config.turn_cap
            runs = play(todo) if play else _play(config, todo, make_policy, execution, folder, activity)
            with contextlib.closing(runs), Heartbeat(folder / "progress.json", activity):  # type: ignore[type-var]
                _record(config, runs, journal, folder, execution.budget, on_episode, activity, series)
        return _results(config, folder, journal, reused)


def _has_records(folder: Path) -> bool:
    journal = folder / JOURNAL
    return journal.exists() and journal.stat().st_size > 0


@contextlib.contextmanager
def _claimed(folder: Path, output_dir: Path, patience: float) -> Iterator[None]:
    """Makes a run folder and holds its lock; if the run fails without a record, removes the folders that it made.

    Raises UsageError if another process holds the lock for `patience` seconds.
    """
    new = [path for path in (folder, folder.parent, output_dir) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=patience)
    except filelock.Timeout:
        raise UsageError(
            f"{folder} is in use by another process: wait for it, or choose another --output-dir."
        ) from None
    try:
        yield
    except Exception:
        if folder in new and not _has_records(folder):
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # raised by the first that is not empty
                for path in new[1:]:
                    path.rmdir()
        raise
    finally:
        lock.release()


def _missing(config: RunConfig, folder: Path, journal: Journal, reused: ReusedEpisodes) -> list[Episode]:
    """Returns the episodes that the journal lacks; without any, a stored answer of a server no longer counts."""
    done = journal.done()
    reused.forget(done)
    if not done:
        (folder / WEIGHTS).unlink(missing_ok=True)
    return [episode for episode in config.all_episodes() if episode.key not in done]


def _results(config: RunConfig, folder: Path, journal: Journal, reused: ReusedEpisodes) -> tuple[Results, Summary]:
    """Writes results.jsonl and summary.json, and returns both."""
    path = folder / "results.jsonl"
    results = records.write_results(path, journal, {episode.key for episode in config.all_episodes()})
    summary = {**config.identity(), **summarise(results), "spent": journal.spent}
    if reused.dates:
        summary["reused"] = reused.summary()
    summary["results_hash"] = records.results_hash(path)
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    return results, summary


def _play(
    config: RunConfig,
    todo: Sequence[Episode],
    make_policy: Callable[[], Policy],
    execution: Execution,
    folder: Path,
    activity: Activity,
) -> Iterator[Trajectory]:
    policy = make_policy()
    if isinstance(policy, WatchesWeights):
        policy.keep_weights(folder / WEIGHTS)
    executor = open_slots(config, execution, len(todo), policy.advice_kind)
    try:
        runs = rollout(policy, todo, executor, config.prompting, config.max_turns, activity)
        with contextlib.closing(runs):  # type: ignore[type-var]
            for run in runs:
                if is_model(config.model):
                    digest = policy.weights_hash() if isinstance(policy, HashesWeights) else ""
                    run.chain = hash_chain.chain(run, config.prompting, config.model, digest)
                yield run
    finally:
        executor.close()
        config_file.note_connection(folder, policy)


def _record(
    config: RunConfig,
    runs: Iterator[Trajectory],
    journal: Journal,
    folder: Path,
    budget: Budget,
    on_episode: OnEpisode,
    activity: Activity,
    series: Series | None,
) -> None:
    """Appends the played episodes to the journal and to the store."""
    began = time.monotonic()
    with (folder / "timing.jsonl").open("a", buffering=1) as times:
        for run in runs:
            record = records.record(run, config.model, config.reward_mode)
            journal.append(record)
            line = {"key": list(run.episode.key), "seconds": round(run.seconds, 3), "ended": time.time()}
            line["cached_tokens"] = sum(turn.reply.cached_tokens for turn in run.turns)
            times.write(json.dumps(line) + "\n")
            activity.recorded(len(run.turns), run.broken)
            if series is not None:
                series.append(record)
            on_episode(record, run)
            limit = budget.reached([journal.spent], began)
            played, total = activity.ended, activity.episodes
            if limit and played < total:
                note = " The server sends no token counts: they are estimated." if journal.estimated else ""
                raise BudgetReached(f"{limit} is used up after {played} of {total} episodes: --resume continues.{note}")


def open_slots(
    config: RunConfig, execution: Execution, episodes: int, advice_kind: str, shaping: Shaping = DEFAULT_SHAPING
) -> Executor:
    """Opens an executor for a run: in this process (fast engines), in worker processes, or on Ray."""
    count = max(1, min(execution.max_concurrent, episodes))
    cls = registry.env_class(config.task)
    settings = check_knobs(cls, {**config.task.kwargs, **config.knobs})
    check_expert(cls, advice_kind)
    timeout = execution.env_timeout or ENV_TIMEOUT
    if execution.executor == "ray":
        return _open_ray(config, settings, execution, count, advice_kind, shaping)
    workers = _num_workers(cls, settings, execution, count)
    if workers:
        return ProcessExecutor(count, workers, config.reward_mode, advice_kind, shaping, timeout)
    if advice_kind and not is_model(config.model):  # advice needs no waiting, and one environment uses the caches best
        return LocalExecutor(1, config.reward_mode, advice_kind, shaping)
    return LocalExecutor(count, config.reward_mode, advice_kind, shaping)


def _num_workers(cls: type[TextEnv], settings: dict[str, Any], execution: Execution, count: int) -> int:
    """Returns the number of worker processes for an environment class; 0: this process runs them."""
    if execution.num_workers >= 0:
        return execution.num_workers
    unknown = execution.isolate_unknown and cls.__module__.partition(".")[0] != "envsuite"
    if cls.needs_process(settings) or execution.env_timeout or unknown:
        return min(count, os.cpu_count() or 1)
    return 0


def _open_ray(
    config: RunConfig,
    settings: dict[str, Any],
    execution: Execution,
    count: int,
    advice_kind: str,
    shaping: Shaping,
) -> Executor:
    from harness.cluster import connect
    from harness.cluster.executors import RayExecutor

    cls = registry.env_class(config.task)
    needs = cls.resources(settings)
    # A cluster started here offers one unit of each resource, which the workers share.
    ray = connect.connect(execution.ray_address, offers=dict.fromkeys(needs, 1.0))
    workers = execution.num_workers
    if workers <= 0:
        workers = max(1, int(ray.available_resources().get("CPU", 1)))
    batched = not cls.needs_process(settings)
    timeout = execution.env_timeout or ENV_TIMEOUT
    return RayExecutor(ray, count, workers, config.reward_mode, advice_kind, shaping, needs, batched, timeout)
