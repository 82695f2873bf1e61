"""Entries of the audit board: a checkpoint on a suite, with its cost, its command and, once it was run, its result."""

from __future__ import annotations

import importlib.resources
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite.errors import EnvsuiteError
from envsuite.reading import read_json
from harness.capacity import predict, profile
from harness.capacity.profile import CHARS_PER_TOKEN
from harness.evaluate import RunConfig
from harness.policies import record_name
from harness.prompting import protocols
from harness.stats.estimates import Estimate, compare, proportion
from harness.stats.summary import Summary, percent
from harness.suites import suites
from harness.suites.plan import plan

BYTES_PER_PARAMETER = 2
"""of the weights, in bfloat16"""
ROUNDING = 0.0005
"""of published numbers, which have three digits"""
MARGIN = 0.05
SHORTEST_REPLY = 60
"""characters of a reply with one sentence of reasoning and a command"""


@dataclass(frozen=True)
class Checkpoint:
    """A published model; see checkpoints.toml."""

    model: str
    paper: str
    seen_at: str
    billions: float
    protocol: str
    prompt: str
    suites: Sequence[str]
    note: str
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Estimated tokens of a run in millions, from short episodes with short replies to full ones with full replies."""

    read: tuple[float, float]
    written: tuple[float, float]

    def hours(self, tokens_per_second: float, read_per_second: float) -> tuple[float, float]:
        """Returns GPU hours at the rates of one GPU."""
        low, high = (
            1e6 * (read / read_per_second + written / tokens_per_second) / 3600
            for read, written in zip(self.read, self.written, strict=True)
        )
        return low, high


@dataclass(frozen=True)
class AuditEntry:
    """A checkpoint on one suite, played by `model`, which is the checkpoint itself or a stand-in."""

    checkpoint: Checkpoint
    suite: str
    model: str
    episodes: int | None = None
    """games, if fewer than the suite has"""
    repeats: int = 1

    @property
    def settings(self) -> Mapping[str, Any]:
        return suites.suite(self.suite)

    @property
    def task(self) -> str:
        return str(self.settings["tasks"][0])

    @property
    def games(self) -> int:
        """Number of games."""
        return min(int(self.settings["games"][self.task]), self.episodes or 10**9)

    @property
    def runnable(self) -> bool:
        """True if there is a profile of the checkpoint's prompt."""
        return bool(self.checkpoint.protocol)

    @property
    def words(self) -> str:
        """Identity of the best words on this machine; 'neutral' without the published ones."""
        return protocols.load(self.checkpoint.protocol).available()

    def command(self, output_dir: Path) -> list[str]:
        """Returns the arguments of `envsuite-eval` that play this entry, or continue it."""
        words = ["-m", self.model, "-e", f"suite:{self.suite}", "--protocol", self.checkpoint.protocol]
        few = ["-n", str(self.episodes)] if self.episodes else []
        many = ["-r", str(self.repeats)] if self.repeats > 1 else []
        return [*words, *few, *many, "--baselines", "none", "--resume", "-o", str(output_dir)]

    def config(self) -> RunConfig:
        """Returns the run's settings. Raises UsageError, MissingData."""
        flags = {"protocol": self.checkpoint.protocol, "repeats": self.repeats}
        if self.episodes:
            flags["episodes"] = self.episodes
        (planned,) = plan(record_name(self.model), flags, [f"suite:{self.suite}"])
        return planned.config

    def cost(self) -> Cost:
        """Returns the estimated tokens, from the measured profile of the family."""
        _, families = profile.load()
        family = families[self.task.partition("-")[0].lower()]
        history, turns = int(self.settings["history"]), self.settings["max_turns"]
        longest = self.settings["max_tokens"] * CHARS_PER_TOKEN
        count = self.games * self.repeats / 1e6
        low = predict.episode_volume(family, "expert", SHORTEST_REPLY, history, turns).times(count)
        high = predict.episode_volume(family, "random", longest, history, turns).times(count)
        return Cost((low.read, high.read), (low.written, high.written))

    def result(self, output_dir: Path) -> Summary | None:
        """Returns the summary of the finished run, or None. Raises UsageError, MissingData."""
        path = self.config().folder(output_dir) / "summary.json"
        return read_json(path) if path.exists() else None


def checkpoints() -> list[Checkpoint]:
    """Returns all checkpoints."""
    table = tomllib.loads((importlib.resources.files("harness.audit") / "checkpoints.toml").read_text("utf-8"))
    return [Checkpoint(**row) for row in table["checkpoint"]]


def entries(stand_in: str = "", episodes: int | None = None, repeats: int = 1) -> list[AuditEntry]:
    """Returns the entries of the board. `stand_in` is a model that plays in place of all checkpoints."""
    return [
        AuditEntry(checkpoint, suite, stand_in or f"vllm:{checkpoint.model}", episodes, repeats)
        for checkpoint in checkpoints()
        for suite in checkpoint.suites
    ]


def describe(entry: AuditEntry, output_dir: Path, rates: tuple[float, float]) -> Iterator[str]:
    """Yields an entry as lines of text. `rates` are the tokens per second that a GPU writes and reads."""
    checkpoint, settings = entry.checkpoint, entry.settings
    panel = settings["panels"][entry.task]
    yield f"{checkpoint.model}   {checkpoint.paper}; {checkpoint.billions:g}B; {checkpoint.seen_at}"
    yield f"  panel      {entry.suite}: {entry.task}, {panel}, {entry.games} of {settings['games'][entry.task]} games"
    sampling = f"temperature {settings['temperature']}, {settings['max_tokens']} tokens a reply"
    yield f"  sampling   {sampling}, {settings['max_turns']} turns, {entry.repeats} x"
    if entry.runnable:
        words = "neutral words" if entry.words == protocols.NEUTRAL else f"published words {entry.words}"
        yield f"  prompt     {checkpoint.protocol}, {words} on this machine; {checkpoint.prompt}"
    else:
        yield f"  prompt     {checkpoint.prompt}: not run"
    number = checkpoint.published.get(entry.suite)
    yield f"  published  {'no number' if number is None else f'{100 * number:.1f} %'}; {checkpoint.note}"
    if not entry.runnable:
        return
    yield f"  measured   {_measured(entry, output_dir, number)}"
    cost = entry.cost()
    yield (
        f"  cost       {_span(cost.read)} million tokens read, {_span(cost.written)} million written, "
        f"{_span(cost.hours(*rates))} GPU hours"
    )
    yield f"  command    envsuite-eval {shlex.join(entry.command(output_dir))}"


def _measured(entry: AuditEntry, output_dir: Path, number: float | None) -> str:
    """Returns our result and where the published number is, or why there is none."""
    try:
        summary = entry.result(output_dir)
    except EnvsuiteError as error:
        return f"not run: {str(error).partition(': ')[0]}"
    if summary is None:
        return "not run"
    success = summary["success"]
    text = f"{percent(success)} by {entry.model}" + (f", {summary['broken']} broken" if summary["broken"] else "")
    if not entry.model.endswith(entry.checkpoint.model):
        return f"{text}, a stand-in, which says nothing about the checkpoint"
    if number is None or success["value"] is None:
        return text
    if obstacle := _obstacle(entry):
        return f"{text}; not comparable with the published number: {obstacle}"
    return f"{text}; {difference(success['value'], number, entry.games)}"


def difference(ours: float, published: float, games: int) -> str:
    """Returns in words how far our success is from a published one, both as results of this many games."""
    found = compare(Estimate(ours, games), proportion(published, games, slack=ROUNDING), MARGIN)
    low, high = 100 * found.low, 100 * found.high
    return (
        f"{100 * found.value:+.1f} points [{low:+.1f}, {high:+.1f}] from the published number, which is taken for the "
        f"result of {games} games: {'they differ' if found.p_differs < 0.05 else 'no difference is shown'}"
    )


def _obstacle(entry: AuditEntry) -> str:
    """Returns why a result cannot be compared with the published number; '' if it can."""
    every = entry.settings["games"][entry.task]
    if entry.games < every:
        return f"{entry.games} of {every} games"
    return "neutral words" if entry.words == protocols.NEUTRAL else ""


def total(board: Sequence[AuditEntry], rates: tuple[float, float]) -> str:
    """Returns the cost of all entries that can be run."""
    runnable = [entry for entry in board if entry.runnable]
    costs = [entry.cost() for entry in runnable]
    hours = [cost.hours(*rates) for cost in costs]
    sums = {
        "read": (sum(cost.read[0] for cost in costs), sum(cost.read[1] for cost in costs)),
        "written": (sum(cost.written[0] for cost in costs), sum(cost.written[1] for cost in costs)),
        "hours": (sum(low for low, _ in hours), sum(high for _, high in hours)),
    }
    weights = {entry.checkpoint.model: entry.checkpoint.billions for entry in runnable}
    left = len({entry.checkpoint.model for entry in board if not entry.runnable})
    games = sum(entry.games * entry.repeats for entry in runnable)
    return (
        f"total: {len(weights)} checkpoints, {len(runnable)} runs, {games:,} games; "
        f"{BYTES_PER_PARAMETER * sum(weights.values()):.0f} GB of weights in bfloat16; "
        f"{_span(sums['read'])} million tokens read, {_span(sums['written'])} million written, "
        f"{_span(sums['hours'])} GPU hours at {rates[0]:,.0f} tokens written and {rates[1]:,.0f} read a second "
        f"(assumed, not measured; every turn's prompt is counted whole). {left} checkpoints have no profile."
    )


def _span(pair: tuple[float, float]) -> str:
    low, high = (f"{value:.2f}" if value < 10 else f"{value:,.0f}" for value in pair)
    return low if low == high else f"{low} to {high}"
