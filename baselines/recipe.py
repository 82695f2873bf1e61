"""Recipes: everything that defines a training run, read from TOML into dataclasses.

`load` reads a file, `parse` a table; both raise UsageError for unknown keys, bad values and
contradictions. `find` resolves the name of a shipped recipe.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from baselines import consistency, tables
from baselines.algorithms import ALGORITHMS, module_of
from baselines.algorithms.sft import SFTConfig
from baselines.algorithms.update import UpdateConfig
from baselines.generation import Generation
from baselines.networks.settings import ModelConfig
from baselines.ranges import Count, Natural, NonNegative, Normalisation, PositiveShare, Range, Share
from envsuite.errors import DataError, UsageError, did_you_mean
from envsuite.types import DEFAULT_SHAPING, Shaping
from harness.prompting.prompting import Prompting


@dataclass(frozen=True)
class Acting:
    """Sampling of replies in training episodes and in evaluation."""

    temperature: NonNegative = 1.0
    top_p: PositiveShare = 1.0
    max_tokens: Count = 16
    context: Natural = 0
    """Most tokens of a prompt and its reply. The oldest turns are dropped (and counted) above it;
    0: the model's."""
    choose: Literal["free", "admissible", "trie"] = "free"
    """free: sample tokens | admissible: draw a command by the likelihoods of the admissible ones
    (TWOSOME) | trie: the same, with every token normalised over the tokens that continue an admissible
    command, also in the update."""
    normalisation: Normalisation = "word"
    """Normalisation of the likelihoods of `admissible`."""
    eval_temperature: NonNegative = 0.0
    cache_gb: NonNegative = 4.0
    """Memory for the keys and values of earlier turns, in GiB."""

    @property
    def scores_commands(self) -> bool:
        """True if the model chooses among the admissible commands instead of writing text."""
        return self.choose != "free"


@dataclass(frozen=True)
class RewardSettings:
    """Adjustments of the environment's rewards before an update; logged rewards stay unadjusted."""

    scale: NonNegative = 1.0
    """Factor of every reward; with sparse rewards, the reward of a success."""
    invalid_penalty: NonNegative = 0.0
    """Subtracted in a turn whose command the environment could not execute."""
    format_penalty: NonNegative = 0.0
    """Subtracted in a turn whose reply held no command or was cut off."""


@dataclass(frozen=True)
class Demonstrations:
    """Expert games to fine-tune on before reinforcement learning, played now or read from a file."""

    episodes: Natural = 0
    """Expert games, on the first training seeds; 0: none."""
    expert: str = "expert"
    file: str = ""
    """Chat JSONL from `envsuite data demos` with the recipe's prompting, in place of `episodes`."""
    advised: bool = False
    """Also learn every turn of `episodes` from a prompt that shows the expert's command, as a teacher reads it
    (`sdar`)."""
    train: SFTConfig = SFTConfig()

    @property
    def any(self) -> bool:
        return bool(self.file or self.episodes)


@dataclass(frozen=True)
class Recipe:
    """A training run: algorithm, model, tasks, and every number."""

    algorithm: str
    model: ModelConfig
    tasks: tuple[str, ...]
    backend: Literal["local", "tinker"] = "local"
    """local: this process trains | tinker: Thinking Machines' service trains and samples
    (`networks.tinker`)."""
    knobs: dict[str, Any] = field(default_factory=dict)
    reward_mode: str = "sparse"
    updates: Natural = 100
    episodes: Count = 32
    """Episodes per update, a whole number of groups."""
    seed: Natural = 0
    turns: Natural = 0
    """Turns per update from each of `episodes` parallel streams of episodes; an unfinished episode
    continues in the next update. 0: whole episodes."""
    train_seeds: Natural = 0
    """Number of different games, the split's first; 0: all."""
    max_turns: Natural = 0
    """0: the environment's own limit."""
    turn_limits: tuple[Count, ...] = ()
    """Growing turn limits of training episodes, `turn_limit_updates` updates each; the last one
    stays (ScalingInter-RL). (): max_turns. Evaluation uses max_turns."""
    turn_limit_updates: Count = 100
    eval_every: Natural = 10
    """Updates between evaluations on held-out seeds; 0: only at the end."""
    eval_episodes: Count = 50
    save_every: Count = 10
    budget: Natural = 0
    """Budget in units of the Guide's rule: a demonstration costs 10, an episode 1; 0: `updates`
    counts instead."""
    advance_at: Share = 0.0
    """Treat the tasks as a curriculum: begin with the first, and add the next each time an update
    reaches this success rate. 0: all tasks at once."""
    success_between: tuple[Share, ...] = ()
    """Two bounds: treat the tasks as a ladder, and play one of them at a time. An update above the second bound
    moves one task up, one below the first moves down. (): all tasks at once."""
    trackers: tuple[str, ...] = ()
    """tensorboard | wandb | mlflow | trackio, in addition to metrics.jsonl. A resumed run continues in
    each."""
    stop_at: Share = 0.0
    """Stop once evaluation reaches this success rate; 0: never."""
    async_level: Annotated[int, Range(0, 1)] = 0
    """1: the next batch is played while an update runs, by weights that are one update older, and
    learned from with truncated importance weights (`algorithms.update`). Nothing is played ahead
    across an evaluation or a checkpoint. 0: update and rollout take turns."""
    fsdp: bool = False
    """Shard the model over the processes started by accelerate or torchrun."""
    acting: Acting = Acting()
    rewards: RewardSettings = RewardSettings()
    generation: Generation = Generation()
    prompting: Prompting = Prompting(grammar="bare", thinking=False, history=0, admissible="none")
    sft: Demonstrations = Demonstrations()
    config: UpdateConfig = UpdateConfig()

    @property
    def module(self) -> types.ModuleType:
        """The algorithm's module, whose `update` takes an `UpdateInput`."""
        return module_of(self.algorithm)

    def turn_limit(self, update: int) -> int:
        """Returns the turn limit of the training episodes of an update; 0: the environment's own."""
        if not self.turn_limits:
            return self.max_turns
        return self.turn_limits[min(update // self.turn_limit_updates, len(self.turn_limits) - 1)]

    @property
    def first_stage(self) -> int | None:
        """Number of the task that a curriculum or a ladder begins with; None without either."""
        return 0 if self.advance_at or self.success_between else None

    def next_stage(self, stage: int, success: float, tasks: int) -> int:
        """Returns the stage of a curriculum or a ladder of `tasks` tasks after an update with this success."""
        if self.advance_at:
            stage += success >= self.advance_at
        elif self.success_between:
            low, high = self.success_between
            stage += (success > high) - (success < low)
        return min(max(stage, 0), tasks - 1)

    @property
    def trains_policy(self) -> bool:
        """True if reinforcement learning follows the fine-tuning."""
        return self.algorithm != "sft"

    @property
    def needs_reference(self) -> bool:
        """True if updates read the frozen weights that training began with: for a KL term, a teacher, or a
        critic's features."""
        return self.trains_policy and (self.config.reads_reference or self.model_config.critic == "head")

    @property
    def shaping(self) -> Shaping:
        """The discount that the environments use in `shaped`: the algorithm's own, per command or
        primitive step."""
        return self.config.shaping() or DEFAULT_SHAPING

    @property
    def model_config(self) -> ModelConfig:
        """The model's settings, without a critic if the algorithm has none."""
        return self.model if self.config.needs_critic else dataclasses.replace(self.model, critic="none")


SHIPPED = Path(__file__).parent / "recipes"


def find(name: str) -> Path:
    """Returns the path of a recipe file, or of the shipped recipe of that name."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    names = sorted(recipe.stem for recipe in SHIPPED.glob("*.toml"))
    if name not in names:
        raise UsageError(
            f"There is no recipe {name!r}: it is a TOML file, or {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return SHIPPED / f"{name}.toml"


def settings(words: Sequence[str]) -> dict[str, str]:
    """Splits the KEY=VALUE words of the command line."""
    overrides = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not {word!r}.")
        overrides[key] = value
    return overrides


def load(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """Reads a recipe file and applies `overrides`, settings of the command line.

    Examples:
        >>> recipe = load(find("demo"), {"updates": "3"})
        >>> recipe.algorithm, recipe.updates
        ('twosome', 3)
    """
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise DataError(f"Cannot read the recipe {path}: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not TOML: {error}.") from error
    for dotted, text in (overrides or {}).items():
        *parents, name = dotted.split(".")
        section = table
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise UsageError(f"{path}: {dotted} cannot be set: {parent} = {section!r} is no table.")
        section[name] = _value(text)
    return parse(table, str(path))


def parse(table: dict[str, Any], where: str = "recipe") -> Recipe:
    """Builds a recipe from a table. Raises UsageError for unknown keys, bad values and
    contradictions."""
    name = table.get("algorithm")
    if name not in ALGORITHMS:
        hint = did_you_mean(str(name), ALGORITHMS)
        raise UsageError(f"{where}: algorithm cannot be {name!r}: it is one of {', '.join(ALGORITHMS)}.{hint}")
    recipe: Recipe = tables.build(Recipe, table, where, {"config": module_of(name).Config}, separator=": ")
    try:
        consistency.validate(recipe)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return recipe


def _value(text: str) -> Any:
    """Parses a value of the command line as TOML would; a bare word is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def plain(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as plain data with every default filled in, and without passwords: it is stored."""
    table: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(recipe)))
    table["generation"]["base_url"] = recipe.generation.public_url
    return table
