"""Rejects combinations of a recipe's settings that cannot work, each with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from baselines.logging import trackers
from baselines.networks import tinker_settings
from envsuite.errors import UsageError
from envsuite.types import RewardMode


def validate(recipe: Any) -> None:
    """Raises UsageError for settings of a `baselines.recipe.Recipe` that contradict each other."""
    if not recipe.tasks:
        raise UsageError("tasks cannot be []: name one at least.")
    if recipe.sft.file and recipe.sft.episodes:
        raise UsageError(
            f"sft.file = {recipe.sft.file!r} and sft.episodes = {recipe.sft.episodes}: demonstrations "
            f"come from one of them."
        )
    if recipe.sft.advised and (recipe.prompting.history < 0 or not recipe.sft.episodes):
        unusable = "sft.file" if recipe.sft.file else f"prompting.history = {recipe.prompting.history}"
        unusable = unusable if recipe.sft.any else "sft.episodes = 0"
        raise UsageError(
            f"sft.advised = true shows the command in every turn of the games that the expert plays now, one line a "
            f"turn, which {unusable} does not allow: set sft.episodes and a prompting.history of at least 0."
        )
    if recipe.sft.file and not Path(recipe.sft.file).is_file():
        raise UsageError(
            f"sft.file = {recipe.sft.file!r} is not there: envsuite data demos -o {recipe.sft.file} writes it."
        )
    if recipe.model.lora_rank and not recipe.model.lora_targets:
        raise UsageError(f"model.lora_targets cannot be [] with lora_rank = {recipe.model.lora_rank}.")
    if not isinstance(recipe.prompting.history_reasoning, bool) and recipe.prompting.history_reasoning < 0:
        raise UsageError(
            f"prompting.history_reasoning cannot be {recipe.prompting.history_reasoning}: it is at "
            f"least 0, true or false."
        )
    recipe.config.validate(recipe)
    _validate_limits(recipe)
    _validate_ladder(recipe)
    if recipe.reward_mode == RewardMode.SHAPED:
        _validate_shaping(recipe)
    if recipe.model.compile and (recipe.model.gradient_checkpointing or recipe.fsdp):
        other = "fsdp" if recipe.fsdp else "model.gradient_checkpointing"
        raise UsageError(
            f"model.compile = {recipe.model.compile!r} cannot be combined with {other} = true: leave one out."
        )
    if recipe.async_level:
        _validate_asynchrony(recipe)
    recipe.generation.validate(recipe)
    if recipe.backend == "tinker":
        tinker_settings.validate(recipe)
    for tracker in recipe.trackers:
        trackers.check(tracker)


def _validate_limits(recipe: Any) -> None:
    """Rejects growing turn limits that do not grow, and settings that need whole episodes."""
    limits = list(recipe.turn_limits)
    if limits != sorted(set(limits)) or (recipe.max_turns and limits and limits[-1] > recipe.max_turns):
        raise UsageError(
            f"turn_limits cannot be {limits}: each limit is larger than the one before, and none is above max_turns "
            f"= {recipe.max_turns} (0: no limit)."
        )
    if limits and recipe.turns:
        raise UsageError(
            f"turn_limits = {limits} needs whole episodes, and turns = {recipe.turns} cuts them: leave one out."
        )


def _validate_ladder(recipe: Any) -> None:
    """Rejects bounds of success that are none, and settings that draw tasks in another way."""
    bounds = list(recipe.success_between)
    if bounds and (len(bounds) != 2 or bounds[0] >= bounds[1]):
        raise UsageError(
            f"success_between cannot be {bounds}: it is two shares, the lower one first, such as [0.4, 0.7]."
        )
    for name, value in (("advance_at", recipe.advance_at), ("turns", recipe.turns)):
        if bounds and value:
            raise UsageError(
                f"success_between = {bounds} plays whole episodes of one task at a time, and {name} = {value} does "
                "not: leave one of them out."
            )


def _validate_shaping(recipe: Any) -> None:
    """Rejects shaped rewards whose discount is not the learner's: their best policy can be another."""
    shaping = recipe.config.shaping()
    if shaping is None:
        raise UsageError(
            "reward_mode = 'shaped' needs one discount per command or primitive step, and "
            f"{recipe.algorithm} has another: "
            "set config.gamma = 1 (and config.gamma_token, if it has one), with ppo config.level = 'turn', or "
            "another reward_mode."
        )
    if shaping.gamma < 1 and recipe.prompting.grammar == "actions":
        raise UsageError(
            "reward_mode = 'shaped' discounts per command, and with several commands per turn the learner discounts "
            "per turn: set prompting.grammar = 'action' or config.gamma = 1."
        )


def _validate_asynchrony(recipe: Any) -> None:
    """Rejects what cannot be played ahead."""
    if recipe.algorithm in ("sft", "twosome"):
        why = "plays no games" if recipe.algorithm == "sft" else "has no ratio per token"
        raise UsageError(f"async_level = {recipe.async_level}: {recipe.algorithm} {why}; leave async_level out.")
    if recipe.fsdp:
        raise UsageError(
            f"async_level = {recipe.async_level} needs a copy of the weights, and fsdp = true shards them: leave one "
            "of them out."
        )
