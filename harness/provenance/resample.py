"""Resampling: asks a model again for random turns of a results file, to test who wrote the replies.

`resample` draws turns, builds their prompts again by replaying the episodes, and asks the model that
the user names, with the run's settings and each turn's own random seed. Every prompt is asked twice,
so that the model is also compared with itself. `Resampled` computes the statistics.

Records hold text. A local model saw its own tokens of earlier replies in a prompt, and here it sees the
tokens of their text; they are equal unless it spelled a word in an unusual way.

Agreement is evidence about replies, not about how episodes were selected: a file of the best of many
attempts agrees as well. A few changed turns among thousands are likely to be missed; `most_foreign`
states how many.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness import hash_chain, records
from harness.evaluate import Execution, RunConfig, Sampling
from harness.policies import is_model, member, members
from harness.prompting.tool_calls import whole_text
from harness.provenance.replay import first_difference, replayed
from harness.provenance.run_folder import RunFolder
from harness.records import Record
from harness.settings import types_of
from harness.stats.intervals import SHARE, bounded
from harness.steps import Step, reply_calls, reply_text
from harness.types import HashesWeights, Policy, Prompt, Reply

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Resampled:
    """Replies of a file, and what the model answered to the same prompts, twice."""

    stored: Sequence[str]
    """replies in the file, one per drawn turn"""
    first: Sequence[str]
    """replies of the model"""
    second: Sequence[str]
    """its replies when it was asked again, in another order"""
    total: int
    """turns in the file"""
    chance: float
    """probability that two replies of the file, drawn at random, are equal"""
    recorded_weights: str
    """hash of the weights in the records; '' if there is none"""
    weights: str
    """hash of the model's weights; '' if it is not known"""

    @property
    def agree(self) -> int:
        """Number of stored replies that the model gives again."""
        return sum(map(str.__eq__, self.stored, self.first))

    @property
    def stable(self) -> int:
        """Number of prompts to which the model gave the same reply twice."""
        return sum(map(str.__eq__, self.first, self.second))

    @property
    def log10_odds(self) -> float:
        """Log-likelihood ratio, base 10, of "the model wrote the file" against a player that draws from
        the file's replies without reading the prompt.

        The model agrees with the rate at which it repeats itself (`stable`, by Laplace's rule), the
        other player with the rate `chance`. Turns count as independent. Returns 0 if the model repeats
        itself no more often than that player would agree: then agreement tells nothing.
        """
        k, agree = len(self.stored), self.agree
        genuine = (self.stable + 1) / (k + 2)
        guessed = min(max(self.chance, 1e-3), 1 - 1e-3)
        if genuine <= guessed:
            return 0.0
        return agree * math.log10(genuine / guessed) + (k - agree) * math.log10((1 - genuine) / (1 - guessed))

    @property
    def most_foreign(self) -> float:
        """Upper 95 % bound on the share of the file's turns to which the model replies differently
        (Clopper and Pearson, 1934).
        """
        return upper_bound(len(self.stored) - self.agree, len(self.stored))


def upper_bound(failures: int, n: int) -> float:
    """Returns the one-sided upper 95 % bound of a proportion: the rate at which `failures` or fewer of
    `n` have a probability of 5 %.

    Examples:
        >>> f"{upper_bound(0, 30):.3f}"
        '0.095'
    """
    outcomes = [1.0] * failures + [0.0] * (n - failures)
    return bounded(outcomes, SHARE, 2 * CONFIDENCE - 1).high  # a side of the 90 % interval


def describe(result: Resampled, seed: int) -> str:
    """Returns the statistics and their meaning as lines of text."""
    k = len(result.stored)
    odds = result.log10_odds
    verdict = "for" if odds >= 1 else "against" if odds <= -1 else "neither for nor against"
    lines = [
        f"{k} of {result.total:,} turns asked again (--seed {seed})",
        f"  {result.agree} of {k} stored replies are the model's; asked twice, it repeats itself in {result.stable}",
        f"  a player who draws from the file's replies without reading the prompt would agree in {result.chance:.0%}",
        f"  odds of the model against that player: 10^{odds:.1f} to 1: {verdict} the model",
        f"  with 95 % confidence, the model gives another reply in at most {result.most_foreign:.1%} of the turns",
        "  not shown: how episodes were selected, fewer changes than that bound, or a model with the same replies",
    ]
    if result.stable < 0.9 * k:
        lines.append("  the model rarely repeats itself (a server that ignores seeds?), so agreement shows little")
    if result.weights and result.recorded_weights and result.weights != result.recorded_weights:
        lines.append(f"  the records name weights {result.recorded_weights}, and this model has {result.weights}")
    return "\n".join(lines)


def resample(
    file: Path,
    model: str,
    make_policy: Callable[[RunConfig], Policy],
    k: int,
    seed: int,
    trusted: Mapping[str, Any] = {},
    num_workers: int = -1,
) -> Resampled:
    """Asks `model` again for `k` random turns of a run's results.

    `make_policy` creates the policy for the settings of the run. Raises UsageError if the file has no
    run folder or no model's replies, DataError if an episode does not replay or the model does not
    answer.
    """
    registry.tasks("*")  # loads plugins
    registry.check_trusted(trusted)
    if not (file.parent / "config.json").exists():
        raise UsageError(f"{file}: --resample needs the run's config.json beside it, which has the prompt's settings.")
    folder = RunFolder.read(file.parent)
    stored = [record for record in records.read_results(file) if not records.is_broken(record)]
    config = _config(folder, model, trusted)
    _check_team(model, stored)
    drawn, total = draw(stored, k, seed)
    prompts = _prompts(file, folder, config, drawn, num_workers)
    policy = make_policy(config)
    try:
        first = _ask(policy, prompts)
        second = _ask(policy, prompts[::-1])[::-1]
        weights = policy.weights_hash() if isinstance(policy, HashesWeights) else ""
    finally:
        policy.close()
    counts = Counter(_reply(step) for record in stored for step in record["steps"] if _of_model(record, step))
    return Resampled(
        stored=[_reply(record["steps"][turn]) for record, turn in drawn],
        first=first,
        second=second,
        total=total,
        chance=sum((count / total) ** 2 for count in counts.values()),
        recorded_weights=", ".join(sorted({str(record.get("weights") or "") for record in stored} - {""})),
        weights=weights,
    )


def draw(stored: Sequence[Record], k: int, seed: int) -> tuple[list[tuple[Record, int]], int]:
    """Draws `k` turns of a model from all records, without replacement; returns them in order, and the number of
    all its turns.
    """
    turns = [
        (record, turn) for record in stored for turn, step in enumerate(record["steps"]) if _of_model(record, step)
    ]
    if not turns:
        raise UsageError("--resample: the file has no turns of a model.")
    numbers = random.Random(seed).sample(range(len(turns)), min(k, len(turns)))
    return [turns[number] for number in sorted(numbers)], len(turns)


def _of_model(record: Record, step: Step) -> bool:
    """Returns False for the turns of a player without a model in a team."""
    return is_model(member(record["model"], step.get("agent", 0)))


def _check_team(model: str, stored: Sequence[Record]) -> None:
    """Raises UsageError if one model is to speak for several."""
    for name in {record["model"] for record in stored}:
        several = len(set(filter(is_model, members(name)))) > 1
        if several and len(members(model)) != len(members(name)):
            raise UsageError(f"--resample: {name} has several models, so --model must name a team of as many players.")


def _config(folder: RunFolder, model: str, trusted: Mapping[str, Any]) -> RunConfig:
    """Returns the settings of the run with the user's `model`."""
    config = folder.config
    if config["task"] not in registry.TASKS:
        raise UsageError(f"no task {config['task']!r} is registered here; name its module with --module.")
    task = registry.TASKS[config["task"]]
    try:
        sampling = Sampling(**config["sampling"])
        records.check_types(vars(sampling), types_of(Sampling))
        reward_mode = str(config["reward_mode"])
    except (KeyError, TypeError) as error:
        raise UsageError(f"--resample needs a run of a language model; its config.json has no {error}.") from None
    knobs = registry.replay_knobs(task, config["knobs"], trusted)
    return RunConfig(task, model, knobs, reward_mode=reward_mode, sampling=sampling, prompting=folder.prompting())


def _prompts(
    file: Path, folder: RunFolder, config: RunConfig, drawn: Sequence[tuple[Record, int]], num_workers: int
) -> list[Prompt]:
    """Returns the prompts of the drawn turns, from a replay of their episodes."""
    needed = {records.key_of(record): record for record, _ in drawn}
    prompts = {}
    for record, run in replayed(file, config, list(needed.values()), Execution(num_workers=num_workers)):
        again = records.record(run, record["model"], config.reward_mode)
        difference = first_difference(record, again)
        if difference:
            raise DataError(
                f"{file}: seed {record['seed']} attempt {record['attempt']} does not replay ({difference}): "
                "see envsuite replay --check."
            )
        prompts[records.key_of(record)] = hash_chain.replayed_prompts(
            run, config.prompting, folder.parses, record["model"]
        )
    # Without a key, no prompt reuses what was computed for another one.
    return [prompts[records.key_of(record)][turn]._replace(key="") for record, turn in drawn]


def _ask(policy: Policy, prompts: Sequence[Prompt]) -> list[str]:
    """Returns the replies' texts. Raises DataError if one is missing."""
    replies: list[Reply] = policy.act(prompts)
    error = next((reply.error for reply in replies if reply.error), "")
    if error:
        raise DataError(f"the model did not answer: {error}")
    return [whole_text(reply.text, reply.calls) for reply in replies]


def _reply(step: Step) -> str:
    """Returns the whole reply of a stored step."""
    return whole_text(reply_text(step), reply_calls(step))
