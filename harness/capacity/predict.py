"""Predictions of time, tokens and memory of a run, for `envsuite-eval --dry-run --nodes N`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean

from envsuite import registry
from harness.capacity.profile import CHARS_PER_TOKEN, Head, Profile
from harness.capacity.simulate import DISK, MESSAGE, Cluster, Simulated, Work, simulate
from harness.evaluate import RunConfig
from harness.policies import is_model, members

MAX_SIMULATED_TURNS = 200_000
"""number of simulated turns; a longer run is extrapolated at the rate of its middle part"""
CURES = {
    "policy": "add model servers (--base-url A,B,C) or replicas",
    "environments": "add nodes, or workers on them (--num-workers)",
    "head": "split the run over several heads, by task or by --seed, each with its own folder",
    "disk": "write to a faster disk",
}


@dataclass(frozen=True)
class PlannedHardware:
    """Hardware and prices for which a run is predicted."""

    nodes: int
    cpus: int
    """processors per node; each runs one worker"""
    slots: int
    workers: int = 0
    """total number; 0: one per processor"""
    replicas: int = 1
    tokens_per_s: float = 0.0
    """generation rate of one server or replica over all conversations; 0: unknown"""
    price: tuple[float, float] = (0.0, 0.0)
    """USD per million tokens read and written"""


@dataclass(frozen=True)
class Volume:
    """Tokens and bytes of a run."""

    turns: float
    read: float
    """prompt tokens; every turn sends the conversation again"""
    written: float
    record_mb: float

    def times(self, count: float) -> Volume:
        """Returns the volume of `count` such episodes."""
        return Volume(self.turns * count, self.read * count, self.written * count, self.record_mb * count)


def lengths(profile: Profile, player: str, most_turns: int | None) -> Iterator[int]:
    """Yields episode lengths of a player from the profile, in an endless cycle."""
    measured = profile.turns.get(player) or profile.turns["random"]
    spread = [measured[index * 7919 % len(measured)] for index in range(len(measured))]
    return (min(turns, most_turns or turns) for turns in itertools.cycle(spread))


def episode_volume(
    profile: Profile, player: str, reply_chars: float, history: int, most_turns: int | None = None
) -> Volume:
    """Returns tokens and bytes of a mean episode as long as `player`'s, with replies of `reply_chars`.

    `history` is the number of remembered turns; -1 for all.
    """
    turns = read = 0.0
    count = len(profile.turns.get(player) or profile.turns["random"])
    measured = list(itertools.islice(lengths(profile, player, most_turns), count))
    for length in measured:
        for turn in range(length):
            remembered = turn if history < 0 else min(turn, history)
            seen = profile.observation_chars * (remembered + 1) + reply_chars * remembered
            read += (profile.instruction_chars + seen) / CHARS_PER_TOKEN
        turns += length
    longer = mean(measured) / profile.mean_turns("random")
    written = turns * reply_chars / CHARS_PER_TOKEN
    return Volume(turns / count, read / count, written / count, profile.record_bytes * longer / 1e6)


def volume(config: RunConfig, profile: Profile, player: str, reply_chars: float) -> Volume:
    """Returns tokens and bytes of a run with episodes as long as `player`'s and replies of `reply_chars`."""
    one = episode_volume(profile, player, reply_chars, config.prompting.history, config.max_turns)
    return one.times(len(config.all_episodes()))


def cluster(config: RunConfig, head: Head, hardware: PlannedHardware, reply_tokens: float) -> Cluster:
    """Returns the cluster as the executor would use it."""
    workers = max(1, min(hardware.workers or hardware.nodes * hardware.cpus, hardware.slots))
    cls = registry.env_class(config.task)
    played_by_model = is_model(config.model)
    return Cluster(
        workers=workers,
        slots=max(1, min(hardware.slots, len(config.all_episodes()))),
        replicas=hardware.replicas if played_by_model else 0,
        prompts_per_s=hardware.tokens_per_s / reply_tokens if played_by_model and hardware.tokens_per_s else math.inf,
        batched=not cls.needs_process({**registry.knob_names(config.task), **config.task.kwargs, **config.knobs}),
        message_s=MESSAGE,
        head_turn_s=head.turn_s + head.answer_s,
        head_message_s=head.message_s,
        journal_s_per_mb=head.journal_s_per_mb,
        disk_mb_per_s=DISK,
    )


def run_time(config: RunConfig, profile: Profile, player: str, target: Cluster) -> tuple[float, Simulated]:
    """Returns the duration of the run in seconds, and the simulation it is based on."""
    count = len(config.all_episodes())
    turns_per_episode = max(1.0, profile.mean_turns(player))
    simulated = min(count, max(4 * target.slots, int(MAX_SIMULATED_TURNS / turns_per_episode)))
    work = Work(
        profile.reset_s,
        profile.turn_s,
        list(itertools.islice(lengths(profile, player, config.max_turns), simulated)),
        profile.record_bytes,
    )
    simulation = simulate(work, target)
    return simulation.seconds + (count - simulated) / simulation.rate, simulation


def lines(config: RunConfig, head: Head, profile: Profile, hardware: PlannedHardware) -> Iterator[str]:
    """Yields the prediction as lines of text.

    A model is assumed to need at least the expert's and at most the random player's turns.
    """
    model_plays = is_model(config.model)
    players = (
        ["expert", "random"] if model_plays else sorted({player.partition(":")[0] for player in members(config.model)})
    )
    short = profile.command_chars + len("<action></action>")
    replies = [short, config.sampling.max_tokens * CHARS_PER_TOKEN] if model_plays else [profile.command_chars] * 2
    ends = sorted(
        (volume(config, profile, player, size) for player in players for size in replies), key=lambda item: item.read
    )
    low, high = ends[0], ends[-1]
    target = cluster(config, head, hardware, max(1.0, low.written / low.turns))
    if profile.task != config.task.id:
        yield f"profile   measured on {profile.task}; {config.task.id} has no own profile"
    yield (
        f"cluster   {hardware.nodes} nodes of {hardware.cpus} processors: {target.workers} workers, "
        f"{target.slots} slots"
    )
    yield f"turns     {_span(low.turns, high.turns)} in all" + (
        " (the expert's to the random player's)" if model_plays else ""
    )
    if model_plays:
        yield f"tokens    {_span(low.read, high.read)} read, {_span(low.written, high.written)} written"
        if any(hardware.price):
            cost = [(item.read * hardware.price[0] + item.written * hardware.price[1]) / 1e6 for item in (low, high)]
            yield f"cost      {_span(*cost)} USD, without savings of a server's prefix cache"
    per_worker = profile.worker_mb + profile.environment_mb * (target.slots / target.workers - 1)
    memory = f"memory    {per_worker * min(target.workers, hardware.cpus) / 1000:.1f} GB per node, "
    yield f"{memory}including {profile.worker_mb:.0f} MB per worker"
    yield f"disk      {_span(low.record_mb, high.record_mb)} MB of journal, and as much of results"
    spans: list[float] = []
    simulation: Simulated | None = None
    for player, size in dict.fromkeys(zip(players, (replies[0], replies[-1]), strict=False)):
        cluster_for_player = replace(
            target,
            prompts_per_s=hardware.tokens_per_s * CHARS_PER_TOKEN / size
            if model_plays and hardware.tokens_per_s
            else math.inf,
        )
        seconds, simulation = run_time(config, profile, player, cluster_for_player)
        spans.append(seconds)
    assert simulation is not None
    note = "" if not model_plays or hardware.tokens_per_s else ", without the model's time: give --tokens-per-second"
    clock = " to ".join(dict.fromkeys(map(_clock, sorted(spans))))
    yield f"time      {clock}{note}; {hardware.nodes * max(spans) / 3600:,.1f} node-hours at most"
    shares = ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in sorted(simulation.busy.items(), key=lambda item: -item[1])
    )
    yield f"busy      {shares}: the {simulation.bottleneck} sets the pace; to speed up, {CURES[simulation.bottleneck]}"
    if hardware.nodes > 1:
        yield "          Extrapolated: fitted to 1 and 2 workers and checked against 4, on one machine."


def _span(low: float, high: float) -> str:
    first, last = (f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in (low, high))
    return first if first == last else f"{first} to {last}"


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
