"""Measures what trie-normalised tokens cost, beside the two other ways of acting.

    python -m benchmarks.trie [--model NAME] [--size xxs] [--episodes 8] [--turns 8] [--rounds 3]

Each round plays the same games with `acting.choose` = free, admissible and trie, and takes one POAD
update on them (critic and actor, one pass). The table has medians over rounds. Seconds are CPU
seconds of this process on one core (`time.process_time`), so that other load matters little.
Without --model the weights are random, and a free reply has as many tokens as a command on average.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from baselines.algorithms import poad
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.batch import AllowedTokens, collate
from baselines.collection.actor import Actor
from baselines.networks.model import Model, ModelConfig
from baselines.recipe import Acting
from baselines.studies import tiny_model
from envsuite import registry
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import Trajectory, episode

TASK, TOKENS = "VirtualHome-food_preparation-v0", 4
CHOICES = ("free", "admissible", "trie")
PROMPTING = Prompting("bare", False, 2, admissible="none")
CONFIG = poad.Config(target_kl=0.0, whole=False, learning_rate=0.0, critic_learning_rate=0.0, micro_rows=32)


class Measurement(NamedTuple):
    """One round of one way of acting."""

    replies: int
    tokens: int
    rollout: float  # CPU seconds
    update: float  # CPU seconds


def play(model: Model, choose: str, episodes: int, turns: int) -> list[Trajectory]:
    actor = Actor(model, Acting(choose=choose, max_tokens=TOKENS), PROMPTING, 1.0)
    todo = [episode(registry.TASKS[TASK], seed) for seed in range(episodes)]
    return sorted(rollout(actor, todo, LocalExecutor(episodes), PROMPTING, turns), key=lambda run: run.episode.key)


def measure(model: Model, choose: str, episodes: int, turns: int) -> tuple[Measurement, list[Trajectory]]:
    began = time.process_time()
    runs = play(model, choose, episodes, turns)
    played = time.process_time()
    generator = torch.Generator().manual_seed(0)
    poad.update(UpdateInput(model, Optimisers(model, CONFIG), runs, CONFIG, generator))
    learned = time.process_time()
    replies = [turn.reply for run in runs for turn in run.turns]
    tokens = sum(len(reply.ids) for reply in replies)
    return Measurement(len(replies), tokens, played - began, learned - played), runs


def described(allowed: AllowedTokens) -> str:
    sizes = (allowed.sets >= 0).sum(1)[1:]
    decided = allowed.index[allowed.index > 0]
    return (
        f"{len(decided)} tokens had an alternative, among {sizes[decided - 1].float().mean():.1f} on average; the "
        f"batch stores {len(sizes)} distinct sets in {allowed.sets.nbytes + allowed.index.nbytes:,} bytes"
    )


def row(choose: str, rounds: Sequence[Measurement]) -> str:
    rollout_s, update_s = (statistics.median(getattr(x, name) for x in rounds) for name in ("rollout", "update"))
    replies, tokens = rounds[0].replies, rounds[0].tokens
    numbers = (f"{rollout_s:.2f}", f"{replies / rollout_s:.0f}", f"{tokens / rollout_s:.0f}", f"{update_s:.2f}")
    return f"| {choose} | {replies} | {tokens} | {' | '.join(numbers)} | {tokens / update_s:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="")
    parser.add_argument("--size", default="xxs")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        name = args.model or str(Path(work) / "tiny")
        if not args.model:
            texts = tiny_model.texts([TASK], 4)
            tiny_model.make(Path(name), texts, args.size, vocabulary=1024, context=2048)
        model = Model.load(ModelConfig(name, critic="own", dtype="float32"))
    parameters = sum(p.numel() for p in model.lm.parameters())
    print(
        f"{args.model or f'tiny {args.size}'}, {parameters / 1e6:.1f} million parameters, vocabulary "
        f"{model.lm.config.vocab_size}, {TASK}, {args.episodes} episodes of at most {args.turns} turns, history 2, "
        f"one core, torch {torch.__version__}\n"
    )
    rounds: dict[str, list[Measurement]] = {choose: [] for choose in CHOICES}
    for choose in CHOICES:
        measure(model, choose, 1, 1)  # work that is done only once is not measured
    for _ in range(args.rounds):
        for choose in CHOICES:
            result, runs = measure(model, choose, args.episodes, args.turns)
            rounds[choose].append(result)
    print("| choose | replies | tokens | rollout CPU s | replies/s | tokens/s | update CPU s | tokens/s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for choose in CHOICES:
        print(row(choose, rounds[choose]))
    allowed = collate(runs, whole=False).allowed
    assert allowed is not None
    print(f"\nWith trie {described(allowed)}.")


if __name__ == "__main__":
    main()
