"""Compares the log-probs that servers report with the trainer's own, on a sample of their replies.

Whatever a server claims to have loaded, its log-probs show which weights it holds. A pass over every
reply would cost as much as a part of the update, so that a few replies of each server are taken.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence

import torch

from baselines.batch import collate, evaluate
from baselines.networks.model import Model
from baselines.networks.snapshot import Snapshot
from baselines.recipe import Recipe
from envsuite.errors import DataError
from harness.types import Trajectory


def server_gap(recipe: Recipe, model: Model | Snapshot, runs: Sequence[Trajectory], temperature: float) -> float:
    """Returns the mean difference between the servers' and the model's log-probs, in nats per token.

    Raises DataError naming a server that is above `generation.tolerance`: other weights than the
    model's played there.
    """
    settings = recipe.generation
    sample = _sample(runs, settings.checked)
    batch = collate([run for _, run in sample], whole=False)
    own = evaluate(
        model,
        lambda rows: model.logprobs(rows.ids, rows.valid, temperature, rows.sampled)[0],
        batch,
        recipe.config.micro_rows,
    )
    gaps = (own - batch.flat(batch.logprobs)).abs()
    for server in dict.fromkeys(server for server, _ in sample):
        numbers = [number for number, (name, _) in enumerate(sample) if name == server]
        of_server = gaps[torch.isin(batch.episode, batch.episode.new_tensor(numbers))]
        if not of_server.mean().item() <= settings.tolerance:
            raise DataError(
                f"{server or 'A server'}: the log-probs of {len(of_server)} tokens that it sampled are "
                f"{of_server.mean().item():.2g} nats from the trainer's on average, and generation.tolerance is "
                f"{settings.tolerance:g}: its weights are stale, or its log-probs are not at temperature "
                f"{temperature or 1:g} (vLLM: --logprobs-mode processed_logprobs)."
            )
    return gaps.mean().item()


def _sample(runs: Sequence[Trajectory], count: int) -> list[tuple[str, Trajectory]]:
    """Returns `count` replies of each server (0: all), spread over the batch: each with its server,
    as an episode of one turn."""
    replies: dict[str, list[Trajectory]] = defaultdict(list)
    for run in runs:
        for turn in run.turns:
            if turn.reply.ids:
                part = copy.copy(run)
                part.turns = [turn]
                replies[turn.reply.extra.get("server", "")].append(part)
    sample = []
    for server, parts in sorted(replies.items()):
        chosen = min(count or len(parts), len(parts))
        sample += [(server, parts[k * len(parts) // chosen]) for k in range(chosen)]
    return sample
