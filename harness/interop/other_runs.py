"""Runs of other harnesses, read for `envsuite compare`: inspect logs, Harbor jobs, verifiers' evaluations, and
SWE-bench's reports.

`read` returns the runs of a path. The files may come from anybody: they are read within the bounds of
`envsuite.reading`, and no code of the other harness is used. An episode that its harness marks as an error
is broken. A game is a sample, a Harbor task or a row of a taskset; its epochs, trials or rollouts are attempts.
"""

from __future__ import annotations

import hashlib
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.errors import DataError, MissingExtra
from envsuite.types import StopReason, knobs_json
from harness import records
from harness.records import Record
from harness.stats.compare import PROTOCOL, Run

MOST_SAMPLES = 200_000
WORDS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""scores that inspect writes as words"""
AGENT_FAILED = (
    *("AgentTimeoutError", "ContextWindowExceededError", "OutputTokenExceededError", "ContextLengthExceededError"),
    *("OutputLengthExceededError", "AgentSafetyRefusalError", "ContentPolicyViolationError"),
)
"""exceptions of Harbor after which a reward counts: the agent caused them"""


@dataclass(frozen=True)
class OtherEpisode:
    """An episode of another harness."""

    model: str
    task: str
    game: str | int
    """seed, or name of the game"""
    scores: Mapping[str, float]
    """empty: the episode is broken; the first one is its reward"""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    sampling: Mapping[str, Any] | None = None
    """settings of the model that the episode states"""


def read(path: Path) -> list[Run]:
    """Returns the runs of an inspect log, a Harbor job or a folder of verifiers, one per model; [] for anything else.

    Raises DataError if such a file is damaged or unfinished.
    """
    for recognises, parse in FORMATS:
        if recognises(path):
            try:
                settings, episodes = parse(path)
                return _runs(path, settings, list(episodes))
            except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:  # zipfile, too
                raise DataError(f"{path} cannot be read ({type(error).__name__}: {error}): was it changed?") from error
    return []


# ---- inspect ----


def _is_inspect_log(path: Path) -> bool:
    return path.suffix == ".eval" and path.is_file()


def _inspect_log(path: Path) -> tuple[dict[str, Any], Iterable[OtherEpisode]]:
    """Reads header and sample summaries of an `.eval` file, which is a zip archive."""
    header, summaries = _documents(path)
    if header["status"] not in ("success", "error"):
        raise DataError(f"{path} has status {header['status']!r}: finish it with `inspect eval-retry`.")
    spec = header["eval"]
    limits = {name: value for name, value in spec["config"].items() if name.endswith("_limit") and value is not None}
    generation = {name: value for name, value in (spec.get("model_generate_config") or {}).items() if value is not None}
    steps = [(step["solver"], step.get("params_passed") or {}) for step in (header.get("plan") or {}).get("steps", ())]
    settings = {"sampling": {**generation, **limits} or None, "prompting": {"solver": steps}}
    return settings, _samples(spec, summaries)


def _samples(spec: Mapping[str, Any], summaries: Any) -> Iterator[OtherEpisode]:
    records.check_types(spec, {"task": str, "model": str})
    for sample in summaries:
        records.check_types(sample, {"id": (str, int), "epoch": int})
        error = sample.get("error")
        scores = {} if error else _inspect_scores(sample.get("scores") or {})
        yield OtherEpisode(spec["model"], spec["task"], _game(sample["id"]), scores, error=str(error or "no score"))


def _inspect_scores(scores: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a sample by scorer, or by scorer and name; without lists and missing values."""
    values: dict[str, float] = {}
    for scorer, score in scores.items():
        value = score["value"]
        named = (
            {f"{scorer}.{name}": number for name, number in value.items()}
            if isinstance(value, dict)
            else {scorer: value}
        )
        values |= {name: _value(number) for name, number in named.items() if not isinstance(number, (list, type(None)))}
    return values


def _game(sample_id: str | int) -> str | int:
    """Returns the number of a sample if its id is one, otherwise its id."""
    text = str(sample_id)
    return int(text) if re.fullmatch("0|[1-9][0-9]{0,17}", text) else sample_id


def _documents(path: Path) -> list[Any]:
    """Returns header and sample summaries. Raises MissingExtra if nothing can undo their compression."""
    try:
        return _members(path)
    except NotImplementedError:
        try:
            import zipfile_zstd  # noqa: F401  extends zipfile
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"{path} is compressed with Zstandard, which needs the package {error.name!r}: "
                "pip install 'envsuite[inspect]'"
            ) from error
        return _members(path)


def _members(path: Path) -> list[Any]:
    values = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in ("header.json", "summaries.json"):
                if name not in archive.namelist():
                    raise DataError(f"{path} holds no {name}: only logs of finished evaluations can be compared.")
                with archive.open(name) as file:
                    content = file.read(reading.MOST_DOCUMENT + 1)
                if len(content) > reading.MOST_DOCUMENT:
                    raise DataError(f"{name} in {path} is larger than {reading.MOST_DOCUMENT / 2**20:.0f} MB.")
                values.append(reading.parse_json(content, nan_as_none=True))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path} is not a whole inspect log ({error}): fetch it again.") from error
    return values


def _value(value: Any) -> float:
    """Returns a score of inspect as a number. Raises ValueError for lists and other words."""
    if isinstance(value, str):
        word = value.strip().lower()
        number = WORDS[word] if word in WORDS else float(word)
    elif isinstance(value, (bool, int, float)):
        number = float(value)
    else:
        raise ValueError(f"score {value!r} is not a number"[:80])
    if not math.isfinite(number):
        raise ValueError(f"score {value!r} is not finite"[:80])
    return number


# ---- Harbor ----


def _is_harbor_job(path: Path) -> bool:
    return path.is_dir() and not (path / "results.jsonl").exists() and any(path.glob("*/result.json"))


def _harbor_job(path: Path) -> tuple[dict[str, Any], Iterable[OtherEpisode]]:
    """Reads the result.json of every trial."""
    return {}, map(_trial, sorted(path.glob("*/result.json")))


def _trial(file: Path) -> OtherEpisode:
    result = reading.read_json(file)
    records.check_types(result, {"task_name": str, "agent_info": dict})
    agent = result["agent_info"]
    model = (agent.get("model_info") or {}).get("name")
    errors = [result, *(result.get("step_results") or ())]
    types = [error["exception_info"]["exception_type"] for error in errors if error.get("exception_info")]
    rewards = (result.get("verifier_result") or {}).get("rewards") or {}
    if any(kind not in AGENT_FAILED for kind in types):
        rewards = {}
    scores = {name: _value(rewards[name]) for name in sorted(rewards, key=lambda name: name != "reward")}
    player = f"{agent['name']} {model}" if model else str(agent["name"])
    why = ", ".join(map(str, types)) or "no reward"
    return OtherEpisode(player, str(result.get("source") or "harbor"), result["task_name"], scores, error=why)


# ---- verifiers ----


def _is_verifiers_run(path: Path) -> bool:
    return path.is_dir() and (path / "traces.jsonl").exists()


def _verifiers_run(path: Path) -> tuple[dict[str, Any], Iterable[OtherEpisode]]:
    """Reads the episodes of verifiers 0.4, each with one trace."""
    cure = "remove that line to compare the others"
    episodes = records.read_lines(path / "traces.jsonl", _episode, "finished episode of verifiers", cure)
    return {}, episodes


def _episode(line: Any) -> OtherEpisode:
    data, traces = line["task"]["data"], line["traces"]
    trace = traces[0] if len(traces) == 1 else {}
    ours = (trace.get("info") or {}).get("envsuite") or {}
    rewards = {name: reward for name, reward in (trace.get("rewards") or {}).items() if reward is not None}
    scores: dict[str, float] = {}
    if line["ok"] and rewards:
        scores["reward"] = sum(_value(reward["score"]) * _value(reward["weight"]) for reward in rewards.values())
        scores |= {name: _value(value) for name, value in (trace.get("metrics") or {}).items() if value is not None}
    identities = (ours.get("seed"), data.get("id"), line["task"].get("key"), data.get("name"), data.get("idx"))
    game = next(identity for identity in identities if identity is not None)
    knobs = reading.parse_json(ours["knobs"]) if "knobs" in ours else {}
    agent: dict[str, Any] = trace["agent"]["config"] if trace else {"model": ""}
    sampling = {name: value for name, value in (agent.get("sampling") or {}).items() if value is not None}
    errors = line.get("errors") or trace.get("errors") or [{"message": f"{len(traces)} traces"}]
    task = ours.get("game") or line["env"]["id"]
    error = str(errors[-1].get("message", ""))[:200]
    return OtherEpisode(str(agent["model"]), str(task), game, scores, knobs, error, sampling or None)


# ---- SWE-bench ----


def _is_swebench_report(path: Path) -> bool:
    """Returns True for `MODEL.RUN_ID.json`, which SWE-bench's harness and `envsuite grade` write."""
    return path.suffix == ".json" and path.is_file() and b'"resolved_ids"' in reading.read_bytes(path)


def _swebench_report(path: Path) -> tuple[dict[str, Any], Iterable[OtherEpisode]]:
    """Reads the submitted instances; an instance that only the infrastructure failed is broken."""
    report = reading.read_json(path)
    names = ("submitted_ids", "resolved_ids", "infra_failure_ids")
    records.check_types(report, {"schema_version": int, **dict.fromkeys(names[:2], list)})
    submitted, resolved, failed = ([str(name) for name in report.get(field, ())] for field in names)
    reasons, model = report.get("failure_reasons") or {}, path.name.split(".json")[0].rpartition(".")[0]
    solved = set(resolved)
    broken = set(failed) - solved
    return {}, [
        OtherEpisode(
            model or path.stem,
            "SWE-bench",
            name,
            {} if name in broken else {"success": float(name in solved)},
            error=str(reasons.get(name, "infrastructure")),
        )
        for name in submitted
    ]


# ---- Runs ----

Format = tuple[Callable[[Path], bool], Callable[[Path], tuple[dict[str, Any], Iterable[OtherEpisode]]]]
FORMATS: tuple[Format, ...] = (
    (_is_inspect_log, _inspect_log),
    (_is_verifiers_run, _verifiers_run),
    (_is_harbor_job, _harbor_job),
    (_is_swebench_report, _swebench_report),
)


def _runs(path: Path, settings: dict[str, Any], episodes: list[OtherEpisode]) -> list[Run]:
    """Returns one run per model; episodes without a model, which broke before they began, are left out."""
    if len(episodes) > MOST_SAMPLES:
        raise DataError(f"{path} holds more than {MOST_SAMPLES:,} episodes, the most that is read.")
    models = list(dict.fromkeys(episode.model for episode in episodes if episode.model))
    if not models:
        raise DataError(f"{path} holds no finished episode.")
    return [
        _run(path, settings, model, [episode for episode in episodes if episode.model == model]) for model in models
    ]


def _run(path: Path, settings: dict[str, Any], model: str, episodes: list[OtherEpisode]) -> Run:
    attempts = Counter[tuple[str, str, int]]()
    converted = []
    for episode in episodes:
        game = episode.task, knobs_json(episode.knobs), _seed(episode.game)
        converted.append(_record(episode, game[2], attempts[game]))
        attempts[game] += 1
    tasks = sorted({episode.task for episode in episodes})
    config = {
        "task": ", ".join(tasks),
        "model": model,
        "knobs": dict(episodes[0].knobs),
        "sampling": episodes[0].sampling,
        "reward_mode": "",
        **settings,
        "attempts": max(attempts.values()),
    }
    config["unstated"] = [name for name in PROTOCOL if config.get(name) in (None, "")]
    scored = [record for record in converted if not records.is_broken(record)]
    if not scored:
        raise DataError(f"Every episode of {model} in {path} is broken; the first: {episodes[0].error}")
    return Run(model, path, config, scored)


def _seed(game: str | int) -> int:
    """Returns a game's number: itself, or a hash of its name."""
    if isinstance(game, int):
        return game
    return int.from_bytes(hashlib.sha256(game.encode("utf-8", "backslashreplace")).digest()[:7], "big")


def _record(episode: OtherEpisode, seed: int, attempt: int) -> Record:
    """Returns the fields of a record that statistics use. Success is a success of that name, or a full reward."""
    scores = dict(episode.scores)
    reward = next(iter(scores.values()), 0.0)
    success = scores.get("success", reward) >= 1.0 - 1e-9
    progression = scores.get("progression", float(success))
    reason = (StopReason.SOLVED if success else StopReason.FAILED) if scores else StopReason.BROKEN
    return {
        "task": episode.task,
        "knobs": dict(episode.knobs),
        "seed": seed,
        "attempt": attempt,
        "model": episode.model,
        "reward_mode": "",
        "success": bool(scores) and success,
        "reward": scores.get("reward", reward),
        "progression": min(1.0, max(0.0, progression)),
        "stop_reason": str(reason),
        "metrics": {name: value for name, value in scores.items() if name not in ("success", "reward", "progression")},
        "labels": {},
        "error": episode.error,
    }
