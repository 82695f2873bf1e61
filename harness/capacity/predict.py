"""`envsuite-eval --dry-run --nodes N`: what a run will take, from the profiles and the simulation."""

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
from harness.policies import is_model

MOST_TURNS = 200_000
"""turns that are simulated; the rest of a longer run is taken to go on as its middle did"""
CURES = {
    "policy": "add model servers (--base-url A,B,C) or replicas",
    "environments": "add nodes, or workers on them (--num-workers)",
    "head": "split the run over several heads, by task or by --seed, each with a folder of its own",
    "disk": "write to a faster disk",
}


@dataclass(frozen=True)
class Asked:
    """What the prediction is for, beside the run itself."""

    nodes: int
    cpus: int
    """processors of a node; one worker on each"""
    slots: int
    workers: int = 0
    """all together; 0: one on every processor"""
    replicas: int = 1
    tokens_per_s: float = 0.0
    """written by one server or replica, all conversations together; 0: not known"""
    price: tuple[float, float] = (0.0, 0.0)
    """USD per million tokens read and written"""


@dataclass(frozen=True)
class Volume:
    """What a run reads and writes."""

    turns: float
    read: float
    """tokens, the conversation sent anew each turn"""
    written: float
    record_mb: float


def lengths(profile: Profile, config: RunConfig, player: str) -> Iterator[int]:
    """Episodes as long as the player's were when the profile was measured, over and over."""
    known = profile.turns.get(player) or profile.turns["random"]
    spread = [known[index * 7919 % len(known)] for index in range(len(known))]  # not sorted: long ones would be last
    return (min(turns, config.max_turns or turns) for turns in itertools.cycle(spread))


def volume(config: RunConfig, profile: Profile, player: str, reply_chars: float) -> Volume:
    """Tokens and bytes of the whole run where episodes are as long as `player`'s and replies so long."""
    count, history = len(config.all_episodes()), config.prompting.history
    turns = read = 0.0
    known = list(
        itertools.islice(lengths(profile, config, player), len(profile.turns.get(player) or profile.turns["random"]))
    )
    for length in known:
        for turn in range(length):
            kept = turn if history < 0 else min(turn, history)
            seen = profile.observation_chars * (kept + 1) + reply_chars * kept
            read += (profile.instruction_chars + seen) / CHARS_PER_TOKEN
        turns += length
    share = count / len(known)
    longer = mean(known) / profile.mean_turns("random")
    return Volume(
        turns * share,
        read * share,
        turns * share * reply_chars / CHARS_PER_TOKEN,
        count * profile.record_bytes * longer / 1e6,
    )


def cluster(config: RunConfig, head: Head, asked: Asked, reply_tokens: float) -> Cluster:
    """As the executor would use it."""
    workers = max(1, min(asked.workers or asked.nodes * asked.cpus, asked.slots))
    cls = registry.env_class(config.task)
    played_by_model = is_model(config.model)
    return Cluster(
        workers=workers,
        slots=max(1, min(asked.slots, len(config.all_episodes()))),
        replicas=asked.replicas if played_by_model else 0,
        prompts_per_s=asked.tokens_per_s / reply_tokens if played_by_model and asked.tokens_per_s else math.inf,
        batched=not cls.needs_process({**registry.knob_names(config.task), **config.task.kwargs, **config.knobs}),
        message_s=MESSAGE,
        head_turn_s=head.turn_s + head.answer_s,
        head_message_s=head.message_s,
        journal_s_per_mb=head.journal_s_per_mb,
        disk_mb_per_s=DISK,
    )


def run_time(config: RunConfig, profile: Profile, player: str, where: Cluster) -> tuple[float, Simulated]:
    """Seconds of the whole run, and the simulation behind them."""
    count = len(config.all_episodes())
    each = max(1.0, profile.mean_turns(player))
    simulated = min(count, max(4 * where.slots, int(MOST_TURNS / each)))
    work = Work(
        profile.reset_s,
        profile.turn_s,
        list(itertools.islice(lengths(profile, config, player), simulated)),
        profile.record_bytes,
    )
    found = simulate(work, where)
    return found.seconds + (count - simulated) / found.rate, found


def lines(config: RunConfig, head: Head, profile: Profile, asked: Asked) -> Iterator[str]:
    """The prediction in words. A model's turns are not known: between the expert's and the random player's."""
    of_model = is_model(config.model)
    players = ["expert", "random"] if of_model else [config.model.partition(":")[0]]
    short = profile.command_chars + len("<action></action>")
    replies = [short, config.sampling.max_tokens * CHARS_PER_TOKEN] if of_model else [profile.command_chars] * 2
    ends = sorted(
        (volume(config, profile, player, size) for player in players for size in replies), key=lambda one: one.read
    )
    low, high = ends[0], ends[-1]
    where = cluster(config, head, asked, max(1.0, low.written / low.turns))
    if profile.task != config.task.id:
        yield f"profile   of {profile.task}, measured; {config.task.id} has none of its own"
    yield f"cluster   {asked.nodes} nodes of {asked.cpus} processors: {where.workers} workers, {where.slots} slots"
    yield f"turns     {_span(low.turns, high.turns)} in all" + (
        " (the expert's to the random player's)" if of_model else ""
    )
    if of_model:
        yield f"tokens    {_span(low.read, high.read)} read, {_span(low.written, high.written)} written"
        if any(asked.price):
            cost = [(one.read * asked.price[0] + one.written * asked.price[1]) / 1e6 for one in (low, high)]
            yield f"cost      {_span(*cost)} USD; a server's prefix cache not counted"
    per_worker = profile.worker_mb + profile.environment_mb * (where.slots / where.workers - 1)
    yield f"memory    {per_worker * min(where.workers, asked.cpus) / 1000:.1f} GB a node, {profile.worker_mb:.0f} MB of them for each worker"
    yield f"disk      {_span(low.record_mb, high.record_mb)} MB of journal, and as much of results"
    spans: list[float] = []
    found: Simulated | None = None
    for player, size in dict.fromkeys(zip(players, (replies[0], replies[-1]))):
        there = replace(
            where,
            prompts_per_s=asked.tokens_per_s * CHARS_PER_TOKEN / size if of_model and asked.tokens_per_s else math.inf,
        )
        seconds, found = run_time(config, profile, player, there)
        spans.append(seconds)
    assert found is not None
    note = "" if not of_model or asked.tokens_per_s else ", the model's own time left out: give --tokens-per-second"
    yield f"time      {' to '.join(dict.fromkeys(map(_clock, sorted(spans))))}{note}; {asked.nodes * max(spans) / 3600:,.1f} node-hours at most"
    shares = ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in sorted(found.busy.items(), key=lambda one: -one[1])
    )
    yield f"busy      {shares}: the {found.bottleneck} sets the pace; to go faster, {CURES[found.bottleneck]}"
    if asked.nodes > 1:
        yield "          Extrapolated: the simulation was fitted to 1 and 2 workers and checked against 4, on one machine."


def _span(low: float, high: float) -> str:
    one, other = (f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in (low, high))
    return one if one == other else f"{one} to {other}"


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
