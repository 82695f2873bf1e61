"""A recipe: what is trained on what, in numbers and names. Every key is a field of a dataclass, and nothing else is."""

from __future__ import annotations

import dataclasses
import importlib
import json
import tomllib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from baselines.configs import CONFIGS, PPO, TWOSOME, Descent, ModelConfig, Normalisation, Tuning, range_of
from baselines.logging import trackers
from envsuite.errors import DataError, UsageError, did_you_mean
from harness.prompting.prompting import Prompting


@dataclass(frozen=True)
class Acting:
    """How the policy plays while it learns, and when it is measured."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    context: int = 0
    """tokens of a prompt and its reply at most; the oldest turns are left out (and counted) above it; 0: the model's own"""
    choose: Literal["free", "admissible"] = "free"
    """free: tokens are sampled | admissible: a command is drawn from the likelihoods of the admissible ones (TWOSOME)"""
    normalisation: Normalisation = "word"
    """of these likelihoods"""
    eval_temperature: float = 0.0


@dataclass(frozen=True)
class Generation:
    """Servers that play in place of this process, and how they come by the weights of each update (see `servers.py`)."""

    base_url: str = ""
    """as http://gpu1:8000/v1, several by commas; '' plays here"""
    sync: Literal["lora", "disk"] = "lora"
    """lora: vLLM loads the adapter | disk: SGLang loads the whole model"""
    folder: str = ""
    """where the weights are put for the servers, which must see it under the same name; '': in the run's own folder"""
    tolerance: float = 0.05
    """nats per token by which the servers' log-probs may differ from the trainer's, on average over a batch"""
    timeout: float = 300.0
    """seconds for an answer"""
    api_key_var: str = ""
    """the environment variable that holds the servers' key"""


@dataclass(frozen=True)
class Demonstrations:
    """Expert games to fine-tune on before reinforcement learning: played now, or from a file."""

    episodes: int = 0
    """expert games, from the first training seeds; 0: none"""
    expert: str = "expert"
    file: str = ""
    """chat JSONL, as `envsuite-data demos` writes it with the recipe's prompting, in place of `episodes`"""
    train: Tuning = Tuning()

    @property
    def any(self) -> bool:
        return bool(self.file or self.episodes)


@dataclass(frozen=True)
class Recipe:
    algorithm: str
    model: ModelConfig
    tasks: tuple[str, ...]
    knobs: dict[str, Any] = field(default_factory=dict)
    reward_mode: str = "sparse"
    shaping_gamma: float = 0.99
    updates: int = 100
    episodes: int = 32
    """per update; a whole number of groups"""
    seed: int = 0
    turns: int = 0
    """per update and lane, of which there are `episodes`: what is not over then goes on in the next; 0: whole episodes"""
    train_seeds: int = 0
    """so many different games, from the split's first; 0: all"""
    max_turns: int = 0
    """0: the environment's own cap"""
    eval_every: int = 10
    """updates between measurements on held-out seeds; 0: at the end only"""
    eval_episodes: int = 50
    save_every: int = 10
    budget: int = 0
    """units of the Guide's rule: a demonstration costs 10, an episode 1; 0: no budget, `updates` counts"""
    advance_at: float = 0.0
    """the tasks are a ladder: play the first alone, and one more each time an update wins this share; 0: all at once"""
    trackers: tuple[str, ...] = ()
    """tensorboard | wandb, beside metrics.jsonl"""
    stop_at: float = 0.0
    """end once this success is measured on held-out seeds; 0: never"""
    fsdp: bool = False
    """several processes (accelerate, torchrun) hold a share of the model each, and not all of it"""
    acting: Acting = Acting()
    generation: Generation = Generation()
    prompting: Prompting = Prompting(grammar="bare", thinking=False, history=0, admissible="none")
    sft: Demonstrations = Demonstrations()
    config: Descent = Descent()

    @property
    def module(self) -> types.ModuleType:
        return importlib.import_module(f"baselines.algorithms.{self.algorithm}")


SHIPPED = Path(__file__).parent / "recipes"


def find(name: str) -> Path:
    """The recipe a word stands for: a file, or one of those shipped in `baselines/recipes`."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    names = sorted(one.stem for one in SHIPPED.glob("*.toml"))
    if name not in names:
        raise UsageError(
            f"There is no recipe {name!r}: it is a TOML file, or {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return SHIPPED / f"{name}.toml"


def settings(words: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE words of the command line."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not {word!r}.")
        found[key] = value
    return found


def load(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """A recipe file, with `key=value` settings of the command line on top (`config.gamma=0.9`).

    Examples:
        >>> recipe = load(find("demo"), {"updates": "3"})
        >>> recipe.algorithm, recipe.updates
        ('twosome', 3)
    """
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise DataError(f"Cannot read the recipe {path}: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not TOML: {error}.") from error
    for dotted, text in (overrides or {}).items():
        *parents, name = dotted.split(".")
        table = found
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise UsageError(f"{path}: {dotted} cannot be set: {parent} = {table!r} is no table.")
        table[name] = _value(text)
    return parse(found, str(path))


def parse(found: dict[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from a table. UsageError for an unknown key (the nearest is named) or a value of the wrong type."""
    found = dict(found)
    name = found.get("algorithm")
    if name not in CONFIGS:
        hint = did_you_mean(str(name), CONFIGS)
        raise UsageError(f"{where}: algorithm cannot be {name!r}: it is one of {', '.join(CONFIGS)}.{hint}")
    recipe: Recipe = _build(Recipe, found, where, {"config": CONFIGS[name]})
    _check(recipe, where)
    return recipe


def _check(recipe: Recipe, where: str) -> None:
    """Refuses what is sound key by key and not together."""
    name, config = recipe.algorithm, recipe.config
    if not recipe.tasks:
        raise UsageError(f"{where}: tasks cannot be []: name one at least.")
    if recipe.sft.file and recipe.sft.episodes:
        raise UsageError(
            f"{where}: sft.file = {recipe.sft.file!r} and sft.episodes = {recipe.sft.episodes}: demonstrations come from one "
            "of them."
        )
    if name == "sft" and not recipe.sft.any:
        raise UsageError(
            f"{where}: algorithm = 'sft' learns from demonstrations, and there are none: set sft.episodes (100), or sft.file."
        )
    if recipe.sft.file and not Path(recipe.sft.file).is_file():
        raise UsageError(
            f"{where}: sft.file = {recipe.sft.file!r} is not there: envsuite-data demos -o {recipe.sft.file} writes it."
        )
    if recipe.model.lora_rank and not recipe.model.lora_targets:
        raise UsageError(f"{where}: model.lora_targets cannot be [] with lora_rank = {recipe.model.lora_rank}.")
    if config.aggregation == "seq-sum-constant" and not config.constant:
        raise UsageError(
            f"{where}: config.aggregation = 'seq-sum-constant' needs config.constant, the longest reply allowed."
        )
    if isinstance(config, PPO) and recipe.model.critic == "none":
        raise UsageError(f"{where}: model.critic cannot be 'none': {name} needs one, own or head.")
    if isinstance(config, TWOSOME):
        _check_twosome(recipe, config, where)
    group = getattr(recipe.config, "group_size", 1)
    if recipe.episodes % group:
        raise UsageError(f"{where}: episodes = {recipe.episodes} is not a whole number of groups of {group}.")
    if recipe.turns and hasattr(recipe.config, "group_size"):
        raise UsageError(
            f"{where}: {name} compares whole episodes, and turns = {recipe.turns} cuts them: leave turns out."
        )
    if recipe.turns and not getattr(recipe.config, "bootstrap", True):
        raise UsageError(
            f"{where}: turns = {recipe.turns} cuts episodes where a batch is full, and config.bootstrap = false takes what "
            "follows for nothing: leave one of them out."
        )
    drawn = recipe.acting.choose == "admissible" and recipe.acting.temperature != 1.0
    if drawn and name not in ("sft", "twosome"):
        raise UsageError(
            f"{where}: acting.temperature = {recipe.acting.temperature} flattens the draw among admissible commands, and {name} "
            "learns from the log-probs of their tokens, which it does not change: set it to 1."
        )
    if recipe.fsdp and name == "twosome":
        raise UsageError(
            f"{where}: fsdp = true has all processes take the same passes, and twosome scores as many commands as a turn has: "
            "leave fsdp out."
        )
    if recipe.generation.base_url:
        _check_generation(recipe, where)
    for tracker in recipe.trackers:
        trackers.check(tracker)


def _check_generation(recipe: Recipe, where: str) -> None:
    if recipe.acting.choose == "admissible":
        raise UsageError(
            f"{where}: acting.choose = 'admissible' needs the model in this process, and generation.base_url = "
            f"{recipe.generation.base_url!r} has servers play: leave one of them out."
        )
    for word in recipe.generation.base_url.split(","):
        if not word.strip().startswith(("http://", "https://")):
            raise UsageError(
                f"{where}: generation.base_url cannot be {recipe.generation.base_url!r}: it looks like http://localhost:8000/v1, "
                "several separated by commas."
            )
    if recipe.acting.top_p < 1:
        raise UsageError(
            f"{where}: acting.top_p = {recipe.acting.top_p}: servers give log-probs of what top_p leaves, trainers those of the "
            "whole vocabulary: set it to 1, or leave generation.base_url out."
        )
    if recipe.generation.sync == "lora" and not recipe.model.lora_rank:
        raise UsageError(
            f"{where}: generation.sync = 'lora' sends an adapter, and model.lora_rank is 0: set it (8), or take "
            "generation.sync = 'disk'."
        )


def _check_twosome(recipe: Recipe, config: TWOSOME, where: str) -> None:
    if config.normalisation != recipe.acting.normalisation:
        raise UsageError(
            f"{where}: config.normalisation is {config.normalisation!r} and acting.normalisation "
            f"{recipe.acting.normalisation!r}: twosome learns the distribution it draws from; set both alike."
        )
    if recipe.acting.choose != "admissible":
        raise UsageError(
            f"{where}: acting.choose cannot be {recipe.acting.choose!r}: twosome chooses among admissible commands, "
            "'admissible'."
        )
    for key, unused in (("kl_coef", 0.0), ("aggregation", "token-mean")):
        if getattr(config, key) != unused:
            raise UsageError(
                f"{where}: config.{key} cannot be {getattr(config, key)!r}: twosome learns whole commands and has no use for "
                f"it; it is {unused!r}."
            )


def _build(cls: type, table: Any, where: str, classes: dict[str, type] | None = None) -> Any:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected a table of {cls.__name__}'s settings, not {table!r}.")
    hints = typing.get_type_hints(cls)
    fields = {one.name: one for one in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            hint = did_you_mean(key, fields) or f" It knows {', '.join(fields)}."
            raise UsageError(f"{where}: unknown key {key!r}.{hint}")
        place = f"{where}: {key}" if cls is Recipe else f"{where}.{key}"
        values[key] = _typed((classes or {}).get(key, hints[key]), value, place)
        if values[key] != fields[key].default:
            _within(cls, key, values[key], place)
    for name, one in fields.items():
        missing = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if name not in values and missing:
            raise UsageError(f"{where}: {name!r} is missing.")
        if name not in values and classes and name in classes:
            values[name] = classes[name]()
    return cls(**values)


def _within(cls: type, key: str, found: Any, where: str) -> None:
    for value in found if isinstance(found, tuple) else [found]:
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and value not in (span := range_of(cls, key))
        ):
            raise UsageError(f"{where} cannot be {value!r}: it is {span}.")


def _typed(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, where)  # type: ignore[arg-type]
    origin = typing.get_origin(kind)
    if origin is tuple:
        items = [value] if isinstance(value, (str, int)) else value
        if not isinstance(items, (list, tuple)):
            raise UsageError(f"{where} cannot be {value!r}: it is a list.")
        return tuple(_typed(typing.get_args(kind)[0], item, where) for item in items)
    if origin is dict:
        if not isinstance(value, dict):
            raise UsageError(f"{where}: expected a table, not {value!r}.")
        return dict(value)
    if origin is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            hint = did_you_mean(str(value), choices)
            raise UsageError(f"{where} cannot be {value!r}: it is one of {', '.join(choices)}.{hint}")
        return value
    if origin is types.UnionType:
        if not isinstance(value, kind):
            raise UsageError(f"{where} cannot be {value!r}: it is {kind}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{where} cannot be {value!r}: it is a {kind.__name__}.")
    return value


def _value(text: str) -> Any:
    """A value of the command line as TOML would read it; a bare word is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe with every default spelled out, for the record."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(recipe)))
    return found
